#!/bin/sh
# Installs .venv from a lock: `setup.sh run` what the program needs, `images` what bakes, `dev` tools too.
# What is installed already is not installed again: a stamp in .venv records what it was made from.
set -eu
cd "$(dirname "$0")/.."
what=${1:?usage: setup.sh run|images|dev}

say() { printf '==> %s\n' "$*"; }

fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

find_python() {
    for name in python3 python3.13 python3.12 python3.11 python3.14; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
}

# What an installation depends on: the lock, the project's own entry points, where it stands.
stamp_of() {
    .venv/bin/python - "requirements/$1.lock" <<'PYTHON'
import hashlib, os, pathlib, sys
parts = [sys.version, os.getcwd()] + [
    pathlib.Path(name).read_text(encoding="utf-8") for name in (sys.argv[1], "pyproject.toml")
]
print(hashlib.sha256("\0".join(parts).encode()).hexdigest())
PYTHON
}

installed() {
    [ -x .venv/bin/python ] && [ "$(cat ".venv/fleet-$1.stamp" 2>/dev/null)" = "$(stamp_of "$1")" ]
}

if installed dev || installed "$what" || { [ "$what" = run ] && installed images; }; then
    say "using .venv as it is (it matches requirements/$what.lock)"
    exit 0
fi

if ! .venv/bin/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    ! head -n 1 .venv/bin/pip 2>/dev/null | grep -qF "$PWD/.venv/"; then
    python=$(find_python)
    [ -n "$python" ] || fail \
        "fleet needs Python 3.11 or newer, and neither python3 nor python3.11 to 3.14 is one." \
        "On Debian or Ubuntu: apt install python3 python3-venv"
    "$python" -c 'import ensurepip, venv' 2>/dev/null || fail \
        "$python cannot make virtual environments (modules venv and ensurepip are missing)." \
        "On Debian or Ubuntu: apt install python3-venv"
    say "creating .venv with $("$python" --version) ($python)"
    "$python" -m venv --clear .venv
fi

pip() {
    # Not our caller's PYTHONPATH or user site: what runs is what the lock says.
    env -u PYTHONPATH PYTHONNOUSERSITE=1 .venv/bin/python -m pip \
        --disable-pip-version-check --no-input "$@"
}

count=$(grep -c '^[a-z0-9].*==' "requirements/$what.lock")
say "installing up to $count packages from requirements/$what.lock (a minute or two the first time)"
# Tests load a quarter of the modules that the tools bring: Python compiles these when it loads them.
compile=--compile
[ "$what" != dev ] || compile=--no-compile
pip install --quiet --no-deps --require-hashes "$compile" -r "requirements/$what.lock" || fail \
    "the packages could not be installed; the lines above say why." \
    "Behind a proxy or a mirror, set it up for pip (pip config, PIP_INDEX_URL), then run it again."
say "installing fleet itself, as .venv/bin/fleet"
pip install --quiet --no-deps --no-build-isolation --editable .
stamp_of "$what" > ".venv/fleet-$what.stamp"
say "done: .venv/bin/fleet is ready"
