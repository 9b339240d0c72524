//! The schema of a router's NDN plane. The comments are the sample's comments.

use core::time::Duration;
use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::address::listening;
use whimbrel_core::units::{ByteSize, Span};

/// UDP and TCP port of NDN forwarders.
pub const NDN_PORT: u16 = 6363;
/// WebSocket port of NDN forwarders.
pub const NDN_WEBSOCKET_PORT: u16 = 9696;

/// `[ndn]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NdnSection {
    /// Whether this router forwards NDN. Default: yes, unless links make it a MobilityFirst router only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &true)]
    pub enabled: Option<bool>,
    /// The Unix socket for programs. Default: /run/nfd/nfd.sock, or nfd.sock in the user's run-time
    /// folder if that cannot be created.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"/run/nfd/nfd.sock")]
    pub socket: Option<PathBuf>,
    /// The group whose members, besides the user that runs the router, may use that socket, by name
    /// or number. Default: none, every user of this machine may.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"ndn")]
    pub socket_group: Option<String>,
    /// Addresses to listen on for UDP.
    #[serde(deserialize_with = "listening::list")]
    #[schemars(with = "Vec<String>")]
    pub udp: Vec<SocketAddr>,
    /// Addresses to listen on for TCP.
    #[serde(deserialize_with = "listening::list")]
    #[schemars(with = "Vec<String>")]
    pub tcp: Vec<SocketAddr>,
    /// Addresses to listen on for WebSocket.
    #[serde(deserialize_with = "listening::list")]
    #[schemars(with = "Vec<String>")]
    pub websocket: Vec<SocketAddr>,
    /// Origins of web pages that may connect there (scheme, host and port); others are refused.
    /// Programs other than browsers need no entry. Empty: no page. "*": every page of every site.
    #[schemars(example = example_origins())]
    pub allowed_origins: Vec<String>,
    /// Whether to join the multicast group on the interfaces.
    pub multicast: bool,
    /// The UDP multicast group.
    #[schemars(with = "String")]
    pub multicast_group: SocketAddr,
    /// Interfaces for multicast; the router waits for those that do not exist yet. Empty: all that are
    /// up and support it.
    #[schemars(example = example_interfaces())]
    pub interfaces: Vec<String>,
    /// Interfaces on which to join the Ethernet multicast group; the router waits for those that do
    /// not exist yet. Needs root or CAP_NET_RAW.
    #[schemars(example = example_interfaces())]
    pub ethernet: Vec<String>,
    /// Largest UDP datagram with its IP and UDP headers, in bytes, if the path's MTU is larger.
    pub mtu: usize,
    /// Memory for cached Data.
    #[schemars(with = "String")]
    pub content_store: ByteSize,
    /// Eviction policy of a full content store: "s3-fifo" or "lru".
    pub content_store_policy: String,
    /// Maximum number of pending Interests.
    pub pit_entries: usize,
    /// Strategy for names without an `[[ndn_strategy]]`.
    pub strategy: String,
    /// Treatment of unsolicited Data: "drop", "admit-local" or "admit-network".
    pub unsolicited_data: String,
    /// Names of this router's producer regions: an Interest whose forwarding hint names one of them
    /// has reached its region.
    #[schemars(example = example_regions())]
    pub regions: Vec<String>,
    /// Idle time after which accepted faces are closed.
    #[schemars(with = "String")]
    pub idle_timeout: Span,
    /// Maximum number of faces.
    pub max_faces: usize,
    /// Link reliability of faces created by configuration or command: "auto", "adaptive",
    /// "ndnlpv2", "paper" or "off".
    pub reliability: Reliability,
    /// Who may change faces, routes and strategies: "local" (programs on this machine) or "signed"
    /// (holders of an anchor's key).
    pub commands: CommandRights,
    /// Certificates whose keys may sign commands.
    #[schemars(example = example_anchors())]
    pub anchors: Vec<PathBuf>,
    /// Whether neighbours may register prefixes under /localhop/nfd/rib, signed by an anchor's key.
    pub localhop: bool,
    /// Address to listen on for Prometheus (http://ADDRESS/metrics), or a port alone for all addresses, with the
    /// metrics of this plane only; `metrics` of `[router]` has all of them. Default: none.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "listening::maybe"
    )]
    #[schemars(with = "Option<String>", example = &"127.0.0.1:9363")]
    pub metrics: Option<SocketAddr>,
}

impl Default for NdnSection {
    fn default() -> NdnSection {
        // Accepts IPv4 as well.
        let any = |port| vec![SocketAddr::from(([0u16; 8], port))];
        NdnSection {
            enabled: None,
            socket: None,
            socket_group: None,
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
    /// The remote end: udp4://, udp6://, udp://, tcp4://, tcp6://, tcp://, or ether:// and an
    /// address in brackets, with local = "dev://eth0".
    #[schemars(example = &"udp://192.0.2.7:6363")]
    pub uri: String,
    /// The local end, if it matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"dev://eth0")]
    pub local: Option<String>,
    /// Link reliability of this face. Default: the one for all faces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"adaptive")]
    pub reliability: Option<Reliability>,
    /// Largest frame, in bytes, if the path's MTU is larger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &1400)]
    pub mtu: Option<usize>,
}

/// `[[ndn_route]]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NdnRouteSection {
    /// The prefix of the names.
    #[schemars(example = &"/example")]
    pub prefix: String,
    /// The next hop: a face, which is created if it does not exist.
    #[schemars(example = &"udp://192.0.2.7:6363")]
    pub face: String,
    /// Lower is preferred.
    #[serde(default)]
    pub cost: u64,
}

/// `[[ndn_strategy]]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NdnStrategySection {
    /// The prefix of the names.
    #[schemars(example = &"/example/group")]
    pub prefix: String,
    /// The strategy, with its parameters if any.
    #[schemars(example = &"/localhost/nfd/strategy/multicast")]
    pub strategy: String,
}

/// The recovery of a link's lost frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reliability {
    /// The best profile that the other end supports: adaptive, ndnlpv2, or none.
    #[default]
    Auto,
    /// BELRP with adaptive acknowledgements.
    Adaptive,
    /// As on NFD's faces with reliability on.
    Ndnlpv2,
    /// BELRP as in its paper.
    Paper,
    /// No recovery.
    Off,
}

/// The senders whose management commands are accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CommandRights {
    /// Programs on this machine.
    #[default]
    Local,
    /// Holders of a configured anchor's key.
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
