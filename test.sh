#!/usr/bin/env bash
# Everything a change must pass: lint, format, types, tests. Arguments go to pytest:
#   ./test.sh -k tokenization
set -euo pipefail
cd "$(dirname "$0")"
. scripts/environment.sh
make_environment requirements.txt requirements-dev.txt requirements/*.txt

run() {
  printf '\n+ %s\n' "$*"
  "$PYTHON" -m "$@"
}

run ruff check .
run ruff format --check .
run mypy
# A process a core, but no more than four: each loads TensorFlow, a gigabyte.
# In the order of the files, those of whole programs come first: long ones at the end would leave
# processes idle. Tests marked slow run with: ./test.sh -m slow
run pytest --numprocesses=auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder "$@"
