//! Which inbound peers get a face when there are many.
//!
//! Datagrams with forged sources, or idle connections, must not lock out programs of this machine or
//! neighbours at work. So each kind of inbound peer has a share of the faces; a network may have as
//! many of a share as are left of it; and where there is no room, the face that is worth least
//! gives way: one that has sent a single burst before one that has sent for longer, the one that is
//! silent for longest first, and none whose routes others use.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::Time;
use whimbrel_forwarder::FaceId;

use crate::attached::{Attached, Table};
use crate::caller::{Caller, Kind};

/// A face that has sent over a longer time than this is at work.
const AT_WORK: Duration = Duration::from_secs(1);
/// After this silence a face gives way that has sent one burst, or that is at work.
const SILENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The faces are searched for one that gives way at most once in this time without success.
const SEARCH: Duration = Duration::from_millis(100);

/// Counts the faces of inbound peers.
pub(crate) struct Admission {
    max_faces: usize,
    of_kind: [usize; 3],
    of_network: BTreeMap<Caller, usize>,
    search_again: [Time; 3],
}

/// Whether there is room for an inbound peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// There is.
    Free,
    /// If another face of this kind, or of this very network, gives way.
    After { same_network: bool },
}

impl Admission {
    pub(crate) fn new(max_faces: usize) -> Admission {
        Admission {
            max_faces,
            of_kind: [0; 3],
            of_network: BTreeMap::new(),
            search_again: [Time::ZERO; 3],
        }
    }

    fn share(&self, kind: Kind) -> usize {
        match kind {
            Kind::Program => self.max_faces,
            Kind::Stream => (self.max_faces / 4).max(1),
            Kind::Datagram => (self.max_faces / 2).max(1),
        }
    }

    /// Tells whether there is room, beside `faces` faces of any kind.
    pub(crate) fn room(&self, caller: Caller, faces: usize) -> Room {
        let left = (self.share(caller.kind)).saturating_sub(self.of_kind[caller.kind as usize]);
        if left == 0 || faces >= self.max_faces {
            return Room::After {
                same_network: false,
            };
        }
        let held = self.of_network.get(&caller).copied().unwrap_or(0);
        if caller.kind != Kind::Program && held >= left {
            return Room::After { same_network: true };
        }
        Room::Free
    }

    pub(crate) fn add(&mut self, caller: Caller) {
        self.of_kind[caller.kind as usize] += 1;
        *self.of_network.entry(caller).or_default() += 1;
    }

    pub(crate) fn remove(&mut self, caller: Caller) {
        self.of_kind[caller.kind as usize] -= 1;
        if let Some(held) = self.of_network.get_mut(&caller) {
            *held -= 1;
            if *held == 0 {
                self.of_network.remove(&caller);
            }
        }
    }

    /// Returns the face that gives way to an inbound peer for which there is no room. `has_routes`
    /// tells of which face others use the routes.
    pub(crate) fn victim(
        &mut self,
        now: Time,
        caller: Caller,
        same_network: bool,
        table: &Table,
        has_routes: impl Fn(FaceId) -> bool,
    ) -> Option<FaceId> {
        let again = &mut self.search_again[caller.kind as usize];
        if now < *again {
            return None;
        }
        let may_go = |(face, attached): &(FaceId, &Attached)| {
            let of_it = |other: Caller| match same_network {
                true => other == caller,
                false => other.kind == caller.kind,
            };
            let patience = match is_at_work(attached) {
                true => SILENCE.1,
                false => SILENCE.0,
            };
            attached.on_demand
                && attached.caller.is_some_and(of_it)
                && now.since(attached.last_heard) >= patience
                && !has_routes(*face)
        };
        let least = table
            .iter()
            .filter(may_go)
            .min_by_key(|(face, attached)| (is_at_work(attached), attached.last_heard, *face));
        if least.is_none() {
            *again = now + SEARCH;
        }
        least.map(|(face, _)| face)
    }
}

fn is_at_work(attached: &Attached) -> bool {
    attached.last_heard.since(attached.since) >= AT_WORK
}
