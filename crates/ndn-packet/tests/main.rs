//! The crate's tests as one program: each program of its own would link everything anew.

mod certificates;
mod keys;
mod lp_table;
mod path_tags;
mod peers;
mod properties;
mod replays;
mod round_trips;
mod specification;
