# Sourced by demo.sh and test.sh: gives them a virtual environment in .venv.
#
#   make_environment requirements.txt [requirements-dev.txt]
#
# Sets PYTHON to the environment's interpreter. A set PYTHON on entry (PYTHON=python3.12 ./demo.sh)
# decides which interpreter the environment is made of; otherwise the first Python 3.10-3.13 found
# is taken. Packages are installed only when a requirements file or the interpreter changed.

VENV=.venv

# Prints major.minor of an interpreter, or nothing where it does not run.
python_version() {
  "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

is_supported() {
  case "$1" in
    3.10 | 3.11 | 3.12 | 3.13) return 0 ;;
    *) return 1 ;;
  esac
}

# Prints the interpreter to make the environment of.
find_python() {
  local candidate version found=""
  for candidate in ${1:-python3 python3.13 python3.12 python3.11 python3.10}; do
    version=$(python_version "$candidate") || version=""
    if is_supported "$version"; then
      echo "$candidate"
      return 0
    fi
    found+=" $candidate (${version:-does not run})"
  done
  echo "Python 3.10, 3.11, 3.12 or 3.13 is needed. Found:$found." >&2
  echo "Install one of them, or name one: PYTHON=/path/to/python3.12 $0" >&2
  return 1
}

# Makes .venv, unless one of the wanted Python version stands there and works.
make_venv() {
  local wanted=$1 existing python
  existing=$(python_version "$VENV/bin/python") || existing=""
  if is_supported "$existing" && "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
    [ -z "$wanted" ] && return 0
    [ "$(python_version "$wanted")" = "$existing" ] && return 0
  fi
  python=$(find_python "$wanted") || return 1
  echo "Making $VENV with $python ($(python_version "$python"))"
  if ! "$python" -m venv --clear "$VENV"; then
    echo "$python could not make a virtual environment (message above)." >&2
    echo "On Debian and Ubuntu: apt install python$(python_version "$python")-venv" >&2
    return 1
  fi
}

make_environment() {
  make_venv "${PYTHON:-}" || return 1
  PYTHON=$VENV/bin/python
  touch "$VENV/installed"
  if cksum "$@" | grep -qvxF -f "$VENV/installed"; then
    echo "Installing $* into $VENV (a few minutes the first time)"
    "$PYTHON" -m pip install --quiet --disable-pip-version-check "${@/#/--requirement=}" || return 1
    cksum "$@" >"$VENV/installed"
  fi
}
