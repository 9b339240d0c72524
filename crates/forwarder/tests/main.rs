//! The crate's tests as one program: each program of its own would link everything anew.

mod forwarding;
mod management;
mod rib;
