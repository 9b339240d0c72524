//! Loads whose receivers are a group, and IP multicast between namespaces.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real sockets in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use whimbrel_lab::scenario::{Overrides, Scenario};
use whimbrel_lab::{TopologyBuilder, lab_available};
use whimbrel_sim::link::LinkSpec;

/// A tree of IP hosts, of which two send to each other.
fn tree(load: &str) -> Result<Scenario, String> {
    let text = format!(
        "[graph]\nrole = \"tcp-host\"\ntree = {{ branches = [2, 3] }}\n[graph.link]\nrate = \"10 Mbit/s\"\n\
         [loads.film]\nfrom = \"n1\"\n{load}\n"
    );
    let read = Scenario::parse(Path::new("a.toml"), &text, Overrides::default());
    read.map_err(|faults| faults.to_string())
}

#[test]
fn a_range_names_the_receivers_and_an_unknown_one_of_it_is_a_fault() {
    let push = "push = { size = \"1 MB\", count = 1, by = \"norm\" }";
    let scenario = tree(&format!("to = [\"n2\", \"n5..n8\"]\n{push}")).unwrap();
    let plan = &scenario.settings[0].plan;
    let nodes = plan.loads[0].to.iter();
    let names: Vec<&str> = nodes
        .map(|node| plan.network.nodes[*node].name.as_str())
        .collect();
    assert_eq!(names, ["n2", "n5", "n6", "n7", "n8"]);
    let said = tree(&format!("to = \"n8..n10\"\n{push}")).unwrap_err();
    assert!(
        said.contains("loads.film.to: there is no node 'n10'"),
        "{said}"
    );
    let said = tree(&format!("to = \"n8..n3\"\n{push}")).unwrap_err();
    assert!(said.contains("there is no node 'n8..n3'"), "{said}");
}

#[test]
fn pushes_by_other_programs_are_refused_where_they_cannot_run() {
    let to = "to = \"n4\"\n";
    for (push, said) in [
        (
            "push = { size = \"1 MB\", count = 2, by = \"uftp\" }",
            "loads.film.push: a program of IP multicast sends one file",
        ),
        (
            "push = { size = \"1 MB\", count = 1, by = \"udpcast\" }",
            "loads.film.push: udpcast has no congestion control; it needs a rate",
        ),
        (
            "push = { size = \"1 MB\", count = 1, rate = \"1 Mbit/s\" }",
            "loads.film.push: rate is what another program is told",
        ),
        (
            "message = { size = \"1 kB\", count = 1, by = \"norm\" }",
            "loads.film.message: a program of IP multicast sends one file",
        ),
    ] {
        let found = tree(&format!("{to}{push}")).unwrap_err();
        assert!(found.contains(said), "{found}");
    }
}

#[test]
fn a_datagram_for_a_group_crosses_each_link_of_the_tree_once() {
    if !lab_available() {
        return;
    }
    let group = Ipv4Addr::new(239, 192, 0, 7);
    let mut builder = TopologyBuilder::new(1);
    for host in ["source", "first", "second", "one", "two", "outsider"] {
        builder = builder.host(host);
    }
    for (name, a, b) in [
        ("up", "source", "first"),
        ("trunk", "first", "second"),
        ("left", "second", "one"),
        ("right", "second", "two"),
        ("aside", "second", "outsider"),
    ] {
        builder = builder.link(name, a, b, LinkSpec::default(), LinkSpec::default());
    }
    let topology = builder.build().unwrap();
    let _routes = topology
        .route_group(group, &["source", "one", "two"])
        .unwrap();
    let receivers = [("one", "left"), ("two", "right")].map(|(host, link)| {
        let address = topology.address_of(host, link).unwrap();
        let joined = topology.host(host).unwrap().enter(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 7000))?;
            socket.join_multicast_v4(&group, &address)?;
            socket.set_read_timeout(Some(Duration::from_secs(10)))?;
            Ok::<_, std::io::Error>(socket)
        });
        joined.unwrap().unwrap()
    });
    topology.arm(std::time::Instant::now()).unwrap();
    let sent = topology.host("source").unwrap().enter(|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.set_multicast_ttl_v4(8)?;
        socket.send_to(b"once", (group, 7000))
    });
    sent.unwrap().unwrap();
    for receiver in receivers {
        let mut buffer = [0; 16];
        let length = receiver.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"once");
    }
    // 20 octets of IP and 8 of UDP before four of data. IGMP's reports come the other way.
    for report in topology.link_reports().unwrap() {
        let expected = if report.link == "aside" { 0 } else { 32 };
        assert_eq!(report.forward.delivered_bytes, expected, "{}", report.link);
    }
}
