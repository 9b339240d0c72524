//! From a configuration to a node behind real sockets.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use whimbrel_core::{Guid, Peer, PortOrigin, SeededRng};
use whimbrel_gnrs::{DiskStore, KeyPair, MemoryStore, Server, ServerConfig, StoreLimits};
use whimbrel_io::{
    CallerLimits, Clock, EventLoop, IoError, LoopHandle, Neighbour, UdpConfig, UnixListenerConfig,
};
use whimbrel_mobilityfirst::host::{Host, HostConfig, HostEvent};
use whimbrel_mobilityfirst::router::{ProxyPolicy, Route, Router, RouterConfig};

use crate::config::{Config, ConfigError, LinkSection, Via};
use crate::keys::{self, KeyError, random_bytes};
use crate::local_client::{Events, InnerClient, LocalClient};
use crate::name_store::NameStore;
use crate::ndn::open::NdnOpened;
use crate::place::{Places, make_folder_of};
use crate::{Node, NodeEvent};

/// The loop of any node.
pub type NodeLoop = EventLoop<Node<NameStore>>;

/// Why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] IoError),
    /// The records cannot be opened.
    #[error("{}: {source}", path.display())]
    NameStore {
        /// The file.
        path: PathBuf,
        /// Why.
        source: whimbrel_gnrs::StoreError,
    },
    /// A folder cannot be made.
    #[error("cannot make the folder of {}: {source}", path.display())]
    Folder {
        /// What was to lie in it.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The system gives no random bytes or threads.
    #[error("the system gives no {what}: {source}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// Its answer.
        source: std::io::Error,
    },
}

/// A node that is ready to run, and what it has opened.
pub struct Prepared {
    /// To be run.
    pub event_loop: NodeLoop,
    /// What to tell the user.
    pub opened: Opened,
}

/// What a node has opened, for its user and for scripts.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Opened {
    /// The node's name; a name server has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guid: Option<Guid>,
    /// Label and bound address of each socket.
    pub links: BTreeMap<String, SocketAddr>,
    /// The socket for local programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// The key file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// The name server's store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<PathBuf>,
    /// What the NDN plane has opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ndn: Option<NdnOpened>,
}

/// A router.
pub fn router(config: &Config) -> Result<Prepared, StartError> {
    config.check()?;
    let places = Places::of_this_user();
    let section = &config.router;
    let key = section
        .key
        .clone()
        .unwrap_or_else(|| places.state.join("router.pem"));
    let guid = keys::load_or_create(&key)?.guid();
    let clock = Clock::start();
    // Name servers are links as well, numbered after those of the configuration.
    let name_servers: Vec<u32> = (config.link.len()..)
        .take(section.name_servers.len())
        .map(|number| number as u32)
        .collect();
    let labels = || config.link.iter().map(|link| link.label.as_str());
    let next_hop = |via: &Via| {
        via.next_hop(labels()).ok_or_else(|| {
            ConfigError::Contradiction(format!("\"{}\" is neither a link nor a name", via.0))
        })
    };
    if name_servers.is_empty() {
        tracing::warn!(
            "no name server is configured: only hosts attached to this router, and what they serve, can be found"
        );
    }
    let router = RouterConfig {
        guid,
        wall: clock.wall_clock(),
        hop: config.hop.hop_config(guid, random_number()?),
        buffer_packets: config.hop.buffer_packets,
        store: config.storage.limits(),
        routes: config
            .route
            .iter()
            .map(|route| {
                let via = next_hop(&route.via)?;
                Ok(Route { to: route.to, via })
            })
            .collect::<Result<_, ConfigError>>()?,
        default_route: section.default_route.as_ref().map(next_hop).transpose()?,
        name_servers: name_servers.clone(),
        proxy: ProxyPolicy {
            storage_timer: config.storage.storage_timer.0,
            proactive: config.storage.proactive,
            held_back_patience: config.storage.held_back_patience.0,
        },
    };
    let node = Node::Router(Box::new(Router::new(
        router,
        SeededRng::new(random_number()?),
    )));
    let mut event_loop = EventLoop::new(clock, node)?;
    let mut links = BTreeMap::new();
    for (index, (server, number)) in section.name_servers.iter().zip(name_servers).enumerate() {
        let origin = PortOrigin::Configured(number);
        let server = Neighbour::new(format!("gnrs:{index}"), server.peer(), origin);
        open_neighbour(&mut event_loop, &mut links, server)?;
    }
    open_links(&mut event_loop, &mut links, &config.link)?;
    let socket = section
        .socket
        .clone()
        .unwrap_or_else(|| places.router_socket());
    open_socket(&mut event_loop, &socket)?;
    let opened = Opened {
        guid: Some(guid),
        links,
        socket: Some(socket),
        key: Some(key),
        ..Opened::default()
    };
    Ok(Prepared { event_loop, opened })
}

/// A host.
pub fn host(config: &Config) -> Result<Prepared, StartError> {
    config.check()?;
    let places = Places::of_this_user();
    let key = config
        .host
        .key
        .clone()
        .unwrap_or_else(|| places.state.join("host.pem"));
    let keys = keys::load_or_create(&key)?;
    let guid = keys.guid();
    let mut event_loop = host_loop(config, keys)?;
    let mut links = BTreeMap::new();
    open_links(&mut event_loop, &mut links, &config.link)?;
    let socket = config
        .host
        .socket
        .clone()
        .unwrap_or_else(|| places.host_socket());
    open_socket(&mut event_loop, &socket)?;
    let opened = Opened {
        guid: Some(guid),
        links,
        socket: Some(socket),
        key: Some(key),
        ..Opened::default()
    };
    Ok(Prepared { event_loop, opened })
}

/// Numbers of the links that a host prefers, best first.
fn preferred_links(config: &Config) -> Vec<u32> {
    let number = |label: &String| config.link.iter().position(|link| link.label == *label);
    let preference = config.host.preference.iter();
    preference.filter_map(number).map(|it| it as u32).collect()
}

fn host_loop(config: &Config, keys: KeyPair) -> Result<NodeLoop, StartError> {
    let clock = Clock::start();
    let section = &config.host;
    let host = HostConfig {
        hop: config.hop.hop_config(keys.guid(), random_number()?),
        buffer_packets: config.hop.buffer_packets,
        preference: preferred_links(config),
        binding_lifetime: section.binding_lifetime.0,
        announcement_lifetime: section.announcement_lifetime.0,
        nack_timeout: section.nack_timeout.0,
        content_limit: section.content_limit.0,
        max_transfers: section.max_transfers,
        ..HostConfig::new(keys, clock.wall_clock())
    };
    let node = Node::Host(Box::new(Host::new(host, SeededRng::new(random_number()?))));
    Ok(EventLoop::new(clock, node)?)
}

/// A host inside this process, on a thread of its own: for a command that finds no daemon.
#[derive(Debug)]
pub struct EmbeddedHost {
    guid: Guid,
    links: BTreeMap<String, SocketAddr>,
    handle: LoopHandle<Node<NameStore>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl EmbeddedHost {
    /// Starts a host on `config.link`, and gives the connection of its one program.
    pub fn start(
        config: &Config,
        keys: KeyPair,
    ) -> Result<(EmbeddedHost, LocalClient), StartError> {
        config.check()?;
        let guid = keys.guid();
        let events = Arc::new(Events::default());
        let to_program = ToProgram(events.clone());
        let (started, outcome) = mpsc::channel();
        let config = config.clone();
        // The loop lives on its thread from its first moment: it cannot be sent there.
        let run = move || match embedded_loop(&config, keys) {
            Ok((mut event_loop, links)) => {
                let _ = started.send(Ok((event_loop.handle(), links)));
                let ended = event_loop.run(|node, _, event| to_program.pass_on(node, event));
                if let Err(error) = ended {
                    tracing::error!(%error, "the embedded host has ended");
                }
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        };
        let no_thread = |source| StartError::System {
            what: "thread",
            source,
        };
        let thread = std::thread::Builder::new()
            .name("embedded-host".into())
            .spawn(run)
            .map_err(no_thread)?;
        let (handle, links) = outcome
            .recv()
            .map_err(|_| no_thread(std::io::Error::other("it ended at once")))??;
        let client = LocalClient::inner(InnerClient::new(handle.clone(), events));
        let host = EmbeddedHost {
            guid,
            links,
            handle,
            thread: Some(thread),
        };
        Ok((host, client))
    }

    /// Its name.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// Label and bound address of each of its sockets.
    pub fn links(&self) -> &BTreeMap<String, SocketAddr> {
        &self.links
    }
}

impl Drop for EmbeddedHost {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            // A panic in it has been reported by its thread.
            let _ = thread.join();
        }
    }
}

/// What an embedded host tells its program; the program hears of it when the host ends, however it
/// does.
struct ToProgram(Arc<Events>);

impl ToProgram {
    fn pass_on(&self, node: &mut Node<NameStore>, event: NodeEvent) {
        let NodeEvent::Host(HostEvent { app, event }) = event else {
            return;
        };
        if !self.0.push(event)
            && let Some(host) = node.host()
        {
            host.set_blocked(app, true);
        }
    }
}

impl Drop for ToProgram {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn embedded_loop(
    config: &Config,
    keys: KeyPair,
) -> Result<(NodeLoop, BTreeMap<String, SocketAddr>), StartError> {
    let mut event_loop = host_loop(config, keys)?;
    let mut links = BTreeMap::new();
    open_links(&mut event_loop, &mut links, &config.link)?;
    Ok((event_loop, links))
}

/// A name server.
pub fn name_server(config: &Config) -> Result<Prepared, StartError> {
    config.check()?;
    let section = &config.gnrs;
    let path = section
        .store
        .clone()
        .unwrap_or_else(|| Places::of_this_user().state.join("names.redb"));
    let limits = StoreLimits {
        max_records: section.max_records,
        max_bytes: section.max_bytes.as_usize(),
        max_providers: section.max_providers,
    };
    let in_memory = path == Path::new("memory");
    let store = if in_memory {
        NameStore::Memory(MemoryStore::new(limits))
    } else {
        make_folder_of(&path).map_err(|source| StartError::Folder {
            path: path.clone(),
            source,
        })?;
        let opened = DiskStore::open(&path, limits);
        NameStore::Disk(opened.map_err(|source| StartError::NameStore {
            path: path.clone(),
            source,
        })?)
    };
    let clock = Clock::start();
    let server = ServerConfig {
        max_watches: section.max_watches,
        ..ServerConfig::default()
    };
    let secret = random_bytes().map_err(no_random)?;
    let node = Node::NameServer(Box::new(Server::new(
        server,
        clock.wall_clock(),
        secret,
        store,
    )));
    let mut event_loop = EventLoop::new(clock, node)?;
    let limits = CallerLimits {
        max: section.max_clients,
        ..CallerLimits::default()
    };
    let link = event_loop.add_udp(UdpConfig::new("gnrs", section.listen).listen(limits))?;
    let links = BTreeMap::from([("gnrs".to_owned(), link.local)]);
    let store = (!in_memory).then_some(path);
    Ok(Prepared {
        event_loop,
        opened: Opened {
            links,
            store,
            ..Opened::default()
        },
    })
}

impl Prepared {
    /// How another thread tells it to stop.
    pub fn handle(&self) -> LoopHandle<Node<NameStore>> {
        self.event_loop.handle()
    }

    /// Runs until SIGINT or SIGTERM.
    pub fn run(mut self) -> Result<(), StartError> {
        self.event_loop.stop_on_signals()?;
        self.event_loop.run(|_, _, event| match event {
            NodeEvent::NameServer(event) => tracing::debug!(?event, "name server"),
            NodeEvent::Host(event) => tracing::debug!(?event, "host"),
        })?;
        Ok(())
    }
}

/// Any address of the family of `peer`, and a port that the system chooses. A host known by name
/// may have addresses of both families: a socket of IPv6 speaks IPv4 as well, where there is IPv6.
pub(crate) fn any_address_towards(peer: &Peer) -> SocketAddr {
    match peer {
        Peer::Address(SocketAddr::V6(_)) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        Peer::Named { .. } if UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok() => {
            (Ipv6Addr::UNSPECIFIED, 0).into()
        }
        Peer::Address(SocketAddr::V4(_)) | Peer::Named { .. } => (Ipv4Addr::UNSPECIFIED, 0).into(),
    }
}

fn open_neighbour(
    event_loop: &mut NodeLoop,
    links: &mut BTreeMap<String, SocketAddr>,
    neighbour: Neighbour,
) -> Result<(), StartError> {
    let label = neighbour.label.clone();
    let mut config = UdpConfig::new(label.clone(), any_address_towards(&neighbour.address));
    config.neighbours.push(neighbour);
    links.insert(label, event_loop.add_udp(config)?.local);
    Ok(())
}

/// Opens all links; those with the same bind address share a socket.
fn open_links(
    event_loop: &mut NodeLoop,
    links: &mut BTreeMap<String, SocketAddr>,
    sections: &[LinkSection],
) -> Result<(), StartError> {
    let mut sockets: Vec<(UdpConfig, Vec<String>)> = Vec::new();
    for (number, link) in (0..).zip(sections) {
        let origin = PortOrigin::Configured(number);
        let neighbour = link
            .remote
            .as_ref()
            .map(|remote| Neighbour::new(link.label.as_str(), remote.peer(), origin));
        let chosen = neighbour
            .as_ref()
            .map(|neighbour| any_address_towards(&neighbour.address));
        let bind = link
            .bind
            .or(chosen)
            .unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        let shared = sockets
            .iter()
            .position(|(socket, _)| socket.bind == bind && bind.port() != 0);
        let at = shared.unwrap_or_else(|| {
            let socket = UdpConfig {
                path_mtu: link.mtu,
                ..UdpConfig::new(link.label.as_str(), bind)
            };
            sockets.push((socket, Vec::new()));
            sockets.len() - 1
        });
        let (socket, labels) = &mut sockets[at];
        labels.push(link.label.clone());
        socket.neighbours.extend(neighbour);
        socket.path_mtu = socket.path_mtu.min(link.mtu);
        if link.listen {
            // Callers get the label of the link that listens.
            socket.label = link.label.clone();
            socket.listener = number;
            socket.callers = Some(CallerLimits {
                max: link.max_callers,
                ..CallerLimits::default()
            });
        }
    }
    for (socket, labels) in sockets {
        let local = event_loop.add_udp(socket)?.local;
        links.extend(labels.into_iter().map(|label| (label, local)));
    }
    Ok(())
}

fn open_socket(event_loop: &mut NodeLoop, path: &Path) -> Result<(), StartError> {
    make_folder_of(path).map_err(|source| StartError::Folder {
        path: path.to_owned(),
        source,
    })?;
    event_loop.add_unix_listener(UnixListenerConfig::new("local", path))?;
    Ok(())
}

fn no_random(source: std::io::Error) -> StartError {
    StartError::System {
        what: "random bytes",
        source,
    }
}

pub(crate) fn random_number() -> Result<u64, StartError> {
    random_bytes().map(u64::from_ne_bytes).map_err(no_random)
}
