//! The crate's tests as one program: each program of its own would link everything anew.

mod anycast;
mod bifurcation;
mod chain;
mod chunk_sizes;
mod clocks;
mod cut_off;
mod deliveries;
mod groups;
mod handoff;
mod hostile;
mod interfaces;
mod learned_ways;
mod lying_addresses;
mod memory;
mod moving;
mod multihoming;
mod options;
mod programs;
mod quiet;
mod random_links;
mod sharing;
mod slow_programs;
mod support;
mod vectors;
mod windows;
mod world;
