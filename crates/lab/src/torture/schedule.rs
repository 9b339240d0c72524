//! Schedules: the acts upon a network, drawn from a seed.

use core::fmt;
use core::time::Duration;

use whimbrel_core::SeededRng;
use whimbrel_sim::testbed::{Fault, Step, draw_pause, shrink};

use super::features::{Features, RouterSetup, add_acts};
use super::ndn::Site;
use super::{Breach, Report, Victim, World};

/// How the nodes of a world are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One router without a name service, and its hosts.
    Site,
    /// Routers in a row that share a name server, hosts at each.
    Chain,
    /// Routers in a ring that share a name server; every host is attached to two of them.
    Ring,
    /// As a ring, with further links across it.
    Mesh,
    /// NDN routers in a row, with programs at each.
    NdnChain,
    /// NDN routers in a ring, with programs at each and routes both ways round.
    NdnRing,
}

impl Layout {
    /// Returns true if its routers are NDN's.
    pub fn is_ndn(self) -> bool {
        matches!(self, Layout::NdnChain | Layout::NdnRing)
    }
}

/// One act. Numbers select a host or a content modulo their count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Act {
    /// A host asks for a content.
    Get {
        /// The host.
        host: u8,
        /// The content.
        content: u8,
    },
    /// A host cancels its oldest request.
    Cancel {
        /// The host.
        host: u8,
    },
    /// A program stops or resumes taking chunks from its host and answering its reads.
    Pause {
        /// The host.
        host: u8,
        /// True to stop.
        paused: bool,
    },
    /// A program stops or resumes one of its downloads, while it takes the others.
    Stall {
        /// The host.
        host: u8,
        /// Its place among those under way.
        which: u8,
    },
    /// A host's program sends a content to a host that has not asked for it.
    Push {
        /// The host.
        host: u8,
        /// How far behind it the receiver is.
        to: u8,
        /// The content.
        content: u8,
        /// The access router is asked to keep copies.
        delegated: bool,
    },
    /// A host's program sends a content to the group of all hosts.
    PushToAll {
        /// The host.
        host: u8,
        /// The content.
        content: u8,
    },
    /// Something goes wrong with a node (hosts first, then routers, then the name server) or a link.
    Fault(Fault),
}

/// A world and the acts upon it.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// The seed of the schedule, and of all randomness in the world.
    pub seed: u64,
    /// The network.
    pub layout: Layout,
    /// Routers.
    pub routers: usize,
    /// Hosts.
    pub hosts: usize,
    /// What routers do beyond their defaults.
    pub features: Features,
    /// The acts, in order.
    pub steps: Vec<Step<Act>>,
}

/// Bound of the acts of a schedule, beside a night.
const MAX_STEPS: u64 = 40;
/// The share of schedules with a night: something is away for so long that keys, records and
/// bindings succeed each other or expire meanwhile.
const NIGHTS: f64 = 0.15;
/// The least length of a night, and how much longer it can be, in seconds. Keys of a link succeed
/// each other every two minutes.
const NIGHT_S: (u64, u64) = (120, 2_400);

impl Schedule {
    /// Returns the schedule of a seed.
    pub fn draw(seed: u64) -> Schedule {
        let mut rng = SeededRng::stream(seed, "torture");
        let layout = [
            Layout::Site,
            Layout::Chain,
            Layout::Ring,
            Layout::NdnChain,
            Layout::NdnRing,
        ][rng.below(5) as usize];
        let routers = match layout {
            Layout::Site => 1,
            Layout::Chain => 2 + rng.below(3) as usize,
            Layout::NdnChain => 1 + rng.below(4) as usize,
            Layout::Ring | Layout::Mesh | Layout::NdnRing => 3 + rng.below(3) as usize,
        };
        let hosts = 2 + rng.below(4) as usize;
        let mut steps = (0..1 + rng.below(MAX_STEPS))
            .map(|_| Step {
                after: draw_pause(&mut rng),
                act: draw_act(&mut rng),
            })
            .collect();
        let mut rng = SeededRng::stream(seed, "torture by night");
        if rng.chance(NIGHTS) {
            add_night(&mut rng, &mut steps);
        }
        let setup = RouterSetup::draw(
            &mut SeededRng::stream(seed, "torture features"),
            layout,
            routers,
        );
        if !layout.is_ndn() {
            add_acts(&mut SeededRng::stream(seed, "torture acts"), &mut steps);
        }
        Schedule {
            seed,
            layout: setup.layout,
            routers: setup.routers,
            hosts,
            features: setup.features,
            steps,
        }
    }

    /// Runs the schedule.
    pub fn run(&self) -> Result<Report, Breach> {
        if self.layout.is_ndn() {
            return self.run_upon(Site::new(self));
        }
        self.run_upon(World::new(self))
    }

    fn run_upon(&self, mut world: impl Victim) -> Result<Report, Breach> {
        for step in &self.steps {
            world.run_for(step.after)?;
            world.perform(&step.act)?;
        }
        world.conclude()
    }

    /// Returns this schedule, which breaks a promise, with only the steps that matter, and the
    /// breach that they cause.
    pub fn shrink(&self, breach: Breach) -> (Schedule, Breach) {
        let with = |steps: &[Step<Act>]| Schedule {
            steps: steps.to_vec(),
            ..self.clone()
        };
        let (steps, breach) = shrink(&self.steps, breach, |steps| with(steps).run().err());
        (with(&steps), breach)
    }
}

/// Adds a fault that lasts, and lets it last before one of the acts behind it, so that some acts
/// fall into the night and others come after it.
fn add_night(rng: &mut SeededRng, steps: &mut Vec<Step<Act>>) {
    let lasts = Duration::from_secs(NIGHT_S.0 + rng.below(NIGHT_S.1));
    let fault = match rng.below(4) {
        0 => Fault::Crash {
            node: byte(rng),
            down: lasts,
            skew_s: 0,
        },
        _ => Fault::Outage {
            link: byte(rng),
            directions: 1 + rng.below(3) as u8,
            lasts,
        },
    };
    let get = Act::Get {
        host: byte(rng),
        content: byte(rng),
    };
    let begins = rng.below(steps.len() as u64) as usize;
    let fall = Step {
        after: draw_pause(rng),
        act: Act::Fault(fault),
    };
    steps.insert(begins, fall);
    let ends = begins + 1 + rng.below((steps.len() - begins) as u64) as usize;
    let dawn = Step {
        after: lasts,
        act: get,
    };
    steps.insert(ends, dawn);
}

fn byte(rng: &mut SeededRng) -> u8 {
    rng.below(256) as u8
}

fn draw_act(rng: &mut SeededRng) -> Act {
    match rng.below(16) {
        0..5 => Act::Get {
            host: byte(rng),
            content: byte(rng),
        },
        5 => Act::Cancel { host: byte(rng) },
        6 => Act::Pause {
            host: byte(rng),
            paused: rng.chance(0.5),
        },
        7 => Act::Stall {
            host: byte(rng),
            which: byte(rng),
        },
        _ => Act::Fault(Fault::draw(rng)),
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {:?}, {} routers, {} hosts, {}",
            self.seed, self.layout, self.routers, self.hosts, self.features
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

    #[test]
    fn some_schedules_have_a_night() {
        let length = |schedule: &Schedule| -> Duration {
            schedule.steps.iter().map(|step| step.after).sum()
        };
        let schedules = (0..200).map(Schedule::draw);
        let long = schedules
            .filter(|it| length(it) > Duration::from_secs(1_300))
            .count();
        assert!((5..60).contains(&long), "{long} of 200");
    }
}
