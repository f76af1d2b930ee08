# Sourced by demo.sh, docs.sh and test.sh. Creates the virtual environment .venv.
#
#   make_environment requirements.txt [requirements-dev.txt]
#   make_lowest_environment requirements.txt [requirements-dev.txt], in .venv-lowest
#   make_jax_site
#   show_help "$@"
#
# Sets PYTHON to the interpreter of the environment. If PYTHON is already set, as in
# PYTHON=python3.12 ./demo.sh, the environment is created with this interpreter; otherwise with the
# first Python 3.11 to 3.13 that is found. albert_tf is installed in editable mode, so that its
# commands work in all directories. Packages are installed only if a requirements file,
# pyproject.toml or the interpreter has changed. Scripts that run at the same time wait for each other.

# Selects the directory of the environment, and sets
#   INSTALLED: file with the checksums of the installed requirements files
#   LOCK: file that a working script locks. It contains the current action, and is empty afterwards.
#     It is not in the environment, because that is cleared when it is created again.
use_directory() {
  VENV=$1 INSTALLED=$1/installed LOCK=$1.lock
}
use_directory .venv
PYTHONS="python3 python3.13 python3.12 python3.11"

# Prints major.minor of an interpreter, or nothing if it does not run.
python_version() {
  "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

is_supported() {
  case "$1" in
    3.11 | 3.12 | 3.13) return 0 ;;
    *) return 1 ;;
  esac
}

# Prints the interpreter with which the environment is created.
find_python() {
  local candidate version found=""
  for candidate in ${1:-$PYTHONS}; do
    version=$(python_version "$candidate") || version=""
    if is_supported "$version"; then
      echo "$candidate"
      return 0
    fi
    found+=" $candidate (${version:-does not run})"
  done
  echo "Python 3.11, 3.12 or 3.13 is required. Found:$found." >&2
  echo "Install one of them, or name one: PYTHON=/path/to/python3.12 $0" >&2
  return 1
}

# Waits until no other script is working. The lock belongs to the open file 9, so it is released when
# all processes with this open file have ended: this script, and pip if it outlives the script. Python
# locks the file, because not every system has a command for it.
wait_for_others() {
  local python
  for python in ${1:-$PYTHONS} "$VENV/bin/python"; do
    "$python" -I -S -c '
import fcntl
try:
    fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("Waiting for another script that is installing into '"$VENV"'", flush=True)
    fcntl.flock(9, fcntl.LOCK_EX)
' 2>/dev/null && return 0
  done
  echo "$VENV cannot be locked. Do not run another script that installs into it." >&2
}

# Returns whether an earlier script was killed while it created the environment, or after pip had
# started to change it. The environment is then created again, because pip would accept packages that
# are installed only in part.
is_half_done() {
  case "$(cat "$LOCK")" in
    making) return 0 ;;
    installing) ! [ "$LOCK" -nt "$(echo "$VENV"/lib/python*/site-packages)" ] ;;
    *) return 1 ;;
  esac
}

# Creates the environment, unless it exists, works and has the selected Python version.
make_venv() {
  local wanted=$1 existing python
  existing=$(python_version "$VENV/bin/python") || existing=""
  if ! is_half_done && is_supported "$existing" &&
    "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
    [ -z "$wanted" ] && return 0
    [ "$(python_version "$wanted")" = "$existing" ] && return 0
  fi
  python=$(find_python "$wanted") || return 1
  echo "Creating $VENV with $python ($(python_version "$python"))"
  echo making >"$LOCK"
  if ! "$python" -m venv --clear "$VENV"; then
    echo "$python could not create a virtual environment (see the message above)." >&2
    echo "On Debian and Ubuntu: apt install python$(python_version "$python")-venv" >&2
    return 1
  fi
}

# Returns whether all of these checksums are in the file of installed checksums.
is_installed() {
  local installed line
  [ -f "$INSTALLED" ] || return 1
  installed=$'\n'$(cat "$INSTALLED")$'\n'
  while IFS= read -r line; do
    [[ $installed == *$'\n'"$line"$'\n'* ]] || return 1
  done <<<"$1"
}

update_environment() {
  local wanted=$1 checksums
  shift
  checksums=$(cksum "$@" pyproject.toml) || return 1
  make_venv "$wanted" || return 1
  is_installed "$checksums" && return 0
  echo "Installing $* into $VENV (a few minutes the first time)"
  # If this installation fails, earlier installations may be broken.
  rm -f "$INSTALLED"
  echo installing >"$LOCK"
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check \
    "${@/#/--requirement=}" --editable=. || return 1
  : >"$LOCK"
  echo "$checksums" >"$INSTALLED.new" && mv "$INSTALLED.new" "$INSTALLED"
}

# Creates an environment with the lowest version of each package in the first requirements file.
make_lowest_environment() {
  local lowest
  use_directory .venv-lowest
  lowest=$VENV.txt
  sed -nE 's/^([A-Za-z0-9_-]+)>=([0-9.]+).*/\1==\2/p' "$1" >"$lowest" || return 1
  make_environment "$lowest" "$@"
}

# If the arguments ask for help, prints the comment at the top of the script and exits.
show_help() {
  local argument
  for argument; do
    case "$argument" in
      -h | --help | -help | --helpshort)
        sed -n -e '2,/^[^#]/s/^# \{0,1\}//p' "${0##*/}"
        exit 0
        ;;
    esac
  done
}

make_environment() {
  # The lock is released at the end of this subshell, before the script runs anything else.
  (wait_for_others "${PYTHON:-}" && update_environment "${PYTHON:-}" "$@") 9>>"$LOCK" || return 1
  PYTHON=$VENV/bin/python
}

update_jax_site() {
  local site=$VENV/jax checksum
  checksum=$(cksum benchmarks/jax.txt benchmarks/jax-tpu.txt) || return 1
  [ "$(cat "$site/installed" 2>/dev/null)" = "$checksum" ] && return 0
  echo "Installing benchmarks/jax.txt and jax-tpu.txt into $site"
  rm -rf "$site"
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check \
    --no-deps --target="$site" --requirement=benchmarks/jax.txt \
    --requirement=benchmarks/jax-tpu.txt || return 1
  # Written last, so that an incomplete directory is installed again.
  mkdir -p "$site" && echo "$checksum" >"$site/installed"
}

# Creates .venv/jax with the compilers for GPUs and TPUs that benchmarks/compiled_step.py uses.
make_jax_site() {
  (wait_for_others "$PYTHON" && update_jax_site) 9>>"$LOCK" || return 1
}
