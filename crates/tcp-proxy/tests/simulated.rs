//! smoltcp's ends over two proxies and three NDN routers: the line of [TCP/ICN §4.1], Fig. 10b.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::pair;
use whimbrel_core::{Endpoint, PortId, PortOrigin, SeededRng, WallClock};
use whimbrel_forwarder::{FaceFlags, ForwarderConfig, Persistency};
use whimbrel_link::ndnlp::{LinkServiceConfig, Reliability};
use whimbrel_ndn_packet::Name;
use whimbrel_ndn_router::faces::FaceSettings;
use whimbrel_ndn_router::{NdnRouter, NdnRouterConfig};
use whimbrel_sim::link::{LinkSpec, Loss, QueueLimit};
use whimbrel_sim::tcp::{FetchId, Relay, TcpClient, TcpConfig, TcpServer};
use whimbrel_sim::{
    AnyMachine, Connection, Direction, Door, DuplexLink, LinkId, NodeId, Simulator,
};
use whimbrel_tcp_proxy::{Gateway, Options, Protection, Protocol, Proxy};
use whimbrel_transport::AppFace;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);
/// Largest frame of a program's socket.
const LOCAL_FRAME: usize = 9000;

type Sim = Simulator<AnyMachine<()>>;

struct Line {
    sim: Sim,
    client: NodeId,
    server: NodeId,
    /// None of plain IP.
    gateways: Vec<NodeId>,
    routers: Vec<NodeId>,
    /// Those between the routers.
    links: [LinkId; 2],
}

fn ends(sim: &mut Sim) -> [NodeId; 2] {
    let tcp = |address, seed| TcpConfig {
        seed,
        // [TCP/ICN §3.2.3]: packets of 1500 bytes.
        segment_size: 1460,
        // Less than the queues of the links hold, and more than is on its way: smoltcp recovers
        // badly from a queue that overflows.
        receive_buffer: 128 * 1024,
        ..TcpConfig::new(address)
    };
    let interval = Duration::from_millis(500);
    let client = TcpClient::new(tcp(CLIENT, 1), SERVER, interval);
    let server = TcpServer::new(tcp(SERVER, 2));
    [
        sim.add_node("client", AnyMachine::new(client, |_| ())),
        sim.add_node("server", AnyMachine::new(server, |_| ())),
    ]
}

/// A link without a bottleneck, as from a program to its proxy.
fn wire() -> DuplexLink {
    DuplexLink::ip(LinkSpec::default(), LinkSpec::default(), 1500)
}

fn router(reliability: Reliability, seed: u64) -> NdnRouter {
    let config = NdnRouterConfig {
        forwarder: ForwarderConfig::default(),
        link: LinkServiceConfig {
            reliability,
            ..LinkServiceConfig::datagram(1472)
        },
        idle_timeout: Duration::from_secs(3600),
        max_faces: 16,
        max_queued: usize::MAX,
        wall: WallClock::new(1_700_000_000_000),
    };
    NdnRouter::new(config, SeededRng::new(seed))
}

fn prefix(side: usize) -> Name {
    pair::PREFIXES[side].parse().unwrap()
}

fn gateway(protocol: Protocol, side: usize, paths: usize) -> Gateway<AppFace<Proxy>> {
    let options = Options {
        protocol,
        paths,
        ..pair::options(side, Protection::Encrypted)
    };
    let proxy = Proxy::new(options, SeededRng::new(side as u64)).unwrap();
    Gateway::new(device(side), AppFace::new(proxy))
}

fn device(side: usize) -> Endpoint {
    let address: IpAddr = [CLIENT, SERVER][side].into();
    Endpoint::Tun {
        name: format!("tcpicn{side}"),
        addresses: vec![(address, 32)],
        mtu: 1500,
    }
}

/// Two routers over a link of their own, which recovers lost frames if it is to.
fn connect(
    sim: &mut Sim,
    (a, b): (NodeId, NodeId),
    spec: &LinkSpec,
    reliability: Reliability,
) -> Connection {
    let settings = || FaceSettings {
        persistency: Persistency::Permanent,
        mtu: None,
        flags: FaceFlags {
            reliability: reliability != Reliability::Off,
            ..FaceFlags::default()
        },
        reliability: Some(reliability),
        congestion: (None, None),
        reopened: None,
        device: None,
    };
    let [first, second] = [(a, b), (b, a)].map(|(node, peer)| {
        let address = Ipv4Addr::new(192, 0, 2, 1 + peer.index() as u8);
        let endpoint = Endpoint::Udp {
            remote: SocketAddr::from((address, 6363)).into(),
            shared: true,
        };
        sim.with_node(node, |node, _| {
            let router: &mut NdnRouter = node.get_mut().unwrap();
            PortOrigin::Opened(router.ask_connected(endpoint, settings()))
        })
    });
    let link = DuplexLink::symmetric(spec.clone()).with_origins(first, second);
    sim.connect(a, b, &link).unwrap()
}

fn route(sim: &mut Sim, node: NodeId, name: &Name, port: PortId) {
    sim.with_node(node, |node, _| {
        let router: &mut NdnRouter = node.get_mut().unwrap();
        let face = router.face_of(port).unwrap();
        let fib = router.forwarder_mut().fib_mut();
        fib.add_next_hop(name.as_ref(), face, 0).unwrap();
    });
}

impl Line {
    fn new(protocol: Protocol, spec: &LinkSpec, reliability: Reliability, seed: u64) -> Line {
        Line::with_paths(protocol, spec, reliability, seed, 1)
    }

    /// A line whose proxies use up to `paths` paths.
    fn with_paths(
        protocol: Protocol,
        spec: &LinkSpec,
        reliability: Reliability,
        seed: u64,
        paths: usize,
    ) -> Line {
        let mut sim = Sim::new(seed);
        let [client, server] = ends(&mut sim);
        for (side, node) in [client, server].into_iter().enumerate() {
            sim.add_door(Door {
                endpoint: device(side),
                node,
                origin: PortOrigin::Accepted(0),
                link: wire(),
            });
        }
        let routers = [0, 1, 2].map(|number| {
            let router = router(reliability, number);
            sim.add_node(&format!("router {number}"), AnyMachine::new(router, |_| ()))
        });
        let first = connect(&mut sim, (routers[0], routers[1]), spec, reliability);
        let second = connect(&mut sim, (routers[1], routers[2]), spec, reliability);
        for (node, port, side) in [
            (routers[0], first.a, 1),
            (routers[1], first.b, 0),
            (routers[1], second.a, 1),
            (routers[2], second.b, 0),
        ] {
            route(&mut sim, node, &prefix(side), port);
        }
        let gateways = [0, 1].map(|side| {
            let gateway = AnyMachine::new(gateway(protocol, side, paths), |_| ());
            let gateway = sim.add_node(&format!("gateway {side}"), gateway);
            let socket = DuplexLink {
                mtu: LOCAL_FRAME,
                packets: true,
                ..DuplexLink::local()
            };
            sim.connect(gateway, routers[side * 2], &socket).unwrap();
            gateway
        });
        Line {
            sim,
            client,
            server,
            gateways: gateways.to_vec(),
            routers: routers.to_vec(),
            links: [first.link, second.link],
        }
    }

    /// A line with a second router beside the middle one, by which a path of the same length leads.
    /// Returns it with the second path's links.
    fn forked(protocol: Protocol, spec: &LinkSpec, paths: usize) -> (Line, [LinkId; 2]) {
        let mut line = Line::with_paths(protocol, spec, Reliability::Off, 1, paths);
        let sim = &mut line.sim;
        let detour = router(Reliability::Off, 3);
        let detour = sim.add_node("router 3", AnyMachine::new(detour, |_| ()));
        let (near, far) = (line.routers[0], line.routers[2]);
        let first = connect(sim, (near, detour), spec, Reliability::Off);
        let second = connect(sim, (detour, far), spec, Reliability::Off);
        for (node, port, side) in [
            (near, first.a, 1),
            (detour, first.b, 0),
            (detour, second.a, 1),
            (far, second.b, 0),
        ] {
            route(sim, node, &prefix(side), port);
        }
        (line, [first.link, second.link])
    }

    /// The same line without proxies and NDN: [TCP/ICN §4.1], Fig. 10a.
    fn plain(spec: &LinkSpec, seed: u64) -> Line {
        let mut sim = Sim::new(seed);
        let [client, server] = ends(&mut sim);
        let routers = [0, 1, 2].map(|number| {
            let relay = AnyMachine::new(Relay::new(), |_| ());
            sim.add_node(&format!("router {number}"), relay)
        });
        sim.connect(client, routers[0], &wire()).unwrap();
        sim.connect(server, routers[2], &wire()).unwrap();
        let link = DuplexLink::ip(spec.clone(), spec.clone(), 1500);
        let first = sim.connect(routers[0], routers[1], &link).unwrap();
        let second = sim.connect(routers[1], routers[2], &link).unwrap();
        Line {
            sim,
            client,
            server,
            gateways: Vec::new(),
            routers: routers.to_vec(),
            links: [first.link, second.link],
        }
    }

    fn retransmitted(&self) -> u64 {
        let server: &TcpServer = self.sim.node(self.server).get().unwrap();
        server.stats().retransmitted_segments
    }

    /// Frames that the links between the routers took, both directions of both.
    fn frames(&self) -> u64 {
        let frames = |link| {
            let of = |direction| self.sim.link_stats(link, direction).offered;
            of(Direction::AToB) + of(Direction::BToA)
        };
        self.links.into_iter().map(frames).sum()
    }

    /// Fetches `bytes`; returns the time that it takes.
    fn fetch(&mut self, bytes: u64, limit: Duration) -> Option<Duration> {
        // The prefixes are registered first.
        self.run(Duration::from_millis(200));
        let fetch = self.start(bytes);
        self.finish(fetch, limit)
    }

    fn run(&mut self, time: Duration) {
        let until = self.sim.now() + time;
        self.sim.run_until(until);
    }

    fn start(&mut self, bytes: u64) -> FetchId {
        self.sim.with_node(self.client, |node, now| {
            let client: &mut TcpClient = node.get_mut().unwrap();
            client.fetch(now, bytes)
        })
    }

    /// Starts several transfers. smoltcp's server refuses a SYN that comes with another one.
    fn start_all<const N: usize>(&mut self, bytes: u64) -> [FetchId; N] {
        [(); N].map(|()| {
            self.run(Duration::from_millis(10));
            self.start(bytes)
        })
    }

    /// Waits for the end of a transfer; returns the time that it takes.
    fn finish(&mut self, fetch: FetchId, limit: Duration) -> Option<Duration> {
        let done = |sim: &Sim, client: NodeId| {
            let client: &TcpClient = sim.node(client).get().unwrap();
            client.get(fetch).unwrap().clone()
        };
        let end = self.sim.now() + limit;
        while self.sim.now() < end && done(&self.sim, self.client).response_time().is_none() {
            self.run(Duration::from_millis(100));
        }
        let fetched = done(&self.sim, self.client);
        assert_eq!((fetched.failed, fetched.wrong_bytes), (false, 0));
        fetched.response_time()
    }

    /// Bytes that a link took towards the client.
    fn carried(&self, link: LinkId) -> u64 {
        self.sim.link_stats(link, Direction::BToA).delivered_bytes
    }

    fn proxy(&self, side: usize) -> &Proxy {
        let gateway: &Gateway<AppFace<Proxy>> = self.sim.node(self.gateways[side]).get().unwrap();
        gateway.proxy()
    }
}

/// A link of the ICN part: 10 Mbit/s, 10 ms, a queue of 100 packets.
fn spec(loss: f64) -> LinkSpec {
    let spec = LinkSpec::new(10_000_000, Duration::from_millis(10));
    match loss {
        0.0 => spec,
        loss => spec.with_loss(Loss::Independent(loss)),
    }
}

const BYTES: u64 = 2_000_000;

#[test]
fn every_protocol_carries_a_transfer() {
    for protocol in Protocol::ALL {
        let mut line = Line::new(protocol, &spec(0.0), Reliability::Off, 1);
        let time = line.fetch(BYTES, Duration::from_secs(60)).expect("it ends");
        // 2 MB at 10 Mbit/s take 1.6 s; the rest is set-up, slow start and overhead.
        let least = Duration::from_millis(1600);
        assert!(time > least && time < 4 * least, "{protocol}: {time:?}");
        for side in [0, 1] {
            let counters = line.proxy(side).counters();
            let faults = counters.forged + counters.bad_messages + counters.denied;
            assert_eq!(faults, 0, "{protocol}: {counters:?}");
        }
        // A minute after the connection is closed, nothing is left of it.
        let end = line.sim.now() + Duration::from_secs(80);
        line.sim.run_until(end);
        for side in [0, 1] {
            let proxy = line.proxy(side);
            let left = (
                proxy.connections(),
                proxy.queued_bytes(),
                proxy.pending_interests(),
            );
            assert_eq!(left, (0, 0, 0), "{protocol}, side {side}");
        }
    }
}

/// smoltcp's receiver acknowledges nearly every segment, and each acknowledgement brings one of the
/// sender's. Two share a Data all the same, and with it the octets of a name and a seal.
#[test]
fn segments_share_data_though_each_is_acknowledged() {
    let mut line = Line::new(Protocol::Unreliable, &spec(0.0), Reliability::Off, 1);
    line.fetch(BYTES, Duration::from_secs(60)).expect("it ends");
    let sent = line.proxy(1).counters();
    let share = sent.out_segments as f64 / sent.out_data as f64;
    assert!(share > 1.9, "{share} in a Data: {sent:?}");
}

#[test]
fn every_protocol_survives_losses() {
    for protocol in Protocol::ALL {
        let mut line = Line::new(protocol, &spec(0.01), Reliability::Off, 2);
        let time = line.fetch(BYTES / 4, Duration::from_secs(300));
        assert!(time.is_some(), "{protocol}");
    }
}

/// With link recovery below, TCP sees no loss: "TCP/IP in terms of goodput (especially over lossy
/// channels)" ([TCP/ICN §5]) is the paper's hope.
#[test]
fn link_recovery_hides_losses() {
    let with = |reliability| {
        let mut line = Line::new(Protocol::Unreliable, &spec(0.01), reliability, 3);
        line.fetch(BYTES, Duration::from_secs(300))
            .expect("it ends")
    };
    let (without, recovered) = (with(Reliability::Off), with(Reliability::Adaptive));
    assert!(
        recovered < without,
        "{recovered:?} with recovery, {without:?} without"
    );
}

/// Beyond the paper: with path tags [PTP §3], connections share what two paths carry.
#[test]
fn connections_share_two_paths() {
    for protocol in Protocol::ALL {
        let shares = |paths| {
            let (mut line, detour) = Line::forked(protocol, &spec(0.0), paths);
            line.run(Duration::from_millis(200));
            // The first one makes the paths known.
            let first = line.start(50_000);
            line.finish(first, Duration::from_secs(10))
                .expect("it ends");
            line.run(Duration::from_millis(500));
            let before = [line.links[0], detour[0]].map(|link| line.carried(link));
            let fetches = line.start_all::<4>(BYTES / 4);
            for fetch in fetches {
                line.finish(fetch, Duration::from_secs(60))
                    .expect("it ends");
            }
            let after = [line.links[0], detour[0]].map(|link| line.carried(link));
            let mut carried = [after[0] - before[0], after[1] - before[1]];
            carried.sort_unstable();
            carried[0] as f64 / (carried[0] + carried[1]) as f64
        };
        let (one, two) = (shares(1), shares(2));
        assert!(one < 0.01, "{protocol}: {one} beside the name's path");
        assert!(two > 0.4, "{protocol}: {two} of the bytes on one path");
    }
}

/// Nobody says that a path is gone: its checks stay unanswered.
#[test]
fn a_path_that_swallows_everything_is_left() {
    for protocol in Protocol::ALL {
        let gone = |cut: usize| {
            let (mut line, detour) = Line::forked(protocol, &spec(0.0), 2);
            line.run(Duration::from_millis(200));
            let first = line.start(50_000);
            line.finish(first, Duration::from_secs(10))
                .expect("it ends");
            line.run(Duration::from_millis(500));
            let fetches = line.start_all::<2>(BYTES);
            line.run(Duration::from_millis(500));
            let links = [line.links[0], detour[0]];
            line.sim.partition(links[cut]);
            for fetch in fetches {
                let time = line.finish(fetch, Duration::from_secs(30));
                assert!(time.is_some(), "{protocol}, link {cut}");
            }
            line.proxy(0).counters().failed_paths
        };
        assert_eq!([gone(0), gone(1)], [1, 1], "{protocol}: one failed path");
    }
}

/// [TCP/ICN §4.1], Figs 8 and 9: 50 MB over links of 1 Mbit/s, without loss and with 1 %. What the
/// paper does not give is assumed: 10 ms and a queue of 100 packets for each link, loss on the links
/// between the routers. smoltcp recovers worse from losses than a kernel does.
///
/// `cargo test --release -p whimbrel-tcp-proxy --test all simulated::figures -- --ignored --nocapture`
#[test]
#[ignore = "a measurement of minutes"]
fn figures_8_and_9() {
    const MEGABYTES: u64 = 50;
    println!("loss  protocol    recovery  seconds  / plain  retransmitted  frames");
    for loss in [0.0, 0.01] {
        let spec = LinkSpec::new(1_000_000, Duration::from_millis(10))
            .with_queue(QueueLimit::Packets(100));
        let spec = match loss {
            0.0 => spec,
            loss => spec.with_loss(Loss::Independent(loss)),
        };
        let limit = Duration::from_secs(20_000);
        let mut plain = None;
        let mut row = |protocol: &str, recovery: &str, mut line: Line| {
            let time = line
                .fetch(MEGABYTES * 1_000_000, limit)
                .map(|it| it.as_secs_f64());
            let time = time.unwrap_or(f64::INFINITY);
            let ratio = time / *plain.get_or_insert(time);
            println!(
                "{loss:<5} {protocol:<11} {recovery:<9} {time:>7.1}  {ratio:>7.3}  {:>13}  {}",
                line.retransmitted(),
                line.frames()
            );
        };
        row("plain IP", "-", Line::plain(&spec, 1));
        for protocol in Protocol::ALL {
            for (name, reliability) in [
                ("off", Reliability::Off),
                ("adaptive", Reliability::Adaptive),
            ] {
                row(
                    protocol.name(),
                    name,
                    Line::new(protocol, &spec, reliability, 1),
                );
            }
        }
    }
}
