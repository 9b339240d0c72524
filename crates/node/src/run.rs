//! A node behind real sockets, made from a plan.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use whimbrel_chunk_store::{DiskFolder, FolderLimits};
use whimbrel_core::{Guid, Peer, PortOrigin, SeededRng, Time};
use whimbrel_gnrs::{KeyPair, ServerEvent};
use whimbrel_io::{
    Clock, EventLoop, InboundLimits, IoError, LoopHandle, Neighbour, UdpConfig, UnixListenerConfig,
};
use whimbrel_link::HopConfig;
use whimbrel_mobilityfirst::host::HostEvent;
use whimbrel_mobilityfirst::host::interfaces::QuotaUse;
use whimbrel_ndn_packet::Name;

use crate::callers::CallersFile;
use crate::compose::{self, Start};
use crate::config::{
    Bind, Config, HopSection, HostPlan, MobilityFirstPlan, NameServerPlan, Plan, RouterPlan,
    any_address, has_fast_aes,
};
use crate::inner_client::{Events, InnerClient};
use crate::keys::{self, HeldKey, KeyError, random_bytes};
use crate::known_peers::KnownPeers;
use crate::links::{open_links, share_of_a_network};
use crate::metrics::{self, Source};
use crate::name_store::{self, NameStore, Waker};
use crate::ndn::NdnThread;
use crate::ndn::open::NdnOpened;
use crate::quotas::QuotaFile;
use crate::reload::Reloader;
use crate::{Node, NodeEvent};
use whimbrel_client::LocalClient;
use whimbrel_client::place::{FolderError, make_folder_of};

/// The event loop of any node.
pub type NodeLoop = EventLoop<Node<NameStore>>;

/// The reason why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Neither plane of the router is on.
    #[error(
        "nothing to do: [ndn] enabled = false, and no links: --listen ADDRESS:PORT, --neighbour HOST:PORT, or \
         [[link]] in a configuration file"
    )]
    NothingToDo,
    /// A host that no other node can reach.
    #[error("a host needs a router: --router HOST:PORT, or [[link]] in a configuration file")]
    NoRouter,
    /// The key cannot be used.
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
        /// The fault.
        source: whimbrel_gnrs::StoreError,
    },
    /// The folder of stored chunks cannot be used.
    #[error("[storage] folder: {0}")]
    ChunkStore(#[from] whimbrel_chunk_store::OpenError),
    /// A name server that is not reached over UDP.
    #[error("{0} is not the address of a name server: those are reached over UDP; write host:port")]
    NameServer(String),
    /// The folder of a socket or a store is not used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The names of the neighbours cannot be read.
    #[error(
        "cannot read which names the neighbours have proven, {}: {source}; repair it, or remove it to accept the names that \
         answer next",
        path.display()
    )]
    KnownPeers {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: std::io::Error,
    },
    /// What was decided about callers cannot be read.
    #[error(
        "cannot read which names may call, {}: {source}; without it, names that were denied would get in: restore the file, or \
         remove it to begin without decisions", path.display()
    )]
    Callers {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: std::io::Error,
    },
    /// The address for Prometheus cannot be bound.
    #[error(
        "cannot listen for Prometheus on {address}: {source}; choose another address (--metrics)"
    )]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The system provides no random bytes or threads.
    #[error("the system provides no {what}: {source}")]
    System {
        /// What was requested.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

/// The sockets and files that a node has opened, for people and scripts.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Opened {
    /// The node's name; a name server has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guid: Option<Guid>,
    /// Label and bound address of each socket.
    pub links: BTreeMap<String, Bind>,
    /// The socket for local programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// The key file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// The name server's store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<PathBuf>,
    /// The sockets of the NDN plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ndn: Option<NdnOpened>,
    /// The address for Prometheus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
}

/// A node with all its sockets open.
pub struct Running {
    /// `None` in a router that forwards NDN only.
    event_loop: Option<NodeLoop>,
    ndn: Option<NdnThread>,
    /// The strategies with which the NDN plane was started.
    strategies: Vec<(Name, Name)>,
    opened: Opened,
    /// Held until the node ends.
    key: Option<HeldKey>,
    quotas: Option<QuotaFile>,
    callers: Option<CallersFile>,
    known: KnownPeers,
}

/// Opens all sockets of a node. The node works once it [runs](Running::run).
pub fn start(plan: Plan) -> Result<Running, StartError> {
    let (metrics, mut running) = match plan {
        Plan::Router(plan) => (plan.metrics, router_of_planes(*plan)?),
        Plan::Host(plan) => (plan.metrics, host(&plan)?),
        Plan::NameServer(plan) => (plan.metrics, name_server(&plan)?),
    };
    if let Some(address) = metrics {
        running.opened.metrics = Some(metrics::serve(address, running.sources())?);
    }
    Ok(running)
}

fn router_of_planes(plan: RouterPlan) -> Result<Running, StartError> {
    let mut running = match &plan.mobility_first {
        Some(plan) => router(plan)?,
        None if plan.ndn.is_none() => return Err(StartError::NothingToDo),
        None => Running::new(None, Opened::default()),
    };
    if let Some(plan) = &plan.ndn {
        running.strategies.clone_from(&plan.forwarder.strategies);
    }
    running.ndn = plan.ndn.map(NdnThread::start).transpose()?;
    running.opened.ndn = running.ndn.as_ref().map(|ndn| ndn.opened().clone());
    Ok(running)
}

impl Running {
    fn new(event_loop: Option<NodeLoop>, opened: Opened) -> Running {
        Running {
            event_loop,
            ndn: None,
            strategies: Vec::new(),
            opened,
            key: None,
            quotas: None,
            callers: None,
            known: KnownPeers::none(),
        }
    }

    fn sources(&self) -> Vec<Source> {
        let native = self.event_loop.as_ref().map(EventLoop::handle);
        let ndn = self.ndn.as_ref().map(NdnThread::handle);
        native
            .map(Source::native)
            .into_iter()
            .chain(ndn.map(Source::ndn))
            .collect()
    }

    /// Returns a reloader for changes of `config`, with which the node was started.
    pub fn reloader(&self, config: Config) -> Reloader {
        let handle = self.ndn.as_ref().map(NdnThread::handle);
        Reloader::new(config, handle, self.strategies.clone())
    }

    /// Returns the opened sockets and files.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Runs until SIGINT or SIGTERM.
    pub fn run(self) -> Result<(), StartError> {
        let Some(mut event_loop) = self.event_loop else {
            return self.ndn.map_or(Ok(()), NdnThread::wait);
        };
        event_loop.stop_on_signals()?;
        let outcome = event_loop.run(|_, _, event| match event {
            NodeEvent::NameServer(ServerEvent::StoreFailed(error)) => {
                tracing::warn!(%error, "the name store does not work: updates are refused, and lookups of names that are not at hand");
            }
            NodeEvent::NameServer(ServerEvent::StoreRecovered) => {
                tracing::info!("the name store works again");
            }
            NodeEvent::Host(event) => tracing::debug!(?event, "host"),
        });
        if let Some(quotas) = &self.quotas {
            quotas.note(&event_loop.machine().quota_use());
        }
        if let Some(callers) = &self.callers {
            callers.note();
        }
        self.known.note(&event_loop.machine().proven_names());
        if let Some(ndn) = self.ndn {
            ndn.stop();
            ndn.wait()?;
        }
        Ok(outcome?)
    }
}

fn router(plan: &MobilityFirstPlan) -> Result<Running, StartError> {
    let (keys, held) = keys::hold(&plan.key)?;
    let guid = keys.guid();
    let clock = Clock::start();
    if plan.name_servers.is_empty() {
        tracing::warn!(
            "no name server is configured: only hosts attached to this router, and what they serve, can be found"
        );
    }
    let hop = hop_config(&plan.hop, &keys)?;
    let callers = CallersFile::apply(&plan.key, &plan.hop, &hop)?;
    let start = Start {
        keys,
        wall: clock.wall_clock(),
        hop: hop.clone(),
        rng: SeededRng::new(random_number()?),
    };
    let mut router = compose::router(plan, start);
    let waker = Waker::default();
    if let Some(folder) = &plan.chunk_folder {
        let limits = FolderLimits {
            bytes: folder.bytes,
        };
        let woken = waker.clone();
        let disk = DiskFolder::open(&folder.path, limits, move || woken.wake())?;
        router.set_disk(Time::ZERO, Box::new(disk));
    }
    let known = KnownPeers::beside(&plan.key, &plan.links)?;
    for (number, rule) in known.rules(&plan.links) {
        router.set_name_rule(number, rule);
    }
    let node = Node::Router(Box::new(router));
    let mut event_loop = node_loop(clock, node)?;
    waker.follow(event_loop.handle());
    let mut links = BTreeMap::new();
    for (index, (server, number)) in plan
        .name_servers
        .iter()
        .zip(plan.name_server_links())
        .enumerate()
    {
        let origin = PortOrigin::Configured(number);
        let server = Neighbour::new(format!("gnrs:{index}"), server.clone(), origin);
        open_neighbour(&mut event_loop, &mut links, server)?;
    }
    let gates = (&hop, plan.hop.buffer_packets);
    open_links(&mut event_loop, &mut links, &plan.links, gates)?;
    known.follow(event_loop.handle())?;
    let running = with_programs(
        event_loop,
        guid,
        links,
        Programs {
            socket: &plan.socket,
            group: plan.socket_group,
        },
        Held {
            path: &plan.key,
            key: held,
        },
    )?;
    Ok(Running {
        callers: Some(callers),
        known,
        ..running
    })
}

fn host(plan: &HostPlan) -> Result<Running, StartError> {
    if plan.links.is_empty() {
        return Err(StartError::NoRouter);
    }
    let (keys, held) = keys::hold(&plan.key)?;
    let guid = keys.guid();
    let quotas = QuotaFile::beside(&plan.key, &plan.links);
    let used = quotas.as_ref().map(QuotaFile::read);
    let hop = hop_config(&plan.hop, &keys)?;
    let callers = CallersFile::apply(&plan.key, &plan.hop, &hop)?;
    let known = KnownPeers::beside(&plan.key, &plan.links)?;
    let (event_loop, links) = host_loop(plan, keys, &hop, &known, used.unwrap_or_default())?;
    known.follow(event_loop.handle())?;
    if let Some(quotas) = quotas.clone() {
        quotas.follow(event_loop.handle())?;
    }
    let running = with_programs(
        event_loop,
        guid,
        links,
        Programs {
            socket: &plan.socket,
            group: plan.socket_group,
        },
        Held {
            path: &plan.key,
            key: held,
        },
    )?;
    Ok(Running {
        quotas,
        known,
        callers: Some(callers),
        ..running
    })
}

/// Where local programs attach.
struct Programs<'a> {
    socket: &'a Path,
    /// The group whose members may, too.
    group: Option<u32>,
}

/// A node's key file.
struct Held<'a> {
    path: &'a Path,
    key: HeldKey,
}

/// Returns a node to which local programs attach.
fn with_programs(
    mut event_loop: NodeLoop,
    guid: Guid,
    links: BTreeMap<String, Bind>,
    programs: Programs<'_>,
    held: Held<'_>,
) -> Result<Running, StartError> {
    open_socket(&mut event_loop, programs.socket, programs.group)?;
    let opened = Opened {
        guid: Some(guid),
        links,
        socket: Some(programs.socket.to_owned()),
        key: Some(held.path.to_owned()),
        ..Opened::default()
    };
    let mut running = Running::new(Some(event_loop), opened);
    running.key = Some(held.key);
    Ok(running)
}

/// Returns a loop whose node is told when the system's clock is set and when a host name is not
/// found.
fn node_loop(clock: Clock, node: Node<NameStore>) -> Result<NodeLoop, StartError> {
    let mut event_loop = EventLoop::new(clock, node)?;
    event_loop.follow_wall_clock(Node::set_wall_clock);
    event_loop
        .sockets()
        .follow_look_ups(Node::note_look_up_failure);
    Ok(event_loop)
}

/// Returns a host with its links, without programs.
fn host_loop(
    plan: &HostPlan,
    keys: KeyPair,
    hop: &HopConfig,
    known: &KnownPeers,
    used: BTreeMap<u32, QuotaUse>,
) -> Result<(NodeLoop, BTreeMap<String, Bind>), StartError> {
    let clock = Clock::start();
    let start = Start {
        keys,
        wall: clock.wall_clock(),
        hop: hop.clone(),
        rng: SeededRng::new(random_number()?),
    };
    let mut host = compose::host(plan, used, start);
    for (number, rule) in known.rules(&plan.links) {
        host.set_name_rule(number, rule);
    }
    let node = Node::Host(Box::new(host));
    let mut event_loop = node_loop(clock, node)?;
    let mut links = BTreeMap::new();
    let gates = (hop, plan.hop.buffer_packets);
    open_links(&mut event_loop, &mut links, &plan.links, gates)?;
    Ok((event_loop, links))
}

/// A host inside this process, on a thread of its own, for a command that finds no daemon.
#[derive(Debug)]
pub struct EmbeddedHost {
    guid: Guid,
    links: BTreeMap<String, Bind>,
    handle: LoopHandle<Node<NameStore>>,
    programs: Arc<ToPrograms>,
    begin: mpsc::Sender<()>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl EmbeddedHost {
    /// Opens the links of `plan`, and gives the connection of the host's first program. The host answers nobody
    /// before that program's first requests, which it handles first: a host that serves one content never says
    /// that it has none. The plan's key and socket are not used. `known` has the names of its neighbours.
    pub fn start(
        plan: HostPlan,
        keys: KeyPair,
        known: KnownPeers,
    ) -> Result<(EmbeddedHost, LocalClient), StartError> {
        let guid = keys.guid();
        let hop = hop_config(&plan.hop, &keys)?;
        let programs = Arc::new(ToPrograms::default());
        let told = ToldOfTheEnd(programs.clone());
        let (started, outcome) = mpsc::channel();
        let (begin, begun) = mpsc::channel();
        // The loop cannot be sent to another thread, so it is made on its own.
        let run = move || match host_loop(&plan, keys, &hop, &known, BTreeMap::new()) {
            Ok((mut event_loop, links)) => {
                let _ = started.send(Ok((event_loop.handle(), links)));
                if begun.recv().is_err() {
                    return;
                }
                drop(begun);
                let ended = known.follow(event_loop.handle()).and_then(|()| {
                    Ok(event_loop.run(|node, _, event| told.0.pass_on(node, event))?)
                });
                known.note(&event_loop.machine().proven_names());
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
        let host = EmbeddedHost {
            guid,
            links,
            handle,
            programs,
            begin,
            thread: Some(thread),
        };
        let client = host.connect();
        Ok((host, client))
    }

    /// Returns the connection of a further program.
    pub fn connect(&self) -> LocalClient {
        let (app, events) = self.programs.add();
        let (handle, begin) = (self.handle.clone(), self.begin.clone());
        LocalClient::by(InnerClient::new(handle, app, events, begin))
    }

    /// Returns the host's name.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// Returns the names that the neighbours of its links have proven so far, by the links' numbers. Starts the
    /// host, as a program's request does.
    pub fn proven_names(&self) -> BTreeMap<u32, Guid> {
        let _ = self.begin.send(());
        let (answer, asked) = mpsc::channel();
        let task = move |node: &mut Node<NameStore>, _| {
            let _ = answer.send(node.proven_names());
        };
        match self.handle.post(task) {
            Ok(()) => asked.recv().unwrap_or_default(),
            Err(_) => BTreeMap::new(),
        }
    }

    /// Returns the label and bound address of each socket.
    pub fn links(&self) -> &BTreeMap<String, Bind> {
        &self.links
    }
}

impl Drop for EmbeddedHost {
    fn drop(&mut self) {
        self.handle.stop();
        let _ = self.begin.send(());
        if let Some(thread) = self.thread.take() {
            // Its thread has reported a panic.
            let _ = thread.join();
        }
    }
}

/// The queues from an embedded host to its programs, in the order of their numbers.
#[derive(Debug, Default)]
struct ToPrograms(Mutex<Vec<Arc<Events>>>);

impl ToPrograms {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Events>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self) -> (u32, Arc<Events>) {
        let events = Arc::new(Events::default());
        let mut programs = self.lock();
        programs.push(events.clone());
        ((programs.len() - 1) as u32, events)
    }

    fn pass_on(&self, node: &mut Node<NameStore>, event: NodeEvent) {
        let NodeEvent::Host(HostEvent { app, event }) = event else {
            return;
        };
        let takes_more = match self.lock().get(app as usize) {
            Some(events) => events.push(event),
            None => return,
        };
        if !takes_more && let Some(host) = node.host() {
            host.set_blocked(app, true);
        }
    }
}

/// Tells the programs when the host ends, for whatever reason.
struct ToldOfTheEnd(Arc<ToPrograms>);

impl Drop for ToldOfTheEnd {
    fn drop(&mut self) {
        for events in self.0.lock().iter() {
            events.close();
        }
    }
}

fn name_server(plan: &NameServerPlan) -> Result<Running, StartError> {
    let waker = Waker::default();
    let store = name_store::open(plan, &waker)?;
    let clock = Clock::start();
    let secret = random_bytes().map_err(no_random)?;
    let node = Node::from(compose::name_server(
        plan,
        clock.wall_clock(),
        secret,
        store,
    ));
    let mut event_loop = node_loop(clock, node)?;
    waker.follow(event_loop.handle());
    let limits = InboundLimits {
        max: plan.max_clients,
        per_network: share_of_a_network(plan.max_clients),
        ..InboundLimits::default()
    };
    let link = event_loop
        .sockets()
        .add_udp(UdpConfig::new("gnrs", plan.listen).listen(limits))?;
    let mut links = BTreeMap::from([("gnrs".to_owned(), Bind::Udp(link.local))]);
    for (number, (name, peer)) in (0..).zip(&plan.peers) {
        let origin = PortOrigin::Configured(number);
        let peer = Neighbour::new(format!("peer:{name}"), peer.clone(), origin);
        open_neighbour(&mut event_loop, &mut links, peer)?;
    }
    let opened = Opened {
        links,
        socket: name_server_socket(&mut event_loop, plan)?,
        store: plan.store.place(),
        ..Opened::default()
    };
    Ok(Running::new(Some(event_loop), opened))
}

/// Opens the socket for programs. If several name servers run on one machine, the first one has the
/// default socket, and the others do without.
fn name_server_socket(
    event_loop: &mut NodeLoop,
    plan: &NameServerPlan,
) -> Result<Option<PathBuf>, StartError> {
    match open_socket(event_loop, &plan.socket, plan.socket_group) {
        Ok(()) => Ok(Some(plan.socket.clone())),
        Err(error) if plan.socket_is_wanted => Err(error),
        Err(error) => {
            tracing::warn!(
                "`gnrs status` cannot ask this server, as it has no socket (--socket): {error}"
            );
            Ok(None)
        }
    }
}

/// Returns any address of the family of `peer`, with an ephemeral port. A host known by name may
/// have addresses of both families; an IPv6 socket carries IPv4 as well, where IPv6 exists.
pub(crate) fn any_address_towards(peer: &Peer) -> SocketAddr {
    match peer {
        Peer::Address(SocketAddr::V6(_)) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        Peer::Address(SocketAddr::V4(_)) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        Peer::Named { .. } => (any_address(), 0).into(),
    }
}

fn open_neighbour(
    event_loop: &mut NodeLoop,
    links: &mut BTreeMap<String, Bind>,
    neighbour: Neighbour,
) -> Result<(), StartError> {
    let label = neighbour.label.clone();
    let mut config = UdpConfig::new(label.clone(), any_address_towards(&neighbour.address));
    config.neighbours.push(neighbour);
    links.insert(
        label,
        Bind::Udp(event_loop.sockets().add_udp(config)?.local),
    );
    Ok(())
}

/// Permissions of a socket whose group may use it too.
pub(crate) const GROUP_SOCKET_MODE: u32 = 0o660;

fn open_socket(
    event_loop: &mut NodeLoop,
    path: &Path,
    group: Option<u32>,
) -> Result<(), StartError> {
    make_folder_of(path)?;
    let owner_only = UnixListenerConfig::new("local", path);
    event_loop.sockets().add_unix_listener(UnixListenerConfig {
        mode: group.map_or(owner_only.mode, |_| GROUP_SOCKET_MODE),
        group,
        // The greeting: whoever has said no more has asked for nothing.
        idle_frames: Some(1),
        ..owner_only
    })?;
    Ok(())
}

fn no_random(source: std::io::Error) -> StartError {
    StartError::System {
        what: "random bytes",
        source,
    }
}

/// Returns the configuration of the hops of one start.
fn hop_config(section: &HopSection, keys: &KeyPair) -> Result<HopConfig, StartError> {
    let secrets = random_bytes().map_err(no_random)?;
    Ok(section.hop_config(keys, random_number()?, secrets, has_fast_aes()))
}

pub(crate) fn random_number() -> Result<u64, StartError> {
    random_bytes().map(u64::from_ne_bytes).map_err(no_random)
}
