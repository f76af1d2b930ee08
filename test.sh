#!/usr/bin/env bash
# Runs all checks of a change: lint, format, types, tests.
#
#   ./test.sh --all     also runs the tests marked slow, and installs all packages that any test needs.
#                       JAX, whose compilers some tests need, is installed separately, into .venv/jax.
#   ./test.sh --lowest  uses the lowest versions that requirements.txt allows, in .venv-lowest.
#                       PYTHON=python3.11 selects the oldest Python.
#
# Other arguments are passed to pytest: ./test.sh -k tokenization
set -euo pipefail
cd "$(dirname "$0")"
. scripts/environment.sh
show_help "$@"

# Without PyTorch and transformers (hf.txt), which need 5 GB. Tests that need them are marked slow.
requirements=(requirements.txt requirements-dev.txt requirements/{beam,keras-hub,languages,litert,onnx}.txt)
marked=()
if [ "${1:-}" = --all ]; then
  shift
  requirements=(requirements.txt requirements-dev.txt requirements/{beam,docs,hf,keras-hub,languages,litert,onnx}.txt)
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
# The tests write thousands of files, and the code waits until they are on the disk. Memory is faster.
memory=/dev/shm
if [ -z "${TMPDIR:-}" ] && [ -w $memory ] && [ "$(df -Pm $memory | awk 'END { print $4 }')" -ge 4000 ]
then
  export TMPDIR=$memory
fi
# One process per core, at most four, because each of them needs a gigabyte of memory. The files run
# in order, so that the long tests of whole programs start early and no process is idle at the end.
run pytest --numprocesses=auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder \
  ${marked[@]+"${marked[@]}"} "$@"
