//! The TCP baseline over simulated links.
#![allow(
    clippy::unwrap_used,
    reason = "a test that finds nothing to unwrap has failed"
)]

use core::net::Ipv4Addr;
use core::time::Duration;

use whimbrel_core::Time;
use whimbrel_sim::link::presets::study_mftp;
use whimbrel_sim::link::{LinkSpec, Loss, Outage, QueueLimit};
use whimbrel_sim::tcp::{
    Congestion, Fetch, FetchId, Relay, ServerStats, TcpClient, TcpConfig, TcpEvent, TcpServer,
};
use whimbrel_sim::{AnyMachine, DuplexLink, NodeId, Simulator};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

type Network = Simulator<AnyMachine<TcpEvent>>;

/// Server - relay - client; the second link is the one under test.
fn network(
    seed: u64,
    congestion: Congestion,
    down: LinkSpec,
    up: LinkSpec,
) -> (Network, NodeId, NodeId) {
    let mut sim = Network::new(seed);
    let config = |address| TcpConfig {
        congestion,
        // A window for what the client sends, where it does.
        request_buffer: 2_000_000,
        ..TcpConfig::new(address)
    };
    let server = sim.add_node("server", AnyMachine::plain(TcpServer::new(config(SERVER))));
    let relay = sim.add_node(
        "relay",
        AnyMachine::new(Relay::new(), |never| match never {}),
    );
    let client = TcpClient::new(config(CLIENT), SERVER, Duration::from_millis(500));
    let client = sim.add_node("client", AnyMachine::plain(client));
    let wire = LinkSpec::new(1_000_000_000, Duration::from_micros(10));
    sim.connect(server, relay, &DuplexLink::ip(wire.clone(), wire, 1500))
        .unwrap();
    sim.connect(relay, client, &DuplexLink::ip(down, up, 1500))
        .unwrap();
    (sim, server, client)
}

fn fetch(
    sim: &mut Network,
    server: NodeId,
    client: NodeId,
    bytes: u64,
    limit: Time,
) -> (Fetch, ServerStats) {
    let id = sim.with_node(client, |m, now| {
        m.get_mut::<TcpClient>().unwrap().fetch(now, bytes)
    });
    await_end(sim, server, client, id, limit)
}

fn await_end(
    sim: &mut Network,
    server: NodeId,
    client: NodeId,
    id: FetchId,
    limit: Time,
) -> (Fetch, ServerStats) {
    sim.run_while(limit, |sim| {
        let fetch = sim
            .node(client)
            .get::<TcpClient>()
            .unwrap()
            .get(id)
            .unwrap();
        fetch.completed.is_none() && !fetch.failed
    });
    let fetch = sim
        .node(client)
        .get::<TcpClient>()
        .unwrap()
        .get(id)
        .unwrap()
        .clone();
    (fetch, sim.node(server).get::<TcpServer>().unwrap().stats())
}

/// Holds the receive window of 2 MB, so that only random loss disturbs TCP.
const ROOMY: QueueLimit = QueueLimit::Packets(2_000);

/// Returns the goodput of a fetch of `bytes` over a symmetric link, bit/s.
fn goodput(
    seed: u64,
    rate: u64,
    round_trip: Duration,
    loss: Loss,
    queue: QueueLimit,
    bytes: u64,
) -> f64 {
    let spec = LinkSpec::new(rate, round_trip / 2)
        .with_queue(queue)
        .with_loss(loss);
    let (mut sim, server, client) = network(seed, Congestion::Cubic, spec.clone(), spec);
    let (fetch, _) = fetch(&mut sim, server, client, bytes, Time::from_secs(600));
    assert_eq!(fetch.wrong_bytes, 0);
    assert_eq!(fetch.goodput.total(), bytes, "seed {seed}: {fetch:?}");
    fetch.goodput.mean_rate()
}

/// Both ends send on one connection, and neither direction waits for the other one.
#[test]
fn an_exchange_takes_as_long_as_one_direction_and_is_whole() {
    let spec = LinkSpec::new(10_000_000, Duration::from_millis(10)).with_queue(ROOMY);
    let lossy = spec.clone().with_loss(Loss::Independent(0.01));
    let bytes = 2_000_000;
    let mut took = Vec::new();
    for (exchanges, spec) in [(false, &spec), (true, &spec), (true, &lossy)] {
        let (mut sim, server, client) = network(1, Congestion::Cubic, spec.clone(), spec.clone());
        let id = sim.with_node(client, |m, now| {
            let client = m.get_mut::<TcpClient>().unwrap();
            match exchanges {
                true => client.exchange(now, bytes),
                false => client.fetch(now, bytes),
            }
        });
        let limit = Time::from_secs(600);
        let (fetch, stats) = await_end(&mut sim, server, client, id, limit);
        took.push(fetch.response_time().unwrap());
        assert_eq!((fetch.goodput.total(), fetch.wrong_bytes), (bytes, 0));
        let received = if exchanges { bytes } else { 0 };
        assert_eq!((stats.received, stats.wrong_bytes), (received, 0));
        assert_eq!((stats.sent, stats.requests), (bytes, 1));
    }
    assert!(took[1] < took[0].mul_f64(1.1), "{took:?}");
}

#[test]
fn ten_megabits_carry_more_than_nine_of_goodput() {
    let rate = goodput(
        1,
        10_000_000,
        Duration::from_millis(20),
        Loss::None,
        ROOMY,
        20_000_000,
    );
    assert!(rate > 9_000_000.0 && rate < 10_000_000.0, "{rate}");
}

#[test]
fn one_percent_loss_at_fifty_milliseconds_collapses() {
    let clean = goodput(
        2,
        25_000_000,
        Duration::from_millis(50),
        Loss::None,
        ROOMY,
        20_000_000,
    );
    let lossy = goodput(
        2,
        25_000_000,
        Duration::from_millis(50),
        Loss::Independent(0.01),
        ROOMY,
        10_000_000,
    );
    assert!(clean > 20_000_000.0, "{clean}");
    assert!(lossy < clean / 4.0, "{lossy} of {clean}");
}

/// Checks the weakness stated in the documentation of [`whimbrel_sim::tcp`]. If this fails, smoltcp
/// has learnt to recover, and the documentation is out of date.
#[test]
fn each_overflow_of_a_queue_shorter_than_the_window_costs_a_time_out() {
    let short = QueueLimit::Packets(100);
    let rate = goodput(
        1,
        10_000_000,
        Duration::from_millis(20),
        Loss::None,
        short,
        20_000_000,
    );
    assert!(rate > 5_000_000.0 && rate < 8_500_000.0, "{rate}");
}

#[test]
fn a_transfer_survives_an_outage_and_stalls_for_at_least_as_long() {
    let outage = Outage::Once {
        start: Duration::from_secs(2),
        duration: Duration::from_secs(10),
    };
    let spec = LinkSpec {
        outages: vec![outage],
        ..LinkSpec::new(10_000_000, Duration::from_millis(10)).with_queue(QueueLimit::Packets(100))
    };
    let (mut sim, server, client) = network(3, Congestion::Cubic, spec.clone(), spec);
    let (fetch, stats) = fetch(&mut sim, server, client, 10_000_000, Time::from_secs(120));
    assert_eq!(
        (fetch.goodput.total(), fetch.wrong_bytes, fetch.failed),
        (10_000_000, 0, false)
    );
    assert!(
        fetch.response_time().unwrap() > Duration::from_secs(18),
        "{fetch:?}"
    );
    let silent = fetch
        .goodput
        .bytes()
        .iter()
        .filter(|bytes| **bytes == 0)
        .count();
    assert!(silent >= 19, "at least 9.5 s without a byte: {silent}");
    assert!(stats.retransmitted_segments > 0);
}

#[test]
fn segments_are_retransmitted_only_with_loss() {
    let roomy =
        LinkSpec::new(10_000_000, Duration::from_millis(5)).with_queue(QueueLimit::Unlimited);
    let (mut sim, server, client) = network(4, Congestion::Cubic, roomy.clone(), roomy.clone());
    let (_, stats) = fetch(&mut sim, server, client, 3_000_000, Time::from_secs(60));
    assert_eq!(
        (stats.retransmitted_segments, stats.requests, stats.sent),
        (0, 1, 3_000_000)
    );
    let lossy = roomy.clone().with_loss(Loss::Independent(0.02));
    let (mut sim, server, client) = network(4, Congestion::Cubic, lossy, roomy);
    let (done, stats) = fetch(&mut sim, server, client, 3_000_000, Time::from_secs(600));
    assert_eq!(done.goodput.total(), 3_000_000);
    assert!(stats.retransmitted_segments > 20, "{stats:?}");
    assert!(stats.retransmitted_bytes >= stats.retransmitted_segments);
}

#[test]
fn corruption_never_reaches_the_program() {
    let spec = LinkSpec {
        corrupt: 0.01,
        ..LinkSpec::new(10_000_000, Duration::from_millis(2))
    };
    let (mut sim, server, client) = network(5, Congestion::Reno, spec.clone(), spec);
    let (fetch, _) = fetch(&mut sim, server, client, 2_000_000, Time::from_secs(600));
    assert_eq!((fetch.goodput.total(), fetch.wrong_bytes), (2_000_000, 0));
}

#[test]
fn several_transfers_share_the_link_and_each_completes_once() {
    let spec =
        LinkSpec::new(20_000_000, Duration::from_millis(5)).with_queue(QueueLimit::Packets(200));
    let (mut sim, _, client) = network(6, Congestion::Cubic, spec.clone(), spec);
    for _ in 0..6 {
        sim.with_node(client, |m, now| {
            m.get_mut::<TcpClient>().unwrap().fetch(now, 300_000)
        });
    }
    sim.run_until(Time::from_secs(60));
    let mut done: Vec<FetchId> = Vec::new();
    while let Some(occurrence) = sim.poll_event() {
        match occurrence.event {
            TcpEvent::Completed(id) => done.push(id),
            TcpEvent::Failed(id) => panic!("{id:?} failed"),
        }
    }
    done.sort();
    assert_eq!(done, (0..6).map(FetchId).collect::<Vec<_>>());
}

#[test]
fn the_study_topology_gives_less_than_the_nominal_rate_as_real_80211g_does() {
    let study = study_mftp(Duration::from_millis(10), Loss::None);
    let downlink = study.wifi_downlink.with_queue(ROOMY);
    let (mut sim, server, client) = network(7, Congestion::Cubic, downlink, study.wifi_uplink);
    let (fetch, _) = fetch(&mut sim, server, client, 20_000_000, Time::from_secs(60));
    let rate = fetch.goodput.mean_rate();
    assert!((24e6..31e6).contains(&rate), "{rate}");
}

#[test]
fn one_seed_gives_one_transfer() {
    let run = |seed| {
        let spec =
            LinkSpec::new(10_000_000, Duration::from_millis(5)).with_loss(Loss::Independent(0.01));
        let (mut sim, server, client) = network(seed, Congestion::Cubic, spec.clone(), spec);
        sim.trace.enable_hash();
        let (fetch, _) = fetch(&mut sim, server, client, 1_000_000, Time::from_secs(100));
        (sim.trace.hash().unwrap(), fetch.response_time().unwrap())
    };
    assert_eq!(run(8), run(8));
    assert_ne!(run(8), run(9));
}
