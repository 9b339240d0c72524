//! Connections to nodes: two each, one for commands, one on which changes are published. A third party's
//! end of a subscription is no answer to a command, and must not be taken for one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo, Pipeline,
    ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, RedisError, ServerErrorKind,
    TlsCertificates, Value,
};
use tokio::sync::mpsc::UnboundedSender;

use crate::config::ClusterConfig;
use crate::topology::NodeAddress;

/// A node that could not be reached is tried again after this time.
const RETRY: Duration = Duration::from_millis(200);

/// Why a request failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// No node answers for the slot.
    Unreachable(String),
    /// The node has no memory left.
    Full,
    /// The node refuses the user or the password.
    Denied(String),
    /// The node does not do what it was asked for.
    Engine(String),
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Fault::Unreachable(why) => write!(f, "the cluster does not answer ({why})"),
            Fault::Full => f.write_str("the cluster has no memory left (maxmemory)"),
            Fault::Denied(why) => write!(f, "the cluster refuses this user or password ({why})"),
            Fault::Engine(why) => write!(f, "the cluster answers with an error ({why})"),
        }
    }
}

impl Fault {
    /// The fault that a client's error means.
    pub(crate) fn of(error: &RedisError) -> Fault {
        let why = error.to_string();
        let code = error.code().unwrap_or_default();
        match (error.kind(), code) {
            (_, "OOM") => Fault::Full,
            (ErrorKind::AuthenticationFailed, _)
            | (ErrorKind::Server(ServerErrorKind::NoPerm), _)
            | (_, "NOAUTH" | "WRONGPASS") => Fault::Denied(why),
            (ErrorKind::Server(_) | ErrorKind::Extension, _) => Fault::Engine(why),
            _ => Fault::Unreachable(why),
        }
    }
}

/// What is heard from the nodes.
pub(crate) enum Heard {
    /// A connection to this node has been opened.
    Opened(NodeAddress),
    /// This was published.
    Published(Vec<u8>),
    /// A link is lost, and all its subscriptions with it.
    Lost(u64),
}

/// The connections to one node.
#[derive(Clone)]
pub(crate) struct Link {
    /// Its number; no two have the same.
    pub(crate) id: u64,
    pub(crate) address: NodeAddress,
    commands: MultiplexedConnection,
    listening: MultiplexedConnection,
    lost: Arc<AtomicBool>,
    // Ends of subscriptions that were asked for.
    ending: Arc<AtomicUsize>,
}

impl Link {
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Has the node carry out a command.
    pub(crate) async fn command(&self, command: &Cmd) -> Result<Value, RedisError> {
        let mut commands = self.commands.clone();
        commands.send_packed_command(command).await?.extract_error()
    }

    /// Has the node carry out commands. Returns the answers from index `first` on.
    pub(crate) async fn pipeline(
        &self,
        commands: &Pipeline,
        first: usize,
        count: usize,
    ) -> Result<Vec<Value>, RedisError> {
        let mut connection = self.commands.clone();
        let answers = connection
            .send_packed_commands(commands, first, count)
            .await?;
        answers.into_iter().map(Value::extract_error).collect()
    }

    async fn listen(&self, command: &Cmd) -> Result<(), RedisError> {
        let mut listening = self.listening.clone();
        let answer = listening.send_packed_command(command).await?;
        answer.extract_error().map(drop)
    }

    /// Has changes that are published on a channel told.
    pub(crate) async fn subscribe(&self, channel: &[u8]) -> Result<(), RedisError> {
        let mut command = redis::cmd("SSUBSCRIBE");
        command.arg(channel);
        self.listen(&command).await
    }

    pub(crate) async fn unsubscribe(&self, channel: &[u8]) -> Result<(), RedisError> {
        let mut command = redis::cmd("SUNSUBSCRIBE");
        command.arg(channel);
        self.ending.fetch_add(1, Ordering::AcqRel);
        self.listen(&command).await
    }

    /// Checks that the node answers.
    pub(crate) async fn ping(&self) -> Result<(), RedisError> {
        self.listen(&redis::cmd("PING")).await
    }
}

#[derive(Default)]
struct Place {
    link: Option<Link>,
    failed: Option<(Instant, Fault)>,
}

/// The connections to all nodes, opened when they are needed.
pub(crate) struct Connections {
    config: Arc<ClusterConfig>,
    places: Mutex<BTreeMap<NodeAddress, Arc<tokio::sync::Mutex<Place>>>>,
    heard: UnboundedSender<Heard>,
    next: AtomicU64,
}

impl Connections {
    pub(crate) fn new(config: Arc<ClusterConfig>, heard: UnboundedSender<Heard>) -> Connections {
        Connections {
            config,
            places: Mutex::default(),
            heard,
            next: AtomicU64::new(1),
        }
    }

    fn place(&self, address: &NodeAddress) -> Arc<tokio::sync::Mutex<Place>> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.entry(address.clone()).or_default().clone()
    }

    /// Returns the link to a node.
    pub(crate) async fn to(&self, address: &NodeAddress) -> Result<Link, Fault> {
        let place = self.place(address);
        let mut place = place.lock().await;
        if let Some(link) = place.link.as_ref().filter(|link| !link.is_lost()) {
            return Ok(link.clone());
        }
        if let Some((at, fault)) = &place.failed
            && at.elapsed() < RETRY
        {
            return Err(fault.clone());
        }
        match self.open(address).await {
            Ok(link) => {
                place.failed = None;
                place.link = Some(link.clone());
                let _ = self.heard.send(Heard::Opened(address.clone()));
                Ok(link)
            }
            Err(error) => {
                let fault = Fault::of(&error);
                place.failed = Some((Instant::now(), fault.clone()));
                Err(fault)
            }
        }
    }

    /// Returns the links that are open.
    pub(crate) async fn open_links(&self) -> Vec<Link> {
        let places: Vec<_> = {
            let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            places.values().cloned().collect()
        };
        let mut links = Vec::new();
        for place in places {
            // One that is being opened is not open.
            if let Ok(place) = place.try_lock()
                && let Some(link) = place.link.clone().filter(|link| !link.is_lost())
            {
                links.push(link);
            }
        }
        links
    }

    /// A link does not answer.
    pub(crate) fn lose(&self, link: &Link) {
        if !link.lost.swap(true, Ordering::AcqRel) {
            let _ = self.heard.send(Heard::Lost(link.id));
        }
    }

    async fn open(&self, address: &NodeAddress) -> Result<Link, RedisError> {
        let client = self.client(address)?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let lost = Arc::new(AtomicBool::new(false));
        let ending = Arc::new(AtomicUsize::new(0));
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.config.patience))
            .set_response_timeout(Some(self.config.patience));
        let commands = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let (heard, ended, of) = (self.heard.clone(), ending.clone(), lost.clone());
        let told = move |info: PushInfo| {
            let lose = || {
                if !of.swap(true, Ordering::AcqRel) {
                    let _ = heard.send(Heard::Lost(id));
                }
            };
            match info.kind {
                PushKind::SMessage => {
                    if let Some(Value::BulkString(payload)) = info.data.into_iter().nth(1) {
                        let _ = heard.send(Heard::Published(payload));
                    }
                }
                PushKind::Disconnection => lose(),
                // The node does not have the slot any longer.
                PushKind::SUnsubscribe => {
                    let one_less = |count: usize| count.checked_sub(1);
                    if ended
                        .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less)
                        .is_err()
                    {
                        lose();
                    }
                }
                _ => {}
            }
            Ok::<(), redis::aio::SendError>(())
        };
        let listening = client
            .get_multiplexed_async_connection_with_config(&config.set_push_sender(told))
            .await?;
        Ok(Link {
            id,
            address: address.clone(),
            commands,
            listening,
            lost,
            ending,
        })
    }

    fn client(&self, (host, port): &NodeAddress) -> Result<Client, RedisError> {
        let config = &self.config;
        let mut settings = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
        if let Some(user) = &config.address.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &config.address.password {
            settings = settings.set_password(password);
        }
        let (host, port) = (host.clone(), *port);
        if !config.address.tls {
            let address = ConnectionAddr::Tcp(host, port).into_connection_info()?;
            return Client::open(address.set_redis_settings(settings));
        }
        let address = ConnectionAddr::TcpTls {
            host,
            port,
            insecure: false,
            tls_params: None,
        };
        let info = address.into_connection_info()?.set_redis_settings(settings);
        let certificates = TlsCertificates {
            client_tls: None,
            root_cert: config.root_certificates.clone(),
        };
        Client::build_with_tls(info, certificates)
    }
}
