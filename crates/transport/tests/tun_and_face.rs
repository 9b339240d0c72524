//! A program with a TUN device and an NDN face, both of which it asks for itself: what a proxy for
//! IP over NDN is made of. Each packet of the device becomes an Interest, and the content of the
//! Data that answers goes back to the device.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::Ipv4Addr;

use bytes::Bytes;
use whimbrel_core::{
    Deadline, Endpoint, Machine, OpenRefusal, PortEvent, PortId, PortOrigin, PortRequest,
    PortToken, SeededRng, Time, Transmit,
};
use whimbrel_ndn_packet::{DigestSigner, Interest, LpPacket, Name};
use whimbrel_sim::link::LinkSpec;
use whimbrel_sim::{AnyMachine, Door, DuplexLink, NodeId, Simulator};
use whimbrel_transport::EchoProducer;
use whimbrel_transport::application::Arrival;
use whimbrel_transport::{AppFace, Application, FaceNumber, Outgoing};

const TUN: PortToken = PortToken(1);
const FACE: PortToken = PortToken(2);
const ANSWER: usize = 64;

/// The NDN half: Interests for what the device sends, contents for what it gets.
#[derive(Default)]
struct Carrier {
    outward: VecDeque<Vec<u8>>,
    inward: VecDeque<Vec<u8>>,
    sent: u64,
}

impl Application for Carrier {
    type Event = ();

    fn handle_face(&mut self, _: Time, _: FaceNumber, _: bool) {}

    fn handle_packet(&mut self, _: Time, _: FaceNumber, packet: &LpPacket<'_>) {
        if let Ok(Arrival::Data(data)) = Arrival::decode(packet) {
            self.inward.push_back(data.content.to_vec());
        }
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_packet(&mut self, _: Time, _: FaceNumber) -> Option<Outgoing> {
        self.outward.pop_front()?;
        self.sent += 1;
        let name: Name = format!("/tunnel/{}", self.sent).parse().expect("a name");
        Some((Bytes::from(Interest::new(name).encode()), None))
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}

/// Both halves, and their ports by the tokens of their requests.
struct Gateway {
    face: AppFace<Carrier>,
    device: Option<PortId>,
    wishes: VecDeque<PortRequest>,
    refused: Vec<PortToken>,
}

impl Gateway {
    fn new(wishes: [(PortToken, Endpoint); 2]) -> Gateway {
        let open = |(token, endpoint): (PortToken, Endpoint)| PortRequest::Open {
            token,
            label: endpoint.to_string(),
            endpoint,
        };
        Gateway {
            face: AppFace::new(Carrier::default()),
            device: None,
            wishes: wishes.map(open).into(),
            refused: Vec::new(),
        }
    }
}

impl Machine for Gateway {
    type Event = ();

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        match &event {
            PortEvent::Up(info) if info.origin == PortOrigin::Opened(TUN) => {
                self.device = Some(port);
            }
            PortEvent::Down if self.device == Some(port) => self.device = None,
            _ => self.face.handle_port(now, port, event),
        }
    }

    fn handle_refusal(&mut self, _: Time, token: PortToken, _: OpenRefusal) {
        self.refused.push(token);
    }

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        if self.device == Some(port) {
            let packets = frames.iter().map(|packet| packet.to_vec());
            self.face.application_mut().outward.extend(packets);
        } else {
            self.face.handle_frames(now, port, frames);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.face.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, most: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(port) = self.device
            && let Some(packet) = self.face.application_mut().inward.pop_front()
        {
            buffer.extend_from_slice(&packet);
            return Some(Transmit {
                port,
                size: packet.len(),
                segment_size: None,
            });
        }
        self.face.poll_transmit(now, most, buffer)
    }

    fn poll_event(&mut self) -> Option<()> {
        self.face.poll_event()
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        let own = self.wishes.pop_front();
        own.or_else(|| self.face.poll_port_request())
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.face.poll_timeout()
    }
}

/// What the kernel of this machine has at its side of the device.
#[derive(Default)]
struct Kernel {
    port: Option<PortId>,
    to_send: VecDeque<Vec<u8>>,
    got: Vec<usize>,
}

impl Machine for Kernel {
    type Event = ();

    fn handle_port(&mut self, _: Time, port: PortId, event: PortEvent) {
        if matches!(event, PortEvent::Up(_)) {
            self.port = Some(port);
        }
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, _: Time, _: PortId, frames: &[&[u8]]) {
        self.got.extend(frames.iter().map(|packet| packet.len()));
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_transmit(&mut self, _: Time, _: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let port = self.port?;
        let packet = self.to_send.pop_front()?;
        buffer.extend_from_slice(&packet);
        Some(Transmit {
            port,
            size: packet.len(),
            segment_size: None,
        })
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}

fn door(sim: &mut Simulator<AnyMachine<()>>, endpoint: Endpoint, node: NodeId) {
    let origin = PortOrigin::Accepted(0);
    let link = DuplexLink::symmetric(LinkSpec {
        delay: Duration::from_millis(3),
        ..LinkSpec::default()
    });
    sim.add_door(Door {
        endpoint,
        node,
        origin,
        link,
    });
}

#[test]
fn packets_of_a_tun_device_are_carried_over_a_face() {
    let device = Endpoint::Tun {
        name: String::from("proxy0"),
        addresses: vec![(Ipv4Addr::new(10, 9, 0, 1).into(), 24)],
        mtu: 1400,
    };
    let forwarder = Endpoint::Unix {
        path: "/run/nfd/nfd.sock".into(),
    };
    let mut sim: Simulator<AnyMachine<()>> = Simulator::new(1);
    let kernel = sim.add_node("kernel", AnyMachine::plain(Kernel::default()));
    let prefix: Name = "/tunnel".parse().expect("a name");
    let signer = std::sync::Arc::new(DigestSigner);
    let fresh = Duration::from_millis(100);
    let echo = EchoProducer::echo(prefix, ANSWER, fresh, signer, None, SeededRng::new(1));
    let producer = AnyMachine::new(AppFace::new(echo), |_| ());
    let producer = sim.add_node("producer", producer);
    door(&mut sim, device.clone(), kernel);
    door(&mut sim, forwarder.clone(), producer);
    let gateway = Gateway::new([(TUN, device), (FACE, forwarder)]);
    let gateway = sim.add_node("gateway", AnyMachine::plain(gateway));

    sim.with_node(kernel, |node, _| {
        let kernel: &mut Kernel = node.get_mut().expect("the kernel");
        kernel
            .to_send
            .extend((0..5).map(|size| vec![0x45; 100 + size]));
    });
    sim.run_until(Time::from_millis(100));

    let kernel: &Kernel = sim.node(kernel).get().expect("the kernel");
    assert_eq!(kernel.got, [ANSWER; 5]);
    let gateway: &Gateway = sim.node(gateway).get().expect("the gateway");
    assert_eq!(gateway.face.application().sent, 5);
    assert!(gateway.refused.is_empty());
}
