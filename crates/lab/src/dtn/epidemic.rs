//! Epidemic routing, and its opposite.

use core::time::Duration;

use super::{Held, Message, Pass, Protocol};

/// Every node copies every message to every other node that it meets [A. Vahdat and D. Becker, "Epidemic Routing for
/// Partially-Connected Ad Hoc Networks", Duke University CS-2000-06].
#[derive(Debug, Default)]
pub struct Epidemic;

/// Only the sender of a message hands it over, to its receiver.
#[derive(Debug, Default)]
pub struct Direct;

impl Protocol for Epidemic {
    fn meet(&mut self, _: Duration, _: usize, _: usize) {}
    fn part(&mut self, _: Duration, _: usize, _: usize) {}
    fn send(&mut self, _: usize, _: &Message) {}
    fn passed(&mut self, _: usize, _: usize, _: usize) {}

    fn choose(&mut self, _: Duration, _: usize, _: usize, _: &Held) -> Option<Pass> {
        Some(Pass::Copy)
    }

    fn advance(&mut self, _: Duration) -> bool {
        false
    }
}

impl Protocol for Direct {
    fn meet(&mut self, _: Duration, _: usize, _: usize) {}
    fn part(&mut self, _: Duration, _: usize, _: usize) {}
    fn send(&mut self, _: usize, _: &Message) {}
    fn passed(&mut self, _: usize, _: usize, _: usize) {}

    fn choose(&mut self, _: Duration, _: usize, _: usize, _: &Held) -> Option<Pass> {
        None
    }

    fn advance(&mut self, _: Duration) -> bool {
        false
    }
}
