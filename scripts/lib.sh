# Shared by the scripts beside it; not to be run.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT" || exit 1

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    BOLD=$'\e[1m' GREEN=$'\e[32m' RED=$'\e[31m' PLAIN=$'\e[0m'
else
    BOLD='' GREEN='' RED='' PLAIN=''
    export CARGO_TERM_COLOR=never
fi
export CARGO_TERM_PROGRESS_WHEN=never

die() {
    printf '%s%s%s\n' "$RED" "$*" "$PLAIN" >&2
    exit 1
}

# step NAME COMMAND...: runs the command under a heading and ends the script, naming the step, if it fails.
step() {
    local name=$1 began=$SECONDS status=0
    shift
    printf '%s== %s%s\n' "$BOLD" "$name" "$PLAIN"
    "$@" </dev/null || status=$?
    if [ "$status" -ne 0 ]; then
        printf '%s== %s: failed after %d s (exit code %d): %s%s\n' \
            "$RED" "$name" $((SECONDS - began)) "$status" "$*" "$PLAIN" >&2
        exit "$status"
    fi
    printf '%s== %s: ok, %d s%s\n' "$GREEN" "$name" $((SECONDS - began)) "$PLAIN"
    SUMMARY+=("$(printf '%-10s %4d s' "$name" $((SECONDS - began)))")
}
SUMMARY=()
