//! The deadlines of one machine, in an order that depends only on time and keys.

use std::collections::{BTreeMap, BTreeSet};

use crate::Time;

/// At most one deadline per key. Setting, cancelling and taking are O(log n); deadlines at the same
/// time come out in the order of their keys.
#[derive(Clone, Debug)]
pub struct TimerQueue<K> {
    due: BTreeSet<(Time, K)>,
    by_key: BTreeMap<K, Time>,
}

impl<K> Default for TimerQueue<K> {
    fn default() -> Self {
        TimerQueue {
            due: BTreeSet::new(),
            by_key: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> TimerQueue<K> {
    /// Returns an empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the deadline of `key`, replacing an earlier or later one.
    pub fn set(&mut self, key: K, at: Time) {
        if let Some(old) = self.by_key.insert(key.clone(), at) {
            if old == at {
                return;
            }
            self.due.remove(&(old, key.clone()));
        }
        self.due.insert((at, key));
    }

    /// Sets the deadline of `key` unless it already has an earlier one.
    pub fn set_earlier(&mut self, key: K, at: Time) {
        if self.by_key.get(&key).is_none_or(|old| at < *old) {
            self.set(key, at);
        }
    }

    /// Removes the deadline of `key`; returns true if it had one.
    pub fn cancel(&mut self, key: &K) -> bool {
        match self.by_key.remove(key) {
            Some(at) => self.due.remove(&(at, key.clone())),
            None => false,
        }
    }

    /// Returns the deadline of `key`.
    pub fn get(&self, key: &K) -> Option<Time> {
        self.by_key.get(key).copied()
    }

    /// Returns the earliest deadline and its key.
    pub fn next(&self) -> Option<(Time, &K)> {
        self.due.first().map(|(at, key)| (*at, key))
    }

    /// Removes and returns one deadline that is not after `now`.
    pub fn pop_due(&mut self, now: Time) -> Option<(Time, K)> {
        if self.due.first().is_none_or(|(at, _)| *at > now) {
            return None;
        }
        let (at, key) = self.due.pop_first()?;
        self.by_key.remove(&key);
        Some((at, key))
    }

    /// Returns a pass over the deadlines due at `now`. It ends even if handling a deadline sets it
    /// again for the same moment: it yields at most as many deadlines as are set when it begins.
    pub fn pass(&self, now: Time) -> Pass {
        Pass {
            now,
            left: self.due.len(),
        }
    }

    /// Returns the number of deadlines.
    pub fn len(&self) -> usize {
        self.due.len()
    }

    /// Returns true if there are no deadlines.
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }
}

/// One pass over the due deadlines of a [`TimerQueue`], which the owner of the queue may change
/// between two steps.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    now: Time,
    left: usize,
}

impl Pass {
    /// Removes and returns the next due deadline of the pass.
    pub fn next<K: Ord + Clone>(&mut self, queue: &mut TimerQueue<K>) -> Option<(Time, K)> {
        self.left = self.left.checked_sub(1)?;
        queue.pop_due(self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pass_ends_though_every_deadline_is_set_again_at_once() {
        let mut queue = TimerQueue::new();
        for key in 0..3 {
            queue.set(key, Time::ZERO);
        }
        let mut pass = queue.pass(Time::ZERO);
        let mut handled = 0;
        while let Some((_, key)) = pass.next(&mut queue) {
            handled += 1;
            queue.set(key, Time::ZERO);
        }
        assert_eq!((handled, queue.len()), (3, 3));
    }

    proptest! {
        /// Compares with the obvious model: a list searched from end to end.
        #[test]
        fn behaves_like_a_searched_list(steps in prop::collection::vec((0u8..4, 0u8..6, 0u64..20), 0..200)) {
            let mut queue = TimerQueue::new();
            let mut model: Vec<(Time, u8)> = Vec::new();
            for (step, key, at) in steps {
                let at = Time::from_nanos(at);
                match step {
                    0 => {
                        queue.set(key, at);
                        model.retain(|(_, k)| *k != key);
                        model.push((at, key));
                    }
                    1 => {
                        queue.set_earlier(key, at);
                        let old = model.iter().find(|(_, k)| *k == key).map(|(old, _)| *old);
                        if old.is_none_or(|old| at < old) {
                            model.retain(|(_, k)| *k != key);
                            model.push((at, key));
                        }
                    }
                    2 => {
                        let had = model.iter().any(|(_, k)| *k == key);
                        prop_assert_eq!(queue.cancel(&key), had);
                        model.retain(|(_, k)| *k != key);
                    }
                    _ => {
                        let due = model.iter().filter(|(t, _)| *t <= at).min().copied();
                        prop_assert_eq!(queue.pop_due(at), due);
                        model.retain(|entry| Some(*entry) != due);
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
                prop_assert_eq!(queue.next().map(|(t, k)| (t, *k)), model.iter().min().copied());
            }
        }
    }
}
