//! The effects of a CACK.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_core::Time;

use super::Sender;
use crate::hop::event::HopEvent;
use crate::hop::feedback::{Answered, Disbelief};
use crate::hop::outbound::{Fate, OutboundChunk, Room};
use crate::hop::stats::HopStats;
use crate::hop::wire::{Cack, Progress};

impl Sender {
    /// Handles a CACK. An implausible one changes nothing.
    pub(in crate::hop) fn handle_cack(
        &mut self,
        now: Time,
        cack: &Cack<'_>,
        stats: &mut HopStats,
        events: &mut VecDeque<HopEvent>,
    ) -> Result<(), Disbelief> {
        let about = cack
            .chunk
            .map(|(wire, progress)| (self.transfers.unwrap(wire), progress));
        let current = about.filter(|(id, progress)| {
            self.transfers.active.get(id).is_some_and(|chunk| {
                cack.clock >= chunk.reported_at
                    && !matches!(progress, Progress::Refused if chunk.room == Room::Refused)
            })
        });
        if current.is_some_and(|(id, progress)| !self.transfers.active[&id].is_plausible(&progress))
        {
            return Err(Disbelief::False);
        }
        self.is_acknowledged = true;
        let mut late = None;
        let mut answer = None;
        if cack.number != 0 {
            match self.answered(now, cack, about.map(|(id, _)| id), stats) {
                Ok(answered) => {
                    answer = Some(answered);
                    self.follow_marks(events);
                    self.control.note_pair(cack.number, cack.clock);
                }
                Err(Disbelief::False) => return Err(Disbelief::False),
                Err(Disbelief::Late) => late = Some(Disbelief::Late),
            }
        }
        self.transfers.window.state(cack.window, cack.clock);
        let mut arrived = false;
        if let Some((id, progress)) = current {
            let lost_before = answer.as_ref().map(|answered| answered.lost_before);
            arrived = self.progress(now, id, &progress, cack.clock, lost_before, stats, events);
        }
        self.note_sizes(now, cack, answer.as_ref(), arrived, stats, events);
        match late {
            Some(late) if current.is_none() => Err(late),
            _ => Ok(()),
        }
    }

    /// Notes an answer's evidence about the path MTU; `arrived` is true if large frames have
    /// arrived.
    fn note_sizes(
        &mut self,
        now: Time,
        cack: &Cack<'_>,
        answer: Option<&Answered>,
        arrived: bool,
        stats: &mut HopStats,
        events: &mut VecDeque<HopEvent>,
    ) {
        let probes = &mut self.path_probes;
        let probe = probes.iter().position(|(probe, _)| *probe == cack.number);
        let grown = probe
            .and_then(|at| probes.remove(at))
            .is_some_and(|(_, len)| self.path.probe_arrived(now, len));
        let fallen = match answer {
            Some(answer) => {
                let arrived = arrived || probe.is_some();
                let (sent_at, mark) = (answer.sent_at, answer.mark);
                self.path
                    .answered(now, sent_at, mark, cack.received, arrived)
            }
            None => {
                if arrived {
                    self.path.arrived();
                }
                false
            }
        };
        if grown || fallen {
            self.path_changed(stats, events);
        }
    }

    pub(super) fn answered(
        &mut self,
        now: Time,
        cack: &Cack<'_>,
        about: Option<u64>,
        stats: &mut HopStats,
    ) -> Result<Answered, Disbelief> {
        let mut unheard = Vec::new();
        let active = &mut self.transfers.active;
        let is_about =
            |record: Option<u64>| record.map(|id| id as u32) == about.map(|id| id as u32);
        let lost = |number, about: Option<u64>| {
            forget_question(active, number, about);
            unheard.extend(about);
        };
        let mut answered =
            self.feedback
                .answer(now, cack.number, is_about, cack.received, cack.clock, lost)?;
        forget_question(&mut self.transfers.active, cack.number, answered.about);
        self.attempts = 0;
        self.timer_from = now;
        self.control.rtt.sample(answered.sample.rtt);
        let smooth = self.control.rtt.smoothed().unwrap_or_default();
        stats.spurious_resends += u64::from(self.feedback.spurious(
            cack.spurious,
            smooth,
            answered.sample.round_over,
        ));
        if self.suspended {
            // A rate measured over the outage says nothing about the path.
            answered.sample.delivery = None;
        }
        let packets = answered.sample.acked as f64 / self.control.frame as f64;
        let report = cack.ecn.unwrap_or_default();
        let marks = self.marks.answered(answered.sent_at, report, packets);
        answered.sample.marked = marks > 0;
        stats.marks_reported += u64::from(marks);
        // The probes of a train queue behind each other, which tells nothing of the path's delay.
        if !self.control.idle_rate.has_sent(cack.number) {
            self.control.law.on_answer(now, &answered.sample);
        }
        self.control.note_idle_probe(now, cack.number, cack.clock);
        self.control.follow_train(now, cack);
        self.control.update_pace();
        unheard
            .into_iter()
            .for_each(|id| self.transfers.arrange_query(id));
        Ok(answered)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one report, and everything that it may change"
    )]
    pub(super) fn progress(
        &mut self,
        now: Time,
        id: u64,
        progress: &Progress<'_>,
        clock: u64,
        lost_before: Option<u32>,
        stats: &mut HopStats,
        events: &mut VecDeque<HopEvent>,
    ) -> bool {
        let Some(chunk) = self.transfers.active.get_mut(&id) else {
            return false;
        };
        chunk.reported_at = clock;
        let is_large = self.path.is_large(chunk.frame_len());
        let mut full = 0;
        match *progress {
            Progress::Complete => {
                full = chunk.complete();
                if let Some(chunk) = self
                    .transfers
                    .remove(id)
                    .filter(|chunk| chunk.fate != Fate::Withdrawn)
                {
                    stats.chunks_delivered += 1;
                    stats.chunk_bytes_delivered += chunk.parcel.len() as u64;
                    events.push_back(HopEvent::Delivered {
                        tag: chunk.parcel.tag,
                    });
                }
            }
            Progress::Cancelled => {
                if let Some(chunk) = self
                    .transfers
                    .remove(id)
                    .filter(|chunk| chunk.fate == Fate::Recut)
                {
                    self.transfers.queue.push_front(chunk.parcel);
                }
            }
            Progress::Refused => {
                stats.refusals_received += 1;
                self.transfers.set_room(id, Room::Refused);
                let attempt = self.ask_again.map_or(0, |(_, attempt)| attempt);
                self.ask_again
                    .get_or_insert((now + self.control.ask_again_after(attempt), attempt));
            }
            Progress::Held { start, bitmap, cut } => {
                if chunk.room != Room::Given {
                    self.transfers.set_room(id, Room::Given);
                    // The notice about another chunk may still be lost.
                    self.ask_again = (self.transfers.refused > 0)
                        .then(|| (now + self.control.ask_again_after(0), 0));
                }
                if let Some(chunk) = self.transfers.active.get_mut(&id) {
                    full = chunk.report(start, bitmap, cut, lost_before).full;
                }
                self.transfers.classify(id);
            }
        }
        self.transfers.arrange_query(id);
        is_large && full > 0
    }
}

/// Forgets the CSYN `number`, which will not be answered any more. If it was the last one about its
/// chunk, no CSYN is outstanding.
pub(super) fn forget_question(
    active: &mut BTreeMap<u64, OutboundChunk>,
    number: u32,
    about: Option<u64>,
) {
    if let Some(chunk) = about.and_then(|id| active.get_mut(&id))
        && chunk.asked == Some(number)
    {
        chunk.asked = None;
    }
}
