#!/bin/sh
# What CI runs, from a fresh clone: sets up an environment of its own (.venv-test), checks, measures and tests.
# Every step runs and is reported, whatever failed before it; the exit code is 0 only where all passed. The benchmarks
# are printed and do not count. Without options the suite runs in three processes, since much of it waits; options are
# handed to one pytest.
cd "$(dirname "$0")/.." || exit 2
environment=.venv-test
failed=""
# Compiled files are kept: compiling the suite under the tracer of branch coverage takes a minute in each process, and
# each program that a test starts would compile the library again.
unset PYTHONDONTWRITEBYTECODE

step() { # step NAME COMMAND...: run it, remember its name where it fails
    name=$1
    shift
    printf '\n== %s\n' "$name"
    if "$@"; then return 0; fi
    failed="$failed $name"
    return 1
}

# The programs of others that tests marked `peers` drive are installed while the first steps run. What is there already
# is kept: in the folder that YIEMAGENT_MCP_PEERS names, else in the cache, else beside the environment.
YIEMAGENT_MCP_PEERS=${YIEMAGENT_MCP_PEERS:-${YIEMAGENT_CACHE:-$PWD/.venv-peers}/mcp-peers}
export YIEMAGENT_MCP_PEERS
sh tests/mcp/peers/install.sh "$YIEMAGENT_MCP_PEERS" >/dev/null &
installing=$!

set_up() {
    # The environment is kept until what it is made of changes.
    made_of=$(cat setup.cfg pyproject.toml | cksum)
    [ "$(cat "$environment/made-of" 2>/dev/null)" = "$made_of" ] && return 0
    "${PYTHON:-python3}" -m venv --clear "$environment" &&
        "$environment/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[dev,local,cli]' &&
        printf '%s' "$made_of" >"$environment/made-of"
}

step setup set_up || exit 1
bin=$PWD/$environment/bin

# Collecting compiles the suite, without the tracer and while programs are downloaded.
"$bin/python" -m pytest --collect-only -q >/dev/null 2>&1 &
compiling=$!

step model "$bin/yiemagent" local pull
step lint "$bin/ruff" check .
step format "$bin/ruff" format --check .
step types "$bin/mypy" yiemagent tools tests/typing_user.py
step peers wait "$installing"
wait "$compiling"
printf '\n== benchmarks (printed, not counted)\n'
for measured in run stream abort mcp tools; do
    printf '%s\n' "-- $measured"
    "$bin/python" "benchmarks/$measured.py" --quick || printf 'a figure falls short of its bound\n'
done

suite() {
    # What must have the machine for itself comes after the rest, which three processes share file by file.
    ran=$PWD/$environment/ran
    rm -f "$ran"
    passed=0
    "$bin/python" -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not alone" --note-ran "$ran" --cov --cov-report=
    ended=$?
    if [ "$ended" -eq 1 ]; then
        # Beside others a test may have had too little of the machine: what failed there counts where it fails alone.
        printf '\n== again, one by one: what failed beside others\n'
        "$bin/python" -m pytest -v --last-failed --last-failed-no-failures none -m "not alone" --cov --cov-append --cov-report= || passed=1
    elif [ "$ended" -ne 0 ]; then
        passed=1
    fi
    alone=$(grep -rl --include='test_*.py' 'mark\.alone' tests) # no more is collected
    # shellcheck disable=SC2086 # one word for each file
    "$bin/python" -m pytest $alone -m alone --ran-before "$ran" --cov --cov-append --cov-report=term || passed=1
    return "$passed"
}

if [ $# -gt 0 ]; then
    step tests "$bin/python" -m pytest --cov --cov-report=term "$@"
else
    step tests suite
fi

if [ -n "$failed" ]; then
    printf '\nfailed:%s\n' "$failed"
    exit 1
fi
