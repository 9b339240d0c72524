//! A black hole before a peer that answers no questions: other implementations of NDN.
//!
//! Nothing tells what arrives there but consumers, who ask again for Data that did not. Data that
//! are sent again are cut to [`BASE`] every second time, so each consumer gets on whatever the path
//! takes.
//!
//! If that helps [`SUSPECT_DATA`] times, and no Data in large frames stays without a repetition, the
//! path is suspected: new Data are cut as well, because consumers double their timeouts with each
//! loss. If [`SMALL_DATA`] in a row are not asked for again, while large ones were always, the path is
//! a black hole: with any rate of loss that is the same for both, this happens by chance once in
//! 10^8 times. If small ones are lost, too, the suspicion ends.
//!
//! A consumer that never asks again is no evidence and gets no help.

use core::time::Duration;

use whimbrel_core::Time;
use whimbrel_ndn_packet::types;

use crate::path_mtu::BASE;

/// Data that were asked for again after a large frame, without a large frame that arrived: these
/// many make a path suspicious.
const SUSPECT_DATA: u32 = 5;
/// Data in a row that were cut from the start and not asked for again.
const SMALL_DATA: usize = 96;
/// A suspicion ends if more than one in this many Data that were cut is asked for again ...
const LOSS_SHARE: u32 = 8;
/// ... of at least these many.
const LOSS_DATA: u32 = 16;
/// Large frames are tried again after this long, doubled after each attempt that fails, ...
const RAISE_AFTER: Duration = Duration::from_secs(60);
/// ... up to this (PMTU_RAISE_TIMER, RFC 8899 §5.1.1).
const MAX_RAISE_AFTER: Duration = Duration::from_secs(600);
/// Data sent again within this time were wanted by another consumer.
const MIN_REPEAT: Duration = Duration::from_millis(50);
/// Data are remembered for this long: longer than consumers wait before they ask again.
const MEMORY: Duration = Duration::from_secs(10);
/// Number of remembered Data.
const SLOTS: usize = 512;

/// The last transmission of a Data.
#[derive(Clone, Copy, Debug)]
struct Sent {
    print: u64,
    at: Time,
    is_small: bool,
}

/// The comparison of small frames with the large ones that did not arrive.
#[derive(Clone, Copy, Debug)]
struct Suspicion {
    since: Time,
    /// Data cut from the start, and those of them that were asked for again.
    sent: u32,
    failed: u32,
    /// When the last of them was asked for again.
    row_since: Time,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// By the low bits of the print; empty until the first large Data.
    slots: Vec<Option<Sent>>,
    /// Data for which smaller frames helped, and since when.
    helped: u32,
    since: Time,
    /// Data in large frames that were forgotten before it was known whether they arrived.
    unknown: u32,
    /// The time after which a Data was last asked for again.
    patience: Duration,
    suspicion: Option<Suspicion>,
    /// All frames are small until this time.
    hole_until: Option<Time>,
    /// How long the last hole was kept; zero before the first.
    kept: Duration,
}

impl Repeats {
    /// Returns true if all frames must be small.
    pub(crate) fn is_hole(&self) -> bool {
        self.hole_until.is_some()
    }

    /// Notes that `packet` is sent. Returns true if it must be cut to [`BASE`].
    pub(crate) fn must_cut(&mut self, now: Time, packet: &[u8]) -> bool {
        if packet.len() <= BASE || packet.first() != Some(&(types::DATA as u8)) {
            return self.is_hole();
        }
        if let Some(until) = self.hole_until {
            if now < until {
                return true;
            }
            self.hole_until = None;
            self.start_over();
            self.slots.clear();
        }
        self.slots.resize(SLOTS, None);
        let print = print_of(packet);
        let place = print as usize % SLOTS;
        let last = self.slots.get(place).copied().flatten();
        let is_small = match last {
            Some(last) if last.print == print && now.since(last.at) < MEMORY => {
                if now.since(last.at) < MIN_REPEAT {
                    return last.is_small;
                }
                self.repeated(now, &last);
                !last.is_small || self.suspicion.is_some()
            }
            other => {
                other.inspect(|other| self.forgotten(now, other));
                self.compare(now)
            }
        };
        if let Some(slot) = self.slots.get_mut(place) {
            let at = now;
            *slot = Some(Sent {
                print,
                at,
                is_small,
            });
        }
        self.is_hole() || is_small
    }

    fn repeated(&mut self, now: Time, last: &Sent) {
        self.patience = now.since(last.at);
        if last.is_small {
            // Smaller frames did not help.
            self.helped = self.helped.saturating_sub(1);
            if let Some(suspicion) = &mut self.suspicion {
                suspicion.failed += 1;
                suspicion.row_since = now;
            }
            return;
        }
        if self.helped == 0 {
            self.since = last.at;
        }
        self.helped += 1;
        // Large frames of then that are not asked for again by now have arrived.
        let is_long = now.since(self.since) >= self.patience_of_others();
        let enough = self.helped >= SUSPECT_DATA && self.unknown <= self.helped;
        if !enough || !is_long || self.suspicion.is_some() {
            return;
        }
        let print = last.print;
        let mut others = self.slots.iter().flatten().filter(|it| it.print != print);
        if others.any(|it| self.has_arrived(now, it)) {
            self.kept = Duration::ZERO;
            self.start_over();
        } else if self.kept.is_zero() {
            self.suspicion = Some(Suspicion {
                since: now,
                sent: 0,
                failed: 0,
                row_since: now,
            });
        } else {
            // It was a black hole before.
            self.found(now);
        }
    }

    fn found(&mut self, now: Time) {
        self.kept = (self.kept * 2).clamp(RAISE_AFTER, MAX_RAISE_AFTER);
        self.hole_until = Some(now + self.kept);
    }

    /// Notes that a Data is sent that was not sent before. Returns true if it must be cut.
    fn compare(&mut self, now: Time) -> bool {
        let wait = self.patience_of_others();
        let Some(suspicion) = &mut self.suspicion else {
            return false;
        };
        let has_arrived = |sent: &&Sent| {
            let in_row = sent.is_small && sent.at >= suspicion.row_since;
            in_row && now.since(sent.at) >= wait
        };
        let arrived = self.slots.iter().flatten().filter(has_arrived).count();
        if arrived >= SMALL_DATA {
            self.found(now);
            return true;
        }
        let is_lossy =
            suspicion.sent >= LOSS_DATA && suspicion.failed > suspicion.sent / LOSS_SHARE;
        if is_lossy || now.since(suspicion.since) >= RAISE_AFTER {
            self.start_over();
            return false;
        }
        suspicion.sent += 1;
        true
    }

    /// Handles that a Data is forgotten for another one.
    fn forgotten(&mut self, now: Time, last: &Sent) {
        if last.is_small || last.at < self.since {
            return;
        }
        if self.has_arrived(now, last) {
            self.kept = Duration::ZERO;
            self.start_over();
        } else {
            self.unknown += 1;
        }
    }

    /// Returns true for a Data in large frames that would have been asked for again by now.
    fn has_arrived(&self, now: Time, sent: &Sent) -> bool {
        !sent.is_small && sent.at >= self.since && now.since(sent.at) >= self.patience_of_others()
    }

    /// Returns the time after which other Data would have been asked for again, if they were lost.
    /// Not much more than for the last one, because consumers double their timeouts.
    fn patience_of_others(&self) -> Duration {
        self.patience * 5 / 4
    }

    fn start_over(&mut self) {
        (self.helped, self.unknown, self.suspicion) = (0, 0, None);
    }
}

/// Returns what distinguishes Data: the end of their signatures, and their lengths.
fn print_of(packet: &[u8]) -> u64 {
    let end = packet.last_chunk::<8>().copied().unwrap_or_default();
    let mixed = u64::from_le_bytes(end) ^ packet.len() as u64;
    // The multiplier of Fibonacci hashing.
    mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
}
