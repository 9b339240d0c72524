//! The plan of a router's NDN plane: `[ndn]` and its lists, parsed and checked.

use core::fmt::Display;
use core::time::Duration;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use whimbrel_core::{Endpoint, suggest};
use whimbrel_forwarder::mgmt::{
    Anchors, CommandPolicy, LocalCommands, ManagementConfig, Privileges, RemoteRegistration,
};
use whimbrel_forwarder::strategy::{StrategyChoice, StrategyError, StrategyKinds};
use whimbrel_forwarder::{
    CsConfig, CsPolicy, FaceFlags, FaceUri, ForwarderConfig, Persistency, UnsolicitedPolicy,
};
use whimbrel_io::{AllowedOrigins, Interface};
use whimbrel_link::ndnlp::config::{MAX_MTU, MIN_MTU};
use whimbrel_link::ndnlp::{LinkServiceConfig, PaperOptions, Reliability as LinkReliability};
use whimbrel_ndn_packet::{Certificate, Name};
use whimbrel_ndn_router::endpoint::endpoint;
use whimbrel_ndn_router::faces::FaceSettings;

use super::checks::{Found, TICK};
use super::planning::{HEADERS, MAX_PACKET, MOST, bound_by_links};
use super::{CommandRights, Config, NdnFaceSection, NdnSection, Reliability};
use whimbrel_client::place::check_own;

/// Datagram size that a link assumes until its port reports another one, bytes.
const ANY_MTU: usize = 1472;
/// Bound of the packets in the content store, beside its bytes: clients must be able to hold the
/// numbers of `cs/info`.
const MAX_CS_PACKETS: usize = 1 << 24;
/// Bound of the Interests that a forwarder can be configured to remember: the table alone takes
/// many gigabytes.
const MAX_PIT_ENTRIES: u64 = 1 << 28;

/// A router's NDN plane.
#[derive(Clone, Debug)]
pub struct NdnPlan {
    /// The Unix socket for programs; `None` searches for one.
    pub socket: Option<PathBuf>,
    /// The group, by number, that alone may use the socket.
    pub socket_group: Option<u32>,
    /// Addresses that accept UDP packets.
    pub udp: Vec<SocketAddr>,
    /// Addresses that accept TCP connections.
    pub tcp: Vec<SocketAddr>,
    /// Addresses that accept WebSocket connections.
    pub websocket: Vec<SocketAddr>,
    /// Web pages that may connect.
    pub allowed_origins: AllowedOrigins,
    /// Whether to join the multicast group.
    pub multicast: bool,
    /// The group.
    pub multicast_group: SocketAddr,
    /// Interfaces for multicast; empty for all suitable ones.
    pub interfaces: Vec<String>,
    /// Interfaces on which the Ethernet group is joined.
    pub ethernet: Vec<String>,
    /// Largest UDP datagram with its headers, bytes.
    pub mtu: usize,
    /// Bound of the faces.
    pub max_faces: usize,
    /// Faces that are not configured end after this silence.
    pub idle_timeout: Duration,
    /// The address for Prometheus.
    pub metrics: Option<SocketAddr>,
    /// The forwarder, with its policies and strategies.
    pub forwarder: ForwarderConfig,
    /// The configuration of a face's link service.
    pub link: LinkServiceConfig,
    /// The keys that may sign commands.
    pub anchors: Anchors,
    /// The faces to create, each once.
    pub faces: Vec<(Endpoint, FaceSettings)>,
    /// Routes: prefix, face and cost.
    pub routes: Vec<(Name, Endpoint, u64)>,
}

impl NdnPlan {
    /// A section's router without sockets, keys of commands, faces and routes.
    pub fn new(section: &NdnSection, forwarder: ForwarderConfig) -> NdnPlan {
        NdnPlan {
            socket: None,
            socket_group: None,
            udp: Vec::new(),
            tcp: Vec::new(),
            websocket: Vec::new(),
            allowed_origins: AllowedOrigins::default(),
            multicast: false,
            multicast_group: section.multicast_group,
            interfaces: Vec::new(),
            ethernet: Vec::new(),
            mtu: section.mtu,
            max_faces: section.max_faces,
            idle_timeout: section.idle_timeout.0,
            metrics: None,
            forwarder,
            link: LinkServiceConfig {
                reliability: link_reliability(section.reliability),
                ..LinkServiceConfig::datagram(ANY_MTU)
            },
            anchors: Anchors::default(),
            faces: Vec::new(),
            routes: Vec::new(),
        }
    }
}

/// Returns the plan, if the faults in `found` leave one.
pub(super) fn check(
    found: &mut Found<'_>,
    config: &Config,
    kinds: StrategyKinds,
) -> Option<NdnPlan> {
    let section = &config.ndn;
    found.socket_path("ndn.socket", section.socket.as_deref());
    let socket_group = found.group("ndn.socket_group", section.socket_group.as_deref());
    check_listeners(found, config);
    check_bounds(found, section);
    let allowed_origins = allowed_origins(found, section);
    let anchors = anchors(found, section);
    let (faces, routes) = faces_and_routes(found, config);
    let forwarder = forwarder(found, config, kinds)?;
    Some(NdnPlan {
        socket: section.socket.clone(),
        socket_group,
        udp: section.udp.clone(),
        tcp: section.tcp.clone(),
        websocket: section.websocket.clone(),
        allowed_origins,
        multicast: section.multicast,
        multicast_group: section.multicast_group,
        interfaces: section.interfaces.clone(),
        ethernet: section.ethernet.clone(),
        metrics: section.metrics,
        anchors,
        faces,
        routes,
        ..NdnPlan::new(section, forwarder)
    })
}

fn check_listeners(found: &mut Found<'_>, config: &Config) {
    found.distinct(&datagram_listeners(config));
    found.distinct(&stream_listeners(config));
}

fn listed(key: &str, addresses: &[SocketAddr]) -> Vec<(String, SocketAddr)> {
    let keyed = |(index, address): (usize, &SocketAddr)| (format!("{key}[{index}]"), *address);
    addresses.iter().enumerate().map(keyed).collect()
}

/// Returns the addresses that a router's UDP sockets bind, with their keys.
pub(super) fn datagram_listeners(config: &Config) -> Vec<(String, SocketAddr)> {
    let mut listeners = bound_by_links(&config.link);
    listeners.extend(listed("ndn.udp", &config.ndn.udp));
    listeners
}

/// Returns the addresses that a router's TCP sockets bind, with their keys.
pub(super) fn stream_listeners(config: &Config) -> Vec<(String, SocketAddr)> {
    let section = &config.ndn;
    let mut listeners = listed("ndn.tcp", &section.tcp);
    listeners.extend(listed("ndn.websocket", &section.websocket));
    listeners.extend(section.metrics.map(|at| (String::from("ndn.metrics"), at)));
    let metrics = config.router.metrics;
    listeners.extend(metrics.map(|at| (String::from("router.metrics"), at)));
    listeners
}

fn check_bounds(found: &mut Found<'_>, section: &NdnSection) {
    let smallest = MIN_MTU as u64 + HEADERS;
    found.count(
        "ndn.mtu",
        section.mtu as u64,
        smallest..=MAX_PACKET,
        " bytes",
    );
    found.count(
        "ndn.pit_entries",
        section.pit_entries as u64,
        1..=MAX_PIT_ENTRIES,
        "",
    );
    found.count("ndn.max_faces", section.max_faces as u64, 1..=MOST, "");
    found.time("ndn.idle_timeout", section.idle_timeout, TICK);
    let group = section.multicast_group;
    if !group.ip().is_multicast() || group.port() == 0 {
        found.add(
            "ndn.multicast_group",
            format!(
                "{group} is not a multicast group; write an address such as \"224.0.23.170:56363\""
            ),
        );
    }
    let signed = section.localhop || section.commands == CommandRights::Signed;
    if signed && section.anchors.is_empty() {
        let key = if section.localhop {
            "ndn.localhop"
        } else {
            "ndn.commands"
        };
        found.add(
            key,
            "it asks for signed commands, but no anchors are named, so nobody could give any; write anchors = \
             [\"/etc/whimbrel/operator.ndncert\"]",
        );
    }
}

/// Returns the interfaces that the section names and that the machine does not have now, with the key
/// that names each.
pub(super) fn absent_interfaces(section: &NdnSection) -> Vec<(String, String)> {
    let listed = |key: &'static str, names: &[String]| {
        let keyed = |(index, name): (usize, &String)| (format!("{key}[{index}]"), name.clone());
        names.iter().enumerate().map(keyed).collect::<Vec<_>>()
    };
    let mut named = listed("ndn.ethernet", &section.ethernet);
    if section.multicast {
        named.extend(listed("ndn.interfaces", &section.interfaces));
    }
    named.retain(|(_, name)| Interface::find(name).is_err());
    named
}

fn allowed_origins(found: &mut Found<'_>, section: &NdnSection) -> AllowedOrigins {
    for (index, origin) in section.allowed_origins.iter().enumerate() {
        if let Err(error) = AllowedOrigins::parse([origin.as_str()]) {
            found.add(
                format!("ndn.allowed_origins[{index}]"),
                format!("{error}; \"*\" allows every page of every site"),
            );
        }
    }
    // A list with a fault prevents the start.
    AllowedOrigins::parse(section.allowed_origins.iter().map(String::as_str)).unwrap_or_default()
}

/// Reads the certificates whose keys may command this router.
fn anchors(found: &mut Found<'_>, section: &NdnSection) -> Anchors {
    let mut anchors = Anchors::new();
    for (index, path) in section.anchors.iter().enumerate() {
        let certificate = found.keep(format!("ndn.anchors[{index}]"), certificate(path));
        if let Some(certificate) = certificate {
            anchors.add(certificate, Privileges::All);
        }
    }
    anchors
}

fn certificate(path: &Path) -> Result<Certificate, String> {
    check_own(path).map_err(|foreign| foreign.to_string())?;
    let file = whimbrel_keychain::small_file::read(path).map_err(|error| {
        format!(
            "cannot read {}: {error}; write the path of a certificate",
            path.display()
        )
    })?;
    let wrong = |fault: &dyn Display| {
        format!(
            "{} is not an NDN certificate: {fault}; `whimbrel key cert-dump` and `ndnsec cert-dump` write one",
            path.display()
        )
    };
    let wire = whimbrel_keychain::text::decode(&file).map_err(|fault| wrong(&fault))?;
    Certificate::decode(wire.into()).map_err(|fault| wrong(&fault))
}

fn forwarder(
    found: &mut Found<'_>,
    config: &Config,
    kinds: StrategyKinds,
) -> Option<ForwarderConfig> {
    let section = &config.ndn;
    let policy = found.keep(
        "ndn.content_store_policy",
        word(
            &section.content_store_policy,
            &[("s3-fifo", CsPolicy::S3Fifo), ("lru", CsPolicy::Lru)],
        ),
    );
    let unsolicited = found.keep(
        "ndn.unsolicited_data",
        word(
            &section.unsolicited_data,
            &[
                ("drop", UnsolicitedPolicy::Drop),
                ("admit-local", UnsolicitedPolicy::AdmitLocal),
                ("admit-network", UnsolicitedPolicy::AdmitNetwork),
            ],
        ),
    );
    let mut producer_regions = Vec::new();
    for (index, region) in section.regions.iter().enumerate() {
        producer_regions.extend(found.keep(format!("ndn.regions[{index}]"), name(region)));
    }
    let strategies = strategies(found, config, kinds);
    Some(ForwarderConfig {
        pit_capacity: section.pit_entries,
        content_store: CsConfig {
            capacity: section.content_store.as_usize(),
            policy: policy?,
            max_packets: MAX_CS_PACKETS,
            ..CsConfig::default()
        },
        unsolicited: unsolicited?,
        producer_regions,
        strategy_kinds: kinds,
        strategies,
        management: ManagementConfig {
            policy: command_policy(section),
            ..ManagementConfig::default()
        },
        ..ForwarderConfig::default()
    })
}

/// Returns prefixes and their strategies: `/` first, then the prefixes with their own.
fn strategies(found: &mut Found<'_>, config: &Config, kinds: StrategyKinds) -> Vec<(Name, Name)> {
    let root = found.keep(
        "ndn.strategy",
        strategy(kinds, &Name::root(), &config.ndn.strategy),
    );
    let mut strategies: Vec<(Name, Name)> = root
        .into_iter()
        .map(|chosen| (Name::root(), chosen))
        .collect();
    let mut prefixes: Vec<Name> = Vec::new();
    for (index, choice) in config.ndn_strategy.iter().enumerate() {
        let key = |name: &str| format!("ndn_strategy[{index}].{name}");
        let Some(prefix) = found.keep(key("prefix"), name(&choice.prefix)) else {
            continue;
        };
        if prefixes.contains(&prefix) {
            found.add(
                key("prefix"),
                format!("{prefix} has a strategy already; write one for each prefix"),
            );
        }
        let chosen = found.keep(key("strategy"), strategy(kinds, &prefix, &choice.strategy));
        strategies.extend(chosen.map(|chosen| (prefix.clone(), chosen)));
        prefixes.push(prefix);
    }
    strategies
}

/// Returns the full name of a strategy that is given by its name, or by its distinguishing word.
fn strategy(kinds: StrategyKinds, prefix: &Name, text: &str) -> Result<Name, String> {
    let known: Vec<String> = kinds.names().iter().map(Name::to_string).collect();
    let words: Vec<&str> = known
        .iter()
        .filter_map(|full| full.split('/').nth(4))
        .collect();
    let full = if text.contains('/') {
        text.to_owned()
    } else {
        format!("/localhost/nfd/strategy/{text}")
    };
    StrategyChoice::check(kinds, prefix.as_ref(), name(&full)?.as_ref()).map_err(
        |error| match error {
            StrategyError::Unknown { .. } => {
                let word = full.split('/').nth(4).unwrap_or(text);
                format!(
                    "there is no strategy '{text}'{}",
                    suggest::hint(word, words.iter().copied())
                )
            }
            other => other.to_string(),
        },
    )
}

fn name(text: &str) -> Result<Name, String> {
    let path = text.strip_prefix("ndn:").unwrap_or(text);
    if !path.starts_with('/') {
        return Err(format!(
            "'{text}' is not a name; write one that begins with '/', as \"/{path}\""
        ));
    }
    path.parse().map_err(|fault| {
        format!("'{text}' is not a name: {fault}; write one such as \"/example/site\"")
    })
}

/// Returns the value of one of several words.
fn word<T: Copy>(text: &str, known: &[(&str, T)]) -> Result<T, String> {
    let found = known.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<String> = known
            .iter()
            .map(|(word, _)| format!("\"{word}\""))
            .collect();
        format!("'{text}' is unknown; write one of {}", words.join(", "))
    })
}

fn command_policy(section: &NdnSection) -> CommandPolicy {
    CommandPolicy {
        local: match section.commands {
            CommandRights::Local => LocalCommands::AcceptAny,
            CommandRights::Signed => LocalCommands::RequireSignature,
        },
        remote: if section.localhop {
            RemoteRegistration::RequireSignature
        } else {
            RemoteRegistration::Off
        },
    }
}

fn link_reliability(reliability: Reliability) -> LinkReliability {
    match reliability {
        Reliability::Auto => LinkReliability::Auto,
        Reliability::Adaptive => LinkReliability::Adaptive,
        Reliability::Ndnlpv2 => LinkReliability::Ndnlpv2,
        Reliability::Paper => LinkReliability::Paper(PaperOptions::default()),
        Reliability::Off => LinkReliability::Off,
    }
}

type Faces = Vec<(Endpoint, FaceSettings)>;
type Routes = Vec<(Name, Endpoint, u64)>;

/// Returns every face that the configuration or a route names, once, and the routes.
fn faces_and_routes(found: &mut Found<'_>, config: &Config) -> (Faces, Routes) {
    let section = &config.ndn;
    let mut faces: Faces = Vec::new();
    for (index, face) in config.ndn_face.iter().enumerate() {
        let key = |name: &str| format!("ndn_face[{index}].{name}");
        if let Some(mtu) = face.mtu {
            let bounds = MIN_MTU as u64..=MAX_MTU as u64;
            found.count(&key("mtu"), mtu as u64, bounds, " bytes");
        }
        let Some(endpoint) = face_endpoint(found, face, &key) else {
            continue;
        };
        if faces.iter().any(|(earlier, _)| *earlier == endpoint) {
            found.add(
                key("uri"),
                format!("the face {} is listed twice; write it once", face.uri),
            );
        }
        faces.push((endpoint, settings(section, face.reliability, face.mtu)));
    }
    let mut routes: Routes = Vec::new();
    for (index, route) in config.ndn_route.iter().enumerate() {
        let key = |name: &str| format!("ndn_route[{index}].{name}");
        let prefix = found.keep(key("prefix"), name(&route.prefix));
        let endpoint = face_uri(&route.face).and_then(|uri| endpoint_of(&uri, None));
        let endpoint = found.keep(key("face"), endpoint);
        let (Some(prefix), Some(endpoint)) = (prefix, endpoint) else {
            continue;
        };
        if !faces.iter().any(|(known, _)| *known == endpoint) {
            faces.push((endpoint.clone(), settings(section, None, None)));
        }
        routes.push((prefix, endpoint, route.cost));
    }
    (faces, routes)
}

fn face_endpoint(
    found: &mut Found<'_>,
    face: &NdnFaceSection,
    key: &impl Fn(&str) -> String,
) -> Option<Endpoint> {
    let local = face.local.as_deref().map(face_uri).transpose();
    let local = found.keep(key("local"), local);
    let uri = found.keep(key("uri"), face_uri(&face.uri));
    let (local, uri) = (local?, uri?);
    found.keep(key("uri"), endpoint_of(&uri, local.as_ref()))
}

fn face_uri(text: &str) -> Result<FaceUri, String> {
    text.parse()
        .map_err(|fault| format!("{fault} (read: '{text}')"))
}

fn endpoint_of(uri: &FaceUri, local: Option<&FaceUri>) -> Result<Endpoint, String> {
    if let Some(why) = uri.unreachable() {
        return Err(format!("no face can lead to {uri}: {why}"));
    }
    endpoint(uri, local).map_err(|why| why.to_string())
}

fn settings(
    section: &NdnSection,
    reliability: Option<Reliability>,
    mtu: Option<usize>,
) -> FaceSettings {
    let reliability = link_reliability(reliability.unwrap_or(section.reliability));
    FaceSettings {
        persistency: Persistency::Permanent,
        mtu,
        flags: FaceFlags {
            reliability: reliability != LinkReliability::Off,
            congestion_marking: true,
            ..FaceFlags::default()
        },
        reliability: Some(reliability),
        congestion: (None, None),
        reopened: None,
        device: None,
    }
}
