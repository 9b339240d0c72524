//! What nodes tell of themselves: metrics for Prometheus, statuses, and the log.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use crate::support::{
    Network, Running, await_that, await_that_or, finished, free_port, metrics_page, noise, sum_of,
    whimbrel,
};
use serde_json::Value;

/// Checks that a page is well-formed, and returns its families. Each has HELP and TYPE before its
/// members; counters end in `_total`, and no member comes twice.
fn families(page: &str) -> BTreeSet<String> {
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(body.ends_with("# EOF\n"), "{body}");
    let (mut helped, mut members) = (BTreeSet::new(), BTreeSet::new());
    let mut families = BTreeSet::new();
    let (mut family, mut kind) = (String::new(), String::new());
    for line in body.lines().filter(|line| *line != "# EOF") {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap();
            assert!(!text.is_empty() && helped.insert(name.to_owned()), "{line}");
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, of) = typed.split_once(' ').unwrap();
            assert!(
                helped.contains(name) && ["counter", "gauge"].contains(&of),
                "{line}"
            );
            assert!(families.insert(name.to_owned()), "{line}");
            (family, kind) = (name.to_owned(), of.to_owned());
        } else {
            let (member, value) = line.rsplit_once(' ').unwrap();
            let name = member.split('{').next().unwrap();
            let suffix = if kind == "counter" { "_total" } else { "" };
            assert_eq!(name, format!("{family}{suffix}"), "{line}");
            assert!(value.parse::<f64>().unwrap() >= 0.0, "{line}");
            assert!(member.contains('{') == member.ends_with('}'), "{line}");
            assert!(members.insert(member.to_owned()), "{line}");
        }
    }
    families
}

#[test]
fn every_node_serves_metrics_that_count_a_transfer() {
    let network = Network::start(None);
    let page = |node: &str| metrics_page(&network.metrics[node]);
    for (node, metric) in [
        ("gnrs", "whimbrel_gnrs_records"),
        ("router-0", "whimbrel_router_stored_bytes"),
        ("router-0", "whimbrel_link_rtt_seconds"),
        ("router-0", "whimbrel_name_server_up"),
        ("host-0", "whimbrel_host_registered"),
        ("host-0", "whimbrel_link_up"),
        ("host-1", "whimbrel_uptime_seconds"),
    ] {
        assert!(families(&page(node)).contains(metric), "{node}: {metric}");
    }
    let counted = || {
        [
            ("router-0", "whimbrel_router_chunks_forwarded_total"),
            ("router-1", "whimbrel_link_delivered_chunk_bytes_total"),
            ("host-0", "whimbrel_host_chunks_handed_over_total"),
            ("host-1", "whimbrel_host_chunks_sent_total"),
            ("gnrs", "whimbrel_gnrs_lookups_total"),
        ]
        .map(|(node, metric)| sum_of(&page(node), metric, ""))
    };
    let before = counted();
    let content = network.path("content");
    fs::write(&content, noise(3 << 20, 7)).unwrap();
    let (_serving, names) = network.serve(&[&content]);
    let (code, _, errors) = finished(&mut network.get(&names[0], &network.path("fetched")));
    assert_eq!(code, 0, "{errors}");
    // A node gives a page again for a quarter of a second.
    let after = Cell::new(before);
    let has_counted = || {
        after.set(counted());
        let all_rose = before.iter().zip(after.get()).all(|(old, new)| new > *old);
        all_rose && after.get()[1] - before[1] >= f64::from(3 << 20)
    };
    await_that_or("the transfer is counted", has_counted, || {
        format!("{before:?} to {:?}", after.get())
    });
    assert_eq!(sum_of(&page("router-0"), "whimbrel_link_up{", "next"), 1.0);
    assert_eq!(
        sum_of(&page("router-0"), "whimbrel_name_server_up{", ""),
        1.0
    );
}

/// `whimbrel status` with the sockets in `folder`, on a machine without an NDN forwarder.
fn status(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let nobody = format!("unix://{}", folder.join("nobody").display());
    let mut command = whimbrel();
    command.env("NDN_CLIENT_TRANSPORT", nobody);
    command.args(["status", "--folder"]).arg(folder);
    finished(command.args(arguments))
}

#[test]
fn status_finds_whatever_runs() {
    let mut network = Network::start(None);
    let folder = network.folder.path().to_owned();
    let (code, out, errors) = status(&folder, &["--json"]);
    assert_eq!(code, 0, "{errors}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["general"], Value::Null);
    let nodes = report["nodes"].as_array().unwrap();
    let names: Vec<&str> = nodes
        .iter()
        .map(|node| node["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["gnrs", "host-0", "host-1", "router-0", "router-1"]);
    for node in nodes {
        assert!(
            node["fault"].is_null() && node["status"]["uptime_s"].is_number(),
            "{node}"
        );
    }
    let (code, out, _) = status(&folder, &[]);
    assert_eq!(code, 0);
    assert!(
        out.contains("gnrs (") && out.contains("host-0 (") && out.contains("router-1 ("),
        "{out}"
    );

    let socket = folder.join("gnrs.sock");
    let ask = || {
        finished(
            whimbrel()
                .args(["gnrs", "status", "--json", "--socket"])
                .arg(&socket),
        )
    };
    let (code, out, errors) = ask();
    assert_eq!(code, 0, "{errors}");
    let gnrs: Value = serde_json::from_str(&out).unwrap();
    assert!(
        gnrs["records"].as_u64().unwrap() >= 2 && gnrs["clients"] == 2,
        "{gnrs}"
    );
    assert!(
        gnrs["counters"]["updates_stored"].as_u64().unwrap() >= 2,
        "{gnrs}"
    );

    // The socket file of a program that was killed stays.
    network.gnrs.take().unwrap().kill();
    assert!(socket.exists());
    let (code, _, errors) = ask();
    assert!(
        code == 5 && errors.contains("whimbrel gnrs serve"),
        "{code}: {errors}"
    );
    let (_, out, _) = status(&folder, &[]);
    assert!(
        !out.contains("gnrs (") && out.contains("router-0 ("),
        "{out}"
    );
    let empty = tempfile::tempdir().unwrap();
    let (code, _, errors) = status(empty.path(), &[]);
    assert!(
        code == 8 && errors.contains("router run"),
        "{code}: {errors}"
    );
}

#[test]
fn one_page_tells_of_both_planes_and_one_of_ndn_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let config = path("router.toml");
    fs::write(
        &config,
        "[ndn]\nmetrics = \"127.0.0.1:0\"\nmulticast = false\n",
    )
    .unwrap();
    let mut command = whimbrel();
    command
        .args([
            "router",
            "run",
            "--json",
            "--ndn",
            "--metrics",
            "127.0.0.1:0",
        ])
        .args(["--listen", &format!("127.0.0.1:{}", free_port())])
        .args([
            "--ndn-listen",
            "127.0.0.1:0",
            "--ndn-websocket",
            "127.0.0.1:0",
        ])
        .arg("--config")
        .arg(&config)
        .arg("--ndn-socket")
        .arg(path("nfd.sock"))
        .arg("--socket")
        .arg(path("router.sock"))
        .arg("--key")
        .arg(path("router.pem"));
    let router = Running::start(&mut command);
    let opened = router.await_json(|line| line.get("ndn").is_some());
    let both = families(&metrics_page(opened["metrics"].as_str().unwrap()));
    let ndn = families(&metrics_page(opened["ndn"]["metrics"].as_str().unwrap()));
    let native: BTreeSet<&String> = both.difference(&ndn).collect();
    assert!(
        ndn.is_subset(&both) && ndn.contains("ndn_face_up"),
        "{ndn:?}"
    );
    assert!(
        native
            .iter()
            .any(|name| *name == "whimbrel_router_attachments"),
        "{native:?}"
    );

    let nobody = format!("unix://{}", path("nfd.sock").display());
    let mut command = whimbrel();
    command.env("NDN_CLIENT_TRANSPORT", nobody);
    command
        .args(["status", "--json", "--folder"])
        .arg(folder.path());
    let (code, out, errors) = finished(&mut command);
    assert_eq!(code, 0, "{errors}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["nodes"][0]["name"], "router");
    assert!(
        report["nodes"].as_array().unwrap().len() == 1 && report["general"]["fib"].is_number(),
        "{report}"
    );
}

#[test]
fn metrics_of_an_ndn_router_need_no_links_and_a_taken_address_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("router.toml");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    fs::write(&config, format!("[router]\nmetrics = \"{address}\"\n")).unwrap();
    let (code, _, errors) = finished(whimbrel().args(["config", "check"]).arg(&config));
    assert_eq!(code, 0, "{errors}");
    let listen = format!("127.0.0.1:{}", free_port());
    let mut command = whimbrel();
    command
        .args(["gnrs", "serve", "--store", "memory", "--listen", &listen])
        .args(["--metrics", &address.to_string(), "--socket"])
        .arg(folder.path().join("gnrs.sock"));
    let (code, _, errors) = finished(&mut command);
    assert!(
        code == 8 && errors.contains(&address.to_string()),
        "{code}: {errors}"
    );
}

#[test]
fn the_log_has_a_line_for_each_change_of_a_neighbour_and_a_name_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let [gnrs_at, router_at] = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    let log = path("log");
    let start_gnrs = || {
        let mut command = whimbrel();
        command.args([
            "gnrs", "serve", "--json", "--store", "memory", "--listen", &gnrs_at,
        ]);
        let gnrs = Running::start(command.arg("--socket").arg(path("gnrs.sock")));
        gnrs.await_json(|line| line.get("links").is_some());
        gnrs
    };
    let start_host = || {
        let mut command = whimbrel();
        command.args(["host", "run", "--json", "--router", &router_at, "--key"]);
        command
            .arg(path("host.pem"))
            .arg("--socket")
            .arg(path("host.sock"));
        let host = Running::start(&mut command);
        host.await_json(|line| line.get("guid").is_some());
        host
    };
    let mut gnrs = start_gnrs();
    let mut command = whimbrel();
    command
        .args([
            "router",
            "run",
            "--json",
            "--listen",
            &router_at,
            "--name-server",
            &gnrs_at,
        ])
        .arg("--key")
        .arg(path("router.pem"))
        .arg("--socket")
        .arg(path("router.sock"))
        .stderr(File::create(&log).unwrap());
    let router = Running::start(&mut command);
    router.await_json(|line| line.get("guid").is_some());
    let await_line = |text: &str, times: usize| {
        await_that(text, || {
            let lines = fs::read_to_string(&log).unwrap();
            lines.matches(text).count() >= times
        });
    };
    let mut host = start_host();
    await_line("neighbour is up", 1);
    await_line("the name server is found", 1);

    gnrs.kill();
    // Nobody is known by this name: each lookup asks the name server.
    let ask = |number: usize| {
        let name = format!("{number:064x}");
        let mut command = whimbrel();
        command.args(["ping", &name, "--count", "1", "--socket"]);
        Running::start(command.arg(path("host.sock")))
    };
    let asking = ask(1);
    await_line("the name server is lost", 1);
    drop(asking);
    let _gnrs = start_gnrs();
    await_line("the name server is found", 2);

    host.kill();
    await_line("the neighbour is silent", 1);
    let _host = start_host();
    await_line("neighbour is up", 2);
}
