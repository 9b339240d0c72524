//! The crate's tests as one program: each program of its own would link everything anew.

mod ceilings;
mod determinism;
mod layers;
mod packaging;
mod programs;
mod sources;
