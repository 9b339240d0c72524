//! The state of a TCP connection as an observer on its path sees it: [TCP/ICN §3.3.2]'s states of
//! set-up and tear-down.

use core::time::Duration;

use whimbrel_core::Time;

use crate::segment::Segment;

/// Bytes that an end may have sent and not seen acknowledged; few windows are larger.
const LARGEST_FLIGHT: u64 = 1 << 20;

/// One end's sequence numbers, extended to 64 bits: the upper half is the wraparound number of
/// [TCP/ICN §3.3.1].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extended {
    highest: Option<u64>,
}

impl Extended {
    /// Returns the number nearest to the highest so far.
    pub fn extend(&self, sequence: u32) -> u64 {
        let Some(highest) = self.highest else {
            return u64::from(sequence);
        };
        let distance = sequence.wrapping_sub(highest as u32) as i32;
        highest.saturating_add_signed(i64::from(distance))
    }

    /// Extends a number, and raises the highest to it.
    pub fn raise(&mut self, sequence: u32) -> u64 {
        let extended = self.extend(sequence);
        self.highest = self.highest.max(Some(extended));
        extended
    }

    /// Returns the highest so far.
    pub const fn highest(&self) -> Option<u64> {
        self.highest
    }
}

/// What was seen of the segments of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Direction {
    syn: bool,
    /// The number after the FIN.
    fin: Option<u64>,
    /// Sequence numbers up to the highest end of a segment.
    pub sent: Extended,
    /// Acknowledgement numbers that this direction carries, in the space of the other one.
    acknowledged: Option<u32>,
}

impl Direction {
    fn note(&mut self, segment: &Segment<'_>) {
        let flags = segment.flags;
        self.syn |= flags.syn;
        let end = self.sent.raise(segment.end());
        if flags.fin {
            self.fin = Some(end);
        }
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Not both ends have sent and acknowledged a SYN.
    Opening,
    /// Both have.
    Established,
    /// One end has sent its FIN, or both have and not both are acknowledged.
    Closing,
    /// Both FINs are acknowledged.
    Closed,
    /// One end has sent RST.
    Reset,
}

impl Phase {
    /// All of them.
    pub const ALL: [Phase; 5] = [
        Phase::Opening,
        Phase::Established,
        Phase::Closing,
        Phase::Closed,
        Phase::Reset,
    ];

    /// Returns the name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Opening => "opening",
            Phase::Established => "established",
            Phase::Closing => "closing",
            Phase::Closed => "closed",
            Phase::Reset => "reset",
        }
    }

    /// Returns true if the connection is over.
    pub const fn is_over(self) -> bool {
        matches!(self, Phase::Closed | Phase::Reset)
    }
}

/// How long a silent connection is kept, by its phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// [`Phase::Opening`], and any other of which only one end is known. It covers the pauses
    /// between the first five SYNs of an end (RFC 6298: from 1 s on, doubling).
    pub opening: Duration,
    /// [`Phase::Established`]. RFC 5382 §5: at least 2 hours and 4 minutes.
    pub established: Duration,
    /// [`Phase::Closing`]: half-closed connections may still carry data.
    pub closing: Duration,
    /// [`Phase::Closed`] and [`Phase::Reset`]: for repeated last segments.
    pub over: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            opening: Duration::from_secs(30),
            established: Duration::from_secs(2 * 3600 + 4 * 60),
            closing: Duration::from_secs(15 * 60),
            over: Duration::from_secs(60),
        }
    }
}

impl Patience {
    /// Returns the patience with a connection in this phase.
    pub const fn with(&self, phase: Phase) -> Duration {
        match phase {
            Phase::Opening => self.opening,
            Phase::Established => self.established,
            Phase::Closing => self.closing,
            Phase::Closed | Phase::Reset => self.over,
        }
    }
}

/// Both directions of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Tracker {
    /// From the TCP end on this proxy's side.
    pub outward: Direction,
    /// To it.
    pub inward: Direction,
    reset: bool,
    /// Found in the middle: no SYN will be seen.
    adopted: bool,
    /// The time of the last segment.
    pub touched: Time,
}

impl Tracker {
    /// Returns a connection whose first segment, not noted yet, is at hand. If it is not a SYN, the
    /// proxy has found the connection in the middle.
    pub fn new(now: Time, adopted: bool) -> Tracker {
        Tracker {
            outward: Direction::default(),
            inward: Direction::default(),
            reset: false,
            adopted,
            touched: now,
        }
    }

    /// Notes a segment from the TCP end on this side.
    pub fn note_outward(&mut self, now: Time, segment: &Segment<'_>) {
        self.touched = now;
        self.outward.note(segment);
        self.note_flags(segment, true);
    }

    /// Notes a segment from the other end.
    pub fn note_inward(&mut self, now: Time, segment: &Segment<'_>) {
        self.touched = now;
        self.inward.note(segment);
        self.note_flags(segment, false);
    }

    fn note_flags(&mut self, segment: &Segment<'_>, outward: bool) {
        self.reset |= segment.flags.rst;
        if segment.flags.ack {
            let carrier = if outward {
                &mut self.outward
            } else {
                &mut self.inward
            };
            let newer = |old: u32| (segment.acknowledgement.wrapping_sub(old) as i32) >= 0;
            if carrier.acknowledged.is_none_or(newer) {
                carrier.acknowledged = Some(segment.acknowledgement);
            }
        }
    }

    /// Returns the highest number of the outward direction that the other end has acknowledged.
    pub fn outward_acknowledged(&self) -> Option<u64> {
        self.inward
            .acknowledged
            .map(|ack| self.outward.sent.extend(ack))
    }

    /// Returns the highest number of the inward direction that this end has acknowledged.
    pub fn inward_acknowledged(&self) -> Option<u64> {
        self.outward
            .acknowledged
            .map(|ack| self.inward.sent.extend(ack))
    }

    /// Returns true if a segment from this side with this acknowledgement number acknowledges only
    /// what has come.
    pub fn has_come(&self, acknowledgement: u32) -> bool {
        let sent = &self.inward.sent;
        let highest = sent.highest();
        highest.is_some_and(|highest| sent.extend(acknowledgement) <= highest)
    }

    /// Returns true if both ends are there: each has acknowledged what the other one sent. One that
    /// only invents the other's numbers hits them once in thousands of times.
    pub fn is_answered(&self) -> bool {
        let hits = |acknowledged: Option<u64>, sent: &Extended| {
            let behind = acknowledged.zip(sent.highest());
            let behind = behind.and_then(|(number, highest)| highest.checked_sub(number));
            behind.is_some_and(|behind| behind <= LARGEST_FLIGHT)
        };
        hits(self.outward_acknowledged(), &self.outward.sent)
            && hits(self.inward_acknowledged(), &self.inward.sent)
    }

    /// Returns the phase.
    pub fn phase(&self) -> Phase {
        let passed = |fin: Option<u64>, acknowledged: Option<u64>| {
            fin.is_some_and(|fin| acknowledged.is_some_and(|ack| ack >= fin))
        };
        let outward = passed(self.outward.fin, self.outward_acknowledged());
        let inward = passed(self.inward.fin, self.inward_acknowledged());
        let opened = self.adopted
            || (self.outward.syn
                && self.inward.syn
                && self.outward.acknowledged.is_some()
                && self.inward.acknowledged.is_some());
        if self.reset {
            Phase::Reset
        } else if outward && inward {
            Phase::Closed
        } else if self.outward.fin.is_some() || self.inward.fin.is_some() {
            Phase::Closing
        } else if opened {
            Phase::Established
        } else {
            Phase::Opening
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    /// Flags as letters: S, A, F, R.
    fn packet(flags: &str, sequence: u32, acknowledgement: u32, payload: &[u8]) -> Vec<u8> {
        let mut step = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(1, 2, sequence, 9);
        for flag in flags.chars() {
            step = match flag {
                'S' => step.syn(),
                'A' => step.ack(acknowledgement),
                'F' => step.fin(),
                _ => step.rst(),
            };
        }
        let mut packet = Vec::new();
        step.write(&mut packet, payload).unwrap();
        packet
    }

    /// `>` outward, `<` inward.
    fn run(steps: &[(char, &str, u32, u32, &[u8])]) -> Vec<Phase> {
        let mut tracker = Tracker::new(Time::ZERO, false);
        let each =
            |(way, flags, sequence, acknowledgement, payload): &(char, &str, u32, u32, &[u8])| {
                let packet = packet(flags, *sequence, *acknowledgement, payload);
                let segment = Segment::decode(&packet).unwrap();
                match way {
                    '>' => tracker.note_outward(Time::ZERO, &segment),
                    _ => tracker.note_inward(Time::ZERO, &segment),
                }
                tracker.phase()
            };
        steps.iter().map(each).collect()
    }

    use Phase::{Closed, Closing, Established, Opening, Reset};

    /// [TCP/ICN §3.3.2], Figs 2 and 3.
    #[test]
    fn set_up_and_tear_down() {
        let phases = run(&[
            ('>', "S", 100, 0, b""),
            ('<', "SA", 500, 101, b""),
            ('>', "A", 101, 501, b""),
            ('>', "A", 101, 501, b"data"),
            ('>', "FA", 105, 501, b""),
            ('<', "A", 501, 106, b""),
            ('<', "FA", 501, 106, b""),
            ('>', "A", 106, 502, b""),
        ]);
        let expected = [
            Opening,
            Opening,
            Established,
            Established,
            Closing,
            Closing,
            Closing,
            Closed,
        ];
        assert_eq!(phases, expected);
    }

    #[test]
    fn simultaneous_open_and_close() {
        let phases = run(&[
            ('>', "S", 100, 0, b""),
            ('<', "S", 500, 0, b""),
            ('>', "SA", 100, 501, b""),
            ('<', "SA", 500, 101, b""),
            ('>', "FA", 101, 501, b""),
            ('<', "FA", 501, 101, b""),
            ('>', "A", 102, 502, b""),
            ('<', "A", 502, 102, b""),
        ]);
        let expected = [
            Opening,
            Opening,
            Opening,
            Established,
            Closing,
            Closing,
            Closing,
            Closed,
        ];
        assert_eq!(phases, expected);
    }

    /// SYN, data and FIN in one segment, which [TCP/ICN §3.3.2] leaves out.
    #[test]
    fn a_session_of_a_single_segment() {
        let phases = run(&[
            ('>', "SF", 100, 0, b"ask"),
            ('<', "SAF", 500, 105, b"answer"),
            ('>', "A", 105, 508, b""),
        ]);
        assert_eq!(phases, [Closing, Closing, Closed]);
    }

    #[test]
    fn it_is_answered_when_each_end_acknowledges_what_the_other_one_sent() {
        let answered = |adopted: bool, steps: &[(char, &str, u32, u32)]| {
            let mut tracker = Tracker::new(Time::ZERO, adopted);
            let each = |(way, flags, sequence, acknowledgement): &(char, &str, u32, u32)| {
                let packet = packet(flags, *sequence, *acknowledgement, b"");
                let segment = Segment::decode(&packet).unwrap();
                match way {
                    '>' => tracker.note_outward(Time::ZERO, &segment),
                    _ => tracker.note_inward(Time::ZERO, &segment),
                }
                tracker.is_answered()
            };
            steps.iter().map(each).collect::<Vec<_>>()
        };
        let (syn, answer) = (('>', "S", 100, 0), ('<', "SA", 1 << 30, 101));
        let opened = answered(false, &[syn, answer, ('>', "A", 101, (1 << 30) + 1)]);
        assert_eq!(opened, [false, false, true]);
        // Nobody is there, or one that invents the answer's number.
        assert!(!answered(false, &[syn, answer, ('>', "R", 101, 0)])[2]);
        assert!(!answered(false, &[syn, ('>', "A", 101, 7), answer])[2]);
        // Found in the middle.
        let found = answered(true, &[('>', "A", 900, 700), ('<', "A", 700, 900)]);
        assert_eq!(found, [false, true]);
    }

    #[test]
    fn a_reset_ends_it_at_any_time() {
        assert_eq!(
            run(&[('>', "S", 1, 0, b""), ('<', "RA", 0, 2, b"")]),
            [Opening, Reset]
        );
    }

    #[test]
    fn sequence_numbers_go_on_after_the_wraparound() {
        let mut sent = Extended::default();
        assert_eq!(sent.raise(u32::MAX - 9), u64::from(u32::MAX) - 9);
        assert_eq!(sent.raise(90), (1 << 32) + 90);
        assert_eq!(sent.extend(u32::MAX), u64::from(u32::MAX), "an old one");
        for part in 1..4 {
            let far = part << 30;
            assert_eq!(sent.raise(far), (1 << 32) + u64::from(far));
        }
        assert_eq!(sent.raise(5), (2 << 32) + 5);
    }

    #[test]
    fn tear_down_across_the_wraparound() {
        let phases = run(&[
            ('>', "S", u32::MAX - 1, 0, b""),
            ('<', "SA", u32::MAX, u32::MAX, b""),
            ('>', "A", u32::MAX, 0, b"four"),
            ('<', "FA", 0, 3, b""),
            ('>', "FA", 3, 1, b""),
            ('<', "A", 1, 4, b""),
        ]);
        assert_eq!(
            phases,
            [Opening, Opening, Established, Closing, Closing, Closed]
        );
    }
}
