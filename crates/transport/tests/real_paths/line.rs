//! A consumer and a producer with real routers and links between them, in virtual time.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use whimbrel_core::{Endpoint, PortId, PortOrigin, SeededRng, Time, WallClock};
use whimbrel_forwarder::{FaceFlags, ForwarderConfig, Persistency};
use whimbrel_link::ndnlp::{LinkServiceConfig, Reliability};
use whimbrel_ndn_packet::{DigestSigner, Name};
use whimbrel_ndn_router::faces::FaceSettings;
use whimbrel_ndn_router::{NdnRouter, NdnRouterConfig};
use whimbrel_sim::link::{LinkSpec, QueueLimit, Rate, Reorder};
use whimbrel_sim::testbed::Net;
use whimbrel_sim::{AnyMachine, DuplexLink};
use whimbrel_transport::register::Registrar;
use whimbrel_transport::serve::{SegmentResponder, SegmentSource, SourceError};
use whimbrel_transport::{
    AppFace, Application, FetchOptions, FetchStats, Fetcher, ProducerOptions, RegisterOptions,
    Service,
};

/// Largest frame of a link: a UDP datagram on Ethernet.
pub(crate) const MTU: usize = 1472;
/// Octets of a Data beyond its content: name, FinalBlockId, digest.
const DATA_OVERHEAD: f64 = 110.0;
/// Octets that a frame of a packet in fragments has beyond the fragment.
const FRAGMENT_OVERHEAD: f64 = 16.0;

/// A link between two routers, the same both ways.
#[derive(Clone, Debug)]
pub(crate) struct Hop {
    /// Bits per second.
    pub(crate) rate: u64,
    /// One way.
    pub(crate) delay: Duration,
    pub(crate) jitter: Duration,
    /// Bytes.
    pub(crate) queue: u64,
    pub(crate) loss: whimbrel_sim::link::Loss,
    /// Share of frames that others overtake, and their additional delay.
    pub(crate) reorder: Option<(f64, Duration)>,
}

impl Hop {
    fn spec(&self) -> LinkSpec {
        let reorder = self.reorder.map(|(probability, extra_delay)| Reorder {
            probability,
            extra_delay,
        });
        LinkSpec {
            rate: Rate::Fixed(self.rate),
            delay: self.delay,
            jitter: self.jitter,
            queue: QueueLimit::Bytes(self.queue),
            loss: self.loss,
            reorder,
            ..LinkSpec::default()
        }
    }
}

/// Content without an end.
struct Endless(usize);

impl SegmentSource for Endless {
    fn segments(&self) -> u64 {
        u64::from(u32::MAX)
    }

    fn read(&mut self, number: u64, out: &mut Vec<u8>) -> Result<(), SourceError> {
        out.resize(out.len() + self.0, number as u8);
        Ok(())
    }
}

/// Returns the share of a link's rate that is content in segments of this size.
pub(crate) fn efficiency(segment: usize) -> f64 {
    let data = segment as f64 + DATA_OVERHEAD;
    let frames = (data / (MTU as f64 - FRAGMENT_OVERHEAD)).ceil();
    segment as f64 / (data + frames * FRAGMENT_OVERHEAD)
}

pub(crate) struct Line {
    pub(crate) net: Net<AnyMachine<()>>,
    consumer: usize,
}

fn wall() -> WallClock {
    WallClock::new(1_795_000_000_000)
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn local() -> DuplexLink {
    DuplexLink {
        mtu: 65_536,
        packets: true,
        ..DuplexLink::local()
    }
}

fn router(seed: u64, number: usize) -> NdnRouter {
    let config = NdnRouterConfig {
        forwarder: ForwarderConfig::default(),
        link: LinkServiceConfig::datagram(MTU),
        idle_timeout: Duration::from_secs(3600),
        max_faces: usize::MAX,
        max_queued: usize::MAX,
        wall: wall(),
    };
    NdnRouter::new(config, SeededRng::stream(seed, &format!("router {number}")))
}

/// Has a router expect a face to its neighbour, whose link recovers lost frames if it is to.
fn expect_face(
    net: &mut Net<AnyMachine<()>>,
    router: usize,
    peer: usize,
    reliability: Reliability,
) -> PortOrigin {
    let settings = FaceSettings {
        persistency: Persistency::Permanent,
        mtu: None,
        flags: FaceFlags {
            reliability: reliability != Reliability::Off,
            congestion_marking: true,
            ..FaceFlags::default()
        },
        reliability: Some(reliability),
        congestion: (None, None),
        reopened: None,
        device: None,
    };
    let remote = SocketAddr::from(([192, 0, 2, 1 + peer as u8], 6363)).into();
    let endpoint = Endpoint::Udp {
        remote,
        shared: true,
    };
    net.with(router, |machine, _| {
        let router: &mut NdnRouter = machine.get_mut().unwrap();
        PortOrigin::Opened(router.ask_connected(endpoint, settings))
    })
}

fn add_route(net: &mut Net<AnyMachine<()>>, router: usize, prefix: &str, port: PortId) {
    net.with(router, |machine, _| {
        let router: &mut NdnRouter = machine.get_mut().unwrap();
        let face = router.face_of(port).unwrap();
        let fib = router.forwarder_mut().fib_mut();
        fib.add_next_hop(name(prefix).as_ref(), face, 1).unwrap();
    });
}

fn attach<A: Application + 'static>(
    net: &mut Net<AnyMachine<()>>,
    program: A,
    router: usize,
) -> (usize, PortId) {
    let machine = AnyMachine::new(AppFace::new(program), |_| ());
    let node = net.add_mortal("program", machine);
    let connection = net.connect(router, node, &local()).unwrap();
    (node, connection.a)
}

impl Line {
    /// The producer at one end of these hops with segments of this size, the consumer at the other.
    pub(crate) fn new(
        hops: &[Hop],
        reliability: Reliability,
        segment: usize,
        options: FetchOptions,
        seed: u64,
    ) -> Line {
        let mut net = Net::new(seed);
        for number in 0..=hops.len() {
            let router = router(seed, number);
            net.add_mortal(&format!("router {number}"), AnyMachine::new(router, |_| ()));
        }
        let links = hops.iter().enumerate().map(|(at, hop)| {
            let [first, second] = [(at, at + 1), (at + 1, at)]
                .map(|(node, peer)| expect_face(&mut net, node, peer, reliability));
            let link = DuplexLink {
                mtu: MTU,
                ..DuplexLink::symmetric(hop.spec()).with_origins(first, second)
            };
            net.connect(at, at + 1, &link).unwrap()
        });
        let links: Vec<_> = links.collect();
        // The links agree on recovery over the first content, before the measured consumer comes.
        for prefix in ["/first", "/f"] {
            let responder = SegmentResponder::new(
                name(&format!("{prefix}/v=1")),
                Endless(segment),
                Arc::new(DigestSigner),
                ProducerOptions::new(wall(), Time::ZERO),
            );
            let registrar = Registrar::new(RegisterOptions::new(wall()), []);
            let producer = Service::new(responder, registrar, SeededRng::new(1));
            let (_, port) = attach(&mut net, producer, hops.len());
            net.run_for(Duration::from_secs(1));
            add_route(&mut net, hops.len(), prefix, port);
            for (at, link) in links.iter().enumerate() {
                add_route(&mut net, at, prefix, link.a);
            }
        }
        let first = FetchOptions {
            first_segments: NonZeroU64::new(20),
            ..FetchOptions::default()
        };
        let first = Fetcher::new(name("/first/v=1"), first, SeededRng::new(3), net.now());
        attach(&mut net, first, 0);
        net.run_for(Duration::from_secs(30));
        let fetcher = Fetcher::new(name("/f/v=1"), options, SeededRng::new(2), net.now());
        let (consumer, _) = attach(&mut net, fetcher, 0);
        Line { net, consumer }
    }

    pub(crate) fn fetcher(&self) -> &Fetcher {
        let face: &AppFace<Fetcher> = self.net[self.consumer].get().unwrap();
        face.application()
    }

    pub(crate) fn stats(&self) -> FetchStats {
        self.fetcher().stats()
    }
}
