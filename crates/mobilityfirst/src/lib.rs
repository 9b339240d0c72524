//! MobilityFirst: hosts and routers that move named chunks (seed `000_503ecb02b427ee24.txt`).
#![forbid(unsafe_code)]

pub mod chunk;
pub mod local;
pub mod router;
pub mod wire;
