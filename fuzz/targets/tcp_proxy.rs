//! A live proxy between a device and a peer that both say whatever the input says.
//!
//! The input is a list of steps: an octet that chooses, an octet of length, then as many octets: a
//! packet of the device, a message of the peer (which knows the form of a sealed message, as there
//! is no key), the content of the Data that answers the proxy's last Interest, or a wait.
#![no_main]

use core::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use whimbrel_core::{SeededRng, Time, WallClock};
use whimbrel_ndn_packet::{Data, DigestSigner, Interest, InterestRef, LpPacket, Name, PacketKind};
use whimbrel_tcp_proxy::seal::Sealer;
use whimbrel_tcp_proxy::segment::Segment;
use whimbrel_tcp_proxy::{Options, Permission, Policy, Proxy, Route, SealOptions, Target, naming};
use whimbrel_transport::{Application, FaceNumber};

const FACE: FaceNumber = FaceNumber::FIRST;

fn seal(session: u8) -> SealOptions {
    SealOptions::unprotected([session; 8], WallClock::new(1_700_000_000_000))
}

fn proxy() -> Proxy {
    let everything = "0.0.0.0/0".parse().unwrap();
    let route = Route {
        to: everything,
        target: Target::Prefix("/b".parse().unwrap()),
        protocol: None,
    };
    let policy = Policy::new(
        vec![route],
        vec![everything],
        vec![Permission::all_ports(everything)],
    );
    let mut options = Options::new("/a".parse().unwrap(), policy, seal(1));
    options.limits.connections = 64;
    options.limits.outgoing = 256;
    options.limits.delivered = 256;
    options.limits.pending = 256;
    let mut proxy = Proxy::new(options, SeededRng::new(1)).unwrap();
    proxy.handle_face(Time::ZERO, FACE, true);
    proxy
}

fuzz_target!(|input: &[u8]| {
    let mut proxy = proxy();
    let mut peer = Sealer::new(seal(2), &mut SeededRng::new(2));
    let prefix: Name = "/a".parse().unwrap();
    let (mut now, mut asked) = (Time::ZERO, None);
    let mut rest = input;
    while let [choice, length, more @ ..] = rest {
        let (octets, after) = more.split_at(more.len().min(usize::from(*length)));
        rest = after;
        let packet: Option<Bytes> = match choice % 4 {
            0 => {
                proxy.handle_segment(now, octets);
                None
            }
            1 => {
                let mut message = octets.to_vec();
                let nonce = peer.seal(now, prefix.as_ref().value(), &mut message);
                let name = naming::message(&prefix, &message, &nonce);
                Some(Interest::new(name).encode().into())
            }
            2 => asked.take().map(|name: Name| {
                let mut body = octets.to_vec();
                let nonce = peer.seal(now, name.as_ref().value(), &mut body);
                let content = [&nonce[..], &body].concat();
                Data::new(name, content).encode(&DigestSigner).into()
            }),
            _ => {
                now += Duration::from_millis(u64::from(*choice) * 4);
                proxy.handle_timeout(now);
                None
            }
        };
        if let Some(packet) = packet
            && let Ok(packet) = LpPacket::decode(&packet, false)
        {
            proxy.handle_packet(now, FACE, &packet);
        }
        while let Some((packet, _)) = proxy.poll_packet(now, FACE) {
            if PacketKind::of(&packet) == Some(PacketKind::Interest)
                && let Ok(interest) = InterestRef::decode(&packet)
            {
                asked = Some(interest.name.to_name());
            }
        }
        while let Some(packet) = proxy.poll_segment() {
            // An ICMP error of the proxy, or a segment whose checksum is right.
            let is_icmp = match packet.first().map(|first| first >> 4) {
                Some(4) => packet.get(9) == Some(&1),
                _ => packet.get(6) == Some(&58),
            };
            assert!(is_icmp || Segment::decode(&packet).is_ok());
        }
        while proxy.poll_event().is_some() {}
        let _ = proxy.poll_timeout();
        assert!(proxy.connections() <= 64);
    }
});
