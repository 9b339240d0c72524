//! Which names may call a node's listeners.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use whimbrel_core::{Guid, Shares, Time, network_of};

/// Bound of each list of names.
pub const MAX_LISTED: usize = 4096;
/// Names that are listed at their first use leave the other half to those that are allowed by hand.
const MAX_LEARNT: usize = MAX_LISTED / 2;
/// Each network has a share of these, so a caller with thousands of names cannot fill the list.
const LEARNT: Shares = Shares {
    max: MAX_LEARNT,
    parts: 8,
    few: 4,
};
/// Bound of the recently refused callers; a caller that keeps changing its name evicts others.
const MAX_REFUSED: usize = 64;

/// The policy that decides which callers with a proven name get a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallerPolicy {
    /// All callers that are not denied.
    #[default]
    Any,
    /// All callers that are not denied; each is listed from then on while the list is less than half
    /// full, so a caller with thousands of names keeps nobody out.
    FirstUse,
    /// Listed callers only.
    Listed,
}

/// Names that were decided upon. Nobody is in both lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallerLists {
    /// Those that may call.
    pub allowed: BTreeSet<Guid>,
    /// Those that may not.
    pub denied: BTreeSet<Guid>,
}

impl CallerLists {
    /// Moves a name to one of the lists. False if that is full.
    pub fn decide(&mut self, name: Guid, allow: bool) -> bool {
        let (to, from) = match allow {
            true => (&mut self.allowed, &mut self.denied),
            false => (&mut self.denied, &mut self.allowed),
        };
        if !to.contains(&name) && to.len() >= MAX_LISTED {
            return false;
        }
        from.remove(&name);
        to.insert(name);
        true
    }
}

/// Whether what was decided at run time outlives the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Keeping {
    /// Its program keeps nothing.
    #[default]
    Never,
    /// It is about to be kept.
    Pending,
    /// It is kept.
    Kept,
    /// It is not kept, for this reason.
    Failed(String),
}

/// A caller that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedCaller {
    /// Its name, which it has proven.
    pub name: Guid,
    /// Where it called from, where the carrier has addresses.
    pub from: Option<SocketAddr>,
    /// When it called last.
    pub at: Time,
    /// How often it was refused.
    pub times: u64,
}

/// The policy of a node's listeners, the decisions about names, and recently refused callers.
#[derive(Clone, Debug, Default)]
pub struct Callers {
    /// Who gets a port.
    pub policy: CallerPolicy,
    /// What was decided.
    pub lists: CallerLists,
    /// Whether that outlives the node: the program that keeps it says so.
    pub keeping: Keeping,
    refused: Vec<RefusedCaller>,
    // Names of this run that were listed at their first use, by their networks.
    learnt: BTreeMap<Option<u128>, usize>,
    // Those that were not, for want of room.
    unlisted: u64,
}

impl Callers {
    /// For listeners with this policy, and with what was decided before.
    pub fn new(policy: CallerPolicy, lists: CallerLists) -> Callers {
        Callers {
            policy,
            lists,
            ..Callers::default()
        }
    }

    /// Returns how many more names may be listed at their first use.
    pub fn left_to_learn(&self) -> usize {
        MAX_LEARNT.saturating_sub(self.lists.allowed.len())
    }

    /// Returns how often a name was not listed at its first use for want of room: of the list, or of
    /// its network's part of it.
    pub fn unlisted(&self) -> u64 {
        self.unlisted
    }

    /// Returns the recently refused callers, the most recent one last.
    pub fn refused(&self) -> &[RefusedCaller] {
        &self.refused
    }

    /// Moves a name to one of the lists. False if that is full.
    pub fn decide(&mut self, name: Guid, allow: bool) -> bool {
        let decided = self.lists.decide(name, allow);
        if decided && self.keeping != Keeping::Never {
            self.keeping = Keeping::Pending;
        }
        if decided && allow {
            self.refused.retain(|refused| refused.name != name);
        }
        decided
    }

    /// Returns true if a caller with this name gets a port.
    pub(super) fn admit(&mut self, now: Time, name: Guid, from: Option<SocketAddr>) -> bool {
        let listed = self.lists.allowed.contains(&name);
        let denied = self.lists.denied.contains(&name);
        if self.policy == CallerPolicy::FirstUse && !denied && !listed {
            self.learn(name, from);
        }
        let admitted = !denied && (listed || self.policy != CallerPolicy::Listed);
        if !admitted {
            self.note_refused(now, name, from);
        }
        admitted
    }

    fn learn(&mut self, name: Guid, from: Option<SocketAddr>) {
        let network = from.map(|from| network_of(from.ip()));
        let own = self.learnt.entry(network).or_default();
        if LEARNT.admit(*own, self.lists.allowed.len()) {
            *own += 1;
            self.lists.allowed.insert(name);
        } else {
            self.unlisted += 1;
        }
        // A network without names has none to be counted.
        self.learnt.retain(|_, names| *names > 0);
    }

    fn note_refused(&mut self, now: Time, name: Guid, from: Option<SocketAddr>) {
        let known = self.refused.iter().position(|refused| refused.name == name);
        let times = known.map_or(0, |at| self.refused.remove(at).times);
        if self.refused.len() >= MAX_REFUSED {
            self.refused.remove(0);
        }
        self.refused.push(RefusedCaller {
            name,
            from,
            at: now,
            times: times + 1,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u16) -> Guid {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        Guid(bytes)
    }

    #[test]
    fn a_policy_decides_about_those_that_nobody_has_decided_about() {
        for (policy, unknown) in [
            (CallerPolicy::Any, true),
            (CallerPolicy::FirstUse, true),
            (CallerPolicy::Listed, false),
        ] {
            let mut callers = Callers::new(policy, CallerLists::default());
            assert!(callers.decide(name(1), true) && callers.decide(name(2), false));
            let mut admit = |number| callers.admit(Time::ZERO, name(number), None);
            assert_eq!(
                [1, 2, 3].map(&mut admit),
                [true, false, unknown],
                "{policy:?}"
            );
            let learnt = callers.lists.allowed.contains(&name(3));
            assert_eq!(learnt, policy == CallerPolicy::FirstUse);
        }
    }

    fn at(network: u16) -> Option<SocketAddr> {
        let [high, low] = network.to_be_bytes();
        Some(([192, 0, high, low], 4711).into())
    }

    #[test]
    fn thousands_of_names_of_one_network_leave_places_of_the_list_to_others() {
        let mut callers = Callers::new(CallerPolicy::FirstUse, CallerLists::default());
        let all = MAX_LISTED as u16;
        // All get in, and few are listed.
        assert!((0..all).all(|number| callers.admit(Time::ZERO, name(number), at(1))));
        assert_eq!(callers.lists.allowed.len(), 114);
        assert_eq!(
            callers.unlisted(),
            u64::from(all) - callers.lists.allowed.len() as u64
        );
        assert!(callers.left_to_learn() > MAX_LEARNT / 2);
        assert!(callers.admit(Time::ZERO, name(all), at(2)));
        assert!(callers.lists.allowed.contains(&name(all)));
    }

    #[test]
    fn names_of_many_networks_keep_out_nobody_and_leave_room_for_decisions() {
        let mut callers = Callers::new(CallerPolicy::FirstUse, CallerLists::default());
        let all = MAX_LISTED as u16;
        assert!((0..all).all(|number| callers.admit(Time::ZERO, name(number), at(number))));
        assert_eq!(callers.lists.allowed.len(), MAX_LEARNT);
        assert_eq!(callers.left_to_learn(), 0);
        assert!(callers.admit(Time::ZERO, name(all), at(all)));
        let by_hand = all..all + all / 2;
        assert!(
            by_hand
                .clone()
                .all(|number| callers.decide(name(number), true))
        );
        assert!(!callers.decide(name(by_hand.end), true));
        assert!(callers.decide(name(0), false) && !callers.admit(Time::ZERO, name(0), None));
        callers.policy = CallerPolicy::Listed;
        assert!(callers.admit(Time::ZERO, name(all), None));
        assert!(!callers.admit(Time::ZERO, name(MAX_LEARNT as u16), None));
    }

    #[test]
    fn who_was_refused_is_remembered_once_and_in_a_bounded_list() {
        let mut callers = Callers::new(CallerPolicy::Listed, CallerLists::default());
        for number in 0..200 {
            callers.admit(Time::ZERO, name(number), None);
            callers.admit(Time::from_secs(1), name(7), None);
        }
        assert_eq!(callers.refused().len(), MAX_REFUSED);
        let last = callers.refused().last().unwrap();
        assert_eq!(
            (last.name, last.times, last.at),
            (name(7), 201, Time::from_secs(1))
        );
        assert!(callers.decide(name(7), true));
        assert!(
            callers
                .refused()
                .iter()
                .all(|refused| refused.name != name(7))
        );
    }
}
