//! What the routers of a world do beyond their defaults, and the acts that put it to the test.

use core::fmt;
use core::time::Duration;

use whimbrel_core::SeededRng;
use whimbrel_sim::testbed::{Fault, Step, draw_pause};

use super::schedule::{Act, Layout};

/// Options of a world's routers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Ways are learned. Otherwise routes are typed.
    pub learned: bool,
    /// Data waits for the usual way while that of the moment is much worse.
    pub waits: bool,
    /// Every router stores on a disk. Otherwise every other one does.
    pub disks: bool,
    /// Routers have a cache.
    pub cache: bool,
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (self.learned, "learned ways"),
            (self.waits, "waiting for usual ways"),
            (self.disks, "disks everywhere"),
            (self.cache, "caches"),
        ];
        let names = all.iter().filter(|(is_on, _)| *is_on).map(|(_, name)| name);
        let names: Vec<&str> = names.copied().collect();
        f.write_str(&match names.is_empty() {
            true => String::from("no features"),
            false => names.join(", "),
        })
    }
}

/// The share of schedules with learned ways, of those with several routers; half of these are a mesh.
const LEARNED: f64 = 0.6;
/// The share with pushes, and the most of them.
const PUSHES: f64 = 0.6;
const MAX_PUSHES: u64 = 6;
/// The share with pushes to the group of all hosts, and the most of them.
const GROUP_PUSHES: f64 = 0.4;
const MAX_GROUP_PUSHES: u64 = 3;
/// The share in which a link flaps, and how often it fails at most.
const FLAPS: f64 = 0.3;
const MAX_FLAPS: u64 = 12;

/// A layout with its options.
#[derive(Clone, Copy, Debug)]
pub(super) struct RouterSetup {
    pub(super) layout: Layout,
    pub(super) routers: usize,
    pub(super) features: Features,
}

impl RouterSetup {
    /// Draws options for a layout, of which some become a mesh.
    pub(super) fn draw(rng: &mut SeededRng, layout: Layout, routers: usize) -> RouterSetup {
        let several = matches!(layout, Layout::Chain | Layout::Ring);
        let learned = rng.chance(LEARNED) && several;
        let is_mesh = rng.chance(0.5) && learned;
        let features = Features {
            learned,
            waits: rng.chance(0.3) && learned,
            disks: rng.chance(0.5),
            cache: rng.chance(0.3),
        };
        let more = rng.below(4) as usize;
        match is_mesh {
            true => RouterSetup {
                layout: Layout::Mesh,
                routers: 5 + more,
                features,
            },
            false => RouterSetup {
                layout,
                routers,
                features,
            },
        }
    }
}

/// Adds pushes and a link that flaps.
pub(super) fn add_acts(rng: &mut SeededRng, steps: &mut Vec<Step<Act>>) {
    if rng.chance(PUSHES) {
        for _ in 0..1 + rng.below(MAX_PUSHES) {
            let push = Act::Push {
                host: byte(rng),
                to: byte(rng),
                content: byte(rng),
                delegated: rng.chance(0.5),
            };
            let at = rng.below(steps.len() as u64 + 1) as usize;
            let after = draw_pause(rng);
            steps.insert(at, Step { after, act: push });
        }
    }
    if rng.chance(FLAPS) {
        let link = byte(rng);
        let at = rng.below(steps.len() as u64 + 1) as usize;
        for _ in 0..2 + rng.below(MAX_FLAPS - 1) {
            let lasts = Duration::from_millis(50 + rng.below(3_000));
            let fail = Fault::Outage {
                link,
                directions: 3,
                lasts,
            };
            let step = Step {
                after: lasts + Duration::from_millis(100 + rng.below(3_000)),
                act: Act::Fault(fail),
            };
            steps.insert(at, step);
        }
    }
    if rng.chance(GROUP_PUSHES) {
        for _ in 0..1 + rng.below(MAX_GROUP_PUSHES) {
            let act = Act::PushToAll {
                host: byte(rng),
                content: byte(rng),
            };
            let at = rng.below(steps.len() as u64 + 1) as usize;
            let after = draw_pause(rng);
            steps.insert(at, Step { after, act });
        }
    }
}

fn byte(rng: &mut SeededRng) -> u8 {
    rng.below(256) as u8
}
