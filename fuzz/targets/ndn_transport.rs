//! Applications behind their faces, and a forwarder that says whatever the input says.
//!
//! The input is a list of steps: an octet that chooses the step and whom it is for, then what the
//! step needs. Frames are the input's own octets, or well-formed answers to what an application has
//! sent, with octets of the input in them.
#![no_main]

use core::time::Duration;
use std::sync::Arc;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use whimbrel_core::Medium;
use whimbrel_core::{Machine, PortEvent, PortId, PortInfo, PortOrigin, SeededRng, Time, WallClock};
use whimbrel_ndn_mgmt::ControlResponse;
use whimbrel_ndn_packet::lp::{self, LinkFields};
use whimbrel_ndn_packet::{
    Component, Data, DigestSigner, Interest, InterestRef, LpHeader, LpPacket, NackReason, Name,
};
use whimbrel_transport::register::{Registrar, RouteParameters};
use whimbrel_transport::serve::SegmentResponder;
use whimbrel_transport::traffic::{Append, TrafficPattern};
use whimbrel_transport::{
    AppFace, BytesSource, Delivery, Discovery, EchoProducer, FetchOptions, Fetcher, Gaps,
    PathOptions, Peek, PeekOptions, Ping, PingOptions, ProducerOptions, RegisterOptions, Service,
    TrafficClient, TrafficOptions, Verify,
};

const PORT: PortId = PortId(1);

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// Reads the input from its front.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn octet(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// One application, without its type.
trait Live {
    fn step(&mut self, now: Time, step: u8, input: &mut Input<'_>);
}

struct Peer<M> {
    machine: M,
    /// The last Interests that it sent.
    sent: Vec<Vec<u8>>,
    up: bool,
}

impl<M: Machine> Peer<M> {
    fn new(machine: M) -> Box<Peer<M>> {
        let mut peer = Peer {
            machine,
            sent: Vec::new(),
            up: false,
        };
        peer.port(Time::ZERO, true);
        Box::new(peer)
    }

    fn port(&mut self, now: Time, up: bool) {
        self.up = up;
        let label = String::new();
        let medium = Medium::Unix {
            path: None,
            descriptor: 0,
            accepted: false,
        };
        let info = PortInfo {
            peer: label.clone(),
            label,
            origin: PortOrigin::Local,
            mtu: 8800,
            medium,
        };
        self.machine.handle_port(
            now,
            PORT,
            if up {
                PortEvent::Up(info)
            } else {
                PortEvent::Down
            },
        );
        self.drain(now);
    }

    fn drain(&mut self, now: Time) {
        let mut buffer = Vec::new();
        for round in 0.. {
            assert!(round < 100_000, "it never comes to rest");
            buffer.clear();
            let mut quiet = true;
            if self.machine.poll_transmit(now, 44, &mut buffer).is_some() {
                quiet = false;
                let mut reader = whimbrel_ndn_packet::tlv::Reader::new(&buffer);
                while let Some(packet) = reader.element().expect("whole packets are sent") {
                    let lp = LpPacket::decode(packet.whole, false).expect("valid packets are sent");
                    let fragment = lp.fragment.expect("with something in them");
                    if lp.nack.is_none() && InterestRef::decode(fragment).is_ok() {
                        self.sent.push(fragment.to_vec());
                    }
                }
                let surplus = self.sent.len().saturating_sub(64);
                self.sent.drain(..surplus);
            }
            while self.machine.poll_event().is_some() {
                quiet = false;
            }
            if quiet {
                break;
            }
        }
    }

    /// An answer to one of the last Interests.
    fn answer(&self, input: &mut Input<'_>) -> Option<Vec<u8>> {
        let which = usize::from(input.octet()?);
        let wire = self.sent.get(which % self.sent.len().max(1))?;
        let interest = InterestRef::decode(wire).ok()?;
        let kind = input.octet()?;
        let mut header = LpHeader::default();
        let packet = match kind % 8 {
            0 => {
                header.nack = Some(NackReason::from_code(
                    [0, 50, 100, 150][usize::from(kind / 8) % 4],
                ));
                wire.clone()
            }
            1 => {
                let code = if kind & 8 == 0 {
                    200
                } else {
                    400 + u64::from(kind)
                };
                let content = ControlResponse::new(code, "text").encode();
                Data::new(interest.name.to_name(), content).encode(&DigestSigner)
            }
            2 => {
                let version = Component::version(u64::from(kind));
                let data_name = interest.name.to_name().child(version.as_ref());
                let data_name = data_name.child(Component::segment(0).as_ref());
                let mut content = Vec::new();
                name("/file")
                    .child(version.as_ref())
                    .as_ref()
                    .encode(&mut content);
                Data::new(data_name, content).encode(&DigestSigner)
            }
            3 => Data::new(
                interest.name.to_name().child_generic(input.take(3)),
                input.take(20).to_vec(),
            )
            .encode(&DigestSigner),
            _ => {
                let last = match kind % 8 {
                    4 => None,
                    5 => Some(u64::from(input.octet()?)),
                    _ => Some(u64::MAX - u64::from(input.octet()?)),
                };
                let size = usize::from(input.octet()?);
                let data = Data {
                    final_block_id: last.map(Component::segment),
                    ..Data::new(interest.name.to_name(), input.take(size).to_vec())
                };
                header.congestion_mark = (kind & 64 != 0).then_some(1);
                data.encode(&DigestSigner)
            }
        };
        let mut frame = Vec::new();
        lp::encode(&mut frame, &LinkFields::default(), &header, Some(&packet));
        Some(frame)
    }
}

impl<M: Machine> Live for Peer<M> {
    fn step(&mut self, now: Time, step: u8, input: &mut Input<'_>) {
        match step {
            0 => {
                let len = usize::from(input.octet().unwrap_or(0));
                self.machine.handle_frames(now, PORT, &[input.take(len)]);
            }
            1 => {
                // An Interest, so that what comes after a valid header is tried as well.
                let len = usize::from(input.octet().unwrap_or(0)) % 40;
                let suffix = input.take(len);
                let flags = input.octet().unwrap_or(0);
                let base =
                    ["/file", "/file/v=1", "/file/32=metadata", "/other"][usize::from(flags) % 4];
                let name = match whimbrel_ndn_packet::NameRef::from_value(suffix) {
                    Ok(suffix) => name(base).join(suffix),
                    Err(_) => name(base).child_generic(suffix),
                };
                let interest = Interest {
                    can_be_prefix: flags & 4 != 0,
                    must_be_fresh: flags & 8 != 0,
                    ..Interest::new(name)
                };
                self.machine.handle_frames(now, PORT, &[&interest.encode()]);
            }
            2..=5 => {
                if let Some(frame) = self.answer(input) {
                    self.machine.handle_frames(now, PORT, &[&frame]);
                }
            }
            6 => self.machine.handle_timeout(now),
            _ => {
                let up = !self.up;
                self.port(now, up);
            }
        }
        self.drain(now);
        let deadline = self.machine.poll_timeout();
        if deadline.is_some_and(|deadline| deadline.at <= now) {
            self.machine.handle_timeout(now);
            self.drain(now);
            let again = self.machine.poll_timeout();
            assert!(
                again.is_none_or(|again| again.at > now),
                "{again:?} at {now}: time stands still"
            );
        }
    }
}

fn fetcher(options: FetchOptions) -> Box<dyn Live> {
    let options = FetchOptions {
        max_segments: 50,
        max_bytes: 5_000,
        log_window: true,
        log_rtt: true,
        ..options
    };
    Peer::new(AppFace::new(Fetcher::new(
        name("/file"),
        options,
        SeededRng::new(1),
        Time::ZERO,
    )))
}

fn applications() -> Vec<Box<dyn Live>> {
    let rng = || SeededRng::new(1);
    let clock = WallClock::new(1_700_000_000_000);
    let source = BytesSource::new(Bytes::from(vec![7; 2_000]), 100);
    let signer = Arc::new(DigestSigner);
    let options = ProducerOptions {
        cache_bytes: 1_000,
        ..ProducerOptions::new(clock, Time::ZERO)
    };
    let responder = SegmentResponder::new(name("/file/v=1"), source, signer, options);
    let route = RouteParameters::new(name("/file"));
    let producer = Service::new(
        responder,
        Registrar::new(RegisterOptions::new(clock), [route]),
        rng(),
    );
    let ping = PingOptions {
        interval: Duration::from_millis(10),
        ..PingOptions::new(name("/file"))
    };
    let pattern = TrafficPattern {
        append: Append::SequenceNumber(0),
        can_be_prefix: true,
        ..TrafficPattern::new(name("/file"))
    };
    let traffic = TrafficOptions {
        patterns: vec![pattern],
        interval: Duration::from_millis(10),
        gaps: Gaps::Exponential,
        count: None,
        log: true,
    };
    let peek = PeekOptions {
        can_be_prefix: true,
        ..PeekOptions::default()
    };
    vec![
        fetcher(FetchOptions::default()),
        fetcher(FetchOptions {
            discovery: Discovery::Prefix,
            delivery: Delivery::AsTheyCome,
            verify: Verify::Digest,
            ..FetchOptions::default()
        }),
        fetcher(FetchOptions {
            discovery: Discovery::None,
            paths: vec![PathOptions::default(); 2],
            retries: Some(1),
            ..FetchOptions::default()
        }),
        Peer::new(AppFace::new(producer)),
        Peer::new(AppFace::new(Ping::new(ping, rng()))),
        Peer::new(AppFace::new(TrafficClient::new(traffic, rng()))),
        Peer::new(AppFace::new(Peek::new(
            name("/file"),
            peek,
            rng(),
            Time::ZERO,
        ))),
        Peer::new(AppFace::new(EchoProducer::echo(
            name("/file"),
            100,
            Duration::from_millis(1),
            Arc::new(DigestSigner),
            None,
            rng(),
        ))),
    ]
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let mut applications = applications();
    let mut now = Time::ZERO;
    for _ in 0..2_000 {
        let Some(choice) = input.octet() else { break };
        let Some(wait) = input.octet() else { break };
        // 0 to 1.6 s, mostly short.
        now += Duration::from_micros(u64::from(wait).pow(3) / 10);
        applications[usize::from(choice % 8)].step(now, choice / 8 % 8, &mut input);
    }
});
