//! An NDN router behind real sockets, from a configuration.

use std::sync::mpsc;

use whimbrel_core::{Endpoint, SeededRng};
use whimbrel_forwarder::mgmt::{
    Anchors, CommandPolicy, LocalCommands, ManagementConfig, Privileges, RemoteRegistration,
};
use whimbrel_forwarder::{
    CsConfig, CsPolicy, FaceFlags, FaceUri, ForwarderConfig, Persistency, UnsolicitedPolicy,
};
use whimbrel_io::{Clock, EventLoop, LoopHandle};
use whimbrel_link::ndnlp::{LinkServiceConfig, Reliability as LinkReliability};
use whimbrel_ndn_packet::{Certificate, Name};
use whimbrel_ndn_router::endpoint::endpoint;
use whimbrel_ndn_router::faces::FaceSettings;
use whimbrel_ndn_router::{NdnRouter, NdnRouterConfig};

use super::metrics;
use super::open::{NdnLoop, NdnOpened, open_listeners};
use crate::config::{CommandRights, Config, ConfigError, NdnSection, Reliability};
use crate::run::{StartError, random_number};

/// Datagram size that a link assumes until its port says more, bytes.
const ANY_MTU: usize = 1472;

/// Most packets in the content store, beside its bytes: what `cs/info` tells must be a number that
/// clients can hold.
const MAX_CS_PACKETS: usize = 1 << 24;

/// An NDN router on a thread of its own.
#[derive(Debug)]
pub struct NdnThread {
    opened: NdnOpened,
    handle: LoopHandle<NdnRouter>,
    thread: std::thread::JoinHandle<Result<(), StartError>>,
}

impl NdnThread {
    /// Starts the router of `config`. It ends at SIGINT or SIGTERM, or by [`NdnThread::stop`].
    pub fn start(config: &Config) -> Result<NdnThread, StartError> {
        let (started, outcome) = mpsc::channel();
        let metrics = config.ndn.metrics;
        let config = config.clone();
        // The loop lives on its thread from its first moment: it cannot be sent there.
        let run = move || {
            let (mut event_loop, opened) = prepare(&config)?;
            event_loop.stop_on_signals()?;
            let _ = started.send((event_loop.handle(), opened));
            event_loop.run(|_, _, never| match never {})?;
            Ok(())
        };
        let no_thread = |source| StartError::System {
            what: "thread",
            source,
        };
        let thread = std::thread::Builder::new()
            .name("ndn".into())
            .spawn(run)
            .map_err(no_thread)?;
        match outcome.recv() {
            Ok((handle, mut opened)) => {
                if let Some(address) = metrics {
                    match metrics::serve(address, handle.clone()) {
                        Ok(local) => opened.metrics = Some(local),
                        Err(error) => {
                            handle.stop();
                            let _ = joined(thread);
                            return Err(error);
                        }
                    }
                }
                Ok(NdnThread {
                    opened,
                    handle,
                    thread,
                })
            }
            // It has ended without a word: its result says why.
            Err(mpsc::RecvError) => Err(joined(thread)
                .err()
                .unwrap_or_else(|| no_thread(std::io::Error::other("it ended at once")))),
        }
    }

    /// What it has opened.
    pub fn opened(&self) -> &NdnOpened {
        &self.opened
    }

    /// For metrics, and to look at it.
    pub fn handle(&self) -> LoopHandle<NdnRouter> {
        self.handle.clone()
    }

    /// Tells it to stop; [`NdnThread::wait`] waits for it.
    pub fn stop(&self) {
        self.handle.stop();
    }

    /// Waits until it has ended.
    pub fn wait(self) -> Result<(), StartError> {
        joined(self.thread)
    }
}

fn joined(thread: std::thread::JoinHandle<Result<(), StartError>>) -> Result<(), StartError> {
    thread.join().unwrap_or_else(|_| {
        // A panic has been reported by its thread.
        Err(StartError::System {
            what: "NDN router",
            source: std::io::Error::other("its thread has panicked"),
        })
    })
}

/// A loop with all sockets open, its configured faces asked for.
fn prepare(config: &Config) -> Result<(NdnLoop, NdnOpened), StartError> {
    config.check()?;
    let clock = Clock::start();
    let section = &config.ndn;
    let router = NdnRouterConfig {
        forwarder: forwarder_config(config)?,
        link: LinkServiceConfig {
            reliability: link_reliability(section.reliability),
            ..LinkServiceConfig::datagram(ANY_MTU)
        },
        idle_timeout: section.idle_timeout.0,
        max_faces: section.max_faces,
        wall: clock.wall_clock(),
    };
    let router = NdnRouter::new(router, SeededRng::new(random_number()?));
    let mut event_loop = EventLoop::new(clock, router)?;
    let opened = open_listeners(&mut event_loop, section)?;
    let forwarder = event_loop.machine_mut().forwarder_mut();
    forwarder.set_channels(opened.channels());
    forwarder.set_command_verifier(Box::new(anchors(section)?));
    ask_for_faces(event_loop.machine_mut(), config)?;
    Ok((event_loop, opened))
}

fn forwarder_config(config: &Config) -> Result<ForwarderConfig, ConfigError> {
    let section = &config.ndn;
    let capacity = section.content_store.as_usize();
    let content_store = CsConfig {
        capacity,
        policy: cs_policy(&section.content_store_policy)?,
        max_packets: MAX_CS_PACKETS,
    };
    let strategies = std::iter::once(("/", section.strategy.as_str()))
        .chain(
            config
                .ndn_strategy
                .iter()
                .map(|choice| (choice.prefix.as_str(), choice.strategy.as_str())),
        )
        .map(|(prefix, strategy)| Ok((name("prefix", prefix)?, name("strategy", strategy)?)))
        .collect::<Result<Vec<_>, ConfigError>>()?;
    Ok(ForwarderConfig {
        pit_capacity: section.pit_entries,
        content_store,
        unsolicited: unsolicited(&section.unsolicited_data)?,
        producer_regions: section
            .regions
            .iter()
            .map(|region| name("[ndn] regions", region))
            .collect::<Result<_, _>>()?,
        strategies,
        management: ManagementConfig {
            policy: command_policy(section),
            ..ManagementConfig::default()
        },
        ..ForwarderConfig::default()
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

/// The certificates whose keys may command this router.
fn anchors(section: &NdnSection) -> Result<Anchors, ConfigError> {
    let mut anchors = Anchors::new();
    for path in &section.anchors {
        let file = std::fs::read(path).map_err(|source| ConfigError::Read {
            path: path.clone(),
            source,
        })?;
        let wrong = |fault: &dyn std::fmt::Display| {
            ConfigError::Contradiction(format!(
                "[ndn] anchors: {} is no NDN certificate: {fault}",
                path.display()
            ))
        };
        let wire = whimbrel_keychain::text::decode(&file).map_err(|fault| wrong(&fault))?;
        let certificate = Certificate::decode(wire.into()).map_err(|fault| wrong(&fault))?;
        anchors.add(certificate, Privileges::All);
    }
    if section.anchors.is_empty() && (section.localhop || section.commands == CommandRights::Signed)
    {
        return Err(ConfigError::Contradiction(String::from(
            "[ndn] asks for signed commands (commands = \"signed\" or localhop = true), but names no anchors: nobody could give any",
        )));
    }
    Ok(anchors)
}

fn name(key: &str, text: &str) -> Result<Name, ConfigError> {
    text.parse().map_err(|fault| {
        ConfigError::Contradiction(format!("{key} = \"{text}\" is no name: {fault}"))
    })
}

fn cs_policy(text: &str) -> Result<CsPolicy, ConfigError> {
    match text {
        "lru" => Ok(CsPolicy::Lru),
        "s3-fifo" => Ok(CsPolicy::S3Fifo),
        other => Err(ConfigError::Contradiction(format!(
            "[ndn] content_store_policy = \"{other}\": there are \"s3-fifo\" and \"lru\""
        ))),
    }
}

fn unsolicited(text: &str) -> Result<UnsolicitedPolicy, ConfigError> {
    match text {
        "drop" => Ok(UnsolicitedPolicy::Drop),
        "admit-local" => Ok(UnsolicitedPolicy::AdmitLocal),
        "admit-network" => Ok(UnsolicitedPolicy::AdmitNetwork),
        other => Err(ConfigError::Contradiction(format!(
            "[ndn] unsolicited_data = \"{other}\": there are \"drop\", \"admit-local\" and \"admit-network\""
        ))),
    }
}

fn link_reliability(reliability: Reliability) -> LinkReliability {
    match reliability {
        Reliability::Auto => LinkReliability::Auto,
        Reliability::Adaptive => LinkReliability::Adaptive,
        Reliability::Ndnlpv2 => LinkReliability::Ndnlpv2,
        // The most that the paper tried [BELRP §IV].
        Reliability::Paper => LinkReliability::Paper {
            max_retransmissions: 3,
        },
        Reliability::Off => LinkReliability::Off,
    }
}

/// Asks for every face that the configuration or one of its routes names, once.
fn ask_for_faces(router: &mut NdnRouter, config: &Config) -> Result<(), StartError> {
    let mut asked: Vec<Endpoint> = Vec::new();
    let section = &config.ndn;
    for face in &config.ndn_face {
        let local = face.local.as_deref().map(face_uri).transpose()?;
        let endpoint = endpoint_of(&face.uri, local.as_ref())?;
        let settings = configured(section, face.reliability, face.mtu);
        router.ask(endpoint.clone(), settings);
        asked.push(endpoint);
    }
    for route in &config.ndn_route {
        let endpoint = endpoint_of(&route.face, None)?;
        if !asked.contains(&endpoint) {
            router.ask(endpoint.clone(), configured(section, None, None));
            asked.push(endpoint.clone());
        }
        let prefix = name("[[ndn_route]] prefix", &route.prefix)?;
        router.route_to(prefix, endpoint, route.cost);
    }
    Ok(())
}

fn endpoint_of(uri: &str, local: Option<&FaceUri>) -> Result<Endpoint, ConfigError> {
    endpoint(&face_uri(uri)?, local)
        .map_err(|why| ConfigError::Contradiction(format!("the face \"{uri}\": {why}")))
}

fn configured(
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

fn face_uri(text: &str) -> Result<FaceUri, ConfigError> {
    text.parse()
        .map_err(|fault| ConfigError::Contradiction(format!("the face \"{text}\": {fault}")))
}
