//! Frames on simulated links.

use whimbrel_core::Ecn;

use crate::link::{Markable, mark_ip};

/// The first octet of an IPv4 header without options.
const IPV4: u8 = 0x45;

/// A frame, and what the headers of its carrier would say of congestion.
#[derive(Clone, Debug, Default)]
pub(super) struct SimFrame {
    pub(super) bytes: Vec<u8>,
    pub(super) codepoint: Ecn,
    /// Its bytes are an IP packet, or a frame that begins otherwise.
    pub(super) may_be_ip: bool,
}

impl AsRef<[u8]> for SimFrame {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for SimFrame {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Markable for SimFrame {
    fn mark(&mut self) -> bool {
        if self.may_be_ip {
            return self.bytes.first() == Some(&IPV4) && mark_ip(&mut self.bytes);
        }
        let is_capable = self.codepoint != Ecn::NotCapable;
        if is_capable {
            self.codepoint = Ecn::Marked;
        }
        is_capable
    }
}
