//! RAAQM: remote adaptive active queue management, the consumer of [OMCC-RF §IV].
//!
//! One window for all routes. Of each route, told apart by the label that its routers put on Data,
//! the latest round trips are kept. A Data whose round trip stands high among those of its route
//! shows a queue, and shrinks the window with a probability that grows with its place. The window
//! grows by `increase` each time as many Data have arrived as it has room for; a Data can make it
//! grow and shrink. The paper leaves the constants open; the defaults are those of its
//! authors' simulator.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::{SeededRng, Time};

use whimbrel_transport::congestion::{Congestion, Delivered, LawPhase, OwnLaw, Siblings};
use whimbrel_transport::{CongestionControl, WindowKind, WindowOptions};

/// Routes whose round trips are kept; the one unused for longest makes room.
const MAX_ROUTES: usize = 64;

/// Constants of RAAQM.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RaaqmOptions {
    /// Segments added for each window of Data.
    increase: f64,
    /// Factor of the window at a decrease.
    decrease: f64,
    /// Probability of a decrease at the shortest round trip.
    min_probability: f64,
    /// What the longest round trip adds to it.
    span: f64,
    /// Round trips of a route that are kept; before there are so many, the route causes no
    /// decrease.
    samples: usize,
    /// Factor of the window at a loss or timeout; 1 for none.
    loss_decrease: f64,
    /// Of its random draws.
    seed: u64,
}

impl Default for RaaqmOptions {
    fn default() -> RaaqmOptions {
        RaaqmOptions {
            increase: 1.0,
            decrease: 0.5,
            min_probability: 1e-5,
            span: 0.02,
            samples: 30,
            loss_decrease: 0.5,
            seed: 1,
        }
    }
}

/// The latest round trips of a route.
#[derive(Clone, Debug)]
struct Route {
    label: Option<u64>,
    trips: VecDeque<Duration>,
}

impl Route {
    /// Where the latest round trip stands between the shortest and the longest, 0 to 1; `None`
    /// before there are `samples`. The shortest is that of the kept ones: a queue that lasts for all of
    /// them does not show.
    fn place(&self, samples: usize) -> Option<f64> {
        let latest = self.trips.back().filter(|_| self.trips.len() >= samples)?;
        let (least, most) = (self.trips.iter().min()?, self.trips.iter().max()?);
        let range = most.saturating_sub(*least).as_secs_f64();
        if range == 0.0 {
            return Some(0.0);
        }
        Some(latest.saturating_sub(*least).as_secs_f64() / range)
    }
}

/// Returns the law for consumers, with the seed of its random draws.
pub fn raaqm(seed: u64) -> WindowKind {
    let make = |window, seed| -> Box<dyn CongestionControl> {
        let options = RaaqmOptions {
            seed,
            ..RaaqmOptions::default()
        };
        Box::new(Raaqm::new(window, options))
    };
    WindowKind::Own(OwnLaw {
        name: "raaqm",
        make,
        seed,
    })
}

#[derive(Clone, Debug)]
struct Raaqm {
    options: RaaqmOptions,
    initial: f64,
    window: f64,
    /// Data since the latest change of the window.
    received: u64,
    /// The latest used last.
    routes: Vec<Route>,
    rng: SeededRng,
}

impl Raaqm {
    fn new(window: WindowOptions, options: RaaqmOptions) -> Raaqm {
        let initial = window.initial.max(1.0);
        Raaqm {
            options,
            initial,
            window: initial,
            received: 0,
            routes: Vec::new(),
            rng: SeededRng::stream(options.seed, "raaqm"),
        }
    }

    /// Takes a round trip in; returns where it stands in its route.
    fn sample(&mut self, label: Option<u64>, trip: Duration) -> Option<f64> {
        let known = self.routes.iter().position(|route| route.label == label);
        let mut route = match known {
            Some(at) => self.routes.remove(at),
            None => Route {
                label,
                trips: VecDeque::new(),
            },
        };
        if self.routes.len() >= MAX_ROUTES {
            self.routes.remove(0);
        }
        let samples = self.options.samples.max(1);
        if route.trips.len() >= samples {
            route.trips.pop_front();
        }
        route.trips.push_back(trip);
        let place = route.place(samples);
        self.routes.push(route);
        place
    }

    fn fall(&mut self, factor: f64) {
        self.window = (self.window * factor).max(1.0);
        self.received = 0;
    }
}

impl CongestionControl for Raaqm {
    fn window(&self) -> f64 {
        self.window
    }

    fn phase(&self) -> LawPhase {
        LawPhase::Avoidance
    }

    fn threshold(&self) -> f64 {
        0.0
    }

    fn on_delivered(&mut self, delivered: &Delivered, _siblings: &Siblings<'_>) {
        self.received += 1;
        if self.received as f64 >= self.window.floor() {
            self.received = 0;
            if delivered.may_grow(self.window) {
                let limit = delivered.limit.max(1.0);
                self.window = (self.window + self.options.increase).min(limit);
            }
        }
        let place = delivered
            .rtt
            .and_then(|trip| self.sample(delivered.route, trip));
        if let Some(place) = place {
            let probability = self.options.min_probability + self.options.span * place;
            if self.rng.chance(probability) {
                self.fall(self.options.decrease);
            }
        }
    }

    fn on_congestion(&mut self, _now: Time, sign: Congestion, _siblings: &Siblings<'_>) {
        if sign != Congestion::Mark {
            self.fall(self.options.loss_decrease);
        }
    }

    fn snapshot(&self) -> Option<Box<dyn CongestionControl>> {
        Some(Box::new(self.clone()))
    }

    fn restart(&mut self) {
        self.window = self.initial;
        self.received = 0;
        self.routes.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn law(span: f64) -> Raaqm {
        let options = RaaqmOptions {
            span,
            min_probability: 0.0,
            ..RaaqmOptions::default()
        };
        Raaqm::new(WindowOptions::default(), options)
    }

    fn deliver(law: &mut Raaqm, route: Option<u64>, millis: u64) {
        let delivered = Delivered {
            now: Time::ZERO,
            bytes: 1000,
            rtt: Some(Duration::from_millis(millis)),
            smoothed: None,
            segment: 0,
            newest: 0,
            in_flight: usize::MAX,
            marked: false,
            route,
            intermediate: false,
            lost: 0,
            limit: 1000.0,
        };
        law.on_delivered(&delivered, &Siblings::NONE);
    }

    #[test]
    fn the_window_grows_by_one_for_each_window_of_data() {
        let mut law = law(1.0);
        let windows: Vec<f64> = (0..9)
            .map(|_| {
                deliver(&mut law, None, 50);
                law.window()
            })
            .collect();
        assert_eq!(windows, [2.0, 3.0, 3.0, 3.0, 4.0, 4.0, 4.0, 4.0, 5.0]);
    }

    #[test]
    fn the_longest_trip_of_a_route_shrinks_it_and_that_of_a_longer_route_does_not() {
        let mut law = law(1.0);
        for _ in 0..30 {
            deliver(&mut law, Some(1), 50);
            deliver(&mut law, Some(2), 90);
        }
        let before = law.window();
        deliver(&mut law, Some(2), 90);
        assert!(law.window() >= before, "as long as all on its route");
        let before = law.window();
        deliver(&mut law, Some(1), 60);
        assert!(
            law.window() <= (before + 1.0) / 2.0,
            "the longest of its route"
        );
    }

    #[test]
    fn a_route_with_few_samples_shrinks_nothing() {
        let mut law = law(1.0);
        for trip in 0..29 {
            let before = law.window();
            deliver(&mut law, None, trip);
            assert!(law.window() >= before);
        }
        let before = law.window();
        deliver(&mut law, None, 1000);
        assert!(law.window() <= (before + 1.0) / 2.0);
    }

    proptest! {
        #[test]
        fn the_window_and_the_memory_have_bounds(
            data in prop::collection::vec((any::<Option<u8>>(), 0u64..200), 0..2000)
        ) {
            let mut law = law(0.5);
            for (route, millis) in data {
                deliver(&mut law, route.map(u64::from), millis);
                prop_assert!((1.0..=1000.0).contains(&law.window()));
                prop_assert!(law.routes.len() <= MAX_ROUTES);
                prop_assert!(law.routes.iter().all(|route| route.trips.len() <= 30));
            }
        }
    }
}
