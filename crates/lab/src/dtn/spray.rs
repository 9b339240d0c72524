//! Spray and wait.

use core::time::Duration;
use std::collections::BTreeMap;

use super::{CopyOrMove, DtnMessage, DtnProtocol, HeldMessage};

/// Binary spray and wait [T. Spyropoulos, K. Psounis and C. Raghavendra, "Spray and Wait", WDTN 2005]: a message has a
/// number of copies. A node with several hands half of them over, one with a single copy waits for the receiver.
#[derive(Debug)]
pub struct SprayAndWait {
    copies: u32,
    // By message and node.
    left: BTreeMap<(usize, usize), u32>,
}

impl SprayAndWait {
    /// Returns the protocol with this number of copies of each message.
    pub fn new(copies: u32) -> SprayAndWait {
        SprayAndWait {
            copies,
            left: BTreeMap::new(),
        }
    }
}

impl DtnProtocol for SprayAndWait {
    fn meet(&mut self, _: Duration, _: usize, _: usize) {}
    fn part(&mut self, _: Duration, _: usize, _: usize) {}

    fn send(&mut self, number: usize, message: &DtnMessage) {
        self.left.insert((number, message.from), self.copies);
    }

    fn choose(
        &mut self,
        _: Duration,
        from: usize,
        _: usize,
        held: &HeldMessage,
    ) -> Option<CopyOrMove> {
        let left = self.left.get(&(held.number, from)).copied();
        left.filter(|left| *left > 1).map(|_| CopyOrMove::Copy)
    }

    fn passed(&mut self, number: usize, from: usize, to: usize) {
        let left = self.left.get(&(number, from)).copied().unwrap_or(1);
        self.left.insert((number, from), left - left / 2);
        self.left.insert((number, to), (left / 2).max(1));
    }

    fn advance(&mut self, _: Duration) -> bool {
        false
    }
}
