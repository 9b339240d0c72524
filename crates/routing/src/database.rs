//! The announcements of all routers.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::{Distrust, Guid, Limit, Meter, Meters, Time};

use crate::announcement::{Announcement, Edition};

/// Maximum of routers whose announcements are kept.
pub const MAX_ROUTERS: usize = 1024;
/// Maximum of links of all routers together.
const MAX_ALL_LINKS: usize = 16_384;
/// Announcements of one router that are taken.
const OF_ORIGIN: Limit = Limit {
    at_once: 32,
    per_second: 4,
};
/// Signatures that are checked for one neighbour.
const OF_NEIGHBOUR: Limit = Limit {
    at_once: 4096,
    per_second: 512,
};

#[derive(Debug)]
struct Entry {
    announcement: Announcement,
    until: Time,
    // The neighbour that brought it first; none for this router's own.
    from: Option<Guid>,
    number: u64,
    taken: Meter,
}

/// The outcome of an announcement.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AnnouncementVerdict {
    /// It is new, and is to be flooded.
    New,
    /// It is known.
    Known,
    /// The database has a newer one, which the neighbour lacks.
    Older,
    /// It is this router's own, from before a restart: a newer one must replace it.
    Own,
    /// It is not taken.
    Refused(&'static str),
}

/// The announcements of all routers, by their names.
#[derive(Debug)]
pub(crate) struct Database {
    own: Guid,
    entries: BTreeMap<Guid, Entry>,
    links: usize,
    digest: u64,
    number: u64,
    distrust: Distrust<Guid>,
    checked: Meters<Guid>,
}

impl Database {
    pub(crate) fn new(own: Guid) -> Database {
        Database {
            own,
            entries: BTreeMap::new(),
            links: 0,
            digest: 0,
            number: 0,
            distrust: Distrust::default(),
            checked: Meters::new(OF_NEIGHBOUR, 256),
        }
    }

    /// Returns the digest: the sum over all entries, so that their order is without effect. It finds
    /// what was lost, and is no proof of anything.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn get(&self, router: &Guid) -> Option<&Announcement> {
        self.entries.get(router).map(|entry| &entry.announcement)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Announcement> {
        self.entries.values().map(|entry| &entry.announcement)
    }

    /// Returns how long an announcement counts still.
    pub(crate) fn left(&self, now: Time, router: &Guid) -> Duration {
        let entry = self.entries.get(router);
        entry.map_or(Duration::ZERO, |entry| entry.until.since(now))
    }

    /// Returns all names with the editions of their announcements, in the order of names.
    pub(crate) fn list(&self) -> Vec<(Guid, Edition)> {
        let edition = |entry: &Entry| entry.announcement.edition();
        let known = self.entries.iter();
        known.map(|(name, entry)| (*name, edition(entry))).collect()
    }

    /// Returns the names whose announcements are newer here than in a neighbour's list, and whether
    /// the list has newer ones.
    pub(crate) fn compare(&self, list: &[(Guid, Edition)]) -> (Vec<Guid>, bool) {
        let theirs: BTreeMap<Guid, Edition> = list.iter().copied().collect();
        let ours = self.list();
        let is_newer =
            |(name, edition): &&(Guid, Edition)| theirs.get(name).is_none_or(|it| it < edition);
        let newer = ours.iter().filter(is_newer).map(|(name, _)| *name);
        let newer: Vec<Guid> = newer.collect();
        let lacks = |(name, edition): &(Guid, Edition)| {
            self.get(name).is_none_or(|it| it.edition() < *edition)
        };
        (newer, list.iter().any(lacks))
    }

    /// Puts this router's own announcement in.
    pub(crate) fn put_own(&mut self, now: Time, announcement: Announcement) {
        let until = now + announcement.lease();
        self.put(announcement, until, None);
    }

    /// Handles a neighbour's announcement, which counts for `left` still.
    pub(crate) fn offer(
        &mut self,
        now: Time,
        from: Guid,
        announcement: Announcement,
        left: Duration,
    ) -> AnnouncementVerdict {
        let origin = announcement.origin();
        let known = self.get(&origin).map(Announcement::edition);
        let edition = announcement.edition();
        if known == Some(edition) {
            return AnnouncementVerdict::Known;
        }
        let is_rival = |known: Edition| origin == self.own && known.sequence == edition.sequence;
        if known.is_some_and(|known| known > edition && !is_rival(known)) {
            return AnnouncementVerdict::Older;
        }
        let left = left.min(announcement.lease());
        if left.is_zero() {
            return AnnouncementVerdict::Refused("routing-expired");
        }
        let entry = self.entries.get(&origin);
        if entry.is_some_and(|entry| !entry.taken.has_room(now, OF_ORIGIN)) {
            return AnnouncementVerdict::Refused("routing-too-often");
        }
        let links = announcement.links().len();
        if self.links + links > MAX_ALL_LINKS {
            return AnnouncementVerdict::Refused("routing-full");
        }
        if known.is_none() && !self.has_place(from) {
            return AnnouncementVerdict::Refused("routing-full");
        }
        if !self.distrust.may_check(now, from) || !self.checked.admits(now, from) {
            return AnnouncementVerdict::Refused("routing-unchecked");
        }
        if !announcement.is_genuine() {
            self.distrust.note_bad(now, from);
            return AnnouncementVerdict::Refused("bad-routing-signature");
        }
        if origin == self.own {
            return AnnouncementVerdict::Own;
        }
        if known.is_none() && self.entries.len() >= MAX_ROUTERS {
            self.make_place();
        }
        self.put(announcement, now + left, Some(from));
        if let Some(entry) = self.entries.get_mut(&origin) {
            entry.taken.admits(now, OF_ORIGIN);
        }
        AnnouncementVerdict::New
    }

    /// Returns true if a router that is new here has a place: the neighbour that has brought the most
    /// gets no further one.
    fn has_place(&self, from: Guid) -> bool {
        self.entries.len() < MAX_ROUTERS || self.most().is_some_and(|most| most != from)
    }

    /// Returns the neighbour that has brought the most routers.
    fn most(&self) -> Option<Guid> {
        let mut counts: BTreeMap<Guid, usize> = BTreeMap::new();
        for from in self.entries.values().filter_map(|entry| entry.from) {
            *counts.entry(from).or_default() += 1;
        }
        counts
            .into_iter()
            .max_by_key(|(_, count)| *count)
            .map(|(from, _)| from)
    }

    /// Removes the newest router of the neighbour that has brought the most.
    fn make_place(&mut self) {
        let most = self.most();
        let theirs = self.entries.iter().filter(|(_, entry)| entry.from == most);
        let newest = theirs
            .max_by_key(|(_, entry)| entry.number)
            .map(|(name, _)| *name);
        if let Some(name) = newest {
            self.remove(&name);
        }
    }

    fn put(&mut self, announcement: Announcement, until: Time, from: Option<Guid>) {
        let name = announcement.origin();
        let before = self.remove(&name);
        self.number += 1;
        self.links += announcement.links().len();
        self.digest = self.digest.wrapping_add(part(&announcement));
        let entry = Entry {
            announcement,
            until,
            from: before.as_ref().map_or(from, |before| before.from),
            number: before.as_ref().map_or(self.number, |before| before.number),
            taken: before.map_or(Meter::default(), |before| before.taken),
        };
        self.entries.insert(name, entry);
    }

    fn remove(&mut self, name: &Guid) -> Option<Entry> {
        let entry = self.entries.remove(name)?;
        self.links -= entry.announcement.links().len();
        self.digest = self.digest.wrapping_sub(part(&entry.announcement));
        Some(entry)
    }

    /// Removes the announcements whose lease has ended; returns true if there were any.
    pub(crate) fn expire(&mut self, now: Time) -> bool {
        let is_over = |(name, entry): &(&Guid, &Entry)| **name != self.own && entry.until <= now;
        let over = self.entries.iter().filter(is_over).map(|(name, _)| *name);
        let over: Vec<Guid> = over.collect();
        over.iter().for_each(|name| drop(self.remove(name)));
        !over.is_empty()
    }
}

/// Returns what an announcement adds to the digest.
fn part(announcement: &Announcement) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *announcement.origin().as_bytes();
    let name = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    // The finaliser of SplitMix64.
    let Edition { sequence, tag } = announcement.edition();
    let mut mixed = name ^ tag ^ sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
