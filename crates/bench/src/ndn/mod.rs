//! `ndn`: a router between two programs beside a bare relay, the pipeline alone, an Interest
//! with a path tag beside one without, a file over two routers; and the soak.

mod consumer;
mod exchange;
mod get;
mod pipeline;
mod process;
mod producer;
mod relay;
mod soak;
mod tagged;

pub use consumer::{Consumed, ConsumerOptions, consume};
pub use producer::{ProducerOptions, produce};
pub use relay::relay;
pub use soak::{SoakOptions, SoakReport, soak};

use crate::Bench;

/// The prefix of the exchanges.
const PREFIX: &str = "/bench";

pub(crate) fn run(bench: &mut Bench<'_>) {
    exchange::run(bench);
    pipeline::run(bench);
    tagged::run(bench);
    get::run(bench);
}
