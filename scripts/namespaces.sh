# Shared by the scripts that measure real programs over several links between two namespaces; not to be run. The script that
# reads this file exports its settings, calls `enter "$@"` and then `join LINKS MBIT`.

# Builds the program unless PROGRAM names one, and starts the script anew in namespaces of its own.
enter() {
    if [ "${1:-}" = inside ]; then
        cd "$FOLDER"
        export HOME=$FOLDER WHIMBREL_KNOWN_PEERS=$FOLDER/known-peers.json
        mount -t tmpfs none /run && mount -t proc none /proc
        ip netns add far
        return
    fi
    local script keep
    script=$(realpath "$0") keep=${FOLDER:+yes}
    cd "$(dirname "$script")/.."
    if [ -z "${PROGRAM:-}" ]; then
        scripts/setup
        cargo build --locked --release --bin whimbrel
        PROGRAM=${CARGO_TARGET_DIR:-target}/release/whimbrel
    fi
    FOLDER=${FOLDER:-}
    if [ -z "$FOLDER" ]; then
        FOLDER=$(mktemp -d)
        trap 'rm -rf "$FOLDER"' EXIT
    fi
    mkdir -p "$FOLDER"
    PROGRAM=$(realpath "$PROGRAM") FOLDER=$(realpath "$FOLDER") \
        unshare --user --map-root-user --net --mount --pid --fork --kill-child "$script" inside
    [ -z "$keep" ] || echo "what the programs said is in $FOLDER"
    exit
}

far() { ip netns exec far "$@"; }

# The same in the background: what $! says is then the program itself, whose processor time is measured.
far_program() { exec ip netns exec far "$PROGRAM" "$@"; }

calc() { awk "BEGIN { printf \"%.6f\", $* }"; }

# A bucket of 5 ms, and a queue of 20 ms before it; some packets and some Data of 8 kB more, so that slow paths carry them at all.
shape() { # ACTION DEVICE MBIT [COMMAND]
    ${4:-} tc qdisc "$1" dev "$2" root tbf rate "$3mbit" burst $(($3 * 625 + 3000))b limit $(($3 * 2500 + 65536))b
}

# Links near1 to far1 with 10.77.1.1 and 10.77.1.2 at their ends, and so on, of this rate both ways.
join() { # LINKS MBIT
    local link
    ip link set lo up
    far ip link set lo up
    for link in $(seq "$1"); do
        ip link add "near$link" type veth peer name "far$link" netns far
        ip address add "10.77.$link.1/30" dev "near$link"
        far ip address add "10.77.$link.2/30" dev "far$link"
        ip link set "near$link" up
        far ip link set "far$link" up
        shape add "near$link" "$2"
        shape add "far$link" "$2" far
    done
}

# The median of the numbers on standard input, one a line.
median() { sort -n | awk '{ all[NR] = $1 } END { print (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2 }'; }

await() { # WHAT COMMAND...
    local what=$1
    shift
    for _ in $(seq 200); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    echo "$what: not after 20 s; see $FOLDER" >&2
    tail -n 5 ./*.log >&2
    exit 1
}

# Seconds of processor time of these programs together.
cpu() { # PID...
    local each
    each=$(for program in "$@"; do
        awk -v hz="$(getconf CLK_TCK)" '{ sub(/^.*\) /, ""); print ($12 + $13) / hz }' "/proc/$program/stat"
    done | paste -sd+)
    calc "$each"
}
