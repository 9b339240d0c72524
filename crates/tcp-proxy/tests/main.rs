//! The crate's tests as one program: each program of its own would link everything anew.

mod floods;
mod model;
mod pair;
mod simulated;
mod vectors;
