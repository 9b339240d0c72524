//! The face of a port.

use std::net::SocketAddr;

use core::time::Duration;

use whimbrel_core::{Endpoint, Medium, PortInfo};
use whimbrel_forwarder::mgmt::{self, LinkCounters};
use whimbrel_forwarder::{FaceFlags, FaceId, FaceSpec, LinkType, Persistency, Scope};
use whimbrel_link::ndnlp::{
    FrameKind, LinkDrops, LinkService, LinkServiceConfig, LinkStats, Reliability,
};
use whimbrel_ndn_mgmt::FaceUri;

/// Minimum payload of an Ethernet frame, octets: shorter ones are padded.
const MIN_ETHERNET_PAYLOAD: usize = 46;

/// The settings of a requested face.
#[derive(Clone, Debug, PartialEq)]
pub struct FaceSettings {
    /// Its lifetime.
    pub persistency: Persistency,
    /// Largest frame, if smaller than the path's.
    pub mtu: Option<usize>,
    /// The enabled features.
    pub flags: FaceFlags,
    /// Of the link, if the configuration has it for this face.
    pub reliability: Option<Reliability>,
    /// Of the link's congestion marking, if set.
    pub congestion: (Option<Duration>, Option<u64>),
    /// The permanent face that is reopened.
    pub reopened: Option<FaceId>,
    /// The device that the link models, if there is none below it: in simulations.
    pub device: Option<ModelledDevice>,
}

/// A network device with a drop-tail queue, modelled by the link service, so that queued frames can
/// still carry acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelledDevice {
    /// Frames leave one at a time at this rate, bit/s.
    pub rate: u64,
    /// Octets that the device adds to each frame.
    pub overhead: u32,
    /// Maximum of queued packets, without the one that is being sent.
    pub queue: usize,
}

impl ModelledDevice {
    /// Returns the configuration of a link that models this device.
    pub fn of(self, link: LinkServiceConfig) -> LinkServiceConfig {
        LinkServiceConfig {
            drain_rate: Some(self.rate),
            drain_overhead: self.overhead,
            queue_packets: self.queue,
            queue_bytes: usize::MAX,
            ..link
        }
    }
}

impl FaceSettings {
    /// Settings of a face that was not requested.
    pub fn unasked(info: &PortInfo) -> FaceSettings {
        let persistency = if info.medium.is_shared() {
            Persistency::Permanent
        } else if info.origin.is_chosen() {
            Persistency::Persistent
        } else {
            Persistency::OnDemand
        };
        FaceSettings {
            persistency,
            mtu: None,
            flags: FaceFlags {
                congestion_marking: true,
                ..FaceFlags::default()
            },
            reliability: None,
            congestion: (None, None),
            reopened: None,
            device: None,
        }
    }

    /// Settings of an existing face.
    pub fn of(spec: &FaceSpec) -> FaceSettings {
        FaceSettings {
            persistency: spec.persistency,
            mtu: spec.mtu,
            flags: spec.flags,
            reliability: None,
            congestion: (
                Some(spec.base_congestion_interval),
                Some(spec.default_congestion_threshold),
            ),
            reopened: None,
            device: None,
        }
    }

    /// Settings of a face that management requests, from a router whose faces recover lost frames
    /// as `configured` unless the command says otherwise. (NFD's do not; its peers, including
    /// programs, accept numbered frames as any others.)
    pub fn wished(wish: &mgmt::FaceSettings, configured: Reliability) -> FaceSettings {
        FaceSettings {
            persistency: wish.persistency.unwrap_or(Persistency::Persistent),
            mtu: wish.mtu.and_then(|mtu| usize::try_from(mtu).ok()),
            flags: FaceFlags {
                local_fields: wish.local_fields.unwrap_or(false),
                reliability: wish.reliability.unwrap_or(configured != Reliability::Off),
                congestion_marking: wish.congestion_marking.unwrap_or(true),
            },
            reliability: None,
            congestion: (
                wish.base_congestion_interval,
                wish.default_congestion_threshold,
            ),
            reopened: None,
            device: None,
        }
    }
}

// A face never says less than what its link sends.
const _: () = assert!(whimbrel_forwarder::mgmt::MIN_MTU == whimbrel_link::ndnlp::MIN_MTU as u64);

/// Returns the properties of the face on a port; `endpoint` is what was asked for, if it was.
pub fn spec(info: &PortInfo, settings: &FaceSettings, endpoint: Option<&Endpoint>) -> FaceSpec {
    let (remote_uri, local_uri) = match (endpoint, &info.medium) {
        // The server's URI has a path, which the port does not know.
        (Some(Endpoint::WebSocket { remote, path }), Medium::WebSocket { local, .. }) => (
            format!("ws://{remote}{}", if path == "/" { "" } else { path }),
            FaceUri::WebSocketClient((*local).into()).to_string(),
        ),
        _ => uris(info),
    };
    let defaults = FaceSpec::new(remote_uri, local_uri);
    FaceSpec {
        scope: scope(info),
        persistency: settings.persistency,
        link_type: if info.medium.is_shared() {
            LinkType::MultiAccess
        } else {
            LinkType::PointToPoint
        },
        mtu: (!is_stream(info)).then(|| settings.mtu.map_or(info.mtu, |mtu| mtu.min(info.mtu))),
        flags: settings.flags,
        base_congestion_interval: settings
            .congestion
            .0
            .unwrap_or(defaults.base_congestion_interval),
        default_congestion_threshold: settings
            .congestion
            .1
            .unwrap_or(defaults.default_congestion_threshold),
        web_origin: match &info.medium {
            Medium::WebSocket { origin, .. } => origin.clone(),
            _ => None,
        },
        ..defaults
    }
}

/// Returns true if frames arrive whole, once and in order, whatever their size.
fn is_stream(info: &PortInfo) -> bool {
    info.medium.is_stream() || info.origin.is_local()
}

/// Programs on this machine are local: Unix sockets, and TCP from a loopback address, as in NFD.
/// WebSockets are not, unlike in NFD: a page that a user opens may connect to the loopback address,
/// and must not command the router. Such a page may register free prefixes for itself, under
/// `/localhop`.
fn scope(info: &PortInfo) -> Scope {
    let local = match &info.medium {
        Medium::Unix { .. } => true,
        Medium::Tcp { remote, .. } => remote.ip().to_canonical().is_loopback(),
        Medium::Unaddressed => info.origin.is_local(),
        _ => false,
    };
    if local { Scope::Local } else { Scope::NonLocal }
}

/// Remote and local FaceUri, as NFD writes them.
fn uris(info: &PortInfo) -> (String, String) {
    let udp = |address: &SocketAddr| FaceUri::udp(*address).to_string();
    let both = |[remote, local]: [FaceUri; 2], interface: &Option<String>| {
        let on = |uri: FaceUri| uri.on_interface(interface.as_deref()).to_string();
        (on(remote), on(local))
    };
    match &info.medium {
        Medium::Udp {
            local,
            remote,
            interface,
        } => both([*remote, *local].map(FaceUri::udp), interface),
        Medium::Ip { local, remote } => (
            FaceUri::ip(*remote).to_string(),
            FaceUri::ip(*local).to_string(),
        ),
        Medium::UdpMulticast { local, group, .. } => (udp(group), udp(local)),
        Medium::Tcp {
            local,
            remote,
            interface,
        } => both([*remote, *local].map(FaceUri::tcp), interface),
        Medium::WebSocket { local, remote, .. } => (
            FaceUri::WebSocketClient((*remote).into()).to_string(),
            format!("ws://{local}"),
        ),
        Medium::Unix {
            path, descriptor, ..
        } => {
            let path = path.as_ref().map(|path| path.display().to_string());
            (
                format!("fd://{descriptor}"),
                format!("unix://{}", path.unwrap_or_default()),
            )
        }
        Medium::Ethernet {
            interface, remote, ..
        } => (
            FaceUri::Ether(*remote).to_string(),
            FaceUri::Dev(interface.clone()).to_string(),
        ),
        Medium::Tun { interface } => (
            format!("tun://{interface}"),
            FaceUri::Dev(interface.clone()).to_string(),
        ),
        Medium::Unaddressed => (
            format!("sim://{}", info.peer.replace(' ', "-")),
            format!("sim://{}", info.label),
        ),
    }
}

/// Returns the configuration of the link of a port's face.
pub fn link_config(
    common: &LinkServiceConfig,
    info: &PortInfo,
    spec: &FaceSpec,
    configured: Option<Reliability>,
) -> LinkServiceConfig {
    let frames = match spec.mtu {
        Some(mtu) => FrameKind::Datagram { mtu },
        None => LinkServiceConfig::stream().frames,
    };
    let is_ethernet = matches!(info.medium, Medium::Ethernet { .. });
    LinkServiceConfig {
        frames,
        smallest_frame: if is_ethernet {
            MIN_ETHERNET_PAYLOAD
        } else {
            common.smallest_frame
        },
        // Only the routers of an IP path drop what is too large, and may not say so.
        finds_path_mtu: common.finds_path_mtu || matches!(info.medium, Medium::Udp { .. }),
        reliability: reliability(configured.unwrap_or(common.reliability), spec),
        marking: spec.flags.congestion_marking,
        marking_interval: spec.base_congestion_interval,
        marking_threshold: usize::try_from(spec.default_congestion_threshold).unwrap_or(usize::MAX),
        ..common.clone()
    }
}

/// How the link of a face recovers lost frames. Multicast groups cannot acknowledge. A command that
/// requests reliability as in NFD gets NFD's; configured faces have the configured one.
pub fn reliability(configured: Reliability, spec: &FaceSpec) -> Reliability {
    if spec.mtu.is_none() || spec.link_type != LinkType::PointToPoint {
        Reliability::Off
    } else if spec.flags.reliability {
        match configured {
            Reliability::Off => Reliability::Ndnlpv2,
            wanted => wanted,
        }
    } else {
        Reliability::Off
    }
}

/// Returns the counters of a link, for management.
pub fn counters(link: &LinkService) -> LinkCounters {
    let stats = link.stats();
    LinkCounters {
        in_packets: stats.frames_received,
        in_bytes: stats.bytes_received,
        out_packets: stats.frames_sent,
        out_bytes: stats.bytes_sent,
        details: details(stats),
    }
}

fn details(stats: &LinkStats) -> Vec<(&'static str, u64)> {
    let mut details = vec![
        ("retransmissions", stats.retransmissions),
        ("spurious", stats.spurious),
        ("losses", stats.losses),
        ("timeouts", stats.timeouts),
        ("recovered", stats.recovered),
        ("spared", stats.spared),
        ("given_up", stats.given_up),
        ("duplicates", stats.duplicates),
        ("mtu_falls", stats.mtu_falls),
        ("mtu_probes", stats.mtu_probes),
        ("marks", stats.marks),
        ("loss_per_million", (stats.loss * 1e6) as u64),
        (
            "rtt_us",
            stats
                .rtt
                .map_or(0, |rtt| u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX)),
        ),
    ];
    details.extend(by_reason(&stats.drops));
    details
}

/// Returns a link's drops, by the reasons' names in metrics.
pub fn by_reason(drops: &LinkDrops) -> [(&'static str, u64); 10] {
    [
        ("malformed", drops.malformed),
        ("queue-full", drops.queue_full),
        ("too-big", drops.too_big),
        ("bad-fragment", drops.bad_fragment),
        ("duplicate-fragment", drops.duplicate_fragment),
        ("reassembly-timeout", drops.reassembly_timeout),
        ("reassembly-full", drops.reassembly_full),
        ("no-session", drops.no_session),
        ("false-acks", drops.false_acks),
        ("acks-overflow", drops.acks_overflow),
    ]
}
