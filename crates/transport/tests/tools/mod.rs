//! Peek, poke, ping and traffic against their servers, and what an `AppFace` does with its ports.

mod faces;
mod peek_and_poke;
mod ping;
mod registration;
mod service;
mod setup;
mod traffic;
