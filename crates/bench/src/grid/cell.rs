//! Cells: links with troubles, on a regular grid or drawn at random.

use std::time::Duration;

use serde_json::{Value, json};
use whimbrel_core::SeededRng;
use whimbrel_lab::scenario::link::Link;
use whimbrel_sim::link::{Change, LinkSpec, Loss, QueueLimit, Rate, Reorder};

/// The smallest queue in bytes: 20 packets, however short the bandwidth-delay product.
const LEAST_QUEUE: f64 = 30_000.0;
/// Round trips after which a transfer counts.
const WARM: u32 = 20;
/// Added to them, for the lookup of the name and the first request.
const START: Duration = Duration::from_millis(500);
/// Round trips that count, and the least time.
const COUNTED: u32 = 40;
const LEAST_COUNTED: Duration = Duration::from_secs(1);
/// Bytes that fit in the time that counts, at least: 64 of the chunks in which progress is counted.
const LEAST_BYTES: f64 = 4_194_304.0;
/// Steps of the rate that count at least: two at each of its rates.
const STEPS: u32 = 4;
/// Queueing that a ping next to a transfer may see at the median.
const PING_ALLOWANCE: Duration = Duration::from_millis(20);

/// A link, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Bits per second.
    pub rate: u64,
    /// Round trip of the empty link, without jitter.
    pub round_trip: Duration,
    /// Each frame's delay varies by up to this, both ways.
    pub jitter: Duration,
    /// Share of the packets that is lost, each way.
    pub loss: f64,
    /// Mean length of a burst of losses in packets; 1: independent.
    pub burst: f64,
    /// Packets that fall behind.
    pub reorder: Option<Reorder>,
    /// Share of the packets that arrive twice.
    pub duplicate: f64,
    /// Room of the queue in bandwidth-delay products.
    pub queue: f64,
    /// The rate changes to this part of it and back, each time after this long.
    pub steps: Option<(f64, Duration)>,
}

/// Bits per second up to which the grid has further troubles: faster links take long to simulate.
const MOST_TROUBLED: u64 = 80_000_000;

/// Milliseconds, which need not be whole.
fn ms(value: f64) -> Duration {
    Duration::from_nanos((value * 1e6) as u64)
}

/// A trouble besides jitter and loss.
fn troubled(cell: Cell) -> [Cell; 4] {
    let reorder = Reorder {
        probability: 0.01,
        extra_delay: cell.round_trip / 8,
    };
    [
        cell,
        Cell {
            reorder: Some(reorder),
            ..cell
        },
        Cell { queue: 1.0, ..cell },
        Cell {
            steps: Some((0.5, Duration::from_secs(1))),
            ..cell
        },
    ]
}

fn product(rates: &[u64], round_trips: &[f64], jitters: &[f64], losses: &[f64]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for rate in rates {
        for round_trip in round_trips {
            for jitter in jitters {
                cells.extend(losses.iter().map(|loss| Cell {
                    rate: rate * 1_000_000,
                    round_trip: ms(*round_trip),
                    jitter: ms(*jitter),
                    loss: *loss,
                    burst: 1.0,
                    reorder: None,
                    duplicate: 0.0,
                    queue: 4.0,
                    steps: None,
                }));
            }
        }
    }
    cells
}

impl Cell {
    /// Returns the regular grid: each combination of rate, round trip, jitter and loss, as such and, up to 80 Mbit/s, with
    /// each further trouble.
    pub fn grid() -> Vec<Cell> {
        let cells = product(
            &[5, 20, 80, 300],
            &[5.0, 20.0, 40.0, 100.0],
            &[0.0, 3.0, 8.0, 20.0],
            &[0.0, 0.003, 0.03],
        );
        let (others, fast): (Vec<Cell>, Vec<Cell>) = cells
            .into_iter()
            .partition(|cell| cell.rate <= MOST_TROUBLED);
        others.into_iter().flat_map(troubled).chain(fast).collect()
    }

    /// Returns the part of the grid that namespaces measure, in real time.
    pub fn real_time() -> Vec<Cell> {
        let mut cells = product(&[80], &[40.0], &[0.0, 3.0, 8.0, 20.0], &[0.003, 0.01, 0.03]);
        cells.extend(product(&[20], &[40.0], &[0.0, 6.0], &[0.0]));
        let starlink = product(&[80], &[40.0], &[6.0], &[0.005]);
        cells.extend(
            starlink
                .into_iter()
                .flat_map(|cell| troubled(cell).into_iter().skip(1)),
        );
        cells
    }

    /// Returns a few cells, for a quick look.
    pub fn quick() -> Vec<Cell> {
        product(&[20], &[20.0, 40.0], &[0.0, 8.0], &[0.0, 0.01])
    }

    /// Draws a cell with all troubles at once; each is absent from half of the cells.
    pub fn draw(rng: &mut SeededRng) -> Cell {
        let log = |rng: &mut SeededRng, low: f64, high: f64| low * (high / low).powf(rng.unit());
        let rate = log(rng, 2e6, 100e6);
        let round_trip = log(rng, 5.0, 150.0);
        let some = |rng: &mut SeededRng, value: f64| if rng.chance(0.5) { value } else { 0.0 };
        let jitter = 0.5 * rng.unit() * f64::min(round_trip, 40.0);
        let (loss, behind) = (log(rng, 0.001, 0.03), log(rng, 0.001, 0.02));
        let extra_delay = ms(rng.unit() * round_trip / 4.0);
        let step = (0.3 + 0.6 * rng.unit(), ms(1_000.0 + 4_000.0 * rng.unit()));
        Cell {
            rate: rate as u64,
            round_trip: ms(round_trip),
            jitter: ms(some(rng, jitter)),
            loss: some(rng, loss),
            burst: log(rng, 1.0, 5.0),
            reorder: rng.chance(0.5).then_some(Reorder {
                probability: behind,
                extra_delay,
            }),
            duplicate: some(rng, 0.01),
            queue: log(rng, 1.0, 4.0),
            steps: rng.chance(0.3).then_some(step),
        }
    }

    fn turn(&self) -> Duration {
        self.round_trip + self.jitter
    }

    /// Returns the time from the request to the moment from which the transfer counts.
    pub fn warm_up(&self) -> Duration {
        self.turn() * WARM + START
    }

    /// Returns the time that counts.
    pub fn counted(&self) -> Duration {
        let steps = self
            .steps
            .map_or(Duration::ZERO, |(_, every)| every * STEPS);
        let least = Duration::from_secs_f64(LEAST_BYTES * 8.0 / self.rate as f64);
        let counted = (self.turn() * COUNTED).max(LEAST_COUNTED).max(least);
        counted.max(steps)
    }

    /// Returns the bits per second that random loss leaves of the rate, on average over the time that counts.
    pub fn capacity(&self) -> f64 {
        let rate = self.rate as f64 * (1.0 - self.loss);
        let Some((part, every)) = self.steps else {
            return rate;
        };
        // Seconds at the lower rate until `end`.
        let low = |end: f64| {
            let every = every.as_secs_f64();
            let whole = (end / (2.0 * every)).floor();
            whole * every + (end - whole * 2.0 * every - every).max(0.0)
        };
        let (from, span) = (self.warm_up().as_secs_f64(), self.counted().as_secs_f64());
        let share = (low(from + span) - low(from)) / span;
        rate * (1.0 - share * (1.0 - part))
    }

    /// Returns the median that a ping next to a transfer may have: idle link, jitter, and 20 ms.
    pub fn ping_bound(&self) -> Duration {
        self.round_trip + self.jitter + PING_ALLOWANCE
    }

    /// Returns the room of its queue in bytes.
    fn queue_bytes(&self) -> u64 {
        let product = self.rate as f64 / 8.0 * self.round_trip.as_secs_f64();
        (product * self.queue).max(LEAST_QUEUE) as u64
    }

    /// Gives a link the properties of this cell.
    pub(super) fn apply(&self, link: &mut Link) {
        let end = self.warm_up() + self.counted();
        let mut changes = Vec::new();
        if let Some((part, every)) = self.steps {
            let low = (self.rate as f64 * part) as u64;
            let mut at = every;
            while at < end {
                let rate = if changes.len() % 2 == 0 {
                    low
                } else {
                    self.rate
                };
                changes.push(Change {
                    at,
                    rate: Some(Rate::Fixed(rate)),
                    ..Change::default()
                });
                at += every;
            }
        }
        let spec = LinkSpec {
            jitter: self.jitter,
            loss: Loss::in_bursts(self.loss, self.burst),
            reorder: self.reorder,
            duplicate: self.duplicate,
            changes,
            ..LinkSpec::new(self.rate, self.round_trip / 2)
        };
        let spec = spec.with_queue(QueueLimit::Bytes(self.queue_bytes()));
        (link.forward, link.backward) = (spec.clone(), spec);
    }

    /// In words.
    pub fn name(&self) -> String {
        let millis = |time: Duration| format!("{} ms", rounded(time.as_secs_f64() * 1e3));
        let percent = |share: f64| format!("{} %", rounded(share * 100.0));
        let rate = rounded(self.rate as f64 / 1e6);
        let mut text = format!("{rate} Mbit/s, {}", millis(self.round_trip));
        if !self.jitter.is_zero() {
            text += &format!(", jitter {}", millis(self.jitter));
        }
        if self.loss > 0.0 {
            text += &format!(", loss {}", percent(self.loss));
            if self.burst > 1.0 {
                text += &format!(" in bursts of {}", rounded(self.burst));
            }
        }
        if let Some(reorder) = self.reorder {
            let (share, late) = (percent(reorder.probability), millis(reorder.extra_delay));
            text += &format!(", {share} late by {late}");
        }
        if self.duplicate > 0.0 {
            text += &format!(", {} twice", percent(self.duplicate));
        }
        text += &format!(", queue {} BDP", rounded(self.queue));
        if let Some((part, every)) = self.steps {
            text += &format!(", at {} every other {}", percent(part), millis(every));
        }
        text
    }

    /// As JSON; the keys of numbers name their units.
    pub(super) fn json(&self) -> Value {
        let nanos = |time: Duration| time.as_nanos() as u64;
        json!({
            "name": self.name(),
            "rate_bit_per_s": self.rate,
            "round_trip_ns": nanos(self.round_trip),
            "jitter_ns": nanos(self.jitter),
            "loss": self.loss,
            "burst_packets": self.burst,
            "reordered": self.reorder.map_or(0.0, |it| it.probability),
            "reordered_by_ns": self.reorder.map_or(0, |it| nanos(it.extra_delay)),
            "duplicated": self.duplicate,
            "queue_bytes": self.queue_bytes(),
            "step_to": self.steps.map(|(part, _)| part),
            "step_every_ns": self.steps.map(|(_, every)| nanos(every)),
            "capacity_bit_per_s": self.capacity(),
            "ping_bound_ns": nanos(self.ping_bound()),
        })
    }
}

/// Three digits are enough for a table.
fn rounded(value: f64) -> String {
    let places = if value >= 10.0 { 0 } else { 1 };
    let text = format!("{value:.places$}");
    let places = if text == "0.0" { 2 } else { places };
    let text = format!("{value:.places$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capacity_of_a_stepping_link_is_its_mean() {
        let steady = Cell {
            loss: 0.1,
            ..product(&[10], &[50.0], &[0.0], &[0.0])[0]
        };
        assert_eq!(steady.capacity(), 9e6);
        // Two whole periods.
        let stepping = Cell {
            loss: 0.0,
            steps: Some((0.5, ms(1_250.0))),
            ..steady
        };
        assert_eq!(stepping.counted(), Duration::from_secs(5));
        assert!((stepping.capacity() - 7.5e6).abs() < 1.0);
    }

    #[test]
    fn the_grid_has_each_trouble_and_no_cell_twice() {
        let cells = Cell::grid();
        assert_eq!(cells.len(), 192 + 3 * 144);
        let count = |fits: fn(&Cell) -> bool| cells.iter().filter(|cell| fits(cell)).count();
        assert_eq!(count(|cell| cell.reorder.is_some()), 144);
        assert_eq!(count(|cell| cell.queue < 4.0), 144);
        assert_eq!(count(|cell| cell.steps.is_some()), 144);
        let names: std::collections::BTreeSet<String> = cells.iter().map(Cell::name).collect();
        assert_eq!(names.len(), cells.len());
    }

    #[test]
    fn random_cells_repeat_with_their_seed() {
        let draw = |seed| {
            let mut rng = SeededRng::new(seed);
            [0; 20].map(|_| Cell::draw(&mut rng))
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let cells = draw(3);
        assert!(
            cells
                .iter()
                .any(|cell| cell.loss > 0.0 && !cell.jitter.is_zero())
        );
    }

    #[test]
    fn a_name_says_what_is_not_perfect() {
        let [plain, late, ..] = troubled(product(&[80], &[40.0], &[0.0], &[0.003])[0]);
        assert_eq!(plain.name(), "80 Mbit/s, 40 ms, loss 0.3 %, queue 4 BDP");
        assert_eq!(
            late.name(),
            "80 Mbit/s, 40 ms, loss 0.3 %, 1 % late by 5 ms, queue 4 BDP"
        );
    }
}
