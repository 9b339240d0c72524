//! Lines that a node could not print.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::family::Families;
use crate::diagnostics::{stderr, stdout};

/// The counters of this process.
#[derive(Debug)]
pub(super) struct Snapshot;

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let streams = [("stderr", stderr().lost()), ("stdout", stdout().lost())];
        Families::new(&mut encoder).counters(
            "whimbrel_lost_lines",
            "Lines of diagnostics that were not written, because the stream was full, closed or not read",
            streams.map(|(stream, lost)| (vec![("stream", stream)], lost)),
        )
    }
}
