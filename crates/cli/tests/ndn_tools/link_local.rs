//! Faces over link-local IPv6 addresses, which are addresses on one interface only.

use std::process::Command;

use crate::support::finished;

/// Two machines with two wires between them; the other end has one address on both.
const SCRIPT: &str = r#"
    set -e
    ip link set lo up
    unshare --net sleep 300 & OTHER=$!
    trap 'kill $(jobs -p) 2>/dev/null' EXIT
    there() { nsenter --net=/proc/$OTHER/ns/net "$@"; }
    while [ "$(readlink /proc/$OTHER/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
    for wire in p q; do
        ip link add $wire type veth peer name far-$wire netns /proc/$OTHER/ns/net
        # No addresses of the kernel's own, which frames could leave from.
        ip link set $wire addrgenmode none
        there ip link set far-$wire addrgenmode none
        ip address add fe80::1/64 dev $wire nodad || { echo "no IPv6"; exit 0; }
        there ip address add fe80::2/64 dev far-$wire nodad
        ip link set $wire up
        there ip link set far-$wire up
    done
    printf '[ndn]\nmulticast = false\n' >"$HOME/router.toml"
    # The jobs are the programs themselves, which the trap ends.
    router() { exec "$WHIMBREL" router run --quiet --config "$HOME/router.toml" --ndn-socket "$HOME/$1.sock" --ndn-listen '[::]:6363' --ndn-websocket '[::]:9696'; }
    router near >/dev/null 2>"$HOME/near.log" &
    (export -f router there; export OTHER; exec nsenter --net=/proc/$OTHER/ns/net bash -c 'router far') >/dev/null 2>"$HOME/far.log" &
    for _ in $(seq 200); do [ -S "$HOME/near.sock" ] && [ -S "$HOME/far.sock" ] && break; sleep 0.1; done
    w() { "$WHIMBREL" "$@" 2>&1; }
    export NDN_CLIENT_TRANSPORT="unix://$HOME/far.sock"
    "$WHIMBREL" ndn pingserver /y/ll -q >/dev/null 2>&1 &
    export NDN_CLIENT_TRANSPORT="unix://$HOME/near.sock"
    set +e
    echo "create: $(w face create 'udp://[fe80::2%p]')"
    echo "again: $(w face create 'udp6://[fe80::2%25p]:6363')"
    echo "changed: $(w face create 'udp://[fe80::2%p]' --reliability off)"
    echo "second: $(w face create 'udp://[fe80::2%q]')"
    echo "stream: $(w face create 'tcp://[fe80::2%p]')"
    echo "web: $(w face create 'ws://[fe80::2%q]:9696/')"
    echo "web again: $(w face create 'ws://[fe80::2%q]')"
    echo "web without: $(w face create 'ws://[fe80::2]')"
    echo "nowhere: $(w face create 'udp://[fe80::2%none]')"
    echo "address: $(w face create 'udp://[fe80::2%127.0.0.1]')"
    echo "route: $(w route add /y/ll 'udp6://[fe80::2%p]:6363')"
    echo "show: $(w face show 'udp6://[fe80::2%p]:6363')"
    echo "list: $(w face list remote 'udp6://[fe80::2%q]:6363')"
    for _ in $(seq 50); do w ndn ping /y/ll -c 1 >"$HOME/ping" && break; sleep 0.1; done
    echo "ping: $(cat "$HOME/ping")"
    echo "caller: $(NDN_CLIENT_TRANSPORT="unix://$HOME/far.sock" w face list remote 'udp6://[fe80::1%far-p]:6363')"
    echo "program: $(w ndn ping /y/ll -c 1 --transport 'tcp://[fe80::1%p]:6363')"
    w route remove /y/ll 'udp6://[fe80::2%p]:6363' >/dev/null
    echo "web route: $(w route add /y/ll 'ws://[fe80::2%q]:9696')"
    for _ in $(seq 50); do w ndn ping /y/ll -c 1 >"$HOME/ping" && break; sleep 0.1; done
    echo "web ping: $(cat "$HOME/ping")"
    echo "destroy: $(w face destroy 'udp6://[fe80::2%p]:6363')"
    echo "left: $(w face list scheme udp6)"
"#;

#[test]
fn a_face_to_a_link_local_address_keeps_its_interface() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["--map-root-user", "--net", "bash", "-c", SCRIPT])
        .env("HOME", home.path())
        .env("WHIMBREL", env!("CARGO_BIN_EXE_whimbrel"));
    let (code, out, errors) = finished(&mut command);
    if code != 0 && errors.contains("unshare:") && std::env::var_os("WHIMBREL_LAB").is_none() {
        return eprintln!("SKIPPED: no privilege to make a network namespace");
    }
    assert_eq!(code, 0, "{out}\n{errors}");
    if out.contains("no IPv6") {
        return eprintln!("SKIPPED: this system has no IPv6");
    }
    let said = |what: &str| {
        let start = format!("{what}: ");
        let mut lines = out.lines().filter_map(|line| line.strip_prefix(&start));
        lines
            .next()
            .unwrap_or_else(|| panic!("{what}:\n{out}\n{errors}"))
    };
    let (p, q) = (
        "remote=udp6://[fe80::2%p]:6363",
        "remote=udp6://[fe80::2%q]:6363",
    );
    for (what, begins, contains) in [
        ("create", "face-created id=", p),
        (
            "create",
            "face-created id=",
            "local=udp6://[fe80::1%p]:6363",
        ),
        ("again", "face-exists id=", p),
        ("changed", "face-updated id=", p),
        ("second", "face-created id=", q),
        (
            "stream",
            "face-created id=",
            "remote=tcp6://[fe80::2%p]:6363",
        ),
        ("web", "face-created id=", "remote=ws://[fe80::2%q]:9696 "),
        ("web", "face-created id=", "local=wsclient://[fe80::1"),
        ("web again", "face-exists id=", "ws://[fe80::2%q]:9696"),
        ("web without", "whimbrel: ", "[fe80::2%eth0]"),
        ("web route", "route-add-accepted prefix=/y/ll nexthop=", ""),
        ("nowhere", "whimbrel: ", "none"),
        ("address", "whimbrel: ", "no network interface"),
        ("route", "route-add-accepted prefix=/y/ll nexthop=", ""),
        ("list", "faceid=", q),
        ("caller", "faceid=", "remote=udp6://[fe80::1%far-p]:6363"),
        ("destroy", "face-destroyed id=", p),
    ] {
        let told = said(what);
        assert!(
            told.starts_with(begins) && told.contains(contains),
            "{what}: {told}\n{out}\n{errors}"
        );
    }
    assert!(
        out.contains("       remote: udp6://[fe80::2%p]:6363"),
        "{out}\n{errors}"
    );
    // Over the UDP face, over a program's own connection, and over the WebSocket.
    assert_eq!(
        out.matches("content from /y/ll").count(),
        3,
        "{out}\n{errors}"
    );
    let left = out.split("left: ").nth(1).unwrap_or_default();
    assert!(left.contains(q) && !left.contains(p), "{out}");
}
