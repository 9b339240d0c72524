//! Two live link services, and between them somebody who drops, repeats, delays, damages and
//! invents frames.
//!
//! The input is a list of steps: an octet that chooses, then what the step needs.
#![no_main]

use core::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use whimbrel_core::{SeededRng, Time};
use whimbrel_link::ndnlp::{LinkService, LinkServiceConfig, PaperOptions, Reliability};
use whimbrel_ndn_packet::{LpHeader, NackReason};

const MOST_OUTSTANDING: usize = 64;

struct Pair {
    ends: [LinkService; 2],
    mtu: [usize; 2],
    /// Frames on their way to each end.
    wire: [Vec<Vec<u8>>; 2],
    now: Time,
}

fn reliability(choice: u8) -> Reliability {
    match choice % 6 {
        0 => Reliability::Off,
        1 => Reliability::Paper(PaperOptions {
            max_retransmissions: choice / 6,
            later_acks: choice / 12 % 4,
            acks_together: choice % 4 == 1,
        }),
        2 => Reliability::Ndnlpv2,
        3 | 4 => Reliability::Adaptive,
        _ => Reliability::Auto,
    }
}

fn service(choice: u8, padded: bool, seed: u64) -> LinkService {
    let mut config = LinkServiceConfig::datagram(400);
    // Only larger frames, of changed MTUs, are searched for.
    config.finds_path_mtu = choice & 64 != 0;
    config.reliability = reliability(choice);
    config.smallest_frame = if padded { 46 } else { 0 };
    config.max_outstanding = MOST_OUTSTANDING;
    config.queue_packets = 32;
    config.reassembly_packets = 4;
    config.drain_rate = (choice >= 200).then_some(1_000_000);
    LinkService::new(config, SeededRng::new(seed))
}

fn packet(choice: u8, fill: u8) -> Bytes {
    let len = match choice % 4 {
        0 => usize::from(choice),
        1 => 300 + usize::from(choice),
        _ => usize::from(choice) * 34,
    };
    let mut packet = Vec::new();
    let typ = if choice & 1 == 0 { 5 } else { 6 };
    whimbrel_ndn_packet::tlv::write_element(&mut packet, typ, &vec![fill; len]);
    packet.into()
}

impl Pair {
    fn deliver(&mut self, end: usize, frame: &[u8]) {
        let mut delivered = 0;
        self.ends[end].handle_frame(self.now, frame, &mut |lp| {
            delivered += lp.fragment.map_or(0, <[u8]>::len);
        });
        assert!(delivered <= 20_000);
    }

    fn drain(&mut self) {
        for end in 0..2 {
            let mut buffer = Vec::new();
            for turn in 0.. {
                assert!(turn < 5_000, "it sends without end");
                buffer.clear();
                let Some(written) = self.ends[end].poll_transmit(self.now, 4, &mut buffer) else {
                    break;
                };
                assert!(written.size == buffer.len() && written.size > 0);
                for frame in buffer.chunks(written.segment_size.unwrap_or(written.size)) {
                    assert!(frame.len() <= self.mtu[end]);
                    if self.wire[1 - end].len() < 64 {
                        self.wire[1 - end].push(frame.to_vec());
                    }
                }
            }
            while self.ends[end].poll_event().is_some() {}
            let stats = self.ends[end].stats();
            assert!(
                stats.outstanding <= 2 * MOST_OUTSTANDING
                    && stats.queue_packets <= 32 + 2 * MOST_OUTSTANDING
            );
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&[a, b], mut rest)) = input.split_first_chunk::<2>() else {
        return;
    };
    let padded = input.len() % 2 == 0;
    let mut pair = Pair {
        ends: [service(a, padded, 1), service(b, padded, 2)],
        mtu: [400; 2],
        wire: Default::default(),
        now: Time::ZERO,
    };
    while let Some((&[step, value], after)) = rest.split_first_chunk::<2>() {
        rest = after;
        let end = usize::from(step & 1);
        match (step >> 1) % 12 {
            0 | 1 => pair.ends[end].send(pair.now, packet(value, step), None),
            2 => {
                let header = LpHeader {
                    nack: (value & 1 == 1).then_some(NackReason::NoRoute),
                    pit_token: (value & 2 == 2).then(|| Bytes::from_static(b"token")),
                    ..LpHeader::default()
                };
                pair.ends[end].send(pair.now, packet(value, step), Some(Box::new(header)));
            }
            // Everything arrives, or only one frame, the newest or the oldest.
            3 | 4 => {
                for frame in core::mem::take(&mut pair.wire[end]) {
                    pair.deliver(end, &frame);
                }
            }
            5 => {
                let index = usize::from(value) % pair.wire[end].len().max(1);
                if index < pair.wire[end].len() {
                    let frame = pair.wire[end].remove(index);
                    pair.deliver(end, &frame);
                }
            }
            6 => pair.wire[end].clear(),
            // One frame is damaged, and arrives twice.
            7 => {
                if let Some(mut frame) = pair.wire[end].pop() {
                    let at = usize::from(value) % frame.len();
                    frame[at] ^= step | 1;
                    pair.deliver(end, &frame);
                    pair.deliver(end, &frame);
                }
            }
            // A frame of the input's own.
            8 => {
                let (frame, after) = rest.split_at(usize::from(value).min(rest.len()));
                rest = after;
                pair.deliver(end, frame);
            }
            9 => {
                pair.now +=
                    Duration::from_millis(u64::from(value) * if step > 128 { 200 } else { 1 });
                for end in &mut pair.ends {
                    end.handle_timeout(pair.now);
                }
            }
            10 => {
                pair.mtu[end] = 128 + usize::from(value) * 4;
                let mtu = pair.mtu[end];
                pair.ends[end].set_mtu(mtu);
            }
            _ => match value % 4 {
                0 => {
                    pair.ends[end] = service(value, padded, u64::from(step));
                    pair.mtu[end] = 400;
                }
                1 => pair.ends[end].set_reliability(reliability(value / 4)),
                2 => pair.ends[end].set_blocked(true),
                _ => pair.ends[end].set_blocked(false),
            },
        }
        if let Some(due) = pair.ends[end].poll_timeout()
            && due.at <= pair.now
        {
            pair.ends[end].handle_timeout(pair.now);
        }
        pair.drain();
    }
});
