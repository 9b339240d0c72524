//! The schema of a router's NDN plane. The comments are the sample's comments.

use core::time::Duration;
use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use whimbrel_core::units::{ByteSize, Span};

/// UDP and TCP port of NDN forwarders.
pub const NDN_PORT: u16 = 6363;
/// WebSocket port of NDN forwarders.
pub const NDN_WEBSOCKET_PORT: u16 = 9696;

/// `[ndn]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NdnSection {
    /// Whether this router forwards NDN. Default: yes, unless links make it a MobilityFirst router
    /// only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &true)]
    pub enabled: Option<bool>,
    /// The Unix socket for programs. Default: /run/nfd/nfd.sock, or nfd.sock in the user's run-time
    /// folder where that cannot be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"/run/nfd/nfd.sock")]
    pub socket: Option<PathBuf>,
    /// Where UDP packets are taken from anybody.
    #[schemars(with = "Vec<String>")]
    pub udp: Vec<SocketAddr>,
    /// Where TCP connections are taken.
    #[schemars(with = "Vec<String>")]
    pub tcp: Vec<SocketAddr>,
    /// Where WebSocket connections of browsers are taken.
    #[schemars(with = "Vec<String>")]
    pub websocket: Vec<SocketAddr>,
    /// Web pages that may connect there, by scheme, host and port; all others are refused, and
    /// programs that are no browsers are not asked. None named: no page. "*": every page of every
    /// site.
    #[schemars(example = example_origins())]
    pub allowed_origins: Vec<String>,
    /// Whether to join the multicast group on the interfaces.
    pub multicast: bool,
    /// The UDP multicast group.
    #[schemars(with = "String")]
    pub multicast_group: SocketAddr,
    /// Interfaces for multicast. None named: all that are up and can.
    #[schemars(example = example_interfaces())]
    pub interfaces: Vec<String>,
    /// Interfaces on which the Ethernet multicast group is joined. It takes root or CAP_NET_RAW.
    #[schemars(example = example_interfaces())]
    pub ethernet: Vec<String>,
    /// Largest UDP datagram with its IP and UDP headers, in bytes, where a path would take more.
    pub mtu: usize,
    /// Memory for cached Data.
    #[schemars(with = "String")]
    pub content_store: ByteSize,
    /// Which Data leaves the content store when it is full: "s3-fifo" or "lru".
    pub content_store_policy: String,
    /// Most Interests that wait for Data at one time.
    pub pit_entries: usize,
    /// Strategy where ndn_strategy says nothing.
    pub strategy: String,
    /// Data that nobody asked for: "drop", "admit-local" or "admit-network".
    pub unsolicited_data: String,
    /// How an Interest's forwarding hint knows that it has arrived: names of the regions that this
    /// router serves.
    #[schemars(example = example_regions())]
    pub regions: Vec<String>,
    /// Faces that nobody configured end after this silence.
    #[schemars(with = "String")]
    pub idle_timeout: Span,
    /// Most faces.
    pub max_faces: usize,
    /// Link reliability of faces that are made by configuration or command: "auto", "adaptive",
    /// "ndnlpv2", "paper" or "off".
    pub reliability: Reliability,
    /// Who may change faces, routes and strategies: "local" (programs on this machine) or "signed"
    /// (who signs by an anchor).
    pub commands: CommandRights,
    /// Certificates whose owners may sign commands.
    #[schemars(example = example_anchors())]
    pub anchors: Vec<PathBuf>,
    /// Whether neighbours may register prefixes by /localhop/nfd/rib, signed by an anchor.
    pub localhop: bool,
    /// Where Prometheus asks (http://ADDRESS/metrics). Default: nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", example = &"127.0.0.1:9363")]
    pub metrics: Option<SocketAddr>,
}

impl Default for NdnSection {
    fn default() -> NdnSection {
        // Takes IPv4 as well.
        let any = |port| vec![SocketAddr::from(([0u16; 8], port))];
        NdnSection {
            enabled: None,
            socket: None,
            udp: any(NDN_PORT),
            tcp: any(NDN_PORT),
            websocket: any(NDN_WEBSOCKET_PORT),
            allowed_origins: Vec::new(),
            multicast: true,
            multicast_group: SocketAddr::from(([224, 0, 23, 170], 56363)),
            interfaces: Vec::new(),
            ethernet: Vec::new(),
            mtu: 65_535,
            content_store: ByteSize(64 << 20),
            content_store_policy: String::from("s3-fifo"),
            pit_entries: 262_144,
            strategy: String::from("/localhost/nfd/strategy/best-route"),
            unsolicited_data: String::from("drop"),
            regions: Vec::new(),
            idle_timeout: Span(Duration::from_secs(600)),
            max_faces: 4096,
            reliability: Reliability::Auto,
            commands: CommandRights::Local,
            anchors: Vec::new(),
            localhop: false,
            metrics: None,
        }
    }
}

/// `[[ndn_face]]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NdnFaceSection {
    /// The other end: udp4://, udp6://, udp://, tcp4://, tcp6://, tcp://, or ether:// and an
    /// address in brackets, with local = "dev://eth0".
    #[schemars(example = &"udp://192.0.2.7:6363")]
    pub uri: String,
    /// This end, where it matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"dev://eth0")]
    pub local: Option<String>,
    /// Link reliability of this face. Default: the one for all faces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"adaptive")]
    pub reliability: Option<Reliability>,
    /// Largest frame, in bytes, where the path's own is larger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &1400)]
    pub mtu: Option<usize>,
}

/// `[[ndn_route]]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NdnRouteSection {
    /// Interests whose name begins so.
    #[schemars(example = &"/example")]
    pub prefix: String,
    /// Go to this face, which is made if it is not there.
    #[schemars(example = &"udp://192.0.2.7:6363")]
    pub face: String,
    /// Less is preferred.
    #[serde(default)]
    pub cost: u64,
}

/// `[[ndn_strategy]]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NdnStrategySection {
    /// For names that begin so.
    #[schemars(example = &"/example/group")]
    pub prefix: String,
    /// The strategy, with parameters if it takes any.
    #[schemars(example = &"/localhost/nfd/strategy/multicast")]
    pub strategy: String,
}

/// How frames that get lost on a link are recovered there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reliability {
    /// As the other end can: adaptive, ndnlpv2, or not at all.
    #[default]
    Auto,
    /// BELRP with acknowledgements that follow the loss.
    Adaptive,
    /// As NFD's faces with reliability on.
    Ndnlpv2,
    /// BELRP as its paper has it.
    Paper,
    /// Lost frames stay lost.
    Off,
}

/// Who may give management commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CommandRights {
    /// Programs on this machine.
    #[default]
    Local,
    /// Who signs by a configured anchor.
    Signed,
}

fn example_interfaces() -> [&'static str; 1] {
    ["eth0"]
}

fn example_origins() -> [&'static str; 2] {
    ["https://app.example", "http://localhost:8080"]
}

fn example_regions() -> [&'static str; 1] {
    ["/example/site"]
}

fn example_anchors() -> [&'static str; 1] {
    ["/etc/whimbrel/operator.ndncert"]
}
