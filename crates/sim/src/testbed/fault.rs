//! Faults of nodes and links.

use core::time::Duration;

use whimbrel_core::SeededRng;

use super::schedule::draw_lasting;
use crate::link::{LinkSpec, Loss, Reorder};

/// A fault in a [`Net`](super::Net). Numbers select a node or a link, modulo the number of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// A node is killed and starts anew with an empty memory.
    Crash {
        /// The node.
        node: u8,
        /// The time until it starts again.
        down: Duration,
        /// The error of its wall clock after the restart, in seconds.
        skew_s: i16,
    },
    /// A node's clock jumps ahead, as after a suspend, and runs fast or slow from now on.
    Clock {
        /// The node.
        node: u8,
        /// The jump.
        ahead: Duration,
        /// Microseconds gained per second.
        drift_ppm: i16,
    },
    /// A node's wall clock is set. Nodes whose wall clocks cannot be set ([`Net::allow_setting_time`]
    /// has not been called, or for a smaller error) keep theirs.
    ///
    /// [`Net::allow_setting_time`]: super::Net::allow_setting_time
    SetTime {
        /// The node.
        node: u8,
        /// How far it is off from now on, in seconds.
        skew_s: i16,
    },
    /// The peer that called over a link comes from another address from now on, as after a move or
    /// behind a NAT that forgot it. On a link that no listener is at the end of, nothing.
    Move {
        /// The link.
        link: u8,
    },
    /// A link loses everything for a while.
    Outage {
        /// The link.
        link: u8,
        /// Bit 0: from its first node to its second, bit 1: back.
        directions: u8,
        /// The length.
        lasts: Duration,
    },
    /// All frames on a link are held until the end of this time, as when a machine is suspended.
    Hold {
        /// The link.
        link: u8,
        /// The length.
        lasts: Duration,
    },
    /// A link loses, reorders, duplicates and corrupts frames from now on.
    Impair {
        /// The link.
        link: u8,
        /// The percentage, as for [`impaired`].
        percent: u8,
    },
    /// A link becomes healthy again.
    Mend {
        /// The link.
        link: u8,
    },
}

impl Fault {
    /// Returns the fault with its link, if it has one, reduced modulo `links`, which must not be
    /// zero.
    #[must_use]
    pub fn on_link_below(mut self, links: usize) -> Fault {
        match &mut self {
            Fault::Outage { link, .. }
            | Fault::Hold { link, .. }
            | Fault::Impair { link, .. }
            | Fault::Move { link }
            | Fault::Mend { link } => *link = (usize::from(*link) % links.max(1)) as u8,
            Fault::Crash { .. } | Fault::Clock { .. } | Fault::SetTime { .. } => {}
        }
        self
    }

    /// Draws a fault of any kind.
    pub fn draw(rng: &mut SeededRng) -> Fault {
        let byte = |rng: &mut SeededRng| rng.below(256) as u8;
        match rng.below(11) {
            0 | 1 => Fault::Crash {
                node: byte(rng),
                down: draw_lasting(rng),
                skew_s: if rng.chance(0.2) {
                    rng.below(61) as i16 - 30
                } else {
                    0
                },
            },
            2..5 => Fault::Outage {
                link: byte(rng),
                directions: 1 + rng.below(3) as u8,
                lasts: draw_lasting(rng),
            },
            5 => Fault::Hold {
                link: byte(rng),
                lasts: draw_lasting(rng),
            },
            6 => Fault::Impair {
                link: byte(rng),
                percent: 1 + rng.below(25) as u8,
            },
            7 => Fault::Mend { link: byte(rng) },
            8 => Fault::Move { link: byte(rng) },
            9 => Fault::SetTime {
                node: byte(rng),
                // Mostly right again, seconds or hours.
                skew_s: match rng.below(4) {
                    0 | 1 => 0,
                    2 => rng.below(41) as i16 - 20,
                    _ => rng.below(20_001) as i16 - 10_000,
                },
            },
            _ => Fault::Clock {
                node: byte(rng),
                ahead: if rng.chance(0.5) {
                    draw_lasting(rng)
                } else {
                    Duration::ZERO
                },
                drift_ppm: rng.below(20_001) as i16 - 10_000,
            },
        }
    }
}

/// Returns a link that loses this share of frames, in percent. Half as much is duplicated, half as
/// much falls 20 ms behind, and a quarter is corrupted.
pub fn impaired(healthy: &LinkSpec, percent: u8) -> LinkSpec {
    let share = f64::from(percent.min(100)) / 100.0;
    LinkSpec {
        reorder: Some(Reorder {
            probability: share / 2.0,
            extra_delay: Duration::from_millis(20),
        }),
        duplicate: share / 2.0,
        corrupt: share / 4.0,
        ..healthy.clone().with_loss(Loss::Independent(share))
    }
}
