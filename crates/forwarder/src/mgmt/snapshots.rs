//! Datasets being fetched: versions of content, cut into segments.

use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_core::Time;
use whimbrel_ndn_packet::{Component, Data, DigestSigner, Name, NameRef};

/// Octets of content in one segment: NFD leaves 800 of the 8,800 of a packet for name, signature
/// and link header.
pub(crate) const SEGMENT_SIZE: usize = 8_000;
/// The FreshnessPeriod of management's Data.
pub(crate) const FRESHNESS: Duration = Duration::from_secs(1);
/// How long a version is kept after the last request for one of its segments.
const LIFETIME: Duration = Duration::from_secs(10);
/// Maximum of versions at a time.
const MAX_VERSIONS: usize = 64;
/// Maximum of octets of all versions at a time; a single one may be larger, because it must be
/// served anyway.
const MAX_OCTETS: usize = 64 << 20;
/// From this size on, a version is served again while it is fresh instead of generating a new one:
/// generating a large one delays packets.
const LARGE: usize = 16 * SEGMENT_SIZE;

struct Snapshot {
    /// The requested name, without version.
    name: Name,
    version: u64,
    content: Bytes,
    made: Time,
    used: Time,
}

/// Versions of datasets that may still be requested.
#[derive(Default)]
pub(crate) struct Snapshots {
    /// Least recently used first.
    versions: VecDeque<Snapshot>,
    last_version: u64,
}

impl Snapshots {
    /// Returns a fresh version of this dataset, if it may be served again.
    pub(crate) fn reusable(&self, now: Time, name: NameRef<'_>) -> Option<u64> {
        let newest = self
            .versions
            .iter()
            .rev()
            .find(|version| version.name.as_ref() == name)?;
        let is_new = now.since(newest.made) < FRESHNESS;
        (is_new && newest.content.len() > LARGE).then_some(newest.version)
    }

    /// Keeps content and returns its version: Unix time in microseconds, or the next number if that
    /// one is taken.
    pub(crate) fn keep(
        &mut self,
        now: Time,
        unix_micros: u64,
        name: Name,
        content: Vec<u8>,
    ) -> u64 {
        self.last_version = unix_micros.max(self.last_version + 1);
        let version = self.last_version;
        self.versions.push_back(Snapshot {
            name,
            version,
            content: content.into(),
            made: now,
            used: now,
        });
        self.forget(now);
        version
    }

    fn forget(&mut self, now: Time) {
        let octets = |versions: &VecDeque<Snapshot>| {
            versions
                .iter()
                .map(|version| version.content.len())
                .sum::<usize>()
        };
        while self.versions.len() > 1
            && (self.versions.len() > MAX_VERSIONS
                || octets(&self.versions) > MAX_OCTETS
                || self
                    .versions
                    .front()
                    .is_some_and(|oldest| now.since(oldest.used) > LIFETIME))
        {
            self.versions.pop_front();
        }
    }

    /// Encodes one segment as a Data packet; `None` if the version is gone or has no such segment.
    pub(crate) fn segment(
        &mut self,
        now: Time,
        name: NameRef<'_>,
        version: u64,
        number: u64,
    ) -> Option<Vec<u8>> {
        let at = self
            .versions
            .iter()
            .position(|kept| kept.version == version && kept.name.as_ref() == name)?;
        let mut kept = self.versions.remove(at)?;
        kept.used = now;
        let data = kept.segment(number);
        self.versions.push_back(kept);
        data
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.versions.len()
    }
}

impl Snapshot {
    fn segment(&self, number: u64) -> Option<Vec<u8>> {
        // An empty dataset still has its segment 0.
        let last = self.content.len().saturating_sub(1) / SEGMENT_SIZE;
        let index = usize::try_from(number)
            .ok()
            .filter(|index| *index <= last)?;
        let start = index * SEGMENT_SIZE;
        let end = self.content.len().min(start + SEGMENT_SIZE);
        let versioned = self.name.child(Component::version(self.version).as_ref());
        let mut data = Data::new(
            versioned.child(Component::segment(number).as_ref()),
            self.content.slice(start..end),
        );
        data.freshness = FRESHNESS;
        data.final_block_id = Some(Component::segment(last as u64));
        Some(data.encode(&DigestSigner))
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_ndn_packet::DataRef;

    use super::*;

    fn name() -> Name {
        "/localhost/nfd/fib/list".parse().unwrap()
    }

    #[test]
    fn segments_put_together_are_the_content_and_all_say_which_is_the_last() {
        for len in [
            0,
            1,
            SEGMENT_SIZE - 1,
            SEGMENT_SIZE,
            SEGMENT_SIZE + 1,
            5 * SEGMENT_SIZE,
        ] {
            let content: Vec<u8> = (0..len).map(|at| (at / 7) as u8).collect();
            let mut snapshots = Snapshots::default();
            let version = snapshots.keep(Time::ZERO, 5, name(), content.clone());
            let mut read = Vec::new();
            let mut number = 0;
            while let Some(wire) = snapshots.segment(Time::ZERO, name().as_ref(), version, number) {
                let data = DataRef::decode(&wire).unwrap();
                assert!(wire.len() <= whimbrel_ndn_packet::MAX_PACKET);
                assert_eq!(
                    data.name.to_string(),
                    format!("/localhost/nfd/fib/list/v={version}/seg={number}")
                );
                let last = (len.max(1) - 1) / SEGMENT_SIZE;
                assert_eq!(
                    data.final_block_id.unwrap().to_string(),
                    format!("seg={last}")
                );
                read.extend_from_slice(data.content);
                number += 1;
            }
            assert_eq!(read, content);
        }
    }

    #[test]
    fn versions_grow_even_when_the_clock_does_not() {
        let mut snapshots = Snapshots::default();
        let versions: Vec<u64> = (0..3)
            .map(|_| snapshots.keep(Time::ZERO, 1_000, name(), vec![]))
            .collect();
        assert_eq!(versions, [1_000, 1_001, 1_002]);
    }

    #[test]
    fn who_asks_for_many_datasets_makes_old_ones_go_and_not_memory_grow() {
        let mut snapshots = Snapshots::default();
        for _ in 0..1_000 {
            snapshots.keep(Time::ZERO, 0, name(), vec![0; 1 << 20]);
            assert!(snapshots.len() <= 64);
        }
        snapshots.keep(Time::ZERO, 0, name(), vec![0; 2 * MAX_OCTETS]);
        assert_eq!(
            snapshots.len(),
            1,
            "one that is larger than all may be is still told"
        );
        snapshots.keep(Time::from_secs(60), 0, name(), vec![]);
        assert_eq!(snapshots.len(), 1, "what nobody asked for in a while goes");
    }

    #[test]
    fn only_large_datasets_are_told_twice_and_only_while_they_are_fresh() {
        let mut snapshots = Snapshots::default();
        snapshots.keep(Time::ZERO, 0, name(), vec![0; LARGE]);
        assert_eq!(snapshots.reusable(Time::ZERO, name().as_ref()), None);
        let large = snapshots.keep(Time::ZERO, 0, name(), vec![0; LARGE + 1]);
        assert_eq!(
            snapshots.reusable(Time::from_millis(999), name().as_ref()),
            Some(large)
        );
        assert_eq!(
            snapshots.reusable(Time::from_secs(1), name().as_ref()),
            None
        );
        let other: Name = "/localhost/nfd/rib/list".parse().unwrap();
        assert_eq!(snapshots.reusable(Time::ZERO, other.as_ref()), None);
    }
}
