//! The event loop: what it is made of, what can be attached to it, and how it runs.

use std::fmt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};
use whimbrel_core::{Machine, PortId, PortInfo, PortKind, SeededRng, Time};

use crate::counters::{LoopCounters, Snapshot, TransportCounters};
use crate::handle::Mailbox;
use crate::local::{LocalConnection, LocalLimits, LocalListener, Origin, UnixListenerConfig, connect};
use crate::poller::Poller;
use crate::side::MachineSide;
use crate::signals::StopSignals;
use crate::transport::{PREFIX, Progress, Transport, TransportId};
use crate::tun::{TunDevice, TunPort};
use crate::udp::{Neighbour, ReceiveBuffers, UdpConfig, UdpEndpoint, UdpLink};
use crate::{Clock, IoError, LoopHandle};

pub(crate) const WAKE_TOKEN: u64 = u64::MAX;
pub(crate) const SIGNAL_TOKEN: u64 = u64::MAX - 1;
/// Room for one transmit of the usual size.
const TRANSMIT_BUFFER: usize = 128 << 10;

/// A place for a transport. Its generation tells late events of a closed transport from those of its successor.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    generation: u32,
    pub(crate) transport: Option<Transport>,
}

/// Drives one machine over real sockets, on the thread that calls [`EventLoop::run`].
pub struct EventLoop<M: Machine> {
    pub(crate) clock: Clock,
    pub(crate) side: MachineSide<M>,
    pub(crate) poller: Poller,
    pub(crate) slots: Vec<Slot>,
    pub(crate) mailbox: Arc<Mailbox<M>>,
    pub(crate) signals: Option<StopSignals>,
    pub(crate) transmit_buffer: Vec<u8>,
    pub(crate) receive_buffers: ReceiveBuffers,
    pub(crate) counters: LoopCounters,
    closed_transports: TransportCounters,
    rng: SeededRng,
    /// The machine may have output that was not asked for yet: do not sleep.
    pub(crate) undrained: bool,
    /// The deadline that was handed to the machine last.
    pub(crate) handed_deadline: Option<Time>,
}

impl<M: Machine> EventLoop<M> {
    /// A loop without transports. Loops of one process share a clock so that they agree about time.
    pub fn new(clock: Clock, machine: M) -> Result<EventLoop<M>, IoError> {
        let failed = |action| move |source| IoError::Loop { action, source };
        let mut poller = Poller::new().map_err(failed("create its epoll set"))?;
        let mailbox = Mailbox::new().map_err(failed("create its wake-up"))?;
        poller.add(&*mailbox, WAKE_TOKEN).map_err(failed("watch its wake-up"))?;
        let mut seed = [0; 8];
        getrandom(&mut seed, GetRandomFlags::empty())
            .map_err(|source| IoError::Loop { action: "get random bytes", source: source.into() })?;
        Ok(EventLoop {
            clock,
            side: MachineSide::new(machine),
            poller,
            slots: Vec::new(),
            mailbox,
            signals: None,
            transmit_buffer: Vec::with_capacity(TRANSMIT_BUFFER + PREFIX),
            receive_buffers: ReceiveBuffers::new(),
            counters: LoopCounters::default(),
            closed_transports: TransportCounters::default(),
            rng: SeededRng::new(u64::from_ne_bytes(seed)),
            undrained: true,
            handed_deadline: None,
        })
    }

    /// The clock given at construction.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.side.machine
    }

    /// The machine, to be changed while the loop is not running; it is drained at the start of the next round.
    pub fn machine_mut(&mut self) -> &mut M {
        self.undrained = true;
        &mut self.side.machine
    }

    /// A handle for other threads.
    pub fn handle(&self) -> LoopHandle<M> {
        LoopHandle(Arc::clone(&self.mailbox))
    }

    /// Stops the loop at SIGINT (Ctrl-C) and SIGTERM as [`LoopHandle::stop`] does; a second signal ends the process
    /// with exit code 130. Once registered, these signals do not end the process by themselves any more, also
    /// after the loop is gone.
    pub fn stop_on_signals(&mut self) -> Result<(), IoError> {
        if self.signals.is_none() {
            let failed = |source| IoError::Loop { action: "catch signals", source };
            let signals = StopSignals::register().map_err(failed)?;
            self.poller.add(&signals, SIGNAL_TOKEN).map_err(failed)?;
            self.signals = Some(signals);
        }
        Ok(())
    }

    /// Binds a UDP socket; its neighbours are up at once, callers come up when they call.
    pub fn add_udp(&mut self, mut config: UdpConfig) -> Result<UdpLink, IoError> {
        let id = self.reserve();
        let neighbours = std::mem::take(&mut config.neighbours);
        let (label, bind) = (config.label.clone(), config.bind);
        let endpoint = UdpEndpoint::open(config, id.slot as usize, id.token(), &mut self.rng)?;
        let local = endpoint.local();
        let (receive_buffer, send_buffer) = endpoint.kernel_buffers();
        self.install(id, Transport::Udp(Box::new(endpoint))).map_err(|source| IoError::UdpSocket {
            label,
            address: bind,
            action: "watch",
            source,
        })?;
        let mut ports = Vec::new();
        for neighbour in neighbours {
            match self.add_neighbour(id, neighbour) {
                Ok(port) => ports.push(port),
                Err(error) => {
                    self.close_transport(id);
                    return Err(error);
                }
            }
        }
        tracing::info!(%local, receive_buffer, send_buffer, neighbours = ports.len(), "UDP link is up");
        Ok(UdpLink { transport: id, local, ports, receive_buffer, send_buffer })
    }

    /// Adds a neighbour to a UDP link. Had it called before, its caller port goes down first.
    pub fn add_neighbour(&mut self, link: TransportId, neighbour: Neighbour) -> Result<PortId, IoError> {
        self.undrained = true;
        let now = self.clock.now();
        match self.slots.get_mut(link.slot as usize) {
            Some(Slot { generation, transport: Some(Transport::Udp(endpoint)) })
                if *generation == link.generation =>
            {
                endpoint.add_neighbour(&mut self.side, now, neighbour)
            }
            _ => Err(IoError::NoSuchLink),
        }
    }

    /// Listens for local programs on a socket file; each gets a port when it attaches.
    pub fn add_unix_listener(&mut self, config: UnixListenerConfig) -> Result<TransportId, IoError> {
        let id = self.reserve();
        let path = config.path.clone();
        let listener = LocalListener::open(config, id.token())?;
        self.install(id, Transport::Listener(Box::new(listener))).map_err(|source| IoError::UnixSocket {
            path: path.clone(),
            action: "watch",
            source,
        })?;
        tracing::info!(path = %path.display(), "listening for local programs");
        Ok(id)
    }

    /// Attaches to the program that listens on `path`, as a local program does.
    pub fn add_unix_client(
        &mut self,
        label: impl Into<String>,
        path: impl AsRef<Path>,
        limits: LocalLimits,
    ) -> Result<PortId, IoError> {
        let path = path.as_ref();
        let stream = connect(path)?;
        self.add_unix_stream(label, path.display().to_string(), stream, limits)
    }

    /// Takes over a connected stream (of a socket pair, or handed over by a parent process); `peer` is for logs.
    pub fn add_unix_stream(
        &mut self,
        label: impl Into<String>,
        peer: impl Into<String>,
        stream: UnixStream,
        limits: LocalLimits,
    ) -> Result<PortId, IoError> {
        self.add_connection(Origin { label: label.into(), peer: peer.into(), listener: None }, stream, limits)
    }

    /// Makes a TUN device a port: each packet is a frame. Its MTU is read once, so set it before; to be called in a
    /// thread of the device's network namespace.
    pub fn add_tun(&mut self, label: impl Into<String>, device: TunDevice) -> Result<PortId, IoError> {
        let label = label.into();
        let (mtu, name) = (device.mtu()?, device.name().to_owned());
        let id = self.reserve();
        let info = PortInfo { label: label.clone(), kind: PortKind::Neighbour, mtu, peer: name.clone() };
        let port = self.open_port(id, info)?;
        let tun = TunPort::new(device, label, id.token(), port);
        let added = self.install(id, Transport::Tun(Box::new(tun)));
        self.keep_if_added(port, added, |source| IoError::Tun { name, action: "watch", source })
    }

    /// Closes one port as if the machine had asked for it.
    pub fn close_port(&mut self, port: PortId) {
        self.undrained = true;
        let now = self.clock.now();
        let Some(slot) = self.side.get(port).map(|port| port.transport) else { return };
        let ended = match self.slots.get_mut(slot).and_then(|slot| slot.transport.as_mut()) {
            Some(Transport::Udp(endpoint)) => {
                endpoint.close_port(&mut self.side, now, port);
                false
            }
            Some(Transport::Connection(connection)) => {
                connection.close_port(&mut self.side, now) == Progress::Ended
            }
            Some(Transport::Tun(_)) => true,
            Some(Transport::Listener(_)) | None => false,
        };
        if ended {
            self.close_slot(slot, now);
        }
    }

    /// Closes a transport and all its ports. Connections that a listener accepted live on.
    pub fn close_transport(&mut self, id: TransportId) {
        self.undrained = true;
        if self.slots.get(id.slot as usize).is_some_and(|slot| slot.generation == id.generation) {
            self.close_slot(id.slot as usize, self.clock.now());
        }
    }

    /// Everything counted so far.
    pub fn snapshot(&self) -> Snapshot {
        let (ports, closed_ports) = self.side.snapshot();
        let mut event_loop = self.counters;
        event_loop.wait_calls = self.poller.wait_calls;
        event_loop.control_calls += self.poller.control_calls;
        Snapshot {
            at_nanos: self.clock.now().as_nanos(),
            event_loop,
            transports: self.transports().map(Transport::snapshot).collect(),
            ports,
            closed_transports: self.closed_transports,
            closed_ports,
        }
    }

    /// Runs until [`LoopHandle::stop`] or a signal asks it to end; then writes what still waits for a peer, for at
    /// most `STOP_GRACE`. `on_event` gets what the machine tells the program, and may change the machine.
    pub fn run(&mut self, mut on_event: impl FnMut(&mut M, Time, M::Event)) -> Result<(), IoError> {
        /// How long a stopping loop may wait for peers to take its last output.
        const STOP_GRACE: Duration = Duration::from_millis(500);
        crate::rounds::sharpen_timers();
        while !self.mailbox.stop_wanted() {
            self.round(None, &mut on_event)?;
        }
        let until = self.clock.now() + STOP_GRACE;
        while (self.undrained || self.transports().any(Transport::has_unsent)) && self.clock.now() < until {
            self.round(Some(until.since(self.clock.now())), &mut on_event)?;
        }
        self.mailbox.clear_stop();
        Ok(())
    }

    /// One round: waits for input or a deadline, for at most `max_wait`, handles what there is and drains the
    /// machine. For tests, and for programs with a loop of their own.
    pub fn step(
        &mut self,
        max_wait: Duration,
        mut on_event: impl FnMut(&mut M, Time, M::Event),
    ) -> Result<(), IoError> {
        self.round(Some(max_wait), &mut on_event)
    }

    pub(crate) fn transports(&self) -> impl Iterator<Item = &Transport> {
        self.slots.iter().filter_map(|slot| slot.transport.as_ref())
    }

    /// The transport that an event of the poller is about; `None` if it is gone.
    pub(crate) fn slot_of(&self, token: u64) -> Option<usize> {
        let id = TransportId::from_token(token);
        let slot = self.slots.get(id.slot as usize)?;
        (slot.generation == id.generation && slot.transport.is_some()).then_some(id.slot as usize)
    }

    /// Closes whatever is in a slot, with all its ports.
    pub(crate) fn close_slot(&mut self, slot: usize, now: Time) {
        let Some(transport) = self.slots.get_mut(slot).and_then(|slot| slot.transport.take()) else { return };
        self.poller.remove(&transport);
        self.closed_transports.add(&transport.snapshot().counters);
        let ports: Vec<PortId> = match &transport {
            Transport::Udp(endpoint) => endpoint.ports().collect(),
            Transport::Connection(connection) => connection.port().into_iter().collect(),
            Transport::Tun(tun) => vec![tun.port()],
            Transport::Listener(_) => Vec::new(),
        };
        drop(transport);
        for port in ports {
            self.side.close(now, port);
        }
    }

    pub(crate) fn add_connection(
        &mut self,
        origin: Origin,
        stream: UnixStream,
        limits: LocalLimits,
    ) -> Result<PortId, IoError> {
        let id = self.reserve();
        let (label, peer) = (origin.label.clone(), origin.peer.clone());
        let path = peer.clone().into();
        let port =
            self.open_port(id, PortInfo { label, kind: PortKind::Local, mtu: limits.max_frame, peer })?;
        let added = LocalConnection::new(stream, origin, id.token(), port, limits)
            .and_then(|connection| self.install(id, Transport::Connection(Box::new(connection))));
        self.keep_if_added(port, added, |source| IoError::UnixSocket { path, action: "watch", source })
    }

    fn reserve(&mut self) -> TransportId {
        self.undrained = true;
        let slot = match self.slots.iter().position(|slot| slot.transport.is_none()) {
            Some(free) => free,
            None => {
                self.slots.push(Slot::default());
                self.slots.len() - 1
            }
        };
        let generation = self.slots.get_mut(slot).map_or(0, |slot| {
            slot.generation = slot.generation.wrapping_add(1);
            slot.generation
        });
        TransportId { slot: slot as u32, generation }
    }

    fn install(&mut self, id: TransportId, transport: Transport) -> std::io::Result<()> {
        self.poller.add(&transport, id.token())?;
        if let Some(slot) = self.slots.get_mut(id.slot as usize) {
            slot.transport = Some(transport);
        }
        Ok(())
    }

    fn open_port(&mut self, id: TransportId, info: PortInfo) -> Result<PortId, IoError> {
        let label = info.label.clone();
        self.side.open(self.clock.now(), id.slot as usize, info).ok_or(IoError::OutOfPorts { label })
    }

    fn keep_if_added(
        &mut self,
        port: PortId,
        added: std::io::Result<()>,
        error: impl FnOnce(std::io::Error) -> IoError,
    ) -> Result<PortId, IoError> {
        added.map(|()| port).map_err(|source| {
            self.side.close(self.clock.now(), port);
            error(source)
        })
    }
}

impl<M: Machine> Drop for EventLoop<M> {
    fn drop(&mut self) {
        self.mailbox.end();
    }
}

impl<M: Machine> fmt::Debug for EventLoop<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLoop")
            .field("transports", &self.transports().count())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
