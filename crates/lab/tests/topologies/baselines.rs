//! The kernel's TCP over emulated links: one connection, one that a proxy splits, and several subflows.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use whimbrel_lab::scenario::netns;
use whimbrel_lab::{
    CongestionControl, HttpClient, Subflow, TcpBaseline, TcpBuffers, TcpRoute, TopologyBuilder,
    TransferObserver, lab_available,
};
use whimbrel_sim::link::LinkSpec;

use super::{adds_up, final_reports, millis, pair};
use crate::support::{LAST_HOP, SERVER_LINK, fig7};

fn file_of(bytes: usize, directory: &tempfile::TempDir) -> (PathBuf, String) {
    let mut state = 88_172_645_463_325_252u64;
    let contents: Vec<u8> = (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect();
    let path = directory.path().join("content");
    std::fs::File::create(&path)
        .unwrap()
        .write_all(&contents)
        .unwrap();
    (path, blake3::hash(&contents).to_hex().to_string())
}

#[derive(Default)]
struct Watched {
    started: usize,
    bytes: u64,
}

impl TransferObserver for Watched {
    fn started(&mut self, _at: Instant) {
        self.started += 1;
    }
    fn progress(&mut self, _elapsed: Duration, bytes: u64) {
        self.bytes = bytes;
    }
}

#[test]
fn kernel_tcp_carries_a_file_across_lossy_figure_7_byte_by_byte() {
    if !lab_available() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (file, hash) = file_of(2_000_000, &directory);
    let plan = fig7(
        7,
        &[
            ("links.N2-N3.delay", "\"5 ms\""),
            ("links.N3-N4.rate", "\"54 Mbit/s\""),
            ("links.N3-N4.loss", "\"1 %\""),
            ("links.N3-N4.queue", "\"256 KiB\""),
        ],
    );
    let topology = netns::topology(&plan, plan.seed).unwrap();
    let address = topology.address_of("N1", SERVER_LINK).unwrap();
    let curl = Command::new("curl")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok();
    let clients = [
        Some(HttpClient::BuiltIn),
        curl.then_some(HttpClient::Curl),
        Some(HttpClient::Any),
    ];
    for (client, congestion) in clients.into_iter().flatten().zip([
        CongestionControl::Reno,
        CongestionControl::Cubic,
        CongestionControl::Cubic,
    ]) {
        topology.arm(Instant::now()).unwrap();
        let baseline = TcpBaseline {
            client,
            congestion,
            ..TcpBaseline::default()
        };
        let mut watched = Watched::default();
        let (server, receiver) = (topology.host("N1").unwrap(), topology.host("N4").unwrap());
        let transfer = baseline
            .fetch(
                TcpRoute::direct(server, address, receiver),
                &file,
                &mut watched,
            )
            .unwrap();
        assert_eq!(transfer.blake3, hash);
        assert!(transfer.record.completed);
        assert_eq!((watched.started, watched.bytes), (1, 2_000_000));
        // 54 Mbit/s cannot carry it faster.
        assert!(
            transfer.record.finished >= 2_000_000.0 * 8.0 / 54e6,
            "{:?}",
            transfer.record.finished
        );
        assert_eq!(transfer.sender.connections, 1);
        assert!(
            transfer.sender.min_rtt_micros >= 12_000,
            "{:?}",
            transfer.sender
        );
        let reports = final_reports(&topology);
        let last = reports.iter().find(|report| report.link == LAST_HOP);
        let hop = &last.unwrap().forward;
        adds_up(hop);
        assert!(
            hop.dropped_loss > 0 && hop.delivered_bytes > 2_000_000,
            "{hop:?}"
        );
        let lost = hop.dropped_loss + hop.dropped_queue;
        assert!(
            transfer.record.retransmitted_segments.unwrap() > 0,
            "{lost} were lost"
        );
    }
}

#[test]
fn a_proxy_in_between_passes_a_file_on_byte_by_byte() {
    if !lab_available() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (file, hash) = file_of(2_000_000, &directory);
    let plan = fig7(7, &[("links.N3-N4.loss", "\"1 %\"")]);
    let topology = netns::topology(&plan, plan.seed).unwrap();
    let towards_client = |node: &str| {
        let address = topology.address_towards(node, "N4").unwrap();
        (topology.host(node).unwrap(), address)
    };
    let route = TcpRoute {
        server: towards_client("N1"),
        proxy: Some(towards_client("N3")),
        client: topology.host("N4").unwrap(),
    };
    topology.arm(Instant::now()).unwrap();
    let transfer = TcpBaseline::default().fetch(route, &file, &mut ()).unwrap();
    assert!(transfer.record.completed);
    assert_eq!(transfer.blake3, hash);
    // What the lossy hop lost was sent again by the proxy, not by the server.
    assert_eq!(transfer.sender.retransmitted_segments, 0);
    assert!(transfer.record.retransmitted_segments.unwrap() > 0);
}

#[test]
fn a_transfer_that_cannot_finish_is_abandoned_and_recorded() {
    if !lab_available() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (file, _) = file_of(100_000, &directory);
    let topology = pair(8, LinkSpec::default(), LinkSpec::default());
    topology.set_outage("ab", true).unwrap();
    let baseline = TcpBaseline {
        patience: millis(300),
        client: HttpClient::BuiltIn,
        ..TcpBaseline::default()
    };
    let address = topology.address_of("a", "ab").unwrap();
    let (server, client) = (topology.host("a").unwrap(), topology.host("b").unwrap());
    let record = baseline
        .fetch(TcpRoute::direct(server, address, client), &file, &mut ())
        .unwrap()
        .record;
    assert!(!record.completed);
    assert_eq!(record.bytes, 0);
    assert!(
        record.longest_stall >= 0.29 && record.finished >= 0.29,
        "{record:?}"
    );
}

#[test]
fn bbr_can_be_chosen_where_the_kernel_has_it() {
    if !lab_available() {
        return;
    }
    let available =
        std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    if !available.contains("bbr") {
        eprintln!("SKIPPED: this kernel has no bbr");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (file, hash) = file_of(300_000, &directory);
    let topology = TopologyBuilder::new(9)
        .host("a")
        .host("b")
        .veth("ab", "a", "b")
        .build()
        .unwrap();
    let baseline = TcpBaseline {
        congestion: CongestionControl::Bbr,
        ..TcpBaseline::default()
    };
    let address = topology.address_of("a", "ab").unwrap();
    let (server, client) = (topology.host("a").unwrap(), topology.host("b").unwrap());
    let transfer = baseline
        .fetch(TcpRoute::direct(server, address, client), &file, &mut ())
        .unwrap();
    assert_eq!(transfer.blake3, hash);
    assert!(
        topology.link_reports().unwrap().is_empty(),
        "a veth pair is not emulated"
    );
    assert!(topology.set_outage("ab", true).is_err());
}

/// "The default scheduler [...] will firstly fill up the congestion window on the subflow with lowest RTT"
/// [MF-5G §V-A]: whatever it does, each interface has a subflow, or the run is no run of Multipath TCP.
#[test]
fn multipath_tcp_uses_every_interface_of_the_client() {
    if !lab_available() {
        return;
    }
    if !Path::new("/proc/sys/net/mptcp").exists() {
        eprintln!("SKIPPED: this kernel has no Multipath TCP");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (file, hash) = file_of(3_000_000, &directory);
    let air = |delay| LinkSpec::new(20_000_000, millis(delay));
    let topology = TopologyBuilder::new(10)
        .host("server")
        .host("router")
        .host("client")
        .veth("wire", "server", "router")
        .link("wifi", "router", "client", air(1), air(1))
        .link("lte", "router", "client", air(5), air(5))
        .build()
        .unwrap();
    let subflow = |link: &str| Subflow {
        interface: topology.interface_of("client", link).unwrap(),
        address: topology.address_of("client", link).unwrap(),
        gateway: topology.address_of("router", link).unwrap(),
    };
    let baseline = TcpBaseline {
        buffers: TcpBuffers::Tuned,
        subflows: vec![subflow("wifi"), subflow("lte")],
        ..TcpBaseline::default()
    };
    let (server, client) = (
        topology.host("server").unwrap(),
        topology.host("client").unwrap(),
    );
    let address = topology.address_of("server", "wire").unwrap();
    let route = TcpRoute::direct(server, address, client);
    let transfer = baseline.fetch(route, &file, &mut ()).unwrap();
    assert!(transfer.record.completed);
    assert_eq!(transfer.blake3, hash);
    for report in final_reports(&topology) {
        let carried = report.forward.delivered_bytes;
        assert!(carried > 300_000, "{}: {carried}", report.link);
    }
    // A connection over one of two interfaces is no measurement of both.
    topology.set_outage("lte", true).unwrap();
    let error = baseline.fetch(route, &file, &mut ()).unwrap_err();
    assert!(error.to_string().contains("did not join"), "{error}");
}
