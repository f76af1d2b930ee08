#!/usr/bin/env bash
# Makes the documentation site: docs/_build/index.html. Every warning is an error. Arguments go to
# Sphinx:  ./docs.sh -E
set -euo pipefail
cd "$(dirname "$0")"
. scripts/environment.sh
make_environment requirements.txt requirements/docs.txt requirements/beam.txt
"$PYTHON" -m sphinx -c docs --nitpicky --fail-on-warning --keep-going --quiet "$@" . docs/_build
echo "docs/_build/index.html"
