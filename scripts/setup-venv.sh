#!/bin/sh
# Make the virtual environment the Makefile works in, with the package (editable) and its development tools.
# A second run does nothing, unless pyproject.toml changed, the clone moved, or the interpreter is gone.
#
#     scripts/setup-venv.sh DIRECTORY        PYTHON=... names another interpreter than python3
set -eu
cd "$(dirname "$0")/.."
venv=$1

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

stamp="$venv/.installed"
state="$(cksum <pyproject.toml) $PWD"
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$state" ] && new_enough "$venv/bin/python"; then
    exit 0
fi

if [ -n "${PYTHON:-}" ]; then
    python=$PYTHON
    new_enough "$python" || fail "PYTHON=$python is not a Python 3.11 or newer"
else
    python=
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null && new_enough "$candidate"; then
            python=$candidate
            break
        fi
    done
    found=$(python3 --version 2>/dev/null || echo "none")
    [ -n "$python" ] || fail "Python 3.11 or newer is needed; found: $found. Install it, or name it: make PYTHON=/path/to/python3.12"
fi
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "$python has no venv module with pip. On Debian and Ubuntu: apt-get install python3-venv"

echo "setup: making $venv with $("$python" --version) and installing the packages (about a minute the first time)"
rm -f "$stamp"
new_enough "$venv/bin/python" || "$python" -m venv --clear "$venv" || fail "could not make $venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --editable '.[dev]' ||
    fail "could not install the packages (see above). They come from PyPI: is it reachable from here?"
printf '%s\n' "$state" >"$stamp"
