//! A router's cost of an Interest with a path tag beside one that best-route forwards by its name.
//!
//! The same Interests of the same flows, once with the tag of the face that best-route would choose. With a
//! tag the flow's place in the FIB is found by one look into the FAB; without, by longest prefix
//! match ([PTP §4-B]). Only the Interests' time counts: batches of Interests and of the Data that
//! answer them take turns.

use std::hint::black_box;
use std::time::Duration;

use serde_json::json;
use smallvec::SmallVec;
use whimbrel_core::{SeededRng, Time, WallClock};
use whimbrel_forwarder::{CsConfig, FaceId, FaceSpec, Forwarder, ForwarderConfig};
use whimbrel_ndn_packet::lp::{self, Label, LinkFields, Tag};
use whimbrel_ndn_packet::{Data, DigestSigner, Interest, LpHeader, LpPacket, Name};

use super::pipeline::{BATCH, Template, fault, prefix_component, thread_time};
use crate::{Bench, BenchError, Part, Quantity, Row, Target};

const PRODUCERS: usize = 8;
/// Labels of a tag: the measured router's, and those of further ones.
const HOPS: u64 = 4;
const DATA_SIZE: usize = 1_000;
const ROUNDS: usize = 5;

#[derive(Clone, Copy)]
struct Scale {
    prefixes: u64,
    /// Flows in turn, each with a prefix of its own.
    flows: u64,
    interests: u64,
}

const FULL: Scale = Scale {
    prefixes: 1_000_000,
    flows: 10_000,
    interests: 1_000_000,
};
const QUICK: Scale = Scale {
    prefixes: 50_000,
    flows: 1_000,
    interests: 50_000,
};

pub(super) fn run(bench: &mut Bench<'_>) {
    bench.measure("tagged Interest", |options, _| {
        let (scale, rounds) = match options.quick {
            true => (QUICK, 1),
            false => (FULL, ROUNDS),
        };
        let mut router = Router::new(scale, options.seed)?;
        let [mut by_tag, mut by_name] = [Vec::new(), Vec::new()];
        // One round to fill the caches of the processor, and the FAB.
        for round in 0..=rounds {
            for (tagged, times) in [(true, &mut by_tag), (false, &mut by_name)] {
                let time = router.measure(tagged)?;
                if round > 0 {
                    times.push(time);
                }
            }
        }
        let (flows_known, hits) = router.forwarder.flows();
        Ok(vec![Row {
            part: Part::Ndn,
            backend: None,
            what: format!("tagged Interest, {} FIB entries", scale.prefixes),
            ours: Quantity::Ns(median(&by_tag)),
            peer: Some((String::from("best-route"), Quantity::Ns(median(&by_name)))),
            target: Some(Target::AtMost(1.0)),
            note: None,
            details: json!({
                "fib_entries": scale.prefixes,
                "flows": scale.flows,
                "labels": HOPS,
                "interests": scale.interests,
                "packets_at_once": BATCH,
                "fab_flows": flows_known,
                "fab_hits": hits,
                "rounds_ns_tagged": by_tag,
                "rounds_ns_best_route": by_name,
            }),
        }])
    });
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

struct Router {
    scale: Scale,
    forwarder: Forwarder,
    interest: Template,
    data: Template,
    consumer: FaceId,
    producers: Vec<FaceId>,
    /// The header with the tag that leads to each producer.
    tags: Vec<LpHeader>,
    /// The next segment.
    next: u64,
}

impl Router {
    fn new(scale: Scale, seed: u64) -> Result<Router, BenchError> {
        let config = ForwarderConfig {
            // Nothing is asked for twice.
            content_store: CsConfig {
                capacity: 0,
                ..CsConfig::default()
            },
            ..ForwarderConfig::default()
        };
        let mut forwarder = Forwarder::new(config, WallClock::default(), SeededRng::new(seed));
        let mut face = |number: usize| {
            let remote = format!("udp4://192.0.2.{number}:6363");
            forwarder.add_face(Time::ZERO, FaceSpec::new(remote, "udp4://192.0.2.1:6363"))
        };
        let consumer = face(2);
        let producers: Vec<FaceId> = (0..PRODUCERS).map(|number| face(3 + number)).collect();
        let site = Name::root().child_generic(b"site");
        for prefix in 0..scale.prefixes {
            let name = site.child_generic(&prefix_component(prefix));
            let producer = of(&producers, prefix)?;
            let added = forwarder
                .fib_mut()
                .add_next_hop(name.as_ref(), *producer, 10);
            added.map_err(|_| fault("the FIB refuses a prefix"))?;
        }
        let tags: Option<Vec<LpHeader>> = producers
            .iter()
            .map(|producer| {
                let mut tag = bytes::Bytes::new();
                for below in 1..HOPS {
                    tag = Tag::new(&tag).push(Label::new((1 << 29) + below)?)?;
                }
                let label = forwarder.face(*producer)?.label();
                Some(LpHeader {
                    path_tag: Some(Tag::new(&tag).push(label)?),
                    ..LpHeader::default()
                })
            })
            .collect();
        // A flow's segments follow its name.
        let name = site
            .child_generic(b"PPPPPPPP")
            .child_generic(b"video")
            .child_generic(b"v1")
            .child_generic(b"OOOOOOOO");
        let interest = Interest {
            nonce: Some(*b"NNNN"),
            hop_limit: Some(64),
            ..Interest::new(name.clone())
        };
        Ok(Router {
            scale,
            forwarder,
            interest: Template::new(interest.encode())?,
            data: Template::new(Data::new(name, vec![7; DATA_SIZE]).encode(&DigestSigner))?,
            consumer,
            producers,
            tags: tags.ok_or_else(|| fault("a face has no label"))?,
            next: 0,
        })
    }

    /// Returns the prefix of the flow that a segment belongs to.
    fn prefix(&self, number: u64) -> u64 {
        (number % self.scale.flows).wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.scale.prefixes
    }

    /// Nanoseconds of this thread's processor time for an Interest.
    fn measure(&mut self, tagged: bool) -> Result<f64, BenchError> {
        let mut used = Duration::ZERO;
        let before = self.forwarder.counters().out_interests;
        let mut frames = Vec::new();
        for batch in 0..self.scale.interests / BATCH as u64 {
            let now = Time::from_nanos(self.next * 1000);
            let numbers = self.next..self.next + BATCH as u64;
            self.next = numbers.end;
            frames.clear();
            for number in numbers.clone() {
                let prefix = self.prefix(number);
                let header = match tagged {
                    true => of(&self.tags, prefix)?.clone(),
                    false => LpHeader::default(),
                };
                let packet = self.interest.fill(number, prefix);
                let mut frame = Vec::new();
                match tagged {
                    true => lp::encode(&mut frame, &LinkFields::default(), &header, Some(packet)),
                    false => frame.extend_from_slice(packet),
                }
                frames.push((self.consumer, frame));
            }
            let start = thread_time();
            self.hand_in(now, &frames);
            used += thread_time() - start;
            frames.clear();
            for number in numbers {
                let prefix = self.prefix(number);
                let producer = *of(&self.producers, prefix)?;
                frames.push((producer, self.data.fill(number, prefix).to_vec()));
            }
            self.hand_in(now, &frames);
            if batch % 16 == 0 {
                self.forwarder.handle_timeout(now);
            }
        }
        let sent = self.forwarder.counters().out_interests - before;
        let expected = self.scale.interests / BATCH as u64 * BATCH as u64;
        if sent != expected {
            let said = format!("{sent} of {expected} Interests were forwarded");
            return Err(fault(&said));
        }
        Ok(used.as_nanos() as f64 / sent as f64)
    }

    fn hand_in(&mut self, now: Time, frames: &[(FaceId, Vec<u8>)]) {
        let decoded = frames
            .iter()
            .filter_map(|(face, frame)| Some((*face, LpPacket::decode(frame, false).ok()?)));
        let mut packets: SmallVec<[(FaceId, LpPacket<'_>); BATCH]> = SmallVec::new();
        packets.extend(decoded);
        self.forwarder.handle_packets(now, &packets);
        drop(packets);
        while let Some(sent) = self.forwarder.poll_send() {
            black_box(&sent);
        }
    }
}

fn of<T>(producers: &[T], prefix: u64) -> Result<&T, BenchError> {
    let at = prefix as usize % PRODUCERS;
    producers.get(at).ok_or_else(|| fault("no producer"))
}
