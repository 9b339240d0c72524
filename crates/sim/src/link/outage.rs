//! Scheduled outages of a link.

use core::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_core::{Time, units};

/// One entry of an outage schedule; times count from the run's origin.
///
/// Written `{ start = "10 s", duration = "5 s" }` or `{ first = "10 s", every = "30 s", duration =
/// "5 s" }`. An outage holds from its start, inclusive, to its end, exclusive. The [module
/// documentation](super) describes its effect on frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Raw", into = "Raw")]
pub enum Outage {
    /// One outage.
    Once {
        /// The start.
        start: Duration,
        /// The length.
        duration: Duration,
    },
    /// An outage in each period.
    Periodic {
        /// The start of the first one.
        first: Duration,
        /// The period from start to start; neither zero nor less than `duration`.
        every: Duration,
        /// The length of each.
        duration: Duration,
    },
}

impl Outage {
    /// Returns true if the link is out at any moment from `begin` to `end`. An outage includes its
    /// first moment and excludes its end. `begin == end` asks about that moment.
    pub fn touches(&self, begin: Time, end: Time) -> bool {
        match *self {
            Outage::Once { start, duration } => overlap(Time::ZERO + start, duration, begin, end),
            Outage::Periodic {
                first,
                every,
                duration,
            } => {
                let first = Time::ZERO + first;
                let period = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX).max(1);
                // Only the last outage that starts by `end`, and the one before it, can reach into
                // the interval, because none is longer than the period.
                let last = end.since(first).as_nanos() as u64 / period;
                (last.saturating_sub(1)..=last).any(|turn| {
                    overlap(
                        first + Duration::from_nanos(period.saturating_mul(turn)),
                        duration,
                        begin,
                        end,
                    )
                })
            }
        }
    }
}

fn overlap(start: Time, duration: Duration, begin: Time, end: Time) -> bool {
    let over = start + duration;
    let met = if begin == end {
        start <= begin
    } else {
        start < end
    };
    met && begin < over && start < over
}

/// The written form of both variants.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(
        default,
        with = "units::optional_duration",
        skip_serializing_if = "Option::is_none"
    )]
    start: Option<Duration>,
    #[serde(
        default,
        with = "units::optional_duration",
        skip_serializing_if = "Option::is_none"
    )]
    first: Option<Duration>,
    #[serde(
        default,
        with = "units::optional_duration",
        skip_serializing_if = "Option::is_none"
    )]
    every: Option<Duration>,
    #[serde(with = "units::duration")]
    duration: Duration,
}

impl TryFrom<Raw> for Outage {
    type Error = &'static str;

    fn try_from(raw: Raw) -> Result<Outage, &'static str> {
        let Raw {
            start,
            first,
            every,
            duration,
        } = raw;
        match (start, first, every) {
            (Some(start), None, None) => Ok(Outage::Once { start, duration }),
            (None, Some(_), Some(every)) if every.is_zero() || duration > every => Err(
                "a periodic outage must be over when the next one begins: 'every' is at least 'duration'",
            ),
            (None, Some(first), Some(every)) => Ok(Outage::Periodic {
                first,
                every,
                duration,
            }),
            _ => Err(
                "an outage has either 'start' and 'duration', or 'first', 'every' and 'duration'",
            ),
        }
    }
}

impl From<Outage> for Raw {
    fn from(outage: Outage) -> Raw {
        match outage {
            Outage::Once { start, duration } => Raw {
                start: Some(start),
                first: None,
                every: None,
                duration,
            },
            Outage::Periodic {
                first,
                every,
                duration,
            } => Raw {
                start: None,
                first: Some(first),
                every: Some(every),
                duration,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nanos(n: u64) -> Duration {
        Duration::from_nanos(n)
    }

    proptest! {
        /// The model is a list of every single moment.
        #[test]
        fn periodic_outages_agree_with_a_search_of_each_moment(
            first in 0u64..20, every in 1u64..20, share in 0u64..20, begin in 0u64..100, length in 0u64..30,
        ) {
            let duration = share % (every + 1);
            let outage = Outage::Periodic { first: nanos(first), every: nanos(every), duration: nanos(duration) };
            let out = |t: u64| t >= first && (t - first) % every < duration;
            let expected =
                if length == 0 { out(begin) } else { (begin..begin + length).any(out) };
            prop_assert_eq!(
                outage.touches(Time::from_nanos(begin), Time::from_nanos(begin + length)), expected
            );
        }

        #[test]
        fn a_single_outage_agrees_with_a_search_of_each_moment(
            start in 0u64..50, duration in 0u64..20, begin in 0u64..80, length in 0u64..30,
        ) {
            let outage = Outage::Once { start: nanos(start), duration: nanos(duration) };
            let out = |t: u64| t >= start && t - start < duration;
            let expected =
                if length == 0 { out(begin) } else { (begin..begin + length).any(out) };
            prop_assert_eq!(
                outage.touches(Time::from_nanos(begin), Time::from_nanos(begin + length)), expected
            );
        }
    }
}
