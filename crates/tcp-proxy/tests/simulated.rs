//! smoltcp's ends over two proxies and three NDN routers: the line of [TCP/ICN §4.1], Fig. 10b.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use whimbrel_core::{Endpoint, PortId, PortOrigin, SeededRng, Time, WallClock};
use whimbrel_forwarder::ForwarderConfig;
use whimbrel_link::ndnlp::{LinkServiceConfig, Reliability};
use whimbrel_ndn_packet::Name;
use whimbrel_ndn_router::{NdnRouter, NdnRouterConfig};
use whimbrel_sim::link::{LinkSpec, Loss};
use whimbrel_sim::tcp::{TcpClient, TcpConfig, TcpServer};
use whimbrel_sim::{AnyMachine, Door, DuplexLink, NodeId, Simulator};
use whimbrel_tcp_proxy::{
    Gateway, Options, Permission, Policy, Protection, Protocol, Proxy, Route, SealOptions, Target,
};
use whimbrel_transport::AppFace;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);
/// Largest frame of a program's socket.
const LOCAL_FRAME: usize = 9000;

type Sim = Simulator<AnyMachine<()>>;

struct Line {
    sim: Sim,
    client: NodeId,
    gateways: [NodeId; 2],
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
        wall: WallClock::new(1_700_000_000_000),
    };
    NdnRouter::new(config, SeededRng::new(seed))
}

fn prefix(side: usize) -> Name {
    ["/client/tcp", "/server/tcp"][side].parse().unwrap()
}

fn gateway(protocol: Protocol, side: usize) -> Gateway<AppFace<Proxy>> {
    let nets = ["10.1.0.0/16", "10.2.0.0/16"].map(|net| net.parse().unwrap());
    let route = Route {
        to: nets[1 - side],
        target: Target::Prefix(prefix(1 - side)),
        protocol: None,
    };
    let (sources, destinations) = match side {
        0 => (vec![nets[0]], Vec::new()),
        _ => (Vec::new(), vec![Permission::all_ports(nets[1])]),
    };
    let seal = SealOptions {
        protection: Protection::Encrypted,
        secret: vec![7; 32],
        ..SealOptions::unprotected([side as u8; 8], WallClock::new(1_700_000_000_000))
    };
    let policy = Policy::new(vec![route], sources, destinations);
    let options = Options {
        protocol,
        ..Options::new(prefix(side), policy, seal)
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

/// Two routers over a link of their own; returns their ports.
fn connect(sim: &mut Sim, a: NodeId, b: NodeId, spec: &LinkSpec) -> (PortId, PortId) {
    let link = DuplexLink::symmetric(spec.clone())
        .with_origins(PortOrigin::Configured(0), PortOrigin::Configured(0));
    let connection = sim.connect(a, b, &link).unwrap();
    (connection.a, connection.b)
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
        let mut sim = Sim::new(seed);
        let tcp = |address, seed| TcpConfig {
            seed,
            ..TcpConfig::new(address)
        };
        let interval = Duration::from_millis(500);
        let client = TcpClient::new(tcp(CLIENT, 1), SERVER, interval);
        let client = sim.add_node("client", AnyMachine::new(client, |_| ()));
        let server = AnyMachine::new(TcpServer::new(tcp(SERVER, 2)), |_| ());
        let server = sim.add_node("server", server);
        for (side, node) in [client, server].into_iter().enumerate() {
            sim.add_door(Door {
                endpoint: device(side),
                node,
                origin: PortOrigin::Accepted(0),
                link: DuplexLink::ip(LinkSpec::default(), LinkSpec::default(), 1500),
            });
        }
        let routers = [0, 1, 2].map(|number| {
            let router = router(reliability, number);
            sim.add_node(&format!("router {number}"), AnyMachine::new(router, |_| ()))
        });
        let (a, b) = connect(&mut sim, routers[0], routers[1], spec);
        let (c, d) = connect(&mut sim, routers[1], routers[2], spec);
        for (node, port, side) in [
            (routers[0], a, 1),
            (routers[1], b, 0),
            (routers[1], c, 1),
            (routers[2], d, 0),
        ] {
            route(&mut sim, node, &prefix(side), port);
        }
        let gateways = [0, 1].map(|side| {
            let gateway = AnyMachine::new(gateway(protocol, side), |_| ());
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
            gateways,
        }
    }

    /// Fetches `bytes`; returns the time that it takes.
    fn fetch(&mut self, bytes: u64, limit: Duration) -> Option<Duration> {
        // The prefixes are registered first.
        let start = self.sim.now() + Duration::from_millis(200);
        self.sim.run_until(start);
        let fetch = self.sim.with_node(self.client, |node, now| {
            let client: &mut TcpClient = node.get_mut().unwrap();
            client.fetch(now, bytes)
        });
        let done = |sim: &Sim, client: NodeId| {
            let client: &TcpClient = sim.node(client).get().unwrap();
            client.get(fetch).unwrap().clone()
        };
        let end = self.sim.now() + limit;
        while self.sim.now() < end && done(&self.sim, self.client).response_time().is_none() {
            let next = self.sim.now() + Duration::from_millis(100);
            self.sim.run_until(next);
        }
        let fetched = done(&self.sim, self.client);
        assert_eq!((fetched.failed, fetched.wrong_bytes), (false, 0));
        fetched.response_time()
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
            let left = (proxy.connections(), proxy.queued_bytes(), proxy.pending_interests());
            assert_eq!(left, (0, 0, 0), "{protocol}, side {side}");
        }
    }
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
        line.fetch(BYTES, Duration::from_secs(300)).expect("it ends")
    };
    let (without, recovered) = (with(Reliability::Off), with(Reliability::Adaptive));
    assert!(recovered < without, "{recovered:?} with recovery, {without:?} without");
}
