//! The crate's tests as one program: each program of its own would link everything anew.

mod peers;
mod pushes;
mod resolution;
mod server;
mod store;
mod suite;
mod support;
mod vectors;
mod waiting;
