//! The crate's tests as one program: each program of its own would link everything anew.

mod belrp_adaptive;
mod belrp_goals;
mod belrp_paper;
mod chain;
mod faces;
mod goodput;
mod idle;
mod link_state;
mod model;
mod ndnlp_model;
mod ndnlp_path;
mod ndnlpv2_interop;
mod pair;
mod path_mtu;
mod paths;
mod resume;
mod shared;
mod sharing;
mod thin;
mod transfer;
