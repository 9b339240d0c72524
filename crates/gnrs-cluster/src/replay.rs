//! The writes that a failover may lose: those of the last minute, written again when a slot's primary
//! changes. Comparing by version makes that safe.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use whimbrel_gnrs::store::Put;

/// Accepted writes, oldest first.
#[derive(Debug)]
pub(crate) struct Replay {
    window: Duration,
    max: usize,
    kept: VecDeque<(Instant, u16, Put)>,
    /// Writes that were dropped because there were too many.
    pub(crate) dropped: u64,
}

impl Replay {
    pub(crate) fn new(window: Duration, max: usize) -> Replay {
        Replay {
            window,
            max,
            kept: VecDeque::new(),
            dropped: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Notes a write that the engine has accepted.
    pub(crate) fn note(&mut self, now: Instant, slot: u16, put: Put) {
        if self.max == 0 {
            return;
        }
        if self.kept.len() >= self.max && self.kept.pop_front().is_some() {
            self.dropped += 1;
        }
        let put = Put {
            may_create: true,
            ..put
        };
        self.kept.push_back((now, slot, put));
    }

    /// The whole cluster was seen to work at `seen`: what was accepted long before is safe. As long as
    /// it does not, nothing is dropped for its age: a primary that is cut off accepts writes for some
    /// seconds, and loses them when it is found again, however late.
    pub(crate) fn prune(&mut self, seen: Instant) {
        while let Some((at, ..)) = self.kept.front()
            && *at + self.window < seen
        {
            self.kept.pop_front();
        }
    }

    /// Returns the writes of some slots.
    pub(crate) fn of(&self, is_one: impl Fn(u16) -> bool) -> Vec<Put> {
        let kept = self.kept.iter().filter(|(_, slot, _)| is_one(*slot));
        kept.map(|(.., put)| put.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_gnrs::{KeyPair, Record, Statement};

    fn put(seed: u8) -> Put {
        let said = Statement::new(1_000, 1_000, vec![]);
        let record = Record::binding(&KeyPair::from_secret(&[seed; 32]), &said);
        Put {
            may_create: false,
            ..record.unwrap_or_else(|fault| panic!("{fault}")).into()
        }
    }

    #[test]
    fn writes_are_kept_for_the_window_while_the_cluster_is_seen_to_work() {
        let mut replay = Replay::new(Duration::from_secs(60), 3);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        (0..4).for_each(|seed| replay.note(at(seed), seed as u16, put(seed as u8)));
        assert_eq!((replay.len(), replay.dropped), (3, 1));
        assert_eq!(
            replay.of(|slot| slot == 2),
            [Put {
                may_create: true,
                ..put(2)
            }]
        );
        replay.prune(at(61));
        assert_eq!(replay.len(), 3);
        replay.prune(at(63));
        assert_eq!(replay.of(|_| true).len(), 1);
    }
}
