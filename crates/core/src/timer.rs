//! Many deadlines of one machine, in one order that does not depend on anything but time and
//! arrival.

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
    /// An empty queue.
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

    /// Removes the deadline of `key`; true if it had one.
    pub fn cancel(&mut self, key: &K) -> bool {
        match self.by_key.remove(key) {
            Some(at) => self.due.remove(&(at, key.clone())),
            None => false,
        }
    }

    /// The deadline of `key`.
    pub fn get(&self, key: &K) -> Option<Time> {
        self.by_key.get(key).copied()
    }

    /// The earliest deadline and whose it is.
    pub fn next(&self) -> Option<(Time, &K)> {
        self.due.first().map(|(at, key)| (*at, key))
    }

    /// Takes one deadline that is not after `now`.
    pub fn pop_due(&mut self, now: Time) -> Option<(Time, K)> {
        if self.due.first().is_none_or(|(at, _)| *at > now) {
            return None;
        }
        let (at, key) = self.due.pop_first()?;
        self.by_key.remove(&key);
        Some((at, key))
    }

    /// How many deadlines are set.
    pub fn len(&self) -> usize {
        self.due.len()
    }

    /// True if none is set.
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the obvious model: a list searched from end to end.
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
