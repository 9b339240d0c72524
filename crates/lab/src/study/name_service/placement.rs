//! Where copies of a record are, and how long a look-up takes: after DMap, and with copies where names are
//! asked for, as this program's servers place them and as Auspice's do with full knowledge.

use core::time::Duration;
use std::collections::BTreeSet;

use whimbrel_core::{Guid, SeededRng, Time};
use whimbrel_gnrs::NameDemand;

use super::super::statistics::percentile;
use super::internet::{Internet, LinkEnds, NetworkNumber};
use super::parameters::{DemandModel, PlacementModel};

/// Look-ups by one placement.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    /// For people.
    pub(super) name: String,
    /// Copies of a name, on average.
    pub(super) copies: f64,
    /// Round trips, ms, sorted.
    round_trips: Vec<f32>,
    /// Messages for each look-up, those of updates included; none where nothing is updated.
    pub(super) messages: Option<f64>,
}

impl Placed {
    fn new(name: String, copies: f64, mut round_trips: Vec<f32>) -> Placed {
        round_trips.sort_by(f32::total_cmp);
        Placed {
            name,
            copies,
            round_trips,
            messages: None,
        }
    }

    pub(super) fn mean(&self) -> f64 {
        let all = self.round_trips.iter().map(|it| f64::from(*it));
        all.sum::<f64>() / self.round_trips.len() as f64
    }

    pub(super) fn percentile(&self, percent: f64) -> f64 {
        percentile(&self.round_trips, percent)
    }
}

/// Returns `count` different networks, as hashes of a name choose them.
fn hashed(count: usize, mut draw: impl FnMut() -> NetworkNumber) -> Vec<NetworkNumber> {
    let mut chosen = Vec::new();
    // In proportion to something, one network may have nearly everything.
    for _ in 0..64 * count {
        let network = draw();
        if !chosen.contains(&network) {
            chosen.push(network);
        }
        if chosen.len() == count {
            break;
        }
    }
    chosen
}

fn nearest(row: &[f32], networks: &[NetworkNumber]) -> f32 {
    let all = networks.iter().map(|it| row[*it as usize]);
    all.fold(f32::INFINITY, f32::min)
}

/// Networks that ask, and what they have found about ways.
pub(super) struct Askers {
    networks: Vec<NetworkNumber>,
    /// The mean number of links of a way.
    pub(super) mean_links: f64,
}

impl Askers {
    pub(super) fn draw(internet: &Internet, ends: &LinkEnds, count: usize, seed: u64) -> Askers {
        let mut rng = SeededRng::stream(seed, "gnrs-scale askers");
        let networks = hashed(count, || internet.draw_by_links(&mut rng, ends));
        Askers {
            networks,
            mean_links: f64::NAN,
        }
    }
}

/// Any name is asked for from anywhere: K copies by hash, after DMap.
pub(super) fn by_hash(
    model: &PlacementModel,
    internet: &Internet,
    ends: &LinkEnds,
    askers: &mut Askers,
    seed: u64,
) -> Vec<Placed> {
    let mut rng = SeededRng::stream(seed, "gnrs-scale names");
    let count = internet.len() as u64;
    let policies = model.copies.len();
    let mut nearest_of = vec![Vec::new(); policies];
    let mut any_of = vec![Vec::new(); policies];
    let mut by_space = vec![Vec::new(); policies];
    let mut links = 0.0;
    for asker in &askers.networks {
        let (mean, row) = internet.round_trips(*asker);
        links += mean;
        for (index, copies) in model.copies.iter().enumerate() {
            for _ in 0..model.names {
                let places = hashed(*copies, || rng.below(count) as NetworkNumber);
                nearest_of[index].push(nearest(&row, &places));
                any_of[index].push(row[places[0] as usize]);
                let places = hashed(*copies, || internet.draw_by_links(&mut rng, ends));
                by_space[index].push(nearest(&row, &places));
            }
        }
    }
    askers.mean_links = links / askers.networks.len() as f64;
    let named = |name: &str, all: Vec<Vec<f32>>| -> Vec<Placed> {
        let each = model.copies.iter().zip(all);
        each.map(|(copies, it)| Placed::new(name.to_owned(), *copies as f64, it))
            .collect()
    };
    let mut placed = named("by hash, the nearest asked first", nearest_of);
    placed.extend(named("by hash, any asked first", any_of));
    placed.extend(named(
        "by hash in proportion to links, the nearest asked first",
        by_space,
    ));
    placed
}

/// A look-up or an update in the sequence that all placements see.
struct DemandStep {
    at: Time,
    name: usize,
    asker: usize,
    /// The name that is updated after it.
    updated: Option<usize>,
}

/// The sequence, and the round trips that it needs.
struct DemandWorld {
    steps: Vec<DemandStep>,
    names: Vec<Guid>,
    /// By asker: round trips to each asker.
    to_askers: Vec<Vec<f32>>,
    /// By asker and name: round trips to the nearest of the name's hashed places, and to the first.
    to_hashed: Vec<Vec<(f32, f32)>>,
    asked: Vec<Vec<u32>>,
}

impl DemandWorld {
    fn new(model: &DemandModel, internet: &Internet, askers: &Askers, seed: u64) -> DemandWorld {
        let mut rng = SeededRng::stream(seed, "gnrs-scale demand");
        let count = internet.len() as u64;
        let places: Vec<Vec<NetworkNumber>> = (0..model.names)
            .map(|_| hashed(model.copies, || rng.below(count) as NetworkNumber))
            .collect();
        let (mut to_askers, mut to_hashed) = (Vec::new(), Vec::new());
        for asker in &askers.networks {
            let (_, row) = internet.round_trips(*asker);
            let others = askers.networks.iter();
            to_askers.push(others.map(|it| row[*it as usize]).collect::<Vec<_>>());
            let each = places.iter();
            let each = each.map(|places| (nearest(&row, places), row[places[0] as usize]));
            to_hashed.push(each.collect());
        }
        let all = askers.networks.len();
        // The networks around that of each name.
        let around: Vec<Vec<usize>> = (0..model.names)
            .map(|_| {
                let home = &to_askers[rng.below(all as u64) as usize];
                let mut near: Vec<usize> = (0..all).collect();
                near.sort_by(|a, b| home[*a].total_cmp(&home[*b]));
                near.truncate(model.neighbourhood);
                near
            })
            .collect();
        let mut sum = 0.0;
        let popularity = (1..=model.names).map(|rank| {
            sum += (rank as f64).powf(-model.popularity);
            sum
        });
        let popularity: Vec<f64> = popularity.collect();
        let mut asked = vec![vec![0; all]; model.names];
        let steps = (0..model.lookups).map(|number| {
            let at = rng.unit() * sum;
            let name = popularity.partition_point(|it| *it <= at);
            let name = name.min(model.names - 1);
            let asker = match rng.chance(model.locality) {
                true => around[name][rng.below(around[name].len() as u64) as usize],
                false => rng.below(all as u64) as usize,
            };
            asked[name][asker] += 1;
            let updates = rng.chance(model.updates_per_lookup.min(1.0));
            DemandStep {
                at: Time::ZERO + Duration::from_secs_f64(number as f64 / model.lookups_per_s),
                name,
                asker,
                updated: updates.then(|| rng.below(model.names as u64) as usize),
            }
        });
        DemandWorld {
            steps: steps.collect(),
            names: (0..model.names as u64)
                .map(|number| {
                    let mut name = [1; 32];
                    name[..8].copy_from_slice(&number.to_be_bytes());
                    Guid(name)
                })
                .collect(),
            to_askers,
            to_hashed,
            asked,
        }
    }

    /// Runs the sequence. `look_up` returns the round trip; `copies` the present copies of a name.
    fn run<P>(
        &self,
        name: &str,
        mut places: P,
        mut look_up: impl FnMut(&mut P, &DemandStep) -> f32,
        copies: impl Fn(&P, usize) -> usize,
    ) -> Placed {
        let (mut messages, mut round_trips) = (0, Vec::new());
        for step in &self.steps {
            let round_trip = look_up(&mut places, step);
            let is_here = round_trip <= self.to_askers[step.asker][step.asker];
            messages += usize::from(!is_here);
            round_trips.push(round_trip);
            messages += step.updated.map_or(0, |name| copies(&places, name));
        }
        let all = (0..self.names.len()).map(|name| copies(&places, name));
        let mean = all.sum::<usize>() as f64 / self.names.len() as f64;
        Placed {
            messages: Some(messages as f64 / self.steps.len() as f64),
            ..Placed::new(name.to_owned(), mean, round_trips)
        }
    }
}

/// Names are asked for from where they are of interest, and are updated.
pub(super) fn by_demand(
    model: &DemandModel,
    internet: &Internet,
    askers: &Askers,
    seed: u64,
) -> Vec<Placed> {
    let world = DemandWorld::new(model, internet, askers, seed);
    let hashed = |_: &(), _: usize| model.copies;
    let first = |_: &mut (), step: &DemandStep| world.to_hashed[step.asker][step.name].1;
    let near = |_: &mut (), step: &DemandStep| world.to_hashed[step.asker][step.name].0;
    vec![
        world.run("by hash, any asked first", (), first, hashed),
        world.run("by hash, the nearest asked first", (), near, hashed),
        followed(model, &world),
        known(model, &world),
    ]
}

/// Each server follows the names that it is often asked for: the code of the name server decides.
fn followed(model: &DemandModel, world: &DemandWorld) -> Placed {
    struct FollowedPlaces {
        demand: Vec<NameDemand>,
        /// By name: the askers whose servers follow it.
        followers: Vec<BTreeSet<usize>>,
    }
    let places = FollowedPlaces {
        demand: (0..world.to_askers.len())
            .map(|_| NameDemand::new(model.followed))
            .collect(),
        followers: vec![BTreeSet::new(); world.names.len()],
    };
    let number = |name: &Guid| {
        let (number, _) = name.0.split_first_chunk().unwrap_or((&[0; 8], &[]));
        u64::from_be_bytes(*number) as usize
    };
    let look_up = |places: &mut FollowedPlaces, step: &DemandStep| {
        let DemandStep {
            at, name, asker, ..
        } = *step;
        let demand = &mut places.demand[asker];
        let is_here = places.followers[name].contains(&asker);
        while let Some(name) = demand.fallen(at) {
            places.followers[number(&name)].remove(&asker);
        }
        let change = demand.note(at, world.names[name]);
        if let Some(left) = change.left {
            places.followers[number(&left)].remove(&asker);
        }
        if change.follow {
            places.followers[name].insert(asker);
        }
        match is_here {
            true => world.to_askers[asker][asker],
            false => world.to_hashed[asker][name].0,
        }
    };
    let copies = |places: &FollowedPlaces, name: usize| model.copies + places.followers[name].len();
    world.run(
        "by hash, and at servers that are often asked for the name",
        places,
        look_up,
        copies,
    )
}

/// Further copies where the names are asked for most, in proportion to their look-ups; everybody asks the
/// nearest copy. The whole demand is known in advance, so this is what Auspice's placement approaches.
fn known(model: &DemandModel, world: &DemandWorld) -> Placed {
    let total: usize = model.known_copies * world.names.len();
    let places: Vec<Vec<usize>> = world
        .asked
        .iter()
        .map(|asked| {
            let all: u32 = asked.iter().sum();
            let share = f64::from(all) / world.steps.len() as f64;
            let mut most: Vec<usize> = (0..asked.len()).filter(|it| asked[*it] > 0).collect();
            most.sort_by_key(|it| core::cmp::Reverse(asked[*it]));
            most.truncate((share * total as f64).round() as usize);
            most
        })
        .collect();
    let look_up = |places: &mut Vec<Vec<usize>>, step: &DemandStep| {
        let row = &world.to_askers[step.asker];
        let near = places[step.name].iter().map(|it| row[*it]);
        near.fold(world.to_hashed[step.asker][step.name].0, f32::min)
    };
    world.run(
        "by hash, and by full knowledge of the demand (Auspice)",
        places,
        look_up,
        |places, name| model.copies + places[name].len(),
    )
}
