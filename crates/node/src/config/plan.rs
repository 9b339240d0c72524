//! Plans: the input of a start, parsed and checked.

use core::time::Duration;
use std::net::SocketAddr;
use std::path::PathBuf;

use whimbrel_core::{Guid, Peer};
use whimbrel_gnrs::{Placement, StoreLimits};
use whimbrel_mobilityfirst::host::LinkPolicy;
use whimbrel_mobilityfirst::router::store::StoreLimits as ChunkLimits;
use whimbrel_mobilityfirst::router::{ContactPlan, NextHop, ProxyPolicy, Route};
use whimbrel_mobilityfirst::split::SplitConfig;

use super::{
    HopSection, HostSection, LinkSection, NameStorePlan, NdnPlan, RouterSection, RoutingName,
    StorageSection,
};

/// A node that can be started.
#[derive(Clone, Debug)]
pub enum Plan {
    /// A router.
    Router(Box<RouterPlan>),
    /// A host.
    Host(HostPlan),
    /// A name server.
    NameServer(NameServerPlan),
}

/// A router: one plane or both.
#[derive(Clone, Debug)]
pub struct RouterPlan {
    /// Present if there are links for it.
    pub mobility_first: Option<MobilityFirstPlan>,
    /// Present unless only links are configured.
    pub ndn: Option<NdnPlan>,
    /// The address for Prometheus, for both planes.
    pub metrics: Option<SocketAddr>,
}

/// A router's MobilityFirst plane.
#[derive(Clone, Debug)]
pub struct MobilityFirstPlan {
    /// The key file; made at the first start.
    pub key: PathBuf,
    /// The socket for `whimbrel router status`.
    pub socket: PathBuf,
    /// The group, by number, whose members may use the socket too.
    pub socket_group: Option<u32>,
    /// Name servers, the preferred one first.
    pub name_servers: Vec<Peer>,
    /// Static routes.
    pub routes: Vec<Route>,
    /// The next hop of chunks without a route.
    pub default_route: Option<NextHop>,
    /// Routers that are believed when they connect.
    pub neighbours: Vec<Guid>,
    /// How ways are found.
    pub routing: RoutingName,
    /// How long data waits for the usual way.
    pub wait_for_usual: Duration,
    /// Known contacts.
    pub contacts: Option<ContactPlan>,
    /// Storage.
    pub storage: ChunkLimits,
    /// The folder of stored chunks, if there is one.
    pub chunk_folder: Option<ChunkFolder>,
    /// The policy of retrying stored chunks.
    pub proxy: ProxyPolicy,
    /// How flows are divided.
    pub split: SplitConfig,
    /// The settings of hops.
    pub hop: HopSection,
    /// The links, in the order of their numbers.
    pub links: Vec<LinkSection>,
}

/// A folder of stored chunks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChunkFolder {
    /// Where it is.
    pub path: PathBuf,
    /// Bound of the chunks in it, in bytes.
    pub bytes: u64,
}

/// A host.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// The key file; made at the first start.
    pub key: PathBuf,
    /// The socket for local programs.
    pub socket: PathBuf,
    /// The group, by number, whose members may use the socket too.
    pub socket_group: Option<u32>,
    /// How several links are used.
    pub policy: LinkPolicy,
    /// How what it sends is divided among them.
    pub split: SplitConfig,
    /// Numbers of links, the preferred one first.
    pub preference: Vec<u32>,
    /// Lifetime of the host's binding without renewal.
    pub binding_lifetime: Duration,
    /// Lifetime of an announcement without renewal.
    pub announcement_lifetime: Duration,
    /// Time for which chunks may be missing before their source is told.
    pub nack_timeout: Duration,
    /// Routers with a cache that a request for a group's chunk may pass.
    pub nack_routers: Option<u8>,
    /// Initial end-to-end window, in bytes.
    pub window: u64,
    /// Longest content, in bytes.
    pub content_limit: u64,
    /// Bound of the contents in transfer at a time.
    pub max_transfers: usize,
    /// The address for Prometheus.
    pub metrics: Option<SocketAddr>,
    /// The settings of hops.
    pub hop: HopSection,
    /// The links, in the order of their numbers.
    pub links: Vec<LinkSection>,
}

/// A name server.
#[derive(Clone, Debug)]
pub struct NameServerPlan {
    /// The address for routers.
    pub listen: SocketAddr,
    /// Where the records are.
    pub store: NameStorePlan,
    /// The limits of the store.
    pub limits: StoreLimits,
    /// Other name servers: their names and addresses, in the order of their links.
    pub peers: Vec<(String, Peer)>,
    /// Which servers have copies of a record.
    pub placement: Placement,
    /// Bound of the clients at a time.
    pub max_clients: usize,
    /// Bound of the watched names.
    pub max_watches: usize,
    /// The socket for `whimbrel gnrs status`.
    pub socket: PathBuf,
    /// The group, by number, whose members may use the socket too.
    pub socket_group: Option<u32>,
    /// True if the configuration names the socket: the server does not start without it.
    pub socket_is_wanted: bool,
    /// The address for Prometheus.
    pub metrics: Option<SocketAddr>,
}

impl MobilityFirstPlan {
    /// A router's sections and links, without places of files, peers and routes.
    pub fn new(
        hop: HopSection,
        storage: &StorageSection,
        section: &RouterSection,
        links: Vec<LinkSection>,
    ) -> MobilityFirstPlan {
        MobilityFirstPlan {
            key: PathBuf::new(),
            socket: PathBuf::new(),
            socket_group: None,
            name_servers: Vec::new(),
            routes: Vec::new(),
            default_route: None,
            neighbours: section.neighbours.clone(),
            routing: section.routing,
            wait_for_usual: section.wait_for_usual.map_or(Duration::ZERO, |it| it.0),
            contacts: None,
            storage: storage.limits(),
            chunk_folder: storage.chunk_folder(),
            proxy: storage.policy(),
            split: section.scheduler.split(),
            hop,
            links,
        }
    }

    /// Name servers are links as well, numbered after those of the configuration.
    pub fn name_server_links(&self) -> impl Iterator<Item = u32> {
        let first = self.links.len() as u32;
        (first..).take(self.name_servers.len())
    }
}

impl HostPlan {
    /// A host's sections and links, without places of files and preferred links.
    pub fn new(hop: HopSection, section: &HostSection, links: Vec<LinkSection>) -> HostPlan {
        HostPlan {
            key: PathBuf::new(),
            socket: PathBuf::new(),
            socket_group: None,
            policy: section.policy.into(),
            split: section.scheduler.split(),
            preference: Vec::new(),
            binding_lifetime: section.binding_lifetime.0,
            announcement_lifetime: section.announcement_lifetime.0,
            nack_timeout: section.nack_timeout.0,
            nack_routers: section.nack_routers,
            window: section.window.0,
            content_limit: section.content_limit.0,
            max_transfers: section.max_transfers,
            metrics: section.metrics,
            hop,
            links,
        }
    }
}
