//! Epidemic routing, and its opposite.

use core::time::Duration;

use super::{CopyOrMove, DtnMessage, DtnProtocol, HeldMessage};

/// Every node copies every message to every other node that it meets [A. Vahdat and D. Becker, "Epidemic Routing for
/// Partially-Connected Ad Hoc Networks", Duke University CS-2000-06].
#[derive(Debug, Default)]
pub struct Epidemic;

/// Only the sender of a message hands it over, to its receiver.
#[derive(Debug, Default)]
pub struct Direct;

impl DtnProtocol for Epidemic {
    fn meet(&mut self, _: Duration, _: usize, _: usize) {}
    fn part(&mut self, _: Duration, _: usize, _: usize) {}
    fn send(&mut self, _: usize, _: &DtnMessage) {}
    fn passed(&mut self, _: usize, _: usize, _: usize) {}

    fn choose(&mut self, _: Duration, _: usize, _: usize, _: &HeldMessage) -> Option<CopyOrMove> {
        Some(CopyOrMove::Copy)
    }

    fn advance(&mut self, _: Duration) -> bool {
        false
    }
}

impl DtnProtocol for Direct {
    fn meet(&mut self, _: Duration, _: usize, _: usize) {}
    fn part(&mut self, _: Duration, _: usize, _: usize) {}
    fn send(&mut self, _: usize, _: &DtnMessage) {}
    fn passed(&mut self, _: usize, _: usize, _: usize) {}

    fn choose(&mut self, _: Duration, _: usize, _: usize, _: &HeldMessage) -> Option<CopyOrMove> {
        None
    }

    fn advance(&mut self, _: Duration) -> bool {
        false
    }
}
