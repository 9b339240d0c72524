//! ECN marks of queues on the path (RFC 3168): whether the path carries them, and their counts.
//!
//! Frames are sent as ECN-capable once the neighbour says that it reports marks. This ends if the
//! path loses such frames, clears their codepoint, or marks all of them (RFC 9000 §13.4.2).

use whimbrel_core::{Ecn, Time};

/// After this many answers in a row that report no capable frame, the path is taken to clear the
/// codepoint.
const MAX_SILENT_ANSWERS: u32 = 16;
/// After this many timeouts in a row before any capable frame has arrived, the path is taken to
/// lose capable frames.
const MAX_TIMEOUTS: u32 = 2;
/// Packets over which the share of marks is judged, and the share from which marks mean nothing.
const JUDGED_PACKETS: f64 = 64.0;
const MEANINGLESS_SHARE: f64 = 0.95;

/// A receiver's report about the marks on its neighbour's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EcnReport {
    /// The newest frame arrived as capable or marked.
    pub(super) capable: bool,
    /// Marked frames in this session.
    pub(super) marked: u32,
}

impl EcnReport {
    /// Counts `frames` with this codepoint.
    pub(super) fn note(&mut self, codepoint: Ecn, frames: u32) {
        self.capable = codepoint != Ecn::NotCapable;
        if codepoint == Ecn::Marked {
            self.marked = self.marked.wrapping_add(frames);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The neighbour does not report marks, or this hop would not answer to them.
    Off,
    /// Frames have been sent as capable since `since`; no answer has shown yet that they arrive so.
    Trying { since: Time, silent: u32 },
    /// Frames arrive as capable; `silent` answers in a row said otherwise.
    Works { silent: u32 },
    /// The path loses capable frames or changes their codepoint.
    Failed,
}

/// The sender's side.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    state: State,
    reported: u32,
    // Since the share of marks was last judged.
    packets: f64,
    marked: f64,
}

impl Marks {
    pub(super) fn new() -> Marks {
        Marks {
            state: State::Off,
            reported: 0,
            packets: 0.0,
            marked: 0.0,
        }
    }

    /// Starts a session; `usable` is true if both ends answer to marks. A path that failed is tried
    /// again.
    pub(super) fn restart(&mut self, now: Time, usable: bool) {
        *self = Marks::new();
        if usable {
            self.state = State::Trying {
                since: now,
                silent: 0,
            };
        }
    }

    /// Returns true if frames should be sent as capable.
    pub(super) fn is_wanted(&self) -> bool {
        matches!(self.state, State::Trying { .. } | State::Works { .. })
    }

    /// Returns true if frames are known to arrive as capable.
    pub(super) fn works(&self) -> bool {
        matches!(self.state, State::Works { .. })
    }

    /// Handles another timeout in a row.
    pub(super) fn timed_out(&mut self, in_a_row: u32) {
        if matches!(self.state, State::Trying { .. }) && in_a_row >= MAX_TIMEOUTS {
            self.state = State::Failed;
        }
    }

    /// Handles the report in the answer to a CSYN that was sent at `sent_at`; the answer takes
    /// `packets` packets out of flight. Returns the number of new marks.
    pub(super) fn answered(&mut self, sent_at: Time, report: EcnReport, packets: f64) -> u32 {
        let fresh = report.marked.wrapping_sub(self.reported);
        let fresh = if fresh < 1 << 31 { fresh } else { 0 };
        self.reported = self.reported.wrapping_add(fresh);
        self.state = match self.state {
            State::Trying { .. } | State::Works { .. } if report.capable => {
                State::Works { silent: 0 }
            }
            State::Trying { since, silent } if sent_at >= since => match silent + 1 {
                MAX_SILENT_ANSWERS => State::Failed,
                silent => State::Trying { since, silent },
            },
            State::Works { silent } => match silent + 1 {
                MAX_SILENT_ANSWERS => State::Failed,
                silent => State::Works { silent },
            },
            state => state,
        };
        if !self.works() {
            return 0;
        }
        self.packets += packets;
        self.marked += f64::from(fresh);
        if self.packets >= JUDGED_PACKETS {
            if self.marked >= MEANINGLESS_SHARE * self.packets {
                self.state = State::Failed;
            }
            (self.packets, self.marked) = (0.0, 0.0);
        }
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trying() -> Marks {
        let mut marks = Marks::new();
        marks.restart(Time::from_secs(1), true);
        marks
    }

    fn answer(marks: &mut Marks, capable: bool, marked: u32) -> u32 {
        let report = EcnReport { capable, marked };
        marks.answered(Time::from_secs(2), report, 8.0)
    }

    #[test]
    fn a_neighbour_that_reports_nothing_gets_no_capable_frames() {
        let mut marks = Marks::new();
        marks.restart(Time::ZERO, false);
        assert!(!marks.is_wanted());
        assert_eq!(answer(&mut marks, true, 5), 0);
        assert!(!marks.is_wanted());
    }

    #[test]
    fn each_mark_counts_once_and_an_old_report_counts_nothing() {
        let mut marks = trying();
        assert!(marks.is_wanted() && !marks.works());
        assert_eq!(answer(&mut marks, true, 2), 2);
        assert!(marks.works());
        assert_eq!(answer(&mut marks, true, 2), 0);
        assert_eq!(answer(&mut marks, true, 1), 0);
        assert_eq!(answer(&mut marks, true, 5), 3);
    }

    #[test]
    fn a_path_that_clears_the_codepoint_is_given_up() {
        for worked in [false, true] {
            let mut marks = trying();
            if worked {
                answer(&mut marks, true, 0);
            }
            // Answers to CSYNs from before the restart do not count.
            let report = EcnReport::default();
            (0..100).for_each(|_| {
                if !worked {
                    marks.answered(Time::ZERO, report, 1.0);
                }
            });
            (1..MAX_SILENT_ANSWERS).for_each(|_| _ = answer(&mut marks, false, 0));
            assert!(marks.is_wanted());
            answer(&mut marks, false, 0);
            assert!(!marks.is_wanted());
        }
    }

    #[test]
    fn a_path_that_loses_capable_frames_is_given_up_and_one_with_an_outage_is_not() {
        let mut marks = trying();
        marks.timed_out(1);
        assert!(marks.is_wanted());
        marks.timed_out(2);
        assert!(!marks.is_wanted());
        let mut marks = trying();
        answer(&mut marks, true, 0);
        marks.timed_out(9);
        assert!(marks.is_wanted());
    }

    #[test]
    fn a_path_that_marks_everything_is_given_up_and_one_that_marks_much_is_not() {
        let mut everything = trying();
        (1..=8).for_each(|round| _ = answer(&mut everything, true, round * 8));
        assert!(!everything.is_wanted());
        let mut much = trying();
        (1..=80).for_each(|round| _ = answer(&mut much, true, round * 7));
        assert!(much.is_wanted());
    }

    #[test]
    fn the_receiver_counts_marks_and_says_what_came_last() {
        let mut report = EcnReport::default();
        report.note(Ecn::Capable, 10);
        report.note(Ecn::Marked, 3);
        let marked = EcnReport {
            capable: true,
            marked: 3,
        };
        assert_eq!(report, marked);
        report.note(Ecn::NotCapable, 1);
        assert!(!report.capable && report.marked == 3);
    }
}
