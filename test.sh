#!/usr/bin/env bash
# Everything a change must pass: lint, format, types, tests.
#
#   ./test.sh --all    the tests marked slow as well, and all packages that any test needs; JAX, of
#                      which one needs the compiler, in an environment of its own, .venv/jax
#
#   ./test.sh --lowest with the lowest versions that requirements.txt allows, in an environment of its
#                      own, .venv-lowest; PYTHON=python3.10 selects the oldest Python
#
# Other arguments go to pytest: ./test.sh -k tokenization
set -euo pipefail
cd "$(dirname "$0")"
. scripts/environment.sh
show_help "$@"

# Without PyTorch and transformers (hf.txt), which take 5 GB; tests that need them are marked slow.
requirements=(requirements.txt requirements-dev.txt requirements/{beam,keras-hub,litert}.txt)
marked=()
if [ "${1:-}" = --all ]; then
  shift
  requirements=(requirements.txt requirements-dev.txt requirements/{beam,docs,hf,keras-hub,litert}.txt)
  marked=(-m "slow or not slow")
fi
if [ "${1:-}" = --lowest ]; then
  shift
  make_lowest_environment "${requirements[@]}"
else
  make_environment "${requirements[@]}"
fi
[ ${#marked[@]} = 0 ] || make_jax_site

run() {
  printf '\n+ %s\n' "$*"
  "$PYTHON" -m "$@"
}

run ruff check .
run ruff format --check .
run mypy
# A process a core, but no more than four: each loads TensorFlow, a gigabyte.
# In the order of the files, those of whole programs come first: long ones at the end would leave
# processes idle.
run pytest --numprocesses=auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder \
  ${marked[@]+"${marked[@]}"} "$@"
