//! Families of metrics, as every snapshot writes them.

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::{MetricType, TypedMetric};

/// The labels of one member of a family.
pub(super) type Labels<'a> = Vec<(&'static str, &'a str)>;

/// A name, its meaning, and its value.
pub(super) type Count = (&'static str, &'static str, u64);

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

    /// Writes a counter without labels.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        self.counters(name, help, [(Vec::new(), value)])
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
