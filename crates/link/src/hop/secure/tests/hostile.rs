//! A neighbour whose frames are well-formed and whose claims are false.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::*;
use whimbrel_core::{SeededRng, Time};

use super::super::exchange::answer;
use super::super::handshake::{CALL, Parameters, decode_call, encode_lost};
use super::keys;
use crate::account::{Buffer, Room};
use crate::hop::ecn::EcnReport;
use crate::hop::secure::Reception;
use crate::hop::shapes::fits;
use crate::hop::wire::{
    About, CRC_LEN, Cack, Content, Csyn, Data, Envelope, HANDSHAKE, HEAD_LEN, Opened, Progress,
    Shape, decode_opened, encode_cack, encode_csyn, encode_data, encode_parameters,
};
use crate::hop::{Hop, HopConfig, HopEvent};

const ROOM: usize = 500;
const CHUNKS: u16 = 16;

#[derive(Clone, Debug)]
enum Act {
    Data {
        id: u32,
        seq: u16,
        last: bool,
        resent: bool,
        question: Option<u8>,
        chunk_len: u32,
        payload: usize,
    },
    Csyn {
        number: u32,
        id: u32,
        chunk_len: u32,
        packet_size: u16,
        cancel: bool,
        bare: bool,
    },
    /// Number and id are counted back from the hop's newest ones.
    Cack {
        back: u32,
        id_back: u32,
        kind: u8,
        start: u16,
        bitmap: Vec<u8>,
        cut: bool,
        window: u32,
        received: u64,
        clock: u64,
        spurious: u32,
        bare: bool,
    },
    /// The neighbour has restarted.
    Restart {
        extreme: u32,
    },
    /// It has other limits.
    Limits {
        extreme: u32,
    },
    Raw(Vec<u8>),
    Send {
        len: usize,
    },
    Wait {
        millis: u64,
    },
    Release,
}

fn act() -> impl Strategy<Value = Act> {
    let id = || prop_oneof![4 => 0u32..40, 1 => any::<u32>()];
    let len = || prop_oneof![3 => 1u32..5_000, 1 => Just(4 << 20), 1 => any::<u32>()];
    let number = || prop_oneof![4 => 0u32..10, 1 => any::<u32>()];
    prop_oneof![
        6 => (id(), prop_oneof![0u16..5, any::<u16>()], any::<bool>(), any::<bool>(), any::<Option<u8>>(), len(), prop_oneof![1usize..1_400, Just(1_000)])
            .prop_map(|(id, seq, last, resent, question, chunk_len, payload)| Act::Data { id, seq, last, resent, question, chunk_len, payload }),
        6 => (any::<u32>(), id(), len(), prop_oneof![Just(1_000u16), any::<u16>()], any::<bool>(), any::<bool>())
            .prop_map(|(number, id, chunk_len, packet_size, cancel, bare)| Act::Csyn { number: number | 1, id, chunk_len: chunk_len.max(1), packet_size: packet_size.max(1), cancel, bare }),
        8 => ((number(), number(), 0u8..4, prop_oneof![0u16..3, any::<u16>()], prop::collection::vec(any::<u8>(), 0..40), any::<bool>()),
              (any::<u32>(), any::<u64>(), any::<u64>(), any::<u32>(), any::<bool>()))
            .prop_map(|((back, id_back, kind, start, bitmap, cut), (window, received, clock, spurious, bare))| Act::Cack { back, id_back, kind, start, bitmap, cut, window, received, clock, spurious, bare }),
        1 => any::<u32>().prop_map(|extreme| Act::Restart { extreme }),
        1 => any::<u32>().prop_map(|extreme| Act::Limits { extreme }),
        1 => prop::collection::vec(any::<u8>(), 0..200).prop_map(Act::Raw),
        4 => prop_oneof![1usize..3_000, 40_000usize..200_000].prop_map(|len| Act::Send { len }),
        3 => (0u64..500).prop_map(|millis| Act::Wait { millis }),
        1 => Just(Act::Release),
    ]
}

/// Returns an arbitrary report of marks, or `None`.
fn report(word: u32) -> Option<EcnReport> {
    (word & 1 == 0).then_some(EcnReport {
        capable: word & 2 == 0,
        marked: word >> 2,
    })
}

/// Returns claims of a neighbour.
fn limits(extreme: u32) -> Parameters {
    Parameters {
        reports_marks: extreme.is_multiple_of(2),
        resumes: false,
        run: 1,
        knows: 0,
        incarnation: u64::from(extreme),
        mtu: extreme,
        chunk_limit: extreme.max(10_000),
        window: extreme,
        first_hop_id: 0,
        max_chunks: (extreme as u16).max(1),
        memory: (extreme as u16).max(1),
    }
}

struct Attacked {
    now: Time,
    hop: Hop,
    buffer: Buffer,
    held: Vec<Room>,
    liar: Reception,
    // The hop's index of the session, which is in all frames to it; its last call, if that has no
    // answer; and what a LOST repeats of its last frame.
    index: u32,
    call: Option<Vec<u8>>,
    last_sent: [u8; 8],
    newest_number: u32,
    newest_id: u32,
    // Packets of each chunk that left the hop, and the tags whose chunk has left completely.
    gone: BTreeMap<u32, BTreeSet<u16>>,
    tags: BTreeMap<u32, u64>,
    whole: BTreeSet<u64>,
    next_tag: u64,
}

impl Attacked {
    fn new() -> Attacked {
        let config = HopConfig {
            max_chunks_in_flight: CHUNKS,
            finished_memory: 64,
            ..HopConfig::plain(&keys(0), [1; 32], 1_400)
        };
        let mut attacked = Attacked {
            now: Time::ZERO,
            hop: Hop::new(config, SeededRng::new(1), Time::ZERO),
            buffer: Buffer::new(ROOM),
            held: Vec::new(),
            liar: Reception::new(keys(1), [2; 32], true),
            index: 0,
            call: None,
            last_sent: [0; 8],
            newest_number: 0,
            newest_id: 0,
            gone: BTreeMap::new(),
            tags: BTreeMap::new(),
            whole: BTreeSet::new(),
            next_tag: 0,
        };
        attacked.drain();
        attacked.answer(1_400);
        attacked.drain();
        assert!(attacked.hop.is_up());
        attacked
    }

    /// Answers the hop's call, if there is one: an exchange that is right in all but what it claims.
    fn answer(&mut self, extreme: u32) {
        let Some(frame) = self.call.take() else {
            return;
        };
        let (call, _) = decode_call(&frame).unwrap();
        let describe = |run| Parameters {
            run,
            ..limits(extreme)
        };
        let answer = answer(&self.liar, self.now, None, (&call, None), describe).unwrap();
        self.hop.handle_frame(self.now, &answer, &mut self.buffer);
        self.index = call.index;
    }

    /// Returns a frame of the present session with a right checksum.
    fn finish(&self, mut frame: Vec<u8>) -> Vec<u8> {
        let crc_at = frame.len() - CRC_LEN;
        frame[1..5].copy_from_slice(&self.index.to_be_bytes());
        let crc = crc_fast::crc32_iscsi(&frame[..crc_at]);
        frame[crc_at..].copy_from_slice(&crc.to_be_bytes());
        frame
    }

    fn apply(&mut self, act: &Act) {
        let mut frame = Vec::new();
        match act {
            Act::Data {
                id,
                seq,
                last,
                resent,
                question,
                chunk_len,
                payload,
            } => {
                let bytes = vec![0; *payload];
                let data = Data {
                    hop_id: *id,
                    seq: *seq,
                    last: *last,
                    resent: *resent,
                    question: *question,
                    chunk_len: *chunk_len,
                    payload: &[],
                };
                encode_data(Envelope::Plain, &data, [&bytes, &[]], &mut frame);
            }
            Act::Csyn {
                number,
                id,
                chunk_len,
                packet_size,
                cancel,
                bare,
            } => {
                let shape = Shape {
                    chunk_len: *chunk_len,
                    packet_size: *packet_size,
                };
                let about = (!bare).then_some(About {
                    hop_id: *id,
                    shape,
                    cancel: *cancel,
                });
                encode_csyn(
                    Envelope::Plain,
                    &Csyn {
                        number: *number,
                        about,
                    },
                    &mut frame,
                );
            }
            Act::Cack { .. } => self.write_cack(act, &mut frame),
            Act::Restart { extreme } => {
                let mut lost = Vec::new();
                encode_lost(self.last_sent, &mut lost);
                self.hop.handle_frame(self.now, &lost, &mut self.buffer);
                self.drain();
                self.answer(*extreme);
            }
            Act::Limits { extreme } => {
                encode_parameters(Envelope::Plain, &limits(*extreme).encode(), &mut frame);
            }
            Act::Raw(bytes) => {
                self.hop.handle_frame(self.now, bytes, &mut self.buffer);
            }
            Act::Send { len } => self.send(*len),
            Act::Wait { millis } => self.wait(*millis),
            Act::Release => {
                self.held.clear();
                self.hop.room_released(self.now, &mut self.buffer);
            }
        }
        if !frame.is_empty() {
            let frame = self.finish(frame);
            self.hop.handle_frame(self.now, &frame, &mut self.buffer);
        }
    }

    fn write_cack(&self, act: &Act, frame: &mut Vec<u8>) {
        let Act::Cack {
            back,
            id_back,
            kind,
            start,
            bitmap,
            cut,
            window,
            received,
            clock,
            spurious,
            bare,
        } = act
        else {
            return;
        };
        let progress = match kind {
            0 => Progress::Held {
                start: *start,
                bitmap,
                cut: *cut,
            },
            1 => Progress::Complete,
            2 => Progress::Cancelled,
            _ => Progress::Refused,
        };
        let cack = Cack {
            number: self.newest_number.wrapping_sub(*back),
            chunk: (!bare).then_some((self.newest_id.wrapping_sub(*id_back), progress)),
            window: *window,
            received: *received,
            clock: *clock,
            spurious: *spurious,
            ecn: report(*spurious),
        };
        encode_cack(Envelope::Plain, &cack, frame);
    }

    fn send(&mut self, len: usize) {
        let mut bytes = vec![0; len.max(8)];
        bytes[..8].copy_from_slice(&self.next_tag.to_be_bytes());
        self.hop
            .send(self.now, self.next_tag, Bytes::from(bytes), Bytes::new());
        self.next_tag += 1;
    }

    /// Advances time by `millis`, and handles each deadline on the way.
    fn wait(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        for _ in 0..10_000 {
            let Some(due) = self.hop.poll_timeout().filter(|due| due.at <= end) else {
                break;
            };
            self.now = self.now.max(due.at);
            self.hop.handle_timeout(self.now, &mut self.buffer);
            self.drain();
        }
        self.now = self.now.max(end);
    }

    fn drain(&mut self) {
        let mut buffer = Vec::new();
        for round in 0.. {
            assert!(round < 20_000, "sending never ends");
            buffer.clear();
            let Some((size, segment)) = self.hop.poll_transmit(self.now, 64, &mut buffer) else {
                break;
            };
            for frame in buffer[..size].chunks(segment.unwrap_or(size)) {
                assert!(fits(frame), "a frame without a shape");
                if frame[0] >> 4 == HANDSHAKE {
                    if frame[0] & 15 == CALL {
                        self.call = Some(frame.to_vec());
                    }
                    continue;
                }
                self.last_sent.copy_from_slice(&frame[1..HEAD_LEN]);
                let content = &frame[HEAD_LEN..frame.len() - CRC_LEN];
                let Opened::Content(content) = decode_opened(frame[0], content).unwrap() else {
                    continue;
                };
                match content {
                    Content::Csyn(csyn) => {
                        self.newest_number = csyn.number;
                        self.newest_id = csyn.about.map_or(self.newest_id, |about| about.hop_id);
                    }
                    Content::Data(data) => {
                        self.note(&data);
                        if let Some(low) = data.question {
                            self.newest_number +=
                                u32::from(low.wrapping_sub(self.newest_number as u8));
                            self.newest_id = data.hop_id;
                        }
                    }
                    Content::Cack(_) => {}
                }
            }
        }
        while let Some(event) = self.hop.poll_event() {
            match event {
                HopEvent::Received { room, .. } => self.held.push(room),
                HopEvent::Delivered { tag } => {
                    assert!(self.whole.contains(&tag), "acknowledged before it was sent")
                }
                _ => {}
            }
        }
    }

    fn note(&mut self, data: &Data<'_>) {
        let gone = self.gone.entry(data.hop_id).or_default();
        gone.insert(data.seq);
        if data.seq == 0 {
            self.tags.insert(
                data.hop_id,
                u64::from_be_bytes(data.payload[..8].try_into().unwrap()),
            );
        }
        let whole = if data.last {
            Some(usize::from(data.seq) + 1)
        } else {
            None
        };
        let packets =
            whole.unwrap_or_else(|| (data.chunk_len as usize).div_ceil(data.payload.len()));
        if gone.len() == packets {
            self.whole.insert(self.tags[&data.hop_id]);
        }
    }

    fn check(&self) {
        let stats = self.hop.stats();
        // One chunk larger than the whole buffer may be in it, alone: 4 MiB in packets of 64 bytes.
        assert!(
            self.buffer.used() <= ROOM.max((4 << 20) / 64),
            "{}",
            self.buffer.used()
        );
        assert!(stats.chunks_arriving <= usize::from(CHUNKS));
        assert!(stats.chunks_in_flight <= usize::from(CHUNKS));
        assert!((0.0..=1.0).contains(&stats.loss));
        self.hop.ready_for();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn a_lying_neighbour_can_neither_crash_a_hop_nor_fill_it_nor_acknowledge_unsent_chunks(acts in prop::collection::vec(act(), 1..80)) {
        let mut attacked = Attacked::new();
        for act in &acts {
            attacked.apply(act);
            attacked.drain();
            attacked.check();
        }
        let Attacked { hop, buffer, held, now, .. } = attacked;
        hop.close(now);
        drop(held);
        prop_assert_eq!(buffer.used(), 0, "room is neither lost nor released twice");
    }

    #[test]
    fn any_content_is_understood_or_counted(
        content in prop::collection::vec(any::<u8>(), 1..300), first in 0u8..16, damage in any::<Option<prop::sample::Index>>(),
    ) {
        let mut attacked = Attacked::new();
        let mut frame = vec![0x20 | first; HEAD_LEN];
        frame.extend_from_slice(&content);
        frame.extend_from_slice(&[0; CRC_LEN]);
        let mut frame = attacked.finish(frame);
        if let Some(at) = damage {
            // Not in the index, which another session has.
            let at = HEAD_LEN + at.index(frame.len() - HEAD_LEN);
            frame[at] ^= 1;
        }
        let bad = match decode_opened(frame[0], &content) {
            Ok(Opened::Parameters(bytes)) => Parameters::decode(bytes).is_none(),
            decoded => decoded.is_err(),
        };
        attacked.hop.handle_frame(attacked.now, &frame, &mut attacked.buffer);
        let drops = attacked.hop.stats().drops;
        let is_frame = frame.len() > Envelope::Plain.around();
        let expected = match (is_frame, damage) {
            (true, Some(_)) => (0, 1),
            (is_frame, _) => (u64::from(bad || !is_frame), 0),
        };
        prop_assert_eq!((drops.malformed, drops.corrupt), expected);
    }

    #[test]
    fn frames_survive_the_wire(
        sealed: bool, words in any::<[u32; 8]>(), halves in any::<[u16; 3]>(), flags in any::<[bool; 3]>(), longs in any::<[u64; 2]>(),
        bytes in prop::collection::vec(any::<u8>(), 1..100),
    ) {
        let envelope = if sealed { Envelope::Sealed } else { Envelope::Plain };
        let trailer = envelope.around() - Envelope::Plain.around() + CRC_LEN;
        let check = |frame: &[u8], content: Content<'_>| {
            let inner = &frame[HEAD_LEN..frame.len() - trailer];
            prop_assert_eq!(decode_opened(frame[0], inner), Ok(Opened::Content(content)));
            Ok(())
        };
        let mut buffer = Vec::new();
        let question = flags[2].then_some(halves[1] as u8);
        let chunk_len = if flags[2] { words[2] & 0xff_ffff } else { words[2] };
        let data = Data { hop_id: words[1], seq: halves[0], last: flags[0], resent: flags[1], question, chunk_len, payload: &bytes };
        let middle = bytes.len() / 2;
        encode_data(envelope, &data, [&bytes[..middle], &bytes[middle..]], &mut buffer);
        check(&buffer, Content::Data(data))?;

        buffer.clear();
        let shape = Shape { chunk_len: words[2].max(1), packet_size: halves[0].max(1) };
        let about = flags[0].then_some(About { hop_id: words[1], shape, cancel: flags[1] });
        let csyn = Csyn { number: words[3].max(1), about };
        encode_csyn(envelope, &csyn, &mut buffer);
        check(&buffer, Content::Csyn(csyn))?;

        for progress in [Progress::Held { start: halves[1], bitmap: &bytes, cut: flags[1] }, Progress::Complete, Progress::Cancelled, Progress::Refused] {
            buffer.clear();
            let chunk = flags[2].then_some((words[1], progress));
            let cack = Cack { number: words[3], chunk, window: words[4], received: longs[0], clock: longs[1], spurious: words[5], ecn: report(words[4]) };
            encode_cack(envelope, &cack, &mut buffer);
            check(&buffer, Content::Cack(cack))?;
        }
    }
}
