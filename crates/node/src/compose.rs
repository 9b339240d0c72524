//! A node's machine from its plan, without sockets.
//!
//! The daemons, the scenarios in virtual time, random faults and the bench make their nodes here, so
//! that a setting means the same everywhere.

use std::collections::BTreeMap;

use whimbrel_core::{SeededRng, WallClock};
use whimbrel_gnrs::{KeyPair, Resolver, ResolverConfig, Server, ServerConfig, Store};
use whimbrel_link::HopConfig;
use whimbrel_mobilityfirst::host::interfaces::QuotaUse;
use whimbrel_mobilityfirst::host::{Host, HostConfig};
use whimbrel_mobilityfirst::router::{LearnedWays, LinkMetric, Router, RouterConfig};
use whimbrel_ndn_router::{NdnRouter, NdnRouterConfig};

use crate::config::{
    HostPlan, LinkSection, MobilityFirstPlan, NameServerPlan, NdnPlan, Pacing, RoutingName,
};

/// Octets of packets that wait for all faces of an NDN router together: 16 peers that do not read hold
/// 4 MiB each, more of them hold less.
const MAX_QUEUED: usize = 64 << 20;

/// What one start of a node adds to its plan.
#[derive(Debug)]
pub struct Start {
    /// The node's keys.
    pub keys: KeyPair,
    /// The Unix time of the run's origin.
    pub wall: WallClock,
    /// Its hops: those of the plan's section ([`crate::config::HopSection::hop_config`]).
    pub hop: HopConfig,
    /// Of its random draws.
    pub rng: SeededRng,
}

/// Returns the configuration of a plan's router.
pub fn router_config(plan: &MobilityFirstPlan, start: &Start) -> RouterConfig {
    RouterConfig {
        guid: start.keys.guid(),
        wall: start.wall,
        hop: start.hop.clone(),
        buffer_packets: plan.hop.buffer_packets,
        store: plan.storage,
        routes: plan.routes.clone(),
        default_route: plan.default_route,
        name_servers: plan.name_server_links().collect(),
        proxy: plan.proxy,
        split: plan.split,
    }
}

/// Returns a plan's router.
pub fn router(plan: &MobilityFirstPlan, start: Start) -> Router {
    let config = router_config(plan, &start);
    let mut router = Router::new(config, start.rng);
    let metric = match plan.routing {
        RoutingName::Static => None,
        RoutingName::Learned => Some(LinkMetric::Time),
        RoutingName::FewestHops => Some(LinkMetric::Hops),
    };
    if let Some(metric) = metric {
        router.learn_ways(LearnedWays {
            keys: start.keys.clone(),
            metric,
            wait_for_usual: plan.wait_for_usual,
            contacts: plan.contacts.clone(),
        });
    }
    router.register_itself(start.keys);
    for (number, pacing) in pacings(&plan.links) {
        router.set_pacing(number, pacing.into());
    }
    plain_links(&plan.links).for_each(|number| router.set_plain(number));
    let neighbours = plan.neighbours.iter();
    neighbours.for_each(|name| router.believe(*name));
    router
}

/// Returns a plan's host; `used` is what its links' quotas have carried in this period.
pub fn host(plan: &HostPlan, used: BTreeMap<u32, QuotaUse>, start: Start) -> Host {
    let terms = plan.links.iter().map(LinkSection::terms);
    let config = HostConfig {
        hop: start.hop,
        buffer_packets: plan.hop.buffer_packets,
        preference: plan.preference.clone(),
        policy: plan.policy,
        terms: (0..).zip(terms).collect(),
        used,
        split: plan.split,
        binding_lifetime: plan.binding_lifetime,
        announcement_lifetime: plan.announcement_lifetime,
        nack_timeout: plan.nack_timeout,
        nack_routers: plan.nack_routers,
        window: plan.window,
        content_limit: plan.content_limit,
        max_transfers: plan.max_transfers,
        ..HostConfig::new(start.keys, start.wall)
    };
    let mut host = Host::new(config, start.rng);
    for (number, pacing) in pacings(&plan.links) {
        host.set_pacing(number, pacing.into());
    }
    plain_links(&plan.links).for_each(|number| host.set_plain(number));
    host
}

/// Returns a plan's name server over `store`; its challenges follow from `secret`.
pub fn name_server<S: Store>(
    plan: &NameServerPlan,
    wall: WallClock,
    secret: [u8; 32],
    store: S,
) -> Server<S> {
    let config = ServerConfig {
        max_watches: plan.max_watches,
        ..ServerConfig::default()
    };
    let mut server = Server::new(config, wall, secret, store);
    server.set_placement(plan.placement.clone());
    for (link, (name, _)) in (0..).zip(&plan.peers) {
        let seed = blake3::derive_key("whimbrel 2026 requests of a name server", &secret);
        let seed = u64::from_le_bytes(*seed.first_chunk().unwrap_or(&[0; 8]));
        let rng = SeededRng::new(seed.wrapping_add(u64::from(link)));
        let resolver = Resolver::new(ResolverConfig::default(), wall, rng);
        server.add_peer(name.clone(), link, resolver);
    }
    server
}

/// Returns a plan's NDN router, without its faces.
pub fn ndn_router(plan: &NdnPlan, wall: WallClock, rng: SeededRng) -> NdnRouter {
    let config = NdnRouterConfig {
        forwarder: plan.forwarder.clone(),
        link: plan.link.clone(),
        idle_timeout: plan.idle_timeout,
        max_faces: plan.max_faces,
        max_queued: MAX_QUEUED,
        wall,
    };
    NdnRouter::new(config, rng)
}

/// Returns the pacing of links that have one of their own, by link number.
fn pacings(sections: &[LinkSection]) -> impl Iterator<Item = (u32, Pacing)> + '_ {
    (0..)
        .zip(sections)
        .filter_map(|(number, link)| Some((number, link.pacing?)))
}

/// Numbers of the links that are not encrypted.
fn plain_links(sections: &[LinkSection]) -> impl Iterator<Item = u32> + '_ {
    let numbered = (0..).zip(sections);
    numbered.filter_map(|(number, link)| link.plain.then_some(number))
}
