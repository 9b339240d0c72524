//! What happens to a network, drawn from a seed.

use core::fmt;
use core::time::Duration;

use whimbrel_core::SeededRng;

use super::{Fault, Report, World};

/// How the nodes of a world are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One router without a name service, and its hosts.
    Site,
    /// Routers in a row that share a name server, hosts at each.
    Chain,
    /// Routers in a ring that share a name server; every host is attached to two of them.
    Ring,
}

/// One thing that happens. Numbers select a host, node, link or content modulo how many there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Act {
    /// A host asks for a content.
    Get {
        /// The host.
        host: u8,
        /// The content.
        content: u8,
    },
    /// A host gives up the oldest of its requests.
    Cancel {
        /// The host.
        host: u8,
    },
    /// A program stops or starts to take what its host hands over and to answer its reads.
    Pause {
        /// The host.
        host: u8,
        /// True to stop.
        paused: bool,
    },
    /// A node is killed and starts anew with an empty memory.
    Crash {
        /// The node: hosts first, then routers, then the name server.
        node: u8,
        /// How long it is down.
        down: Duration,
        /// How far its clock is off after the restart, in seconds.
        skew_s: i16,
    },
    /// A link loses everything for a while.
    Outage {
        /// The link.
        link: u8,
        /// Bit 0: from its first node to its second, bit 1: back.
        directions: u8,
        /// How long.
        lasts: Duration,
    },
    /// Everything on a link waits until the end of this time, as when a machine is suspended.
    Hold {
        /// The link.
        link: u8,
        /// How long.
        lasts: Duration,
    },
    /// A link loses, reorders, duplicates and corrupts frames from now on.
    Impair {
        /// The link.
        link: u8,
        /// Loss in percent; half as much is reordered and duplicated, a quarter corrupted.
        percent: u8,
    },
    /// A link is as good as new.
    Mend {
        /// The link.
        link: u8,
    },
}

/// An act, and how long after the one before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Time since the previous step.
    pub after: Duration,
    /// What happens.
    pub act: Act,
}

/// A world and what happens to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// The seed that it was drawn from, and of all randomness in the world.
    pub seed: u64,
    /// The network.
    pub layout: Layout,
    /// Routers.
    pub routers: usize,
    /// Hosts.
    pub hosts: usize,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

/// The most acts of a schedule.
const MAX_STEPS: u64 = 40;

impl Schedule {
    /// The schedule of a seed.
    pub fn draw(seed: u64) -> Schedule {
        let mut rng = SeededRng::stream(seed, "torture");
        let layout = [Layout::Site, Layout::Chain, Layout::Ring][rng.below(3) as usize];
        let routers = match layout {
            Layout::Site => 1,
            Layout::Chain => 2 + rng.below(3) as usize,
            Layout::Ring => 3 + rng.below(3) as usize,
        };
        let hosts = 2 + rng.below(4) as usize;
        let steps = (0..1 + rng.below(MAX_STEPS))
            .map(|_| Step {
                after: draw_pause(&mut rng),
                act: draw_act(&mut rng),
            })
            .collect();
        Schedule {
            seed,
            layout,
            routers,
            hosts,
            steps,
        }
    }

    /// Carries it out.
    pub fn run(&self) -> Result<Report, Fault> {
        let mut world = World::new(self);
        for step in &self.steps {
            world.run_for(step.after)?;
            world.perform(&step.act)?;
        }
        world.conclude()
    }
}

/// Mostly a moment, now and then so long that timers run out.
fn draw_pause(rng: &mut SeededRng) -> Duration {
    let longest_ms = [5, 300, 300, 3_000, 3_000, 30_000][rng.below(6) as usize];
    Duration::from_millis(rng.below(longest_ms))
}

fn draw_act(rng: &mut SeededRng) -> Act {
    let byte = |rng: &mut SeededRng| rng.below(256) as u8;
    let lasts = |rng: &mut SeededRng| {
        let longest_ms = [200, 3_000, 20_000, 90_000][rng.below(4) as usize];
        Duration::from_millis(rng.below(longest_ms))
    };
    match rng.below(16) {
        0..5 => Act::Get {
            host: byte(rng),
            content: byte(rng),
        },
        5 => Act::Cancel { host: byte(rng) },
        6 | 7 => Act::Pause {
            host: byte(rng),
            paused: rng.chance(0.5),
        },
        8 | 9 => Act::Crash {
            node: byte(rng),
            down: lasts(rng),
            skew_s: if rng.chance(0.2) {
                rng.below(61) as i16 - 30
            } else {
                0
            },
        },
        10..13 => Act::Outage {
            link: byte(rng),
            directions: 1 + rng.below(3) as u8,
            lasts: lasts(rng),
        },
        13 => Act::Hold {
            link: byte(rng),
            lasts: lasts(rng),
        },
        14 => Act::Impair {
            link: byte(rng),
            percent: 1 + rng.below(25) as u8,
        },
        _ => Act::Mend { link: byte(rng) },
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {:?}, {} routers, {} hosts",
            self.seed, self.layout, self.routers, self.hosts
        )?;
        let mut at = Duration::ZERO;
        for step in &self.steps {
            at += step.after;
            writeln!(f, "  {:9.3} s  {:?}", at.as_secs_f64(), step.act)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_schedule() {
        assert_eq!(Schedule::draw(7), Schedule::draw(7));
        assert_ne!(Schedule::draw(7).steps, Schedule::draw(8).steps);
    }
}
