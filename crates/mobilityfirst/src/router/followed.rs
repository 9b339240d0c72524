//! Names that this router has the name service push changes of: those that stored chunks wait for, and the
//! destinations of flows that may be divided here.

use std::collections::BTreeSet;

use core::time::Duration;
use whimbrel_core::{Guid, SeededRng, SharedRecent, Source, Time};

/// Maximum of followed destinations: a quarter of a resolver's watches, so that those of stored chunks
/// have the rest.
const MAX_FOLLOWED: usize = 1_024;
/// A destination to which no chunk has gone for this long is no longer followed.
const FOLLOWED_FOR: Duration = Duration::from_secs(30);

/// Who wants to know of a name's changes, and why.
pub(super) struct Followed {
    // Chunks are stored for these.
    awaited: BTreeSet<Guid>,
    // Flows to these may be divided, and when the last chunk came. Shared among the networks that chunks
    // come from.
    destinations: SharedRecent<Option<Source>, Guid, Time>,
}

impl Followed {
    pub(super) fn new(rng: &mut SeededRng) -> Followed {
        Followed {
            awaited: BTreeSet::new(),
            destinations: SharedRecent::new(MAX_FOLLOWED, rng),
        }
    }

    pub(super) fn note_awaited(&mut self, name: Guid) {
        self.awaited.insert(name);
    }

    /// Nothing is stored for a name any more. Returns true if nobody wants to know of it.
    pub(super) fn forget_awaited(&mut self, name: &Guid) -> bool {
        self.awaited.remove(name);
        !self.destinations.contains(name)
    }

    pub(super) fn has_destination(&self, name: &Guid) -> bool {
        self.destinations.contains(name)
    }

    /// Notes that a chunk from `at` goes to a destination. Returns true if that is new, and the name that
    /// is no longer followed in its favour.
    pub(super) fn note_destination(
        &mut self,
        now: Time,
        at: Option<Source>,
        name: Guid,
    ) -> (bool, Option<Guid>) {
        if let Some(last) = self.destinations.touch(&name) {
            *last = now;
            return (false, None);
        }
        let gone = self.destinations.insert(at, name, now);
        let gone = gone.map(|(name, _)| name);
        (true, gone.filter(|name| !self.awaited.contains(name)))
    }

    /// Takes a destination that no chunk has gone to for long; the second value is true if nobody
    /// else wants to know of it.
    pub(super) fn take_idle(&mut self, now: Time) -> Option<(Guid, bool)> {
        let (name, last) = self.destinations.oldest()?;
        if now.since(*last) < FOLLOWED_FOR {
            return None;
        }
        let name = *name;
        self.destinations.remove(&name);
        Some((name, !self.awaited.contains(&name)))
    }

    /// Returns when the next one may have been idle for long.
    pub(super) fn next_idle(&self) -> Option<Time> {
        let (_, last) = self.destinations.oldest()?;
        Some(*last + FOLLOWED_FOR)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn named(number: u16) -> Guid {
        let mut name = [1; 32];
        name[..2].copy_from_slice(&number.to_be_bytes());
        Guid(name)
    }

    #[test]
    fn the_destination_that_was_used_least_recently_makes_room() {
        let mut followed = Followed::new(&mut SeededRng::new(1));
        for number in 0..MAX_FOLLOWED as u16 {
            let noted = followed.note_destination(Time::from_secs(1), None, named(number));
            assert_eq!(noted, (true, None));
        }
        followed.note_awaited(named(1));
        let again = followed.note_destination(Time::from_secs(2), None, named(0));
        assert_eq!(again, (false, None));
        // The oldest one is awaited, so that its watch stays.
        let one_more = followed.note_destination(Time::from_secs(2), None, named(5_000));
        assert_eq!(one_more, (true, None));
        let one_more = followed.note_destination(Time::from_secs(2), None, named(5_001));
        assert_eq!(one_more, (true, Some(named(2))));
        assert_eq!(followed.destinations.len(), MAX_FOLLOWED);
    }

    #[test]
    fn destinations_of_one_network_push_out_none_of_another() {
        let mut followed = Followed::new(&mut SeededRng::new(1));
        let [honest, other] = [1, 2].map(|network| Some(Source::Network(network)));
        followed.note_destination(Time::ZERO, honest, named(0));
        for number in 1..=2 * MAX_FOLLOWED as u16 {
            followed.note_destination(Time::ZERO, other, named(number));
        }
        assert_eq!(followed.destinations.len(), MAX_FOLLOWED);
        assert!(followed.has_destination(&named(0)) && !followed.has_destination(&named(1)));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Await(u16),
        Found(u16),
        Chunk(u16),
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u16..6).prop_map(Step::Await),
            (0u16..6).prop_map(Step::Found),
            (0u16..6).prop_map(Step::Chunk),
            (0u64..20).prop_map(Step::Wait),
        ]
    }

    proptest! {
        /// A name is watched as long as chunks are stored for it, or went to it of late.
        #[test]
        fn a_name_is_watched_as_long_as_somebody_wants_to_know(
            steps in prop::collection::vec(step(), 0..80),
        ) {
            let mut followed = Followed::new(&mut SeededRng::new(1));
            let mut now = Time::ZERO;
            let (mut awaited, mut used) = (BTreeSet::new(), BTreeMap::new());
            let mut watched = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Await(name) => {
                        followed.note_awaited(named(name));
                        awaited.insert(named(name));
                        watched.insert(named(name));
                    }
                    Step::Found(name) => {
                        awaited.remove(&named(name));
                        if followed.forget_awaited(&named(name)) {
                            watched.remove(&named(name));
                        }
                    }
                    Step::Chunk(name) => {
                        used.insert(named(name), now);
                        followed.note_destination(now, None, named(name));
                        watched.insert(named(name));
                    }
                    Step::Wait(seconds) => now += Duration::from_secs(seconds),
                }
                while let Some((name, is_last)) = followed.take_idle(now) {
                    if is_last {
                        watched.remove(&name);
                    }
                }
                used.retain(|_, last| now.since(*last) < FOLLOWED_FOR);
                let wanted: BTreeSet<Guid> = awaited.iter().chain(used.keys()).copied().collect();
                prop_assert_eq!(&watched, &wanted);
                prop_assert_eq!(followed.next_idle(), used.values().min().map(|it| *it + FOLLOWED_FOR));
            }
        }
    }
}
