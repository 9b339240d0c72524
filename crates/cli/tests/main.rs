//! The crate's tests as one program: each program of its own would link everything anew.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of real programs in real time"
)]

mod addresses;
mod bench;
mod callers;
mod carriers;
mod cluster_tour;
mod codes;
mod commands;
mod configurations;
mod copies;
mod demo;
mod diagnostics;
mod directory;
mod folders;
mod group_tour;
mod groups;
mod interfaces;
mod lab;
mod late_addresses;
mod learned_routes;
mod name_copies;
mod name_servers;
mod ndn_bad_input;
mod ndn_interface;
mod ndn_lossy_link;
mod ndn_programs;
mod ndn_tools;
mod ndn_web;
mod ndnd;
mod neighbour_names;
mod observation;
mod outputs;
mod ownership;
mod perf;
mod planes;
mod pointers;
mod post_quantum;
mod prefixes;
mod programs;
mod programs_c;
mod pushes;
mod received_folders;
mod slow_programs;
mod slow_receivers;
mod stored_chunks;
mod studies;
mod support;
mod survival;
mod tcp_proxy;
mod tcp_proxy_load;
mod tcp_proxy_programs;
mod tcp_proxy_tour;
mod tickets;
mod transfers;
mod typed;
mod waits;
mod web;
mod web_programs;
