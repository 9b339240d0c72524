//! Networks like those of the Internet, with delays between them.
//!
//! Links grow by preferential attachment: a new network connects to others in proportion to the links that
//! they have. A way takes the fewest links, as BGP prefers; its delay follows from the distance of its
//! ends, its links, and the two networks themselves.

use std::collections::VecDeque;

use whimbrel_core::SeededRng;

use super::parameters::{InternetModel, Region};

const EARTH_RADIUS_KM: f64 = 6371.0;
/// Light in a fibre.
const KM_PER_MS: f64 = 200.0;
const KM_PER_DEGREE: f64 = 111.2;

/// A number of a network.
pub(super) type NetworkNumber = u32;

/// The networks.
pub(super) struct Internet {
    model: InternetModel,
    neighbours: Vec<Vec<NetworkNumber>>,
    places: Vec<EarthPoint>,
    /// Delay within each network, ms.
    inside: Vec<f32>,
}

#[derive(Clone, Copy, Debug)]
struct EarthPoint {
    /// Radians.
    latitude: f64,
    longitude: f64,
}

impl EarthPoint {
    fn of(region: &Region, rng: &mut SeededRng) -> EarthPoint {
        let distance = region.radius_km * rng.unit().sqrt() / KM_PER_DEGREE;
        let bearing = core::f64::consts::TAU * rng.unit();
        let latitude = (region.latitude + distance * bearing.cos()).clamp(-85.0, 85.0);
        let longitude =
            region.longitude + distance * bearing.sin() / latitude.to_radians().cos().max(0.1);
        EarthPoint {
            latitude: latitude.to_radians(),
            longitude: longitude.to_radians(),
        }
    }

    /// Returns the great-circle distance.
    fn km_to(self, other: EarthPoint) -> f64 {
        let half = |angle: f64| (angle / 2.0).sin().powi(2);
        let across = half(self.longitude - other.longitude);
        let root = half(self.latitude - other.latitude)
            + self.latitude.cos() * other.latitude.cos() * across;
        2.0 * EARTH_RADIUS_KM * root.sqrt().min(1.0).asin()
    }
}

impl Internet {
    /// Returns the networks of a model; the same for the same seed.
    pub(super) fn generate(model: &InternetModel, seed: u64) -> Internet {
        let mut rng = SeededRng::stream(seed, "gnrs-scale internet");
        let count = model.networks;
        let each = model.links as f64 / count as f64;
        let mut neighbours: Vec<Vec<NetworkNumber>> = vec![Vec::new(); count];
        // Each link's ends: a draw from them is a draw in proportion to the links.
        let mut ends: Vec<NetworkNumber> = vec![0];
        for new in 1..count {
            let wanted = each.floor() as usize + usize::from(rng.chance(each.fract()));
            for _ in 0..wanted.clamp(1, new) {
                let other = ends[rng.below(ends.len() as u64) as usize];
                let (new, from) = (new as NetworkNumber, new);
                if other == new || neighbours[from].contains(&other) {
                    continue;
                }
                neighbours[from].push(other);
                neighbours[other as usize].push(new);
                ends.extend([new, other]);
            }
        }
        let all: f64 = model.region.iter().map(|it| it.share).sum();
        let places = (0..count).map(|_| {
            let mut at = rng.unit() * all;
            let region = model.region.iter().find(|it| {
                at -= it.share;
                at < 0.0
            });
            EarthPoint::of(region.unwrap_or(&model.region[0]), &mut rng)
        });
        let places = places.collect();
        let inside = (0..count).map(|_| (-(1.0 - rng.unit()).ln() * model.inside_ms) as f32);
        Internet {
            inside: inside.collect(),
            model: model.clone(),
            neighbours,
            places,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.neighbours.len()
    }

    /// Returns a network, drawn in proportion to the links.
    pub(super) fn draw_by_links(&self, rng: &mut SeededRng, ends: &LinkEnds) -> NetworkNumber {
        ends.0[rng.below(ends.0.len() as u64) as usize]
    }

    /// Returns what draws by links need.
    pub(super) fn ends(&self) -> LinkEnds {
        let all = self.neighbours.iter().enumerate();
        LinkEnds(
            all.flat_map(|(network, others)| {
                // A network that got no link counts once.
                std::iter::repeat_n(network as NetworkNumber, others.len().max(1))
            })
            .collect(),
        )
    }

    /// Returns the mean number of links of a way from one network, and the round trip to each, ms.
    pub(super) fn round_trips(&self, from: NetworkNumber) -> (f64, Vec<f32>) {
        let links = self.links_from(from);
        let mean = links.iter().map(|it| f64::from(*it)).sum::<f64>() / links.len() as f64;
        let start = self.places[from as usize];
        let to = links.iter().enumerate().map(|(network, links)| {
            if network == from as usize {
                return 2.0 * self.inside[network];
            }
            let way = start.km_to(self.places[network]) * self.model.detour / KM_PER_MS;
            let between = way + f64::from(*links) * self.model.link_ms;
            2.0 * (self.inside[from as usize] + between as f32 + self.inside[network])
        });
        (mean, to.collect())
    }

    /// Returns the fewest links to each network.
    fn links_from(&self, from: NetworkNumber) -> Vec<u16> {
        let mut links = vec![u16::MAX; self.len()];
        links[from as usize] = 0;
        let mut next = VecDeque::from([from]);
        while let Some(network) = next.pop_front() {
            let beyond = links[network as usize] + 1;
            for other in &self.neighbours[network as usize] {
                if links[*other as usize] == u16::MAX {
                    links[*other as usize] = beyond;
                    next.push_back(*other);
                }
            }
        }
        links
    }
}

/// The ends of all links.
pub(super) struct LinkEnds(Vec<NetworkNumber>);

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> InternetModel {
        let region = |latitude, longitude| Region {
            _name: String::new(),
            latitude,
            longitude,
            radius_km: 10.0,
            share: 1.0,
        };
        InternetModel {
            networks: 500,
            links: 1_700,
            detour: 2.0,
            link_ms: 1.0,
            inside_ms: 0.0,
            region: vec![region(50.0, 10.0), region(40.0, -95.0)],
        }
    }

    #[test]
    fn networks_are_connected_repeat_and_have_few_with_many_links() {
        let internet = Internet::generate(&model(), 1);
        let (mean, round_trips) = internet.round_trips(7);
        assert!(round_trips.iter().all(|it| it.is_finite() && *it < 1_000.0));
        assert!((1.0..6.0).contains(&mean), "{mean}");
        assert_eq!(
            round_trips,
            Internet::generate(&model(), 1).round_trips(7).1
        );
        let most = internet.neighbours.iter().map(Vec::len).max();
        assert!(most > Some(50), "{most:?}");
    }

    #[test]
    fn a_round_trip_follows_from_the_distance() {
        // Frankfurt and New York: some 6,200 km.
        let place = |latitude: f64, longitude: f64| EarthPoint {
            latitude: latitude.to_radians(),
            longitude: longitude.to_radians(),
        };
        let km = place(50.11, 8.68).km_to(place(40.71, -74.01));
        assert!((6_150.0..6_250.0).contains(&km), "{km}");
        let internet = Internet::generate(&model(), 1);
        let (_, round_trips) = internet.round_trips(0);
        let (near, far): (Vec<f32>, Vec<f32>) = round_trips.iter().partition(|it| **it < 100.0);
        assert!(near.len() > 150 && far.len() > 150);
        // 8,000 km, twice as long a way, at 200 km/ms, there and back: some 155 ms and the links.
        assert!(far.iter().all(|it| (150.0..190.0).contains(it)), "{far:?}");
    }
}
