//! The crate's tests as one program: each program of its own would link everything anew.

mod fetch;
mod lost_repetitions;
mod model_law;
mod paths;
mod real_paths;
mod support;
mod tools;
mod tun_and_face;
mod windows;
