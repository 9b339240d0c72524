//! The crate's tests as one program: each program of its own would link everything anew.

mod assembly;
mod folder;
mod vectors;
mod verification;
