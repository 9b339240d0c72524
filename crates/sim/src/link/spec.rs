//! What one direction of a link does, as a scenario file says it.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use whimbrel_core::units::{self, ProbabilityError};

use super::{DeliveryTrace, Loss, Outage, TraceError};

/// One direction of a link. The default is perfect: no delay, no loss, no limit on the rate.
///
/// ```
/// let spec: whimbrel_sim::link::LinkSpec = toml::from_str(r#"
///     rate = "54 Mbit/s"
///     delay = "25 ms"                  # one way
///     queue = "256 KiB"                # or "100 packets"
///     loss = "1 %"                     # or { p = 0.01, r = 0.25 } for bursts
///     outages = [{ first = "10 s", every = "30 s", duration = "5 s" }]
///     changes = [{ at = "20 s", rate = "6 Mbit/s" }]
/// "#).unwrap();
/// assert!(spec.validate().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkSpec {
    /// How fast frames leave.
    pub rate: Rate,
    /// **One-way** propagation delay. A round trip takes the sum of both directions' delays.
    #[serde(with = "units::duration")]
    pub delay: Duration,
    /// Each frame's delay varies uniformly within +- this; arrivals keep their order.
    #[serde(with = "units::duration")]
    pub jitter: Duration,
    /// Room for frames that wait for the transmitter.
    pub queue: QueueLimit,
    /// Random loss.
    pub loss: Loss,
    /// Which frames fall behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Reorder>,
    /// Probability that a frame arrives twice.
    #[serde(with = "units::probability")]
    pub duplicate: f64,
    /// Probability that one random bit of a frame flips.
    #[serde(with = "units::probability")]
    pub corrupt: f64,
    /// Larger frames vanish without notice, as on a path that filters ICMP; bytes, without
    /// `overhead`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_frame: Option<usize>,
    /// Bytes that each frame takes on the wire beyond its own length (headers of the carrier,
    /// preambles, gaps).
    pub overhead: u32,
    /// When the link is out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<Outage>,
    /// What changes as the run goes on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

impl Default for LinkSpec {
    fn default() -> LinkSpec {
        LinkSpec {
            rate: Rate::Unlimited,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            queue: QueueLimit::default(),
            loss: Loss::None,
            reorder: None,
            duplicate: 0.0,
            corrupt: 0.0,
            largest_frame: None,
            overhead: 0,
            outages: Vec::new(),
            changes: Vec::new(),
        }
    }
}

/// Why a specification makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkSpecError {
    /// A fixed rate of zero.
    #[error("a rate of 0 lets nothing through; for a link that is down give it an outage")]
    ZeroRate,
    /// A trace file that [`LinkSpec::load_traces`] has not replaced by its contents.
    #[error("the trace file '{0}' has not been read")]
    TraceNotLoaded(String),
    /// A trace file that could not be read.
    #[error("cannot read the trace file '{name}': {reason}")]
    TraceUnreadable {
        /// As the specification names it.
        name: String,
        /// What the reader said.
        reason: String,
    },
    /// A trace file with bad contents.
    #[error("trace file '{name}': {error}")]
    BadTrace {
        /// As the specification names it.
        name: String,
        /// What is wrong, with the line.
        error: TraceError,
    },
    /// A probability outside of 0 to 1.
    #[error("{field}: {error}")]
    Probability {
        /// Which field.
        field: &'static str,
        /// What is wrong.
        error: ProbabilityError,
    },
    /// A periodic outage whose turns would overlap.
    #[error(
        "a periodic outage must be over when the next one begins: 'every' is at least 'duration'"
    )]
    OverlappingOutage,
}

impl LinkSpec {
    /// A link with this rate (bits per second) and one-way delay, and else perfect.
    pub fn new(bits_per_second: u64, one_way_delay: Duration) -> LinkSpec {
        LinkSpec {
            rate: Rate::Fixed(bits_per_second),
            delay: one_way_delay,
            ..LinkSpec::default()
        }
    }

    /// The same with random loss.
    pub fn with_loss(self, loss: Loss) -> LinkSpec {
        LinkSpec { loss, ..self }
    }

    /// The same with another queue.
    pub fn with_queue(self, queue: QueueLimit) -> LinkSpec {
        LinkSpec { queue, ..self }
    }

    /// Refuses what makes no sense. Whatever was read from text and is not a trace file passes
    /// except for a rate of zero; values made in code can fail otherwise.
    pub fn validate(&self) -> Result<(), LinkSpecError> {
        self.rate.validate()?;
        let probability = |field, value: Result<(), ProbabilityError>| {
            value.map_err(|error| LinkSpecError::Probability { field, error })
        };
        probability("loss", self.loss.validate())?;
        probability(
            "duplicate",
            units::check_probability(self.duplicate).map(drop),
        )?;
        probability("corrupt", units::check_probability(self.corrupt).map(drop))?;
        if let Some(reorder) = &self.reorder {
            probability(
                "reorder",
                units::check_probability(reorder.probability).map(drop),
            )?;
        }
        for outage in &self.outages {
            if let Outage::Periodic {
                every, duration, ..
            } = outage
                && (every.is_zero() || duration > every)
            {
                return Err(LinkSpecError::OverlappingOutage);
            }
        }
        for change in &self.changes {
            change.rate.as_ref().map_or(Ok(()), Rate::validate)?;
            probability(
                "changes: loss",
                change.loss.map_or(Ok(()), |loss| loss.validate()),
            )?;
        }
        Ok(())
    }

    /// Replaces each [`Rate::TraceFile`] by what `read` gives for its name.
    pub fn load_traces<E: fmt::Display>(
        &mut self,
        mut read: impl FnMut(&str) -> Result<String, E>,
    ) -> Result<(), LinkSpecError> {
        let changed = self
            .changes
            .iter_mut()
            .filter_map(|change| change.rate.as_mut());
        for rate in core::iter::once(&mut self.rate).chain(changed) {
            let Rate::TraceFile(name) = rate else {
                continue;
            };
            let text = read(name).map_err(|reason| LinkSpecError::TraceUnreadable {
                name: name.clone(),
                reason: reason.to_string(),
            })?;
            let trace = DeliveryTrace::parse(&text).map_err(|error| LinkSpecError::BadTrace {
                name: name.clone(),
                error,
            })?;
            *rate = Rate::Trace(Arc::new(trace));
        }
        Ok(())
    }
}

/// How fast frames leave. Written `"54 Mbit/s"`, `54000000` (bits per second), `"unlimited"`,
/// `{ trace_file = "verizon.up" }` or `{ trace = [1, 2, 5] }` (milliseconds).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// Transmission takes no time and nothing ever waits.
    #[default]
    Unlimited,
    /// Bits per second, above zero.
    Fixed(u64),
    /// As recorded.
    Trace(Arc<DeliveryTrace>),
    /// As recorded in a file in mahimahi's format, which [`LinkSpec::load_traces`] has yet to read.
    TraceFile(String),
}

impl Rate {
    fn validate(&self) -> Result<(), LinkSpecError> {
        match self {
            Rate::Fixed(0) => Err(LinkSpecError::ZeroRate),
            Rate::TraceFile(name) => Err(LinkSpecError::TraceNotLoaded(name.clone())),
            Rate::Unlimited | Rate::Fixed(_) | Rate::Trace(_) => Ok(()),
        }
    }
}

/// Room for frames that wait for the transmitter; the one being transmitted does not count. A frame
/// that does not fit is dropped (drop-tail). Written `"100 packets"`, `"256 KiB"`, a number of
/// bytes, or `"unlimited"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// So many frames.
    Packets(u64),
    /// So many bytes, per-frame overhead included.
    Bytes(u64),
    /// No limit: only for links whose senders limit themselves.
    Unlimited,
}

impl Default for QueueLimit {
    /// 1,000 packets, netem's default.
    fn default() -> QueueLimit {
        QueueLimit::Packets(1_000)
    }
}

impl QueueLimit {
    /// Whether a frame of `bytes` fits behind `frames` that have `queued` bytes.
    pub(super) fn admits(&self, frames: u64, queued: u64, bytes: u64) -> bool {
        match *self {
            QueueLimit::Packets(limit) => frames < limit,
            QueueLimit::Bytes(limit) => queued.saturating_add(bytes) <= limit,
            QueueLimit::Unlimited => true,
        }
    }
}

/// Frames that fall behind: each with this probability arrives `extra_delay` later than it would
/// have, and those behind it do not wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// Probability per frame.
    #[serde(with = "units::probability")]
    pub probability: f64,
    /// How much later it arrives.
    #[serde(with = "units::duration")]
    pub extra_delay: Duration,
}

/// What a link does differently from a certain time on. What is left out stays as it was. The rate
/// holds for transmissions that start at `at` or later, delay and loss for those that end then.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// From the run's origin.
    #[serde(with = "units::duration")]
    pub at: Duration,
    /// The new rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The new one-way delay.
    #[serde(
        default,
        with = "units::optional_duration",
        skip_serializing_if = "Option::is_none"
    )]
    pub delay: Option<Duration>,
    /// The new loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
}

/// The table forms of [`Rate`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum RateTable {
    Trace(Vec<u64>),
    TraceFile(String),
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Rate::Unlimited => serializer.serialize_str("unlimited"),
            Rate::Fixed(rate) => serializer.serialize_str(&units::format_rate(*rate)),
            Rate::Trace(trace) => RateTable::Trace(trace.millis().to_vec()).serialize(serializer),
            Rate::TraceFile(name) => RateTable::TraceFile(name.clone()).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rate, D::Error> {
        deserializer.deserialize_any(RateVisitor)
    }
}

struct RateVisitor;

impl<'de> Visitor<'de> for RateVisitor {
    type Value = Rate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a rate: \"54 Mbit/s\", bits per second, \"unlimited\", { trace_file } or { trace }",
        )
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Rate, E> {
        if text == "unlimited" {
            return Ok(Rate::Unlimited);
        }
        units::parse_rate(text).map(Rate::Fixed).map_err(E::custom)
    }

    fn visit_u64<E: serde::de::Error>(self, bits_per_second: u64) -> Result<Rate, E> {
        Ok(Rate::Fixed(bits_per_second))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Rate, E> {
        let unexpected = serde::de::Unexpected::Signed(value);
        u64::try_from(value)
            .map(Rate::Fixed)
            .map_err(|_| E::invalid_value(unexpected, &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Rate, A::Error> {
        match RateTable::deserialize(MapAccessDeserializer::new(map))? {
            RateTable::TraceFile(name) => Ok(Rate::TraceFile(name)),
            RateTable::Trace(times) => {
                let trace = DeliveryTrace::from_millis(times).map_err(serde::de::Error::custom)?;
                Ok(Rate::Trace(Arc::new(trace)))
            }
        }
    }
}

impl Serialize for QueueLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            QueueLimit::Packets(limit) => serializer.collect_str(&format_args!("{limit} packets")),
            QueueLimit::Bytes(limit) => serializer.collect_str(&format_args!("{limit} B")),
            QueueLimit::Unlimited => serializer.serialize_str("unlimited"),
        }
    }
}

impl<'de> Deserialize<'de> for QueueLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<QueueLimit, D::Error> {
        deserializer.deserialize_any(QueueVisitor)
    }
}

struct QueueVisitor;

impl Visitor<'_> for QueueVisitor {
    type Value = QueueLimit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a queue limit: \"100 packets\", \"256 KiB\", a number of bytes, or \"unlimited\"",
        )
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<QueueLimit, E> {
        if text == "unlimited" {
            return Ok(QueueLimit::Unlimited);
        }
        match text
            .strip_suffix("packets")
            .or_else(|| text.strip_suffix("packet"))
        {
            Some(number) => number.trim().parse().map(QueueLimit::Packets).map_err(|_| {
                E::custom(format_args!(
                    "'{}' is not a whole number of packets",
                    number.trim()
                ))
            }),
            None => units::parse_size(text)
                .map(QueueLimit::Bytes)
                .map_err(E::custom),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> Result<QueueLimit, E> {
        Ok(QueueLimit::Bytes(bytes))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<QueueLimit, E> {
        let unexpected = serde::de::Unexpected::Signed(value);
        u64::try_from(value)
            .map(QueueLimit::Bytes)
            .map_err(|_| E::invalid_value(unexpected, &self))
    }
}
