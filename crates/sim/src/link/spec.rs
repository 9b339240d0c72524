//! The specification of one direction of a link, as in a scenario file.

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
///     burst = "64 kB"                  # of a rate limiter; after a pause these leave at once
///     delay = "25 ms"                  # one way
///     queue = "256 KiB"                # or "100 packets"
///     codel = "5 ms"                   # marks or drops what waits for longer
///     loss = "1 %"                     # or { p = 0.01, r = 0.25 } for bursts
///     outages = [{ first = "10 s", every = "30 s", duration = "5 s" }]
///     changes = [{ at = "20 s", rate = "6 Mbit/s" }]
/// "#).unwrap();
/// assert!(spec.validate().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkSpec {
    /// The rate at which frames leave.
    pub rate: Rate,
    /// Bytes that leave at once after a pause, on a link of a fixed rate: the bucket of a rate
    /// limiter, as `burst` of tc-tbf(8). It is full after a change of the link.
    #[serde(with = "units::size", skip_serializing_if = "is_zero")]
    pub burst: u64,
    /// **One-way** propagation delay. A round trip takes the sum of both directions' delays.
    #[serde(with = "units::duration")]
    pub delay: Duration,
    /// Jitter: each frame's delay varies uniformly within +- this; arrivals keep their order.
    #[serde(with = "units::duration")]
    pub jitter: Duration,
    /// Room for frames that wait for the transmitter.
    pub queue: QueueLimit,
    /// Keeps the time in the queue near this by CoDel (RFC 8289): frames that carry ECN are marked,
    /// others dropped. 5 ms is usual.
    #[serde(
        with = "units::optional_duration",
        skip_serializing_if = "Option::is_none"
    )]
    pub codel: Option<Duration>,
    /// Random loss.
    pub loss: Loss,
    /// Frames that arrive late and out of order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Reorder>,
    /// Probability that a frame arrives twice.
    #[serde(with = "units::probability")]
    pub duplicate: f64,
    /// Probability that one random bit of a frame flips.
    #[serde(with = "units::probability")]
    pub corrupt: f64,
    /// Largest frame, bytes, without `overhead`. Larger frames are lost silently, as on a path that
    /// filters ICMP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_frame: Option<usize>,
    /// Bytes that each frame takes on the wire beyond its own length (headers of the carrier,
    /// preambles, gaps).
    pub overhead: u32,
    /// Scheduled outages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<Outage>,
    /// Scheduled changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

impl Default for LinkSpec {
    fn default() -> LinkSpec {
        LinkSpec {
            rate: Rate::Unlimited,
            burst: 0,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            queue: QueueLimit::default(),
            codel: None,
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

/// The reason why a specification is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkSpecError {
    /// The rate is zero.
    #[error("a rate of 0 lets nothing through; for a link that is down give it an outage")]
    ZeroRate,
    /// A trace file was not replaced by its contents: see [`LinkSpec::load_traces`].
    #[error("the trace file '{0}' has not been read")]
    TraceNotLoaded(String),
    /// A trace file cannot be read.
    #[error("cannot read the trace file '{name}': {reason}")]
    TraceUnreadable {
        /// The name in the specification.
        name: String,
        /// The reader's error.
        reason: String,
    },
    /// A trace file has bad contents.
    #[error("trace file '{name}': {error}")]
    BadTrace {
        /// The name in the specification.
        name: String,
        /// The error, with its line.
        error: TraceError,
    },
    /// A probability is outside of 0 to 1.
    #[error("{field}: {error}")]
    Probability {
        /// The field.
        field: &'static str,
        /// The error.
        error: ProbabilityError,
    },
    /// A rate that is not fixed has a bucket.
    #[error("'burst' is the bucket of a fixed rate: give the link one, as rate = \"10 Mbit/s\"")]
    BurstWithoutRate,
    /// A periodic outage is longer than its period.
    #[error(
        "a periodic outage must be over when the next one begins: 'every' is at least 'duration'"
    )]
    OverlappingOutage,
}

impl LinkSpec {
    /// Returns a link with this rate (bit/s) and one-way delay, and perfect otherwise.
    pub fn new(bits_per_second: u64, one_way_delay: Duration) -> LinkSpec {
        LinkSpec {
            rate: Rate::Fixed(bits_per_second),
            delay: one_way_delay,
            ..LinkSpec::default()
        }
    }

    /// Sets the random loss.
    pub fn with_loss(self, loss: Loss) -> LinkSpec {
        LinkSpec { loss, ..self }
    }

    /// Sets the queue.
    pub fn with_queue(self, queue: QueueLimit) -> LinkSpec {
        LinkSpec { queue, ..self }
    }

    /// Keeps the time in the queue near `target` by CoDel (RFC 8289).
    pub fn with_codel(self, target: Duration) -> LinkSpec {
        LinkSpec {
            codel: Some(target),
            ..self
        }
    }

    /// Checks the specification. One that was read from text without trace files can only fail for
    /// a rate of zero and for a bucket without a rate; values built in code can fail otherwise.
    pub fn validate(&self) -> Result<(), LinkSpecError> {
        self.rate.validate()?;
        if self.burst > 0 && !matches!(self.rate, Rate::Fixed(_)) {
            return Err(LinkSpecError::BurstWithoutRate);
        }
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

    /// Replaces each [`Rate::TraceFile`] by the contents that `read` returns for its name.
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

/// The rate at which frames leave. Written `"54 Mbit/s"`, `54000000` (bit/s), `"unlimited"`, `{
/// trace_file = "verizon.up" }` or `{ trace = [1, 2, 5] }` (milliseconds).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// Transmission takes no time and frames never wait.
    #[default]
    Unlimited,
    /// Bits per second, above zero.
    Fixed(u64),
    /// A rate that follows a trace.
    Trace(Arc<DeliveryTrace>),
    /// A trace in a file in mahimahi's format, before [`LinkSpec::load_traces`] has read it.
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
    /// A number of frames.
    Packets(u64),
    /// A number of bytes, including per-frame overhead.
    Bytes(u64),
    /// No limit, for links whose senders limit themselves.
    Unlimited,
}

impl Default for QueueLimit {
    /// Returns 1,000 packets, netem's default.
    fn default() -> QueueLimit {
        QueueLimit::Packets(1_000)
    }
}

impl QueueLimit {
    /// Returns true if a frame of `bytes` fits behind `frames` that have `queued` bytes.
    pub(super) fn admits(&self, frames: u64, queued: u64, bytes: u64) -> bool {
        match *self {
            QueueLimit::Packets(limit) => frames < limit,
            QueueLimit::Bytes(limit) => queued.saturating_add(bytes) <= limit,
            QueueLimit::Unlimited => true,
        }
    }
}

/// Random reordering: with this probability a frame arrives `extra_delay` later, and the frames
/// after it do not wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// Probability per frame.
    #[serde(with = "units::probability")]
    pub probability: f64,
    /// The additional delay.
    #[serde(with = "units::duration")]
    pub extra_delay: Duration,
}

/// A change of a link at a given time. Absent fields stay unchanged. The rate holds for
/// transmissions that start at `at` or later, delay and loss for those that end then.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Time from the run's origin.
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
