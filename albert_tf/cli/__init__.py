"""One module a command: flags become configurations, a task and a trainer; no logic here."""

import os

# TensorFlow prints a page of notes about its build at every start; this must be set before it is
# imported. Warnings and errors still come through the commands' own log.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
