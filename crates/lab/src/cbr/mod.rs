//! The consumer and the producer of the BELRP study ([BELRP §IV-A]).
//!
//! The paper used ndnSIM's `ConsumerCbr` and `Producer`. Facts from their sources, and from the
//! repositories of the paper's scenarios and of the simulator that preceded it:
//!
//! * `apps/ndn-consumer-cbr.cpp`: gaps are `1 / frequency`, or exponential with that mean and
//!   bounded at 50 times the mean; the first Interest goes at once.
//! * `apps/ndn-consumer.cpp`: one Interest for each gap, and a number to retransmit (the lowest
//!   first) takes precedence over a new one: retransmissions are paced by the rate and delay new
//!   Interests. A timer (`RetxTimer`, 50 ms) looks for Interests older than the *current* timeout,
//!   oldest first; each one found doubles the timeout.
//! * `utils/ndn-rtt-mean-deviation.cpp`: gains 1/8 and 1/4; the first sample sets RTTVAR to half of
//!   it; no samples of retransmitted numbers; each sample resets the multiplier to 1. The timeout
//!   is `multiplier x max(MinRTO, SRTT + 4 RTTVAR)`, at most 200 s; the multiplier is at most 64.
//! * `utils/ndn-rtt-estimator.cpp`: SRTT is 1 s before the first sample and MinRTO 200 ms. In the
//!   simulator that preceded the paper's (repository `ndnSIM-link-layer-reliability`, 2015) they
//!   are 20 ms both and `RetxTimer` is 5 ms. The paper says `SRTT + 8 RTTVAR`.
//! * Table II's 90 % interval without BELRP at 1 % loss ends at 243 % of about 55 ms: a timeout of
//!   about 80 ms. MinRTO was therefore not 200 ms in the paper; [`CbrConfig::belrp`] uses the
//!   predecessor's values (inference).

// A machine, in a crate of drivers: time comes in as an argument.
#![deny(clippy::disallowed_methods)]

mod consumer;
mod signer;
mod timeout;

pub use consumer::{CbrConfig, CbrConsumer, CbrEvent, CbrStats, Exchanged};
pub use signer::PlaceholderSigner;
pub use timeout::{BELRP, NDNSIM};
