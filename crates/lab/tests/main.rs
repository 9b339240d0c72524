//! The crate's tests as one program: each program of its own would link everything anew.

mod access_routers;
mod cbr;
mod fig7;
mod flent;
mod groups;
mod handover;
mod learned_routes;
mod m2m;
mod path_tags;
mod rivals;
mod scenario_faults;
mod scenario_graphs;
mod scenario_sim;
mod site_cache;
mod studies;
mod supervisor;
mod support;
mod thin_links;
mod topologies;
mod torture;
