//! The same testbed with TCP end to end: smoltcp's Cubic over relays.

use std::net::Ipv4Addr;
use std::time::Instant;

use whimbrel_core::{Machine, Time};
use whimbrel_sim::link::LinkSpec;
use whimbrel_sim::tcp::{Relay, TcpClient, TcpConfig, TcpEvent, TcpServer};
use whimbrel_sim::{AnyMachine, DuplexLink, Simulator};

use crate::transfer::SAMPLE_INTERVAL;
use crate::{Fig7, TransferMeter, TransferRecord};

/// Fetches `len` bytes from N1 at `request_at` and answers with what N4 saw by `limit`.
///
/// What smoltcp lacks against the kernel is listed in `whimbrel_sim::tcp`.
pub fn simulated_tcp(
    fig7: &Fig7,
    len: u64,
    request_at: Time,
    limit: Time,
    seed: u64,
) -> TransferRecord {
    let (server_address, client_address) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let config = |address| TcpConfig {
        seed,
        ..TcpConfig::new(address)
    };
    let mut sim: Simulator<AnyMachine<TcpEvent>> = Simulator::new(seed);
    let server = sim.add_node(
        "N1",
        AnyMachine::plain(TcpServer::new(config(server_address))),
    );
    let relay = || AnyMachine::new(Relay::new(), |never| match never {});
    let (n2, n3) = (sim.add_node("N2", relay()), sim.add_node("N3", relay()));
    let client = TcpClient::new(config(client_address), server_address, SAMPLE_INTERVAL);
    let client = sim.add_node("N4", AnyMachine::plain(client));
    let links = [
        (server, n2, &fig7.server_link),
        (n2, n3, &fig7.router_link),
        (n3, client, &fig7.last_hop),
    ];
    for (a, b, spec) in links {
        connect(&mut sim, a, b, spec);
    }
    sim.run_until(request_at);
    sim.with_node(client, |machine, now| {
        machine
            .get_mut::<TcpClient>()
            .map(|tcp| tcp.fetch(now, len))
    });
    sim.run_while(limit, |sim| {
        let fetch = sim
            .node(client)
            .get::<TcpClient>()
            .and_then(|tcp| tcp.fetches().first());
        fetch.is_some_and(|fetch| fetch.completed.is_none() && !fetch.failed)
    });
    let retransmitted = sim.node(server).get::<TcpServer>().map(TcpServer::stats);
    let now = sim.now();
    let fetch = sim
        .node(client)
        .get::<TcpClient>()
        .and_then(|tcp| tcp.fetches().first());
    let origin = Instant::now();
    let mut meter = TransferMeter::new(origin);
    let mut completed = false;
    if let Some(fetch) = fetch {
        completed = fetch.completed.is_some();
        let start = fetch.started;
        let mut at = SAMPLE_INTERVAL;
        for bytes in fetch.goodput.bytes() {
            let end = fetch.completed.map_or(at, |end| end.since(start).min(at));
            if *bytes > 0 {
                meter.arrived(origin + end, *bytes);
            }
            at += SAMPLE_INTERVAL;
        }
    }
    let mut record = meter.finish(origin + now.since(request_at), completed);
    record.retransmitted_segments = retransmitted.map(|stats| stats.retransmitted_segments);
    record.retransmitted_bytes = retransmitted.map(|stats| stats.retransmitted_bytes);
    record
}

fn connect<M: Machine>(
    sim: &mut Simulator<M>,
    a: whimbrel_sim::NodeId,
    b: whimbrel_sim::NodeId,
    spec: &LinkSpec,
) {
    // 1,400 bytes of payload [MFTP §5.1] and 40 of headers pass an Ethernet link.
    if let Err(fault) = sim.connect(a, b, &DuplexLink::ip(spec.clone(), spec.clone(), 1500)) {
        panic!("the link's specification makes no sense: {fault}");
    }
}
