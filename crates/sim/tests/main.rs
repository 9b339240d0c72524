//! The crate's tests as one program: each program of its own would link everything anew.

mod bucket;
mod frames;
mod link;
mod simulator;
mod tcp;
mod testbed;
