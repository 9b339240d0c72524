//! One pattern of Interests.

use core::time::Duration;

use bytes::Bytes;
use whimbrel_core::SeededRng;
use whimbrel_ndn_packet::{Component, Name};

use crate::rtt::RttSummary;

/// The suffix of a pattern's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Append {
    /// No suffix: always the same name.
    Nothing,
    /// A component of this many random octets (`NameAppendBytes`); at most 1,000.
    RandomBytes(usize),
    /// A component that counts up from this (`NameAppendSequenceNumber`).
    SequenceNumber(u64),
}

/// One pattern of Interests.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficPattern {
    /// Share of all Interests, relative to those of the others (`TrafficPercentage`).
    pub share: f64,
    /// `Name`.
    pub name: Name,
    /// The suffix of the name.
    pub append: Append,
    /// `CanBePrefix`.
    pub can_be_prefix: bool,
    /// `MustBeFresh`.
    pub must_be_fresh: bool,
    /// Probability that an Interest has the nonce of the one before it
    /// (`NonceDuplicationPercentage`).
    pub nonce_duplication: f64,
    /// `InterestLifetime`.
    pub lifetime: Duration,
    /// `NextHopFaceId`.
    pub next_hop_face_id: Option<u64>,
    /// `ExpectedContent`: other content is counted.
    pub expected_content: Option<Bytes>,
}

impl TrafficPattern {
    /// Interests for `name`, with the generator's defaults.
    pub const fn new(name: Name) -> TrafficPattern {
        TrafficPattern {
            share: 100.0,
            name,
            append: Append::Nothing,
            can_be_prefix: false,
            must_be_fresh: false,
            nonce_duplication: 0.0,
            lifetime: whimbrel_ndn_packet::interest::DEFAULT_LIFETIME,
            next_hop_face_id: None,
            expected_content: None,
        }
    }
}

/// Counters of one pattern.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrafficStats {
    /// Interests sent.
    pub sent: u64,
    /// Data received.
    pub received: u64,
    /// Nacks received.
    pub nacks: u64,
    /// Interests that timed out.
    pub timeouts: u64,
    /// Data with unexpected content.
    pub inconsistent: u64,
    /// Round trips of Data.
    pub rtt: RttSummary,
}

/// A pattern and its state.
pub(super) struct Running {
    pub(super) pattern: TrafficPattern,
    pub(super) stats: TrafficStats,
    next_number: u64,
}

impl Running {
    pub(super) fn new(pattern: TrafficPattern) -> Running {
        let next_number = match pattern.append {
            Append::SequenceNumber(start) => start,
            _ => 0,
        };
        Running {
            pattern,
            stats: TrafficStats::default(),
            next_number,
        }
    }

    pub(super) fn next_name(&mut self, rng: &mut SeededRng) -> Name {
        match self.pattern.append {
            Append::Nothing => self.pattern.name.clone(),
            Append::RandomBytes(len) => {
                let octets: Vec<u8> = (0..len.min(1000)).map(|_| rng.next_word() as u8).collect();
                self.pattern.name.child_generic(&octets)
            }
            Append::SequenceNumber(_) => {
                let number = self.next_number;
                self.next_number = number.wrapping_add(1);
                self.pattern
                    .name
                    .child(Component::sequence_num(number).as_ref())
            }
        }
    }
}
