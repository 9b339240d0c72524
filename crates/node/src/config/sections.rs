//! The schema: the keys of each section of a configuration. The comments are the sample's comments.

use core::time::Duration;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whimbrel_core::Guid;
use whimbrel_core::units::{ByteSize, Span};
use whimbrel_mobilityfirst::host::LinkPolicy;
use whimbrel_mobilityfirst::host::interfaces::LinkTerms;
use whimbrel_mobilityfirst::router::ProxyPolicy;
use whimbrel_mobilityfirst::router::store::StoreLimits;
use whimbrel_mobilityfirst::split::{Scheduler, SplitConfig};

use super::address::listening;
use super::{
    Bind, ChunkFolder, HopSection, NamedRemote, NdnFaceSection, NdnRouteSection, NdnSection,
    NdnStrategySection, Pacing, Remote, Via,
};

/// The whole configuration. Each kind of node has its own sections; a section of another kind is a fault.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// A router: `whimbrel router run`.
    #[serde(skip_serializing_if = "is_default")]
    pub router: RouterSection,
    /// A host, to which local programs attach: `whimbrel host run`.
    #[serde(skip_serializing_if = "is_default")]
    pub host: HostSection,
    /// A name server: `whimbrel gnrs serve`.
    #[serde(skip_serializing_if = "is_default")]
    pub gnrs: GnrsSection,
    /// A link, over UDP, bare IP or Ethernet. Write the section once for each link; links with the
    /// same bind address share one socket.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub link: Vec<LinkSection>,
    /// A static route. Neighbours need none: each is reached over its own link.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub route: Vec<RouteSection>,
    /// How chunks cross each link.
    #[serde(skip_serializing_if = "is_default")]
    pub hop: HopSection,
    /// The router's storage for chunks whose destination is away.
    #[serde(skip_serializing_if = "is_default")]
    pub storage: StorageSection,
    /// The router as an NDN forwarder, for programs written for NFD.
    #[serde(skip_serializing_if = "is_default")]
    pub ndn: NdnSection,
    /// A face of the NDN forwarder. Write the section once for each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ndn_face: Vec<NdnFaceSection>,
    /// A route of the NDN forwarder.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ndn_route: Vec<NdnRouteSection>,
    /// The strategy of a prefix.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ndn_strategy: Vec<NdnStrategySection>,
}

/// Omits unset keys when it is written.
fn is_default<T: Default + PartialEq>(section: &T) -> bool {
    *section == T::default()
}

/// `[router]`
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RouterSection {
    /// The private key whose public key's hash is the router's name; created at the first start.
    /// Default: router.pem in the state folder.
    #[schemars(example = &"/var/lib/whimbrel/router.pem")]
    pub key: Option<PathBuf>,
    /// The socket for `whimbrel router status`. Default: router.sock in the run-time folder.
    #[schemars(example = &"/run/whimbrel/router.sock")]
    pub socket: Option<PathBuf>,
    /// The group whose members may use that socket too, by name or number. Default: none, only the
    /// user that runs this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"whimbrel")]
    pub socket_group: Option<String>,
    /// Name servers, the preferred one first. Without any, only hosts attached here and their contents can be found.
    #[schemars(example = example_name_servers())]
    pub name_servers: Vec<Remote>,
    /// Next hop of chunks whose address has no route: a neighbour's name or a link's label.
    #[schemars(example = &"north")]
    pub default_route: Option<Via>,
    /// Names of trusted routers, which may forward chunks from any source. A router that is neither listed, nor in a
    /// route, nor the `name` of a link must present a signed record of each host for which it forwards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>", example = example_names())]
    pub neighbours: Vec<Guid>,
    /// How routes to other routers are found. "static": by `[[route]]` and the default route.
    /// "learned": by link-state announcements with measured costs, exchanged with the routers in
    /// `neighbours`, in routes, and of links with a `name`; a `[[route]]` takes precedence.
    /// "fewest-hops": as "learned", with the same cost for every link and without measurements.
    #[schemars(with = "String")]
    pub routing: RoutingName,
    /// How long data may wait in this router's storage while the learned route costs more than eight
    /// times the usual one, for networks whose good links come and go. Default: it does not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", example = &"5 min")]
    pub wait_for_usual: Option<Span>,
    /// A contact plan in ION's text form (`a contact +0 +60 1 2 100000`), for learned routes. A chunk
    /// waits for the next contact if there is no path, or if it then arrives sooner.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"/etc/whimbrel/contacts")]
    pub contacts: Option<PathBuf>,
    /// How flows are divided among several next hops: "pull" (a next hop with room takes the next
    /// chunk if it would arrive early enough that way), "weights", "paper" or "round-robin".
    #[schemars(with = "String")]
    pub scheduler: SchedulerName,
    /// Address to listen on for Prometheus (http://ADDRESS/metrics), for both planes; a port alone
    /// stands for all addresses. Default: none.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "listening::maybe"
    )]
    #[schemars(with = "Option<String>", example = &"127.0.0.1:9363")]
    pub metrics: Option<SocketAddr>,
}

/// `[host]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostSection {
    /// The private key whose public key's hash is the host's name; created at the first start.
    /// Default: host.pem in the state folder.
    #[schemars(example = &"/var/lib/whimbrel/host.pem")]
    pub key: Option<PathBuf>,
    /// The socket for local programs. Default: host.sock in the run-time folder.
    #[schemars(example = &"/run/whimbrel/host.sock")]
    pub socket: Option<PathBuf>,
    /// The group whose members may use that socket too, by name or number. Default: none, only the
    /// user that runs this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"whimbrel")]
    pub socket_group: Option<String>,
    /// How several links are used. "all": together, those to the same router as the preferred link;
    /// "everywhere": together, those to all routers; "order": only the first responsive one;
    /// "weights": as "everywhere", with uploads divided by `[[link]] weight`. Applies to the links
    /// that `cost`, `metered` and `quota` allow. `whimbrel host policy` changes it at run time.
    #[schemars(with = "String")]
    pub policy: PolicyName,
    /// Labels of links, preferred first; unlisted links come last.
    #[schemars(example = example_preference())]
    pub preference: Vec<String>,
    /// How uploads are divided among links, as a router's `scheduler`.
    #[schemars(with = "String")]
    pub scheduler: SchedulerName,
    /// Lifetime of the host's binding to its routers, unless renewed.
    #[schemars(with = "String")]
    pub binding_lifetime: Span,
    /// Lifetime of a content announcement, unless renewed: at most an hour.
    #[schemars(with = "String")]
    pub announcement_lifetime: Span,
    /// How long a chunk may be missing before a Nack is sent to its source.
    #[schemars(with = "String")]
    pub nack_timeout: Span,
    /// For content that this host sends to a group: the number of caching routers that may forward a
    /// request for missing chunks; the next one drops it. Default: all requests reach this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &4)]
    pub nack_routers: Option<u8>,
    /// Initial end-to-end window: what a source may send before its receiver confirms anything. It
    /// doubles while the receiving program keeps up.
    #[schemars(with = "String")]
    pub window: ByteSize,
    /// Maximum length of a content to fetch.
    #[schemars(with = "String")]
    pub content_limit: ByteSize,
    /// Maximum number of contents being fetched, and of contents being served.
    pub max_transfers: usize,
    /// Address to listen on for Prometheus (http://ADDRESS/metrics); a port alone stands for all
    /// addresses. Default: none.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "listening::maybe"
    )]
    #[schemars(with = "Option<String>", example = &"127.0.0.1:9364")]
    pub metrics: Option<SocketAddr>,
}

impl Default for HostSection {
    fn default() -> HostSection {
        HostSection {
            key: None,
            socket: None,
            socket_group: None,
            policy: PolicyName::default(),
            preference: Vec::new(),
            scheduler: SchedulerName::default(),
            binding_lifetime: Span(Duration::from_secs(60)),
            announcement_lifetime: Span(Duration::from_secs(600)),
            nack_timeout: Span(Duration::from_secs(5)),
            nack_routers: None,
            window: ByteSize(64 << 20),
            content_limit: ByteSize(1 << 48),
            max_transfers: 4096,
            metrics: None,
        }
    }
}

/// The name of a policy for several links.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// All to the preferred router at once.
    #[default]
    All,
    /// Those to other routers as well.
    Everywhere,
    /// One after the other.
    Order,
    /// All, divided by their weights.
    Weights,
}

impl From<PolicyName> for LinkPolicy {
    fn from(name: PolicyName) -> LinkPolicy {
        match name {
            PolicyName::All => LinkPolicy::All,
            PolicyName::Everywhere => LinkPolicy::Everywhere,
            PolicyName::Order => LinkPolicy::Order,
            PolicyName::Weights => LinkPolicy::Weights,
        }
    }
}

/// The name of a way to divide flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SchedulerName(pub Scheduler);

/// How a router finds its ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RoutingName {
    /// As the configuration says.
    #[default]
    Static,
    /// From what routers say of their links.
    Learned,
    /// As learned, but every link costs the same.
    FewestHops,
}

impl RoutingName {
    /// Returns true if routers tell each other of their links.
    pub fn is_learned(self) -> bool {
        self != RoutingName::Static
    }
}

impl std::str::FromStr for RoutingName {
    type Err = String;

    fn from_str(text: &str) -> Result<RoutingName, String> {
        match text {
            "static" => Ok(RoutingName::Static),
            "learned" => Ok(RoutingName::Learned),
            "fewest-hops" => Ok(RoutingName::FewestHops),
            _ => Err(format!("'{text}' is not static, learned or fewest-hops")),
        }
    }
}

impl TryFrom<String> for SchedulerName {
    type Error = String;

    fn try_from(text: String) -> Result<SchedulerName, String> {
        text.parse().map(SchedulerName)
    }
}

impl From<SchedulerName> for String {
    fn from(name: SchedulerName) -> String {
        name.0.to_string()
    }
}

impl SchedulerName {
    /// Returns the division of flows that this stands for.
    pub fn split(self) -> SplitConfig {
        SplitConfig {
            scheduler: self.0,
            ..SplitConfig::default()
        }
    }
}

/// `[gnrs]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GnrsSection {
    /// Address to listen on; a port alone stands for all addresses.
    #[serde(deserialize_with = "listening::one")]
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// The store of records: a file, "memory", or nodes of a Redis or Valkey Cluster ("redis://HOST:PORT,HOST:PORT",
    /// or "rediss://" for TLS). Default: names.redb in the state folder.
    #[schemars(example = &"/var/lib/whimbrel/names.redb")]
    pub store: Option<PathBuf>,
    /// A file with the cluster's password. Default: none, or the one in `store`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"/etc/whimbrel/store.password")]
    pub store_password_file: Option<PathBuf>,
    /// A file with the CA certificates (PEM) for the cluster's nodes. Default: those of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"/etc/whimbrel/store-ca.pem")]
    pub store_certificates: Option<PathBuf>,
    /// Other name servers with which records are replicated, for a store in a file or in memory.
    #[schemars(example = example_name_servers())]
    pub peers: Vec<Remote>,
    /// This name server's address, as written in the `peers` of the others. Required if there are
    /// more servers than copies; without it, this server keeps all records.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"names.example:4720")]
    pub name: Option<String>,
    /// Number of copies of a record, among this server and `peers`.
    pub copies: usize,
    /// Maximum number of records in a file or in memory.
    pub max_records: usize,
    /// Maximum memory for records in a file or in memory.
    #[schemars(with = "String")]
    pub max_bytes: ByteSize,
    /// Maximum number of providers per content.
    pub max_providers: usize,
    /// Maximum number of clients, such as routers, at a time.
    pub max_clients: usize,
    /// Maximum number of watched names, for all clients together.
    pub max_watches: usize,
    /// The socket for `whimbrel gnrs status`. Default: gnrs.sock in the run-time folder.
    #[schemars(example = &"/run/whimbrel/gnrs.sock")]
    pub socket: Option<PathBuf>,
    /// The group whose members may use that socket too, by name or number. Default: none, only the
    /// user that runs this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"whimbrel")]
    pub socket_group: Option<String>,
    /// Address to listen on for Prometheus (http://ADDRESS/metrics); a port alone stands for all
    /// addresses. Default: none.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "listening::maybe"
    )]
    #[schemars(with = "Option<String>", example = &"127.0.0.1:9365")]
    pub metrics: Option<SocketAddr>,
}

pub(super) fn example_names() -> [Guid; 1] {
    [Guid([0xc4; 32])]
}

fn example_name_servers() -> [&'static str; 1] {
    ["192.0.2.1:4720"]
}

fn example_preference() -> [&'static str; 2] {
    ["ethernet", "lte"]
}

/// Default port of a name server.
pub const GNRS_PORT: u16 = 4720;

impl Default for GnrsSection {
    fn default() -> GnrsSection {
        let limits = whimbrel_gnrs::StoreLimits::default();
        GnrsSection {
            listen: SocketAddr::from(([0, 0, 0, 0], GNRS_PORT)),
            store: None,
            store_password_file: None,
            store_certificates: None,
            peers: Vec::new(),
            name: None,
            copies: 3,
            max_records: limits.max_records,
            max_bytes: ByteSize(limits.max_bytes as u64),
            max_providers: limits.max_providers,
            max_clients: 4096,
            max_watches: whimbrel_gnrs::ServerConfig::default().max_watches,
            socket: None,
            socket_group: None,
            metrics: None,
        }
    }
}

/// `[[link]]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkSection {
    /// The link's name in routes, preferences and reports. Default: its remote, or "link" and its
    /// number in this file, counted from 1.
    #[serde(default)]
    #[schemars(example = &"north")]
    pub label: String,
    /// The local end: address and port for UDP, "ip://0.0.0.0" for bare IP, "dev://eth0" for
    /// Ethernet. The node waits for an address or interface that does not exist yet. Default: as
    /// the route to the neighbour requires, with an ephemeral port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", example = &"0.0.0.0:4711")]
    pub bind: Option<Bind>,
    /// The neighbour: host:port for UDP, "ip://192.0.2.7" for bare IP, "ether://[02:00:5e:10:00:07%eth0]" for a
    /// station on an interface. Bare IP and Ethernet need root or CAP_NET_RAW.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"192.0.2.7:4711")]
    pub remote: Option<Remote>,
    /// The neighbour's name: 64 hexadecimal digits, as `whimbrel id show` prints them there. A neighbour that proves
    /// another name is rejected. On a router, a neighbour named here may forward chunks from any source. Default: the
    /// first name proven at this address, kept in a file next to the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", example = example_names()[0])]
    pub name: Option<Guid>,
    /// Whether to accept inbound peers: neighbours and hosts that are not configured.
    #[serde(default)]
    pub listen: bool,
    /// Maximum number of inbound peers at a time.
    #[serde(default = "max_callers")]
    pub max_callers: usize,
    /// Largest IP packet or Ethernet payload, in bytes, if the path's MTU is smaller than that of
    /// the system's routes or the interface.
    #[serde(default = "ethernet_mtu")]
    pub mtu: usize,
    /// Congestion control, as in `hop.pacing`: "scavenger" yields to other traffic, a rate is
    /// constant. Default: that of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", example = &"scavenger")]
    pub pacing: Option<Pacing>,
    /// Whether frames are sent without encryption and authentication, so that anyone on the path can
    /// read and forge them: for measurements, and for links that nobody else can reach. Names are
    /// still proven when a session begins. Must be the same at both ends.
    #[serde(default)]
    pub plain: bool,
    /// For a host's link: its share under the policy "weights".
    #[serde(default = "least_weight")]
    pub weight: u32,
    /// For a host's link: its tier. Links with a higher cost are used only while no link with a lower
    /// one responds, not because those are slow.
    #[serde(default)]
    pub cost: u32,
    /// For a host's link: used only while no unmetered link responds, whatever its cost.
    #[serde(default)]
    pub metered: bool,
    /// For a host's link: bytes in both directions, with headers, per `quota_period`. Beyond them the link is shut
    /// until the next period. `host run` keeps the usage in a file next to its key. Default: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", example = &"5 GB")]
    pub quota: Option<ByteSize>,
    /// The period of `quota`, counted from 1970-01-01 (UTC): "1 d" begins at midnight.
    #[serde(default = "month")]
    #[schemars(with = "String")]
    pub quota_period: Span,
    /// For a host's link: disabled until `whimbrel host interfaces set LABEL --on`.
    #[serde(default)]
    pub off: bool,
}

fn least_weight() -> u32 {
    1
}

fn month() -> Span {
    Span(LinkTerms::default().quota_period)
}

fn max_callers() -> usize {
    4096
}

fn ethernet_mtu() -> usize {
    1500
}

impl LinkSection {
    /// Returns a link with the defaults, without a neighbour.
    pub fn new(label: impl Into<String>) -> LinkSection {
        LinkSection {
            label: label.into(),
            bind: None,
            remote: None,
            name: None,
            listen: false,
            max_callers: max_callers(),
            mtu: ethernet_mtu(),
            pacing: None,
            plain: false,
            weight: least_weight(),
            cost: 0,
            metered: false,
            quota: None,
            quota_period: month(),
            off: false,
        }
    }

    /// Returns a link with the defaults to a neighbour.
    pub fn towards(label: impl Into<String>, neighbour: NamedRemote) -> LinkSection {
        LinkSection {
            remote: Some(neighbour.remote),
            name: neighbour.name,
            ..LinkSection::new(label)
        }
    }

    /// Returns what a host's user says about it.
    pub fn terms(&self) -> LinkTerms {
        LinkTerms {
            weight: self.weight,
            cost: self.cost,
            metered: self.metered,
            quota: self.quota.map(|quota| quota.0),
            quota_period: self.quota_period.0,
            off: self.off,
        }
    }
}

/// Gives the links without a label one.
pub(super) fn label_links(links: &mut [LinkSection]) {
    for index in 0..links.len() {
        let link = &links[index];
        if !link.label.is_empty() {
            continue;
        }
        let remote = link.remote.as_ref().map(Remote::to_string);
        let is_free = |label: &String| links.iter().all(|link| link.label != *label);
        let label = remote.filter(is_free);
        links[index].label = label.unwrap_or_else(|| format!("link {}", index + 1));
    }
}

/// `[[route]]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteSection {
    /// The name of the destination router.
    #[schemars(with = "String", example = &"6f1f6a6d5f0e1b1c9d8e7f605142332415060708090a0b0c0d0e0f1011121314")]
    pub to: Guid,
    /// The next hop: a neighbour's name or the label of the link to it.
    #[schemars(example = &"north")]
    pub via: Via,
    /// Lower is preferred. Write the section once for each next hop; others are used while all
    /// preferred ones are silent.
    #[serde(default)]
    pub preference: u16,
    /// Share of a flow, relative to other next hops of the same preference.
    #[serde(default = "one")]
    pub weight: NonZeroU16,
}

fn one() -> NonZeroU16 {
    NonZeroU16::MIN
}

/// `[storage]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StorageSection {
    /// Memory for all stored chunks together.
    #[schemars(with = "String")]
    pub total: ByteSize,
    /// Memory and disk for the stored chunks of one flow.
    #[schemars(with = "String")]
    pub per_flow: ByteSize,
    /// Folder for stored chunks, so that they survive a restart and a power cut; created if missing.
    /// Without one they are in memory only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"/var/lib/whimbrel/chunks")]
    pub folder: Option<PathBuf>,
    /// Disk space for chunks in the folder.
    #[schemars(with = "String")]
    pub disk: ByteSize,
    /// Memory for cached content, from which this router answers requests of all clients. It is a part of `total` and
    /// gives way to stored chunks. `"0 B"`: no cache, and no chunk is verified here.
    #[schemars(with = "String")]
    pub cache: ByteSize,
    /// How long a chunk is stored.
    #[schemars(with = "String")]
    pub lifetime: Span,
    /// First pause between lookups for a destination that is away; doubled up to a minute. A pushed
    /// binding takes effect at once.
    #[schemars(with = "String")]
    pub storage_timer: Span,
    /// Whether to forward stored chunks as soon as possible; otherwise they wait for their source's Push.
    pub proactive: bool,
    /// How long a responsive neighbour may accept no chunk before the chunks queued for it are stored.
    #[schemars(with = "String")]
    pub held_back_patience: Span,
}

impl Default for StorageSection {
    fn default() -> StorageSection {
        let policy = ProxyPolicy::default();
        StorageSection {
            total: ByteSize(1 << 30),
            per_flow: ByteSize(256 << 20),
            folder: None,
            disk: ByteSize(10 << 30),
            cache: ByteSize(0),
            lifetime: Span(Duration::from_secs(3600)),
            storage_timer: Span(policy.storage_timer),
            proactive: policy.proactive,
            held_back_patience: Span(policy.held_back_patience),
        }
    }
}

impl StorageSection {
    /// Returns the policy of retrying stored chunks.
    pub fn policy(&self) -> ProxyPolicy {
        ProxyPolicy {
            storage_timer: self.storage_timer.0,
            proactive: self.proactive,
            held_back_patience: self.held_back_patience.0,
        }
    }

    /// Returns the folder of stored chunks, if there is one.
    pub fn chunk_folder(&self) -> Option<ChunkFolder> {
        self.folder.as_ref().map(|path| ChunkFolder {
            path: path.clone(),
            bytes: self.disk.0,
        })
    }

    /// Returns the limits of the router's storage.
    pub fn limits(&self) -> StoreLimits {
        StoreLimits {
            total: self.total.0,
            per_flow: self.per_flow.0,
            cache: self.cache.0,
            lifetime: self.lifetime.0,
        }
    }
}
