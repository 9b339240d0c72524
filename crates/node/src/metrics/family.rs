//! Families of metrics, as every snapshot writes them.

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::{MetricType, TypedMetric};

/// The labels of one member of a family.
pub(super) type Labels<'a> = Vec<(&'static str, &'a str)>;

/// A table of metrics: of each a name, its meaning, and how its value is read.
pub(super) type Rows<T, V> = &'static [(&'static str, &'static str, fn(&T) -> V)];

/// Makes [`Rows`]: `rows![c: Counters => u64; "name", "meaning", c.field; ...]`.
macro_rules! rows {
    ($of:ident: $from:ty => $to:ty; $($name:literal, $help:literal, $value:expr;)*) => {
        &[$(($name, $help, |$of: &$from| -> $to { $value })),*]
    };
}
pub(super) use rows;

/// Writes families: a name, its meaning, and its members.
pub(super) struct Families<'a, 'b> {
    encoder: &'a mut DescriptorEncoder<'b>,
}

impl<'a, 'b> Families<'a, 'b> {
    pub(super) fn new(encoder: &'a mut DescriptorEncoder<'b>) -> Families<'a, 'b> {
        Families { encoder }
    }

    pub(super) fn counters<'s>(
        &mut self,
        name: &str,
        help: &str,
        members: impl IntoIterator<Item = (Labels<'s>, u64)>,
    ) -> Result<(), Error> {
        let kind = <ConstCounter<u64> as TypedMetric>::TYPE;
        let mut family = self.encoder.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in members {
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    pub(super) fn gauges<'s>(
        &mut self,
        name: &str,
        help: &str,
        members: impl IntoIterator<Item = (Labels<'s>, f64)>,
    ) -> Result<(), Error> {
        let mut family = self
            .encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in members {
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Writes the counters of a table, without labels.
    pub(super) fn count_all<T: ?Sized>(&mut self, rows: Rows<T, u64>, of: &T) -> Result<(), Error> {
        let mut rows = rows.iter();
        rows.try_for_each(|(name, help, count)| {
            self.counters(name, help, [(Vec::new(), count(of))])
        })
    }

    /// Writes the gauges of a table, without labels.
    pub(super) fn level_all<T: ?Sized>(&mut self, rows: Rows<T, f64>, of: &T) -> Result<(), Error> {
        let mut rows = rows.iter();
        rows.try_for_each(|(name, help, level)| self.gauge(name, help, level(of)))
    }

    /// Writes a gauge without labels.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) -> Result<(), Error> {
        self.gauges(name, help, [(Vec::new(), value)])
    }
}

/// Returns 1 for true, 0 for false.
pub(super) fn flag(value: bool) -> f64 {
    f64::from(u8::from(value))
}
