//! A whole packet with shared ownership.

use core::fmt;
use core::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;

/// A whole packet: a content store, the queues of several faces and the retransmission buffers may
/// share it.
///
/// The octets and the reference count are one allocation. Packets of a content store have long left
/// the nearest caches when they are evicted: the count of `Bytes`, an allocation of its own, is one
/// more cache line to wait for, a tenth of a router's time.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedPacket(Arc<[u8]>);

impl Deref for SharedPacket {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl SharedPacket {
    /// Returns true if both are one packet in memory.
    pub fn is_same(&self, other: &SharedPacket) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl AsRef<[u8]> for SharedPacket {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for SharedPacket {
    fn from(octets: &[u8]) -> Self {
        SharedPacket(octets.into())
    }
}

impl From<Vec<u8>> for SharedPacket {
    fn from(octets: Vec<u8>) -> Self {
        SharedPacket(octets.into())
    }
}

impl From<Bytes> for SharedPacket {
    fn from(octets: Bytes) -> Self {
        SharedPacket(octets[..].into())
    }
}

impl From<SharedPacket> for Bytes {
    fn from(packet: SharedPacket) -> Self {
        Bytes::copy_from_slice(&packet)
    }
}

impl PartialEq<[u8]> for SharedPacket {
    fn eq(&self, other: &[u8]) -> bool {
        &self.0[..] == other
    }
}

impl PartialEq<Bytes> for SharedPacket {
    fn eq(&self, other: &Bytes) -> bool {
        self.0[..] == other[..]
    }
}

impl fmt::Debug for SharedPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedPacket(")?;
        self.iter().try_for_each(|octet| write!(f, "{octet:02x}"))?;
        write!(f, ")")
    }
}
