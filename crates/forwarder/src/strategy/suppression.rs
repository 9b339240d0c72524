//! Suppression of retransmissions that arrive too soon after the last transmission.

use core::time::Duration;

use whimbrel_core::Time;

use super::Context;
use crate::face::FaceId;

/// The interval doubles with each forwarded retransmission, up to a limit (NFD:
/// RetxSuppressionExponential).
#[derive(Clone, Copy, Debug)]
pub struct Suppression {
    /// Before the first retransmission.
    pub initial: Duration,
    /// The limit.
    pub max: Duration,
    /// Factor at each forwarded retransmission.
    pub multiplier: f64,
}

/// The decision on an Interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No upstream is pending.
    New,
    /// A retransmission to forward.
    Forward,
    /// A retransmission that arrived too soon.
    Suppress,
}

impl Suppression {
    fn next(&self, interval: Duration) -> Duration {
        interval.mul_f64(self.multiplier).min(self.max)
    }

    /// `nanos` is the interval of a record; zero before its first retransmission.
    fn decide(&self, now: Time, sent: Time, nanos: &mut u64) -> Verdict {
        let interval = match *nanos {
            0 => self.initial,
            nanos => Duration::from_nanos(nanos),
        };
        if now.since(sent) < interval {
            *nanos = nanos_of(interval);
            return Verdict::Suppress;
        }
        *nanos = nanos_of(self.next(interval));
        Verdict::Forward
    }

    /// For strategies with one upstream at a time: since the entry was forwarded anywhere.
    pub fn by_entry(&self, context: &mut Context<'_>) -> Verdict {
        let now = context.now();
        let Some(entry) = context.entry_mut() else {
            return Verdict::Suppress;
        };
        if !entry.has_pending_out_records(now) {
            return Verdict::New;
        }
        let last = entry
            .out_records
            .iter()
            .map(|record| record.sent)
            .max()
            .unwrap_or(Time::ZERO);
        self.decide(now, last, &mut entry.suppression)
    }

    /// For strategies with several: since the entry was forwarded to this face.
    pub fn by_upstream(&self, context: &mut Context<'_>, face: FaceId) -> Verdict {
        let now = context.now();
        let Some(entry) = context.entry_mut() else {
            return Verdict::Suppress;
        };
        match entry
            .out_records
            .iter_mut()
            .find(|record| record.face == face)
        {
            Some(record) => self.decide(now, record.sent, &mut record.suppression),
            None => Verdict::New,
        }
    }
}

fn nanos_of(interval: Duration) -> u64 {
    u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX)
}
