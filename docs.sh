#!/usr/bin/env bash
# Builds the documentation: docs/_build/index.html. Warnings are errors. Arguments are passed to
# Sphinx, for example: ./docs.sh -E
set -euo pipefail
cd "$(dirname "$0")"
. scripts/environment.sh
make_environment requirements.txt requirements/docs.txt requirements/beam.txt
"$PYTHON" -m sphinx -c docs --nitpicky --fail-on-warning --keep-going --quiet "$@" . docs/_build
echo "docs/_build/index.html"
