#!/bin/sh
# Installs the programs of others that tests marked `peers` drive: sh tests/mcp/peers/install.sh FOLDER
# What is installed is in the files beside this one; it is kept until they change. Needs npm and Python.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $# = 1 ] || { echo "usage: sh tests/mcp/peers/install.sh FOLDER" >&2; exit 2; }
command -v npm >/dev/null || { echo "npm is missing; install Node" >&2; exit 1; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
made_of=$(cat "$here/servers.json" "$here/tools.json" "$here/requirements.txt" "$here/install.sh" | cksum)
[ "$(cat "$folder/made-of" 2>/dev/null || :)" = "$made_of" ] && exit 0
rm -f "$folder/made-of"

node_packages() { # node_packages NAME FILE: what FILE lists, in FOLDER/NAME
    mkdir -p "$folder/$1"
    cp "$here/$2" "$folder/$1/package.json"
    (cd "$folder/$1" && npm install --no-fund --no-audit --loglevel=error >npm.log 2>&1) || {
        cat "$folder/$1/npm.log" >&2
        return 1
    }
}

python_packages() {
    "${PYTHON:-python3}" -m venv --clear "$folder/venv" &&
        "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt"
}

node_packages n20 servers.json & servers=$!
python_packages & python=$!
node_packages n22 tools.json
wait "$servers"
wait "$python"
printf '%s' "$made_of" >"$folder/made-of"
