//! The path tag of a consumer: which way its Interests take.

use core::fmt;

use bytes::Bytes;
use whimbrel_ndn_packet::LpHeader;
use whimbrel_ndn_packet::lp::Tag;

use super::{Path, PathOptions};
use crate::application::FaceNumber;

/// A path as routers have recorded it in a Data. "Each unique tag corresponds to a unique path"
/// ([PTP §3-A]). Only routers can read its labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathTag {
    octets: Bytes,
    hops: usize,
}

impl PathTag {
    /// Returns the tag with these octets; `None` if they are malformed, or empty: an empty tag
    /// leads nowhere in particular.
    pub fn new(octets: impl Into<Bytes>) -> Option<PathTag> {
        let octets = octets.into();
        let hops = Tag::new(&octets).hops().filter(|hops| *hops > 0)?;
        Some(PathTag { octets, hops })
    }

    /// Returns the number of routers that it leads through.
    pub const fn hops(&self) -> usize {
        self.hops
    }

    /// Returns the numbers of its labels, from the consumer on: routers draw them at random, so
    /// paths that share one share a link.
    pub fn labels(&self) -> impl Iterator<Item = u64> + '_ {
        let mut rest = Tag::new(&self.octets);
        core::iter::from_fn(move || {
            let (label, below) = rest.pop()?;
            rest = below;
            Some(label.number())
        })
    }

    /// Returns its octets.
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// Link header fields of an Interest along it.
    pub fn header(&self) -> LpHeader {
        LpHeader {
            path_tag: Some(self.octets.clone()),
            ..LpHeader::default()
        }
    }
}

impl fmt::Display for PathTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = Tag::new(&self.octets);
        let mut separator = "";
        while let Some((label, below)) = rest.pop() {
            write!(f, "{separator}{:x}", label.number())?;
            (rest, separator) = (below, "-");
        }
        Ok(())
    }
}

impl PathOptions {
    /// Returns a path that is followed by its tag.
    pub fn tagged(face: FaceNumber, tag: &PathTag) -> PathOptions {
        PathOptions {
            face,
            header: tag.header(),
        }
    }
}

impl Path {
    /// Returns true if its Interests have a tag.
    pub fn is_tagged(&self) -> bool {
        self.header()
            .is_some_and(|header| header.path_tag.is_some())
    }

    /// Returns its tag; `None` if routers choose the way.
    pub fn tag(&self) -> Option<PathTag> {
        PathTag::new(self.header()?.path_tag.clone()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_shows_its_labels_from_the_consumer_on() {
        let tag = PathTag::new(&b"\x85\x00\x00\x01\x2a\x40\xff"[..]).unwrap();
        assert_eq!((tag.hops(), tag.to_string()), (3, "5000001-2a-ff".into()));
        let labels: Vec<u64> = tag.labels().collect();
        assert_eq!(labels, [0x500_0001, 0x2a, 0xff]);
        assert_eq!(PathTag::new(&b"\x80"[..]), None, "cut off");
        assert_eq!(PathTag::new(Bytes::new()), None, "empty");
    }
}
