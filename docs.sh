#!/usr/bin/env bash
# Builds the documentation: docs/_build/index.html. Warnings are errors. Arguments are passed to
# Sphinx, for example: ./docs.sh -E
#
# With Node.js, the page "Try it in the browser" gets its models. CLASSIFIER=directory adds a classifier;
# docs/browser.md describes how to train it.
set -euo pipefail
cd "$(dirname "$0")"
. scripts/environment.sh
make_environment requirements.txt requirements/docs.txt requirements/beam.txt requirements/onnx.txt
"$PYTHON" -m sphinx -c docs --nitpicky --fail-on-warning --keep-going --quiet "$@" . docs/_build
"$PYTHON" -m scripts.browser_files docs/_build ${CLASSIFIER:+"$CLASSIFIER"}
echo "docs/_build/index.html"
