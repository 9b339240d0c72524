//! What a router says of its links, signed.

use core::time::Duration;

use whimbrel_core::Guid;
use whimbrel_core::identity::{KeyPair, PublicKey, Signature};

use crate::cost::Cost;
use crate::reader::{MessageError, Reader};

/// The purpose of an announcement's signature.
const CONTEXT: &str = "whimbrel routing announcement v1";
/// Maximum of links in an announcement.
pub const MAX_LINKS: usize = 64;
/// The longest lease, in seconds.
const MAX_LEASE: u32 = 3600;

/// A link to a neighbour, as one end sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The neighbour.
    pub to: Guid,
    /// The cost of sending there now; [`Cost::NEVER`] while the link is down.
    pub cost: Cost,
    /// The usual cost, with the share of time that the link is down.
    pub usual: Cost,
}

/// Which of a router's announcements it is; the highest counts. A router that has lost its count repeats
/// a number: of two announcements of one number the one with the higher tag counts, until the router
/// sees the other one and takes a number above both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edition {
    /// Its number.
    pub sequence: u64,
    /// The first eight octets of its signature.
    pub tag: u64,
}

/// The links of a router, signed by its key. Its name is the key's hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    key: PublicKey,
    origin: Guid,
    sequence: u64,
    lease: u32,
    links: Vec<Link>,
    signature: Signature,
}

impl Announcement {
    /// Signs an announcement. The links are those of different neighbours, [`MAX_LINKS`] at most; the
    /// lease has whole seconds, an hour at most.
    pub fn sign(
        keys: &KeyPair,
        sequence: u64,
        lease: Duration,
        mut links: Vec<Link>,
    ) -> Announcement {
        links.sort_by_key(|link| link.to);
        links.dedup_by_key(|link| link.to);
        links.truncate(MAX_LINKS);
        let lease = u32::try_from(lease.as_secs()).unwrap_or(MAX_LEASE);
        let mut announcement = Announcement {
            key: keys.public(),
            origin: keys.guid(),
            sequence,
            lease: lease.clamp(1, MAX_LEASE),
            links,
            signature: Signature([0; Signature::LEN]),
        };
        announcement.signature = keys.sign(CONTEXT, &announcement.statement());
        announcement
    }

    /// Returns what is signed.
    fn statement(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(48 + 40 * self.links.len());
        out.extend_from_slice(self.key.as_bytes());
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(&self.lease.to_be_bytes());
        out.extend_from_slice(&(self.links.len() as u16).to_be_bytes());
        for link in &self.links {
            out.extend_from_slice(link.to.as_bytes());
            out.extend_from_slice(&link.cost.0.to_be_bytes());
            out.extend_from_slice(&link.usual.0.to_be_bytes());
        }
        out
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.statement());
        out.extend_from_slice(&self.signature.0);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Announcement, MessageError> {
        let key = PublicKey(*reader.array::<32>()?);
        let sequence = reader.u64()?;
        let lease = reader.u32()?;
        if !(1..=MAX_LEASE).contains(&lease) {
            return Err(MessageError::Invalid("lease"));
        }
        let count = usize::from(reader.u16()?);
        if count > MAX_LINKS {
            return Err(MessageError::Invalid("number of links"));
        }
        let origin = key.guid();
        let mut links: Vec<Link> = Vec::with_capacity(count);
        for _ in 0..count {
            let link = Link {
                to: reader.guid()?,
                cost: Cost(reader.u32()?),
                usual: Cost(reader.u32()?),
            };
            let is_cost =
                |cost: Cost| cost > Cost::ZERO && (cost <= Cost::MAX_LINK || cost == Cost::NEVER);
            if !is_cost(link.cost) || !is_cost(link.usual) {
                return Err(MessageError::Invalid("cost"));
            }
            if link.to == origin || links.last().is_some_and(|last| last.to >= link.to) {
                return Err(MessageError::Invalid("order of links"));
            }
            links.push(link);
        }
        let signature = Signature(*reader.array::<64>()?);
        Ok(Announcement {
            key,
            origin,
            sequence,
            lease,
            links,
            signature,
        })
    }

    /// Returns true if its key has signed it.
    pub fn is_genuine(&self) -> bool {
        let statement = self.statement();
        (self.key)
            .verify(CONTEXT, &statement, &self.signature)
            .is_ok()
    }

    /// Returns the router whose links they are.
    pub fn origin(&self) -> Guid {
        self.origin
    }

    /// Returns its number: a higher one replaces a lower one.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns its edition.
    pub fn edition(&self) -> Edition {
        let [a, b, c, d, e, f, g, h, ..] = self.signature.0;
        Edition {
            sequence: self.sequence,
            tag: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        }
    }

    /// Returns how long it counts from its signing, without a newer one.
    pub fn lease(&self) -> Duration {
        Duration::from_secs(self.lease.into())
    }

    /// Returns the links, by neighbour.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Returns the link to a neighbour.
    pub fn link_to(&self, to: &Guid) -> Option<&Link> {
        let at = self.links.binary_search_by_key(to, |link| link.to).ok()?;
        self.links.get(at)
    }
}
