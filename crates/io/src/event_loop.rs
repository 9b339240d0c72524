//! The event loop: construction, closing, and how it runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};
use whimbrel_core::{
    LookUpFailure, Machine, PortId, PortInfo, SeededRng, Time, TimerQueue, WallClock,
};

use crate::clock::WallWatch;
use crate::counters::{LoopCounters, Snapshot, TransportCounters};
use crate::handle::Mailbox;
use crate::names::Names;
use crate::poller::Poller;
use crate::routes::RouteWatch;
use crate::side::MachineSide;
use crate::signals::StopSignals;
use crate::transport::{PREFIX, Progress, Transport, TransportId};
use crate::udp::{AwaitedGroup, ReceiveBuffers};
use crate::{Clock, IoError, LoopHandle, OpenedLimits};

pub(crate) const WAKE_TOKEN: u64 = u64::MAX;
pub(crate) const SIGNAL_TOKEN: u64 = u64::MAX - 1;
pub(crate) const ROUTES_TOKEN: u64 = u64::MAX - 2;
/// Initial size of the transmit buffer, bytes: one transmit of the usual size.
const TRANSMIT_BUFFER: usize = 128 << 10;

/// A place for a transport. The generation tells late events of a closed transport from events of
/// its successor.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) generation: u32,
    pub(crate) transport: Option<Transport>,
}

/// Receives the outcome of connecting.
pub(crate) type Outcome<M> = Box<dyn FnOnce(&mut M, Time, Result<PortId, IoError>)>;

/// Tells the machine a new wall clock.
pub(crate) type OnWallClock<M> = Box<dyn FnMut(&mut M, Time, WallClock)>;

/// Tells the machine that a configured neighbour's host name cannot be looked up.
pub(crate) type OnLookUpFailure<M> = Box<dyn FnMut(&mut M, Time, LookUpFailure)>;

/// Drives one machine over real sockets, on the thread that calls [`EventLoop::run`].
pub struct EventLoop<M: Machine> {
    pub(crate) clock: Clock,
    pub(crate) side: MachineSide<M>,
    pub(crate) poller: Poller,
    pub(crate) slots: Vec<Slot>,
    free_slots: Vec<usize>,
    /// A lower bound of each slot's next deadline: see [`EventLoop::arm`].
    pub(crate) timers: TimerQueue<usize>,
    /// Connections that are being opened, by slot.
    pub(crate) outcomes: BTreeMap<usize, Outcome<M>>,
    /// Host names that are being looked up.
    pub(crate) names: Names,
    /// Present once there is a UDP socket, or something is awaited.
    pub(crate) routes: Option<RouteWatch>,
    /// Multicast groups to join once the machine has their interfaces.
    pub(crate) awaited_groups: Vec<AwaitedGroup>,
    pub(crate) opened_limits: OpenedLimits,
    /// Slots whose transports have output to write at the end of the round.
    pub(crate) gathered: Vec<usize>,
    pub(crate) mailbox: Arc<Mailbox<M>>,
    pub(crate) signals: Option<StopSignals>,
    pub(crate) transmit_buffer: Vec<u8>,
    pub(crate) receive_buffers: ReceiveBuffers,
    pub(crate) counters: LoopCounters,
    closed_transports: TransportCounters,
    pub(crate) rng: SeededRng,
    /// The machine may have output that was not fetched yet, so the loop must not sleep.
    pub(crate) undrained: bool,
    /// The last deadline that was handed to the machine.
    pub(crate) handed_deadline: Option<Time>,
    pub(crate) wall_watch: Option<(WallWatch, OnWallClock<M>)>,
    pub(crate) on_look_up_failure: Option<OnLookUpFailure<M>>,
}

impl<M: Machine> EventLoop<M> {
    /// Returns a loop without transports. Loops of one process share a clock so that they agree
    /// about time.
    pub fn new(clock: Clock, machine: M) -> Result<EventLoop<M>, IoError> {
        let failed = |action| move |source| IoError::Loop { action, source };
        let mut poller = Poller::new().map_err(failed("create its epoll set"))?;
        let mailbox = Mailbox::new().map_err(failed("create its wake-up"))?;
        poller
            .add(&*mailbox, WAKE_TOKEN)
            .map_err(failed("watch its wake-up"))?;
        let mut seed = [0; 8];
        getrandom(&mut seed, GetRandomFlags::empty()).map_err(|source| IoError::Loop {
            action: "get random bytes",
            source: source.into(),
        })?;
        Ok(EventLoop {
            clock,
            side: MachineSide::new(machine),
            poller,
            slots: Vec::new(),
            free_slots: Vec::new(),
            timers: TimerQueue::new(),
            outcomes: BTreeMap::new(),
            names: Names::default(),
            routes: None,
            awaited_groups: Vec::new(),
            opened_limits: OpenedLimits::default(),
            gathered: Vec::new(),
            mailbox,
            signals: None,
            transmit_buffer: Vec::with_capacity(TRANSMIT_BUFFER + PREFIX),
            receive_buffers: ReceiveBuffers::new(),
            counters: LoopCounters::default(),
            closed_transports: TransportCounters::default(),
            rng: SeededRng::new(u64::from_ne_bytes(seed)),
            undrained: true,
            handed_deadline: None,
            wall_watch: None,
            on_look_up_failure: None,
        })
    }

    /// Calls `on_change` within seconds of a step of the system's wall clock.
    pub fn follow_wall_clock(&mut self, on_change: impl FnMut(&mut M, Time, WallClock) + 'static) {
        self.wall_watch = Some((WallWatch::new(&self.clock), Box::new(on_change)));
    }

    /// Calls `on_failure` whenever the host name of a configured neighbour cannot be looked up. The
    /// end of that is the neighbour's port, which comes up.
    pub fn follow_look_ups(
        &mut self,
        on_failure: impl FnMut(&mut M, Time, LookUpFailure) + 'static,
    ) {
        self.on_look_up_failure = Some(Box::new(on_failure));
    }

    /// Returns the clock given at construction.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns the machine.
    pub fn machine(&self) -> &M {
        &self.side.machine
    }

    /// Returns the machine, for changes while the loop is not running. It is drained at the start
    /// of the next round.
    pub fn machine_mut(&mut self) -> &mut M {
        self.undrained = true;
        &mut self.side.machine
    }

    /// Returns a handle for other threads.
    pub fn handle(&self) -> LoopHandle<M> {
        LoopHandle(Arc::clone(&self.mailbox))
    }

    /// Stops the loop at SIGINT (Ctrl-C) and SIGTERM as [`LoopHandle::stop`] does; a second signal
    /// ends the process with exit code 130 or 143. Once registered, these signals do not end the
    /// process by themselves, even after the loop is dropped.
    pub fn stop_on_signals(&mut self) -> Result<(), IoError> {
        if self.signals.is_none() {
            let failed = |source| IoError::Loop {
                action: "catch signals",
                source,
            };
            let signals = StopSignals::register().map_err(failed)?;
            self.poller.add(&signals, SIGNAL_TOKEN).map_err(failed)?;
            self.signals = Some(signals);
        }
        Ok(())
    }

    /// Closes one port as if the machine had asked for it.
    pub fn close_port(&mut self, port: PortId) {
        self.undrained = true;
        let now = self.clock.now();
        let Some(slot) = self.side.get(port).map(|port| port.transport) else {
            return;
        };
        let Some(transport) = self
            .slots
            .get_mut(slot)
            .and_then(|slot| slot.transport.as_mut())
        else {
            return;
        };
        self.names.forget(port);
        match transport.close_port(&mut self.side, &mut self.poller, now, port) {
            Progress::Open => self.arm(slot),
            Progress::Ended => self.close_slot(slot, now, None),
        }
    }

    /// Closes a transport and all its ports. Connections that a listener accepted stay open.
    pub fn close_transport(&mut self, id: TransportId) {
        self.undrained = true;
        if self
            .slots
            .get(id.slot as usize)
            .is_some_and(|slot| slot.generation == id.generation)
        {
            self.close_slot(id.slot as usize, self.clock.now(), None);
        }
    }

    /// Returns all counters.
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

    /// Runs until [`LoopHandle::stop`] or a signal ends it, then writes unsent output for at most
    /// `STOP_GRACE`. `on_event` receives the machine's events, and may change the machine.
    pub fn run(&mut self, mut on_event: impl FnMut(&mut M, Time, M::Event)) -> Result<(), IoError>
    where
        M: 'static,
    {
        /// The time that a stopping loop gives peers to read its last output.
        const STOP_GRACE: Duration = Duration::from_millis(500);
        crate::rounds::sharpen_timers();
        while !self.mailbox.stop_wanted() {
            self.round(None, &mut on_event)?;
        }
        let until = self.clock.now() + STOP_GRACE;
        while (self.undrained || self.transports().any(Transport::has_unsent))
            && self.clock.now() < until
        {
            self.round(Some(until.since(self.clock.now())), &mut on_event)?;
        }
        self.mailbox.clear_stop();
        Ok(())
    }

    /// Runs one round: waits for input or a deadline, for at most `max_wait`, handles all input and
    /// drains the machine. For tests, and for programs with a loop of their own.
    pub fn step(
        &mut self,
        max_wait: Duration,
        mut on_event: impl FnMut(&mut M, Time, M::Event),
    ) -> Result<(), IoError>
    where
        M: 'static,
    {
        self.round(Some(max_wait), &mut on_event)
    }

    pub(crate) fn transports(&self) -> impl Iterator<Item = &Transport> {
        self.slots.iter().filter_map(|slot| slot.transport.as_ref())
    }

    /// Returns the slot of a poller event, or `None` if its transport is gone.
    pub(crate) fn slot_of(&self, token: u64) -> Option<usize> {
        let id = TransportId::from_token(token);
        let slot = self.slots.get(id.slot as usize)?;
        (slot.generation == id.generation && slot.transport.is_some()).then_some(id.slot as usize)
    }

    /// Closes the transport in a slot with all its ports. `failure` is reported to the requester of
    /// a connection that is not established yet.
    pub(crate) fn close_slot(&mut self, slot: usize, now: Time, failure: Option<IoError>) {
        let Some(mut transport) = self
            .slots
            .get_mut(slot)
            .and_then(|slot| slot.transport.take())
        else {
            return;
        };
        self.poller.remove(&transport);
        self.timers.cancel(&slot);
        self.free_slots.push(slot);
        self.closed_transports.add(&transport.snapshot().counters);
        if let Some(listener) = transport.listener().and_then(|token| self.slot_of(token))
            && let Some(Transport::Listener(listener)) = self.transport(listener)
        {
            listener.left();
        }
        let failure = failure.or_else(|| match &mut transport {
            Transport::WebSocket(connection) => connection.take_failure(),
            _ => None,
        });
        let (ports, label) = (transport.ports(), transport.snapshot().label);
        drop(transport);
        for port in ports {
            self.names.forget(port);
            self.side.close(now, port);
        }
        if let Some(outcome) = self.outcomes.remove(&slot) {
            let failure = failure.unwrap_or(IoError::ConnectAbandoned { label });
            self.side.count_report();
            outcome(&mut self.side.machine, now, Err(failure));
        }
    }

    pub(crate) fn transport(&mut self, slot: usize) -> Option<&mut Transport> {
        self.slots.get_mut(slot)?.transport.as_mut()
    }

    /// Ensures that the loop wakes up in time for the transport in `slot`. A deadline that moves
    /// back is left where it is: one early wake-up costs less than an update per packet.
    pub(crate) fn arm(&mut self, slot: usize) {
        if let Some(at) = self
            .transport(slot)
            .and_then(|transport| transport.next_deadline())
        {
            self.timers.set_earlier(slot, at);
        }
    }

    pub(crate) fn reserve(&mut self) -> TransportId {
        self.undrained = true;
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        let generation = self.slots.get_mut(slot).map_or(0, |slot| {
            slot.generation = slot.generation.wrapping_add(1);
            slot.generation
        });
        TransportId {
            slot: slot as u32,
            generation,
        }
    }

    /// Watches the routes of this thread's network namespace, unless an earlier socket started
    /// that.
    pub(crate) fn watch_routes(&mut self) {
        if self.routes.is_none() {
            let watch = RouteWatch::open(self.clock.now());
            if let Some(socket) = watch.socket()
                && let Err(error) = self.poller.add(socket, ROUTES_TOKEN)
            {
                tracing::error!(%error, "cannot watch routes");
            }
            self.routes = Some(watch);
        }
    }

    /// Releases a slot in which nothing was installed.
    pub(crate) fn release(&mut self, id: TransportId) {
        self.free_slots.push(id.slot as usize);
    }

    /// Puts a transport into its reserved slot. Releases the slot if that fails.
    pub(crate) fn install(&mut self, id: TransportId, transport: Transport) -> std::io::Result<()> {
        if let Err(error) = self.poller.add(&transport, id.token()) {
            self.release(id);
            return Err(error);
        }
        if let Some(slot) = self.slots.get_mut(id.slot as usize) {
            slot.transport = Some(transport);
        }
        self.arm(id.slot as usize);
        Ok(())
    }

    pub(crate) fn open_port(&mut self, id: TransportId, info: PortInfo) -> Result<PortId, IoError> {
        let label = info.label.clone();
        self.side
            .open(self.clock.now(), id.slot as usize, info)
            .ok_or_else(|| {
                self.free_slots.push(id.slot as usize);
                IoError::OutOfPorts { label }
            })
    }

    pub(crate) fn keep_if_added<E>(
        &mut self,
        port: PortId,
        added: std::io::Result<()>,
        error: impl FnOnce(std::io::Error) -> E,
    ) -> Result<PortId, E> {
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
