//! The event loop: construction, closing, and how it runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use whimbrel_core::{Machine, Time, WallClock};

use crate::clock::WallWatch;
use crate::counters::{LoopCounters, Snapshot};
use crate::mailbox::Mailbox;
use crate::names::Answers;
use crate::poller::Poller;
use crate::signals::StopSignals;
use crate::sockets::Sockets;
use crate::transport::PREFIX;
use crate::{Clock, IoError};

pub(crate) const WAKE_TOKEN: u64 = u64::MAX;
pub(crate) const SIGNAL_TOKEN: u64 = u64::MAX - 1;
/// Initial size of the transmit buffer, bytes: one transmit of the usual size.
const TRANSMIT_BUFFER: usize = 128 << 10;

/// Tells the machine a new wall clock.
pub(crate) type OnWallClock<M> = Box<dyn FnMut(&mut M, Time, WallClock)>;

type MachineWork<M> = dyn FnOnce(&mut M, Time) + Send;
type LoopWork<M> = dyn FnOnce(&mut EventLoop<M>) + Send;

/// Work for the loop's thread.
pub(crate) enum Task<M: Machine> {
    Machine(Box<MachineWork<M>>),
    EventLoop(Box<LoopWork<M>>),
}

/// Drives one machine over real sockets, on the thread that calls [`EventLoop::run`].
pub struct EventLoop<M: Machine> {
    pub(crate) sockets: Sockets<M>,
    /// Slots whose transports have output to write at the end of the round.
    pub(crate) gathered: Vec<usize>,
    pub(crate) mailbox: Arc<Mailbox<Task<M>>>,
    pub(crate) signals: Option<StopSignals>,
    pub(crate) transmit_buffer: Vec<u8>,
    pub(crate) counters: LoopCounters,
    /// The last deadline that was handed to the machine.
    pub(crate) handed_deadline: Option<Time>,
    pub(crate) wall_watch: Option<(WallWatch, OnWallClock<M>)>,
}

impl<M: Machine + 'static> EventLoop<M> {
    /// Returns a loop without transports. Loops of one process share a clock so that they agree
    /// about time.
    pub fn new(clock: Clock, machine: M) -> Result<EventLoop<M>, IoError> {
        let failed = |action| move |source| IoError::Loop { action, source };
        let mut poller = Poller::new().map_err(failed("create its epoll set"))?;
        let mailbox = Mailbox::new().map_err(failed("create its wake-up"))?;
        poller
            .add(&*mailbox, WAKE_TOKEN)
            .map_err(failed("watch its wake-up"))?;
        let handle = LoopHandle(Arc::clone(&mailbox));
        let answers: Answers = Arc::new(move |ticket, found| {
            // A post fails only after the loop has ended.
            let _ =
                handle.post_to_loop(move |it: &mut Self| it.sockets.name_answered(ticket, found));
        });
        Ok(EventLoop {
            sockets: Sockets::new(clock, machine, poller, answers)?,
            gathered: Vec::new(),
            mailbox,
            signals: None,
            transmit_buffer: Vec::with_capacity(TRANSMIT_BUFFER + PREFIX),
            counters: LoopCounters::default(),
            handed_deadline: None,
            wall_watch: None,
        })
    }

    /// Returns the sockets, to attach and close them before the loop runs, or while it runs from a
    /// closure posted with [`LoopHandle::post_to_loop`].
    pub fn sockets(&mut self) -> &mut Sockets<M> {
        &mut self.sockets
    }

    /// Calls `on_change` within seconds of a step of the system's wall clock.
    pub fn follow_wall_clock(&mut self, on_change: impl FnMut(&mut M, Time, WallClock) + 'static) {
        self.wall_watch = Some((WallWatch::new(&self.sockets.clock), Box::new(on_change)));
    }

    /// Returns the clock given at construction.
    pub fn clock(&self) -> Clock {
        self.sockets.clock
    }

    /// Returns the machine.
    pub fn machine(&self) -> &M {
        &self.sockets.side.machine
    }

    /// Returns the machine, for changes while the loop is not running. It is drained at the start
    /// of the next round.
    pub fn machine_mut(&mut self) -> &mut M {
        self.sockets.side.count_report();
        &mut self.sockets.side.machine
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
            self.sockets
                .transports
                .poller
                .add(&signals, SIGNAL_TOKEN)
                .map_err(failed)?;
            self.signals = Some(signals);
        }
        Ok(())
    }

    /// Returns all counters.
    pub fn snapshot(&self) -> Snapshot {
        let sockets = &self.sockets;
        let (ports, closed_ports) = sockets.side.snapshot();
        let (transports, closed_transports) = sockets.transports.snapshot();
        let mut event_loop = self.counters;
        event_loop.wait_calls = sockets.transports.poller.wait_calls;
        event_loop.control_calls += sockets.transports.poller.control_calls;
        Snapshot {
            at_nanos: sockets.clock.now().as_nanos(),
            event_loop,
            transports,
            ports,
            closed_transports,
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
        crate::clock::sharpen_timers();
        while !self.mailbox.stop_wanted() {
            self.round(None, &mut on_event)?;
        }
        let clock = self.sockets.clock;
        let until = clock.now() + STOP_GRACE;
        while (self.sockets.side.may_have_output() || self.sockets.transports.have_unsent())
            && clock.now() < until
        {
            self.round(Some(until.since(clock.now())), &mut on_event)?;
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
}

impl<M: Machine> Drop for EventLoop<M> {
    fn drop(&mut self) {
        self.mailbox.end();
    }
}

impl<M: Machine> fmt::Debug for EventLoop<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLoop")
            .field("transports", &self.sockets.transports.iter().count())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// A handle to a running [`EventLoop`] for any thread: posts work and stops the loop.
pub struct LoopHandle<M: Machine>(pub(crate) Arc<Mailbox<Task<M>>>);

impl<M: Machine> Clone for LoopHandle<M> {
    fn clone(&self) -> Self {
        LoopHandle(Arc::clone(&self.0))
    }
}

impl<M: Machine> fmt::Debug for LoopHandle<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopHandle")
            .field("stop_wanted", &self.0.stop_wanted())
            .finish_non_exhaustive()
    }
}

impl<M: Machine> LoopHandle<M> {
    /// Runs `task` on the loop's thread with the machine and the current time, then drains the
    /// machine. Tasks run in the order of their posting.
    pub fn post(&self, task: impl FnOnce(&mut M, Time) + Send + 'static) -> Result<(), IoError> {
        self.0.push(Task::Machine(Box::new(task)))
    }

    /// Runs `task` on the loop's thread with the loop itself, to add and remove transports or to
    /// take a snapshot.
    pub fn post_to_loop(
        &self,
        task: impl FnOnce(&mut EventLoop<M>) + Send + 'static,
    ) -> Result<(), IoError> {
        self.0.push(Task::EventLoop(Box::new(task)))
    }

    /// Asks the loop to stop: [`EventLoop::run`] writes unsent output for a bounded time and
    /// returns.
    pub fn stop(&self) {
        self.0.stop();
    }
}
