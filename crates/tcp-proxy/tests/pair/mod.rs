//! The two proxies of the tests: the forward one is 0, the reverse one 1. Behind 0 is 10.1.0.0/16, behind
//! 1 is 10.2.0.0/16.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use whimbrel_core::WallClock;
use whimbrel_ndn_packet::Name;
use whimbrel_tcp_proxy::{Options, Permission, Policy, Protection, Route, SealOptions, Target};

pub(crate) const PREFIXES: [&str; 2] = ["/client/proxy", "/server/proxy"];

/// Returns the options of the proxy on `side`: connections go from 0 to 1.
pub(crate) fn options(side: usize, protection: Protection) -> Options {
    let prefixes: [Name; 2] = PREFIXES.map(|name| name.parse().unwrap());
    let nets = ["10.1.0.0/16", "10.2.0.0/16"].map(|net| net.parse().unwrap());
    let route = Route {
        to: nets[1 - side],
        target: Target::Prefix(prefixes[1 - side].clone()),
        protocol: None,
    };
    let (sources, destinations) = match side {
        0 => (vec![nets[0]], Vec::new()),
        _ => (Vec::new(), vec![Permission::all_ports(nets[1])]),
    };
    let seal = SealOptions {
        protection,
        secret: vec![7; 32],
        ..SealOptions::unprotected([side as u8; 8], WallClock::new(1_700_000_000_000))
    };
    let policy = Policy::new(vec![route], sources, destinations);
    Options::new(prefixes[side].clone(), policy, seal)
}
