//! Nodes that drive, and when they are near each other.

use core::time::Duration;
use std::collections::BTreeMap;

use serde::Deserialize;
use whimbrel_core::SeededRng;
use whimbrel_core::units;

/// Places are looked at once in this time.
const STEP: Duration = Duration::from_secs(1);
/// The longest drive: a day.
const MAX_STEPS: u64 = 86_400;
/// The most nodes.
const MAX_NODES: usize = 200;

/// Nodes on a square that drive straight to a random place, at half to one and a half times their speed, and then
/// to the next one (random waypoint, without pauses).
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drive {
    /// Number of nodes.
    pub nodes: usize,
    /// Side of the square, in metres.
    pub side: u32,
    /// Two nodes within this distance have a link, in metres.
    pub range: u32,
    /// Mean speed, in metres per second.
    pub speed: u32,
    /// The time for which they drive; then all stand still.
    #[serde(with = "units::duration")]
    pub lasts: Duration,
}

/// How near two nodes are that have a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nearness {
    /// Within half of the range.
    Near,
    /// Within three quarters of it.
    Apart,
    /// Within it.
    Far,
}

impl Nearness {
    /// Returns the part of the rate that a link has: a radio falls back to more robust codes.
    pub const fn divisor(self) -> u64 {
        match self {
            Nearness::Near => 1,
            Nearness::Apart => 3,
            Nearness::Far => 9,
        }
    }
}

/// A time in which two nodes have a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Encounter {
    /// The nodes, the smaller number first.
    pub ends: (usize, usize),
    /// From when on, ...
    pub start: Duration,
    /// ... and until when.
    pub end: Duration,
    /// How near they are from which moment on.
    pub nearness: Vec<(Duration, Nearness)>,
}

#[derive(Clone, Copy)]
struct Waypoint {
    x: f64,
    y: f64,
}

struct Vehicle {
    at: Waypoint,
    to: Waypoint,
    speed: f64,
}

impl Drive {
    fn check(&self) -> Result<(), String> {
        let steps = self.lasts.as_secs();
        match self {
            _ if !(2..=MAX_NODES).contains(&self.nodes) => {
                Err(format!("{} nodes are not 2 to {MAX_NODES}", self.nodes))
            }
            _ if self.side == 0 || self.range == 0 || self.speed == 0 => {
                Err("side, range and speed are above 0".to_owned())
            }
            _ if !(1..=MAX_STEPS).contains(&steps) => {
                Err("they drive for a second to a day".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Returns the encounters of nodes that begin to drive at random places, in the order of their starts.
    pub fn encounters(&self, rng: &mut SeededRng) -> Result<Vec<Encounter>, String> {
        self.check()?;
        let side = f64::from(self.side);
        let place = |rng: &mut SeededRng| Waypoint {
            x: side * rng.unit(),
            y: side * rng.unit(),
        };
        let speed = |rng: &mut SeededRng| f64::from(self.speed) * (0.5 + rng.unit());
        let mut vehicles: Vec<Vehicle> = (0..self.nodes)
            .map(|_| Vehicle {
                at: place(rng),
                to: place(rng),
                speed: speed(rng),
            })
            .collect();
        let mut encounters = Encounters::default();
        for step in 0..self.lasts.as_secs() {
            let now = STEP * step as u32;
            for b in 1..self.nodes {
                for a in 0..b {
                    let nearness = self.nearness(vehicles[a].at, vehicles[b].at);
                    encounters.note(a, b, now, nearness);
                }
            }
            for vehicle in &mut vehicles {
                if vehicle.drive() {
                    vehicle.to = place(rng);
                    vehicle.speed = speed(rng);
                }
            }
        }
        let Encounters { open, mut over } = encounters;
        over.extend(open.into_values().map(|it| Encounter {
            end: self.lasts,
            ..it
        }));
        over.sort_by_key(|it| (it.start, it.ends));
        Ok(over)
    }

    fn nearness(&self, a: Waypoint, b: Waypoint) -> Option<Nearness> {
        let distance = (a.x - b.x).hypot(a.y - b.y) / f64::from(self.range);
        match distance {
            _ if distance <= 0.5 => Some(Nearness::Near),
            _ if distance <= 0.75 => Some(Nearness::Apart),
            _ if distance <= 1.0 => Some(Nearness::Far),
            _ => None,
        }
    }
}

/// The encounters of a drive so far.
#[derive(Default)]
struct Encounters {
    open: BTreeMap<(usize, usize), Encounter>,
    over: Vec<Encounter>,
}

impl Encounters {
    /// Notes how near two nodes are at a moment.
    fn note(&mut self, a: usize, b: usize, now: Duration, nearness: Option<Nearness>) {
        let ends = (a, b);
        let Some(nearness) = nearness else {
            let ended = self.open.remove(&ends);
            self.over
                .extend(ended.map(|it| Encounter { end: now, ..it }));
            return;
        };
        let encounter = self.open.entry(ends).or_insert_with(|| Encounter {
            ends,
            start: now,
            end: now,
            nearness: Vec::new(),
        });
        if encounter.nearness.last().is_none_or(|it| it.1 != nearness) {
            encounter.nearness.push((now, nearness));
        }
    }
}

impl Vehicle {
    /// Drives for a step. Returns true if it has arrived.
    fn drive(&mut self) -> bool {
        let (x, y) = (self.to.x - self.at.x, self.to.y - self.at.y);
        let (left, way) = (x.hypot(y), self.speed * STEP.as_secs_f64());
        if left <= way {
            self.at = self.to;
            return true;
        }
        self.at = Waypoint {
            x: self.at.x + x * way / left,
            y: self.at.y + y * way / left,
        };
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVE: Drive = Drive {
        nodes: 12,
        side: 1_000,
        range: 250,
        speed: 15,
        lasts: Duration::from_secs(600),
    };

    #[test]
    fn encounters_of_a_pair_follow_each_other_and_repeat_with_the_seed() {
        let all = DRIVE.encounters(&mut SeededRng::new(3)).unwrap();
        assert_eq!(all, DRIVE.encounters(&mut SeededRng::new(3)).unwrap());
        let mut ends: BTreeMap<(usize, usize), Duration> = BTreeMap::new();
        for it in &all {
            assert!(it.ends.0 < it.ends.1 && it.start < it.end && it.end <= DRIVE.lasts);
            let before = ends.insert(it.ends, it.end);
            assert!(before.is_none_or(|before| before < it.start));
            assert_eq!(it.nearness[0].0, it.start);
        }
        assert!(all.len() > 50, "{}", all.len());
    }

    #[test]
    fn nonsense_is_refused() {
        for odd in [
            Drive { nodes: 1, ..DRIVE },
            Drive { range: 0, ..DRIVE },
            Drive {
                lasts: Duration::from_secs(1 << 40),
                ..DRIVE
            },
        ] {
            assert!(odd.encounters(&mut SeededRng::new(1)).is_err());
        }
    }
}
