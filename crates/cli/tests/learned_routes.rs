//! Five routers in a ring, without a typed route: a transfer finds the other way when a router dies.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::path::PathBuf;

use crate::support::{Running, await_that_or, finished, free_port, name_of, noise, whimbrel};
use serde_json::Value;

const ROUTERS: usize = 5;

/// The ring. The server's host is at router 0, the client's at router 2.
struct Ring {
    folder: tempfile::TempDir,
    ports: Vec<u16>,
    names: Vec<String>,
    gnrs: u16,
}

impl Ring {
    fn new() -> Ring {
        let folder = tempfile::tempdir().unwrap();
        let names = (0..ROUTERS).map(|router| {
            let key = folder.path().join(format!("router-{router}.pem"));
            let (code, name, err) = finished(whimbrel().args(["id", "new"]).arg(key));
            assert_eq!(code, 0, "{err}");
            name.trim().to_owned()
        });
        Ring {
            names: names.collect(),
            ports: (0..ROUTERS).map(|_| free_port()).collect(),
            gnrs: free_port(),
            folder,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn name_server(&self) -> Running {
        let mut serve = whimbrel();
        let listen = format!("127.0.0.1:{}", self.gnrs);
        serve.args(["gnrs", "serve", "--json", "--listen", &listen, "--store"]);
        serve
            .arg(self.path("names"))
            .arg("--socket")
            .arg(self.path("gnrs.sock"));
        let running = Running::start(&mut serve);
        running.await_json(|line| line.get("links").is_some());
        running
    }

    /// Starts a router that calls its two neighbours, whose names it gives. Its links have a rate, so
    /// that a transfer takes a while, and the long way is worse by more than a busy machine adds.
    fn router(&self, router: usize) -> Running {
        let config = self.path(&format!("router-{router}.toml"));
        let rate = if router < 3 { "20 Mbit/s" } else { "6 Mbit/s" };
        let mut text = format!(
            "[router]\nrouting = \"learned\"\nname_servers = [\"127.0.0.1:{}\"]\n[hop]\npacing = \"{rate}\"\n\
             [[link]]\nlabel = \"callers\"\nbind = \"127.0.0.1:{}\"\nlisten = true\n",
            self.gnrs, self.ports[router]
        );
        for next in [router + 1, router + ROUTERS - 1] {
            let next = next % ROUTERS;
            text += &format!(
                "[[link]]\nlabel = \"to-{next}\"\nbind = \"127.0.0.1:0\"\nremote = \"127.0.0.1:{}\"\nname = \"{}\"\n",
                self.ports[next], self.names[next]
            );
        }
        fs::write(&config, text).unwrap();
        let mut run = whimbrel();
        run.args(["router", "run", "--json", "--config"])
            .arg(config);
        run.arg("--key")
            .arg(self.path(&format!("router-{router}.pem")));
        run.arg("--socket")
            .arg(self.path(&format!("router-{router}.sock")));
        let running = Running::start(&mut run);
        running.await_json(|line| line.get("guid").is_some());
        running
    }

    fn host(&self, name: &str, router: usize) -> Running {
        let at = format!("{}@127.0.0.1:{}", self.names[router], self.ports[router]);
        let mut host = whimbrel();
        host.args(["host", "run", "--json", "--router", &at, "--key"]);
        host.arg(self.path(&format!("{name}.pem"))).arg("--socket");
        let running = Running::start(host.arg(self.path(&format!("{name}.sock"))));
        running.await_json(|line| line.get("guid").is_some());
        running
    }

    /// What `router routes --json` says of a router.
    fn routes(&self, router: usize) -> Value {
        let mut routes = whimbrel();
        routes.args(["router", "routes", "--json", "--socket"]);
        let (code, out, err) = finished(routes.arg(self.path(&format!("router-{router}.sock"))));
        assert_eq!(code, 0, "{err}");
        serde_json::from_str(&out).unwrap()
    }

    /// The next hop of a router towards another one, as a number.
    fn next_hop(&self, from: usize, to: usize) -> Option<usize> {
        let routes = self.routes(from);
        let routers = routes["routers"].as_array().unwrap();
        let router = routers.iter().find(|it| it["router"] == *self.names[to])?;
        let ways = router["ways"].as_array().unwrap();
        let best = ways.iter().find(|way| way["why"] == "best")?;
        self.names
            .iter()
            .position(|name| best["neighbour"] == **name)
    }

    fn await_next_hop(&self, from: usize, to: usize, next: usize) {
        let what = format!("router {from} sends to {to} by {next}");
        await_that_or(
            &what,
            || self.next_hop(from, to) == Some(next),
            || self.routes(from).to_string(),
        );
    }
}

#[test]
fn a_transfer_finds_the_other_way_around_a_ring_when_a_router_dies() {
    let ring = Ring::new();
    let _names = ring.name_server();
    let mut routers: Vec<Running> = (0..ROUTERS).map(|it| ring.router(it)).collect();
    ring.await_next_hop(0, 2, 1);
    ring.await_next_hop(2, 0, 1);
    let _hosts = [ring.host("server", 0), ring.host("client", 2)];

    let film = noise(6_000_000, 7);
    fs::write(ring.path("film"), &film).unwrap();
    let mut serve = whimbrel();
    serve.args(["serve", "--json", "--no-cache", "--socket"]);
    serve.arg(ring.path("server.sock")).arg(ring.path("film"));
    let serve = Running::start(&mut serve);
    serve.await_json(|line| line["event"] == "announced" && line["outcome"] == "Registered");

    let mut get = whimbrel();
    get.args([
        "get",
        &name_of(&film),
        "--json",
        "--timeout",
        "100 s",
        "--socket",
    ]);
    get.arg(ring.path("client.sock"))
        .arg("-o")
        .arg(ring.path("arrived"));
    let mut get = Running::start(&mut get);
    get.await_json(|line| {
        line["progress"]["bytes"]
            .as_u64()
            .is_some_and(|it| it > 1_000_000)
    });
    routers[1].kill();
    ring.await_next_hop(0, 2, 4);
    assert_eq!(get.exit_code(), 0);
    assert!(fs::read(ring.path("arrived")).unwrap() == film);

    // A ping reaches each router by its name.
    let mut ping = whimbrel();
    ping.args(["ping", &ring.names[3], "--count", "1", "--socket"]);
    let (code, _, err) = finished(ping.arg(ring.path("server.sock")));
    assert_eq!(code, 0, "{err}");

    // It comes back, and is used again.
    routers[1] = ring.router(1);
    ring.await_next_hop(0, 2, 1);
    let mut table = whimbrel();
    table.args(["router", "routes", "--socket"]);
    let (code, text, err) = finished(table.arg(ring.path("router-0.sock")));
    assert_eq!(code, 0, "{err}");
    assert!(
        text.contains("best") && text.contains(&ring.names[2]),
        "{text}"
    );
}
