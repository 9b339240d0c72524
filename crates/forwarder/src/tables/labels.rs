//! The labels of this router's faces in path tags.
//!
//! "Each item is the identifier of a forwarding interface" ([PTP §4-A]). Labels are keyed
//! hashes, not the faces' numbers: one that was not recorded on a path of one's own can only be
//! guessed, and the labels of one face say nothing about the next one's. After a restart all are
//! different, so an old tag names no face.

use core::hash::{BuildHasher, Hasher};
use std::collections::VecDeque;

use whimbrel_core::{KeyedMap, KeyedState};
use whimbrel_ndn_packet::lp::Label;

use crate::face::FaceId;

/// Maximum of removed faces whose labels are still recognised.
const MAX_GONE: usize = 1024;

/// What a label of this router names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Labelled {
    /// A face.
    Face(FaceId),
    /// A face that was removed.
    Gone,
}

/// The labels of all faces, and of those removed recently.
#[derive(Debug)]
pub(crate) struct Labels {
    secret: KeyedState,
    names: KeyedMap<u64, Labelled>,
    /// Labels of removed faces, the one removed first first.
    gone: VecDeque<u64>,
}

impl Labels {
    pub(crate) fn new(secret: KeyedState) -> Labels {
        Labels {
            secret,
            names: KeyedMap::with_hasher(secret.derive("map")),
            gone: VecDeque::new(),
        }
    }

    /// Gives a new face its label: 30 bits, so that it has at most 4 octets.
    pub(crate) fn add(&mut self, face: FaceId) -> Label {
        let mut attempt = 0;
        loop {
            let label = self.candidate(face, attempt);
            if !self.names.contains_key(&label.number()) {
                self.names.insert(label.number(), Labelled::Face(face));
                return label;
            }
            attempt += 1;
        }
    }

    fn candidate(&self, face: FaceId, attempt: u64) -> Label {
        let mut hasher = self.secret.build_hasher();
        hasher.write(&face.0.to_be_bytes());
        hasher.write(&attempt.to_be_bytes());
        let number = hasher.finish() >> (64 - Label::BITS_OF_4_OCTETS);
        Label::new(number).unwrap_or(Label::ZERO)
    }

    /// A face was removed.
    pub(crate) fn retire(&mut self, label: Label) {
        self.names.insert(label.number(), Labelled::Gone);
        self.gone.push_back(label.number());
        if self.gone.len() > MAX_GONE
            && let Some(oldest) = self.gone.pop_front()
        {
            self.names.remove(&oldest);
        }
    }

    /// What the label names; `None` if this router has not given it to a face, or long ago.
    pub(crate) fn find(&self, label: Label) -> Option<Labelled> {
        self.names.get(&label.number()).copied()
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_core::SeededRng;

    use super::*;

    fn labels(seed: u64) -> Labels {
        Labels::new(KeyedState::new(&mut SeededRng::new(seed)))
    }

    #[test]
    fn labels_are_neither_numbers_of_faces_nor_the_same_in_another_run() {
        let (mut one, mut other) = (labels(1), labels(2));
        let of = |labels: &mut Labels| {
            (256..1256)
                .map(|face| labels.add(FaceId(face)))
                .collect::<Vec<_>>()
        };
        let (first, second) = (of(&mut one), of(&mut other));
        let mut sorted = first.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 1000, "each face has its own");
        assert_ne!(first, sorted, "their order is not that of the numbers");
        assert!(first.iter().all(|label| label.encoded_len() <= 4));
        assert!(
            first
                .iter()
                .zip(256..)
                .all(|(label, face)| one.find(*label) == Some(Labelled::Face(FaceId(face))))
        );
        assert!(second.iter().all(|label| one.find(*label).is_none()));
    }

    #[test]
    fn labels_of_removed_faces_are_remembered_within_a_bound() {
        let mut labels = labels(1);
        let all: Vec<Label> = (0..MAX_GONE as u64 + 1)
            .map(|face| labels.add(FaceId(face)))
            .collect();
        all.iter().for_each(|label| labels.retire(*label));
        assert_eq!(labels.find(all[0]), None);
        assert!(
            all[1..]
                .iter()
                .all(|label| labels.find(*label) == Some(Labelled::Gone))
        );
        assert_eq!(
            (labels.names.len(), labels.gone.len()),
            (MAX_GONE, MAX_GONE)
        );
    }
}
