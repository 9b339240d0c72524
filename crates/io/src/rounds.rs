//! One round of the loop: wait, read, hand in deadlines, drain, write.

use std::num::NonZeroU64;
use std::time::Duration;

use whimbrel_core::{Deadline, Machine, PortRequest, Time, Transmit};

use crate::counters::DropReason;
use crate::event_loop::{SIGNAL_TOKEN, WAKE_TOKEN};
use crate::handle::Task;
use crate::local::{LocalListener, Origin};
use crate::poller::Ready;
use crate::transport::{Outgoing, PREFIX, Progress, Transport};
use crate::{EventLoop, IoError};

/// Frames of one transmit: 44 full Ethernet frames are what one call with segmentation offload can carry.
const MAX_SEGMENTS: usize = 44;
/// Transmits taken from the machine before the sockets are looked at again: 2.8 MB of full transmits.
const TRANSMITS_PER_ROUND: usize = 44;
/// Local programs accepted per round and listener.
const ACCEPTS_PER_ROUND: usize = 16;
/// Pause after the machine left a deadline standing that was handed to it: a fault of the machine that must not
/// turn into a busy loop.
const STALL_PAUSE: Duration = Duration::from_millis(1);

/// Lets this thread's sleeps end when they should, rather than up to 50 microseconds later (prctl(2),
/// PR_SET_TIMERSLACK): pacing depends on it.
pub(crate) fn sharpen_timers() {
    if let Err(error) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
        tracing::debug!(%error, "cannot sharpen timers");
    }
}

impl<M: Machine> EventLoop<M> {
    pub(crate) fn round(
        &mut self,
        max_wait: Option<Duration>,
        on_event: &mut dyn FnMut(&mut M, Time, M::Event),
    ) -> Result<(), IoError> {
        self.counters.rounds += 1;
        let wait = self.time_to_wait(max_wait);
        self.poller.wait(wait).map_err(|source| IoError::Loop { action: "wait for its sockets", source })?;
        let mut index = 0;
        while let Some(ready) = self.poller.ready(index) {
            index += 1;
            match ready.token {
                WAKE_TOKEN => self.run_posted(),
                SIGNAL_TOKEN => {
                    if self.signals.as_mut().is_some_and(|signals| signals.came()) {
                        tracing::info!("stopping, as a signal asked");
                        self.mailbox.stop();
                    }
                }
                _ => self.serve(ready),
            }
        }
        self.hand_in_deadlines();
        self.drain(on_event);
        Ok(())
    }

    /// `None`: until something happens.
    fn time_to_wait(&mut self, max_wait: Option<Duration>) -> Option<Duration> {
        if self.undrained {
            return Some(Duration::ZERO);
        }
        let now = self.clock.now();
        let machine = self.side.machine.poll_timeout().map(|deadline| {
            if deadline.at <= now && self.handed_deadline == Some(deadline.at) {
                if self.counters.stalled_deadlines == 0 {
                    tracing::warn!(reason = deadline.reason, "the machine leaves a deadline standing");
                }
                self.counters.stalled_deadlines += 1;
                return STALL_PAUSE;
            }
            deadline.wait(now)
        });
        let transports = self.transports().filter_map(Transport::next_deadline).min().map(|at| at.since(now));
        [machine, transports, max_wait].into_iter().flatten().min()
    }

    fn run_posted(&mut self) {
        for task in self.mailbox.take() {
            self.counters.posted += 1;
            match task {
                Task::Machine(work) => work(&mut self.side.machine, self.clock.now()),
                Task::EventLoop(work) => work(self),
            }
        }
    }

    /// Reads from one ready transport, and writes what waited for it.
    fn serve(&mut self, ready: Ready) {
        let Some(slot) = self.slot_of(ready.token) else { return };
        let now = self.clock.now();
        let (side, poller) = (&mut self.side, &mut self.poller);
        let Some(transport) = self.slots.get_mut(slot).and_then(|slot| slot.transport.as_mut()) else {
            return;
        };
        let progress = match transport {
            Transport::Udp(endpoint) => {
                if ready.error {
                    endpoint.receive_errors(side, now);
                }
                if ready.readable {
                    endpoint.receive(side, now, &mut self.receive_buffers);
                }
                if ready.writable {
                    endpoint.flush(side, poller, now);
                }
                Progress::Open
            }
            Transport::Connection(connection) => {
                // A hang-up is read as the end of the stream, after all that was sent before it.
                let read = if ready.readable || ready.error {
                    connection.receive(side, now)
                } else {
                    Progress::Open
                };
                if read == Progress::Open && ready.writable {
                    connection.flush(side, poller, now)
                } else {
                    read
                }
            }
            Transport::Tun(tun) => {
                if ready.writable {
                    tun.flush(side, poller, now);
                }
                if ready.readable || ready.error { tun.receive(side, now) } else { Progress::Open }
            }
            Transport::Listener(_) => {
                self.accept(slot, ready.token);
                Progress::Open
            }
        };
        if progress == Progress::Ended {
            self.close_slot(slot, now);
        }
    }

    fn accept(&mut self, slot: usize, token: u64) {
        for _ in 0..ACCEPTS_PER_ROUND {
            let of_listener = |transport: &&Transport| {
                matches!(transport, Transport::Connection(connection)
                if connection.origin.listener == Some(token))
            };
            let connections = self.transports().filter(of_listener).count();
            let now = self.clock.now();
            let poller = &mut self.poller;
            let Some(Transport::Listener(listener)) =
                self.slots.get_mut(slot).and_then(|slot| slot.transport.as_mut())
            else {
                return;
            };
            let Some(stream) = listener.accept(poller, now) else { return };
            let (max, limits) = (listener.config.max_connections, listener.config.limits);
            let label = listener.config.label.clone();
            let origin = Origin { label, peer: caller_of(&stream), listener: Some(token) };
            let taken = connections < max
                && match self.add_connection(origin, stream, limits) {
                    Ok(_) => true,
                    Err(error) => {
                        tracing::warn!(%error, "cannot take a local program");
                        false
                    }
                };
            if let Some(listener) = self.listener(slot) {
                listener.count(taken);
            }
        }
    }

    fn listener(&mut self, slot: usize) -> Option<&mut LocalListener> {
        match self.slots.get_mut(slot)?.transport.as_mut()? {
            Transport::Listener(listener) => Some(listener),
            _ => None,
        }
    }

    fn hand_in_deadlines(&mut self) {
        let now = self.clock.now();
        for slot in 0..self.slots.len() {
            let Some(transport) = self.slots.get_mut(slot).and_then(|slot| slot.transport.as_mut()) else {
                continue;
            };
            if transport.next_deadline().is_none_or(|at| at > now) {
                continue;
            }
            let progress = match transport {
                Transport::Udp(endpoint) => {
                    endpoint.expire(&mut self.side, now);
                    Progress::Open
                }
                Transport::Listener(listener) => {
                    listener.expire(&mut self.poller, now);
                    Progress::Open
                }
                Transport::Connection(connection) => connection.expire(now),
                Transport::Tun(_) => Progress::Open,
            };
            if progress == Progress::Ended {
                self.close_slot(slot, now);
            }
        }
        if let Some(Deadline { at, reason }) = self.side.machine.poll_timeout()
            && at <= now
        {
            tracing::trace!(reason, "deadline");
            self.counters.timeouts += 1;
            self.handed_deadline = Some(at);
            self.side.machine.handle_timeout(now);
        }
    }

    /// Takes all the machine has to say, but no more transmits than a round may send.
    fn drain(&mut self, on_event: &mut dyn FnMut(&mut M, Time, M::Event)) {
        let mut budget = TRANSMITS_PER_ROUND;
        self.undrained = false;
        loop {
            while let Some(transmit) = self.next_transmit() {
                self.transmit(transmit);
                budget -= 1;
                if budget == 0 {
                    self.undrained = true;
                    break;
                }
            }
            let mut again = false;
            while let Some(event) = self.side.machine.poll_event() {
                again = true;
                self.counters.events += 1;
                on_event(&mut self.side.machine, self.clock.now(), event);
            }
            while let Some(PortRequest::Close(port)) = self.side.machine.poll_port_request() {
                again = true;
                self.close_port(port);
            }
            if budget == 0 {
                return;
            }
            // What the program or a closed port did to the machine may have made new output.
            self.undrained = false;
            if !again {
                return;
            }
        }
    }

    fn next_transmit(&mut self) -> Option<Transmit> {
        self.transmit_buffer.clear();
        self.transmit_buffer.extend_from_slice(&[0; PREFIX]);
        let now = self.clock.now();
        self.side.machine.poll_transmit(now, MAX_SEGMENTS, &mut self.transmit_buffer)
    }

    fn transmit(&mut self, transmit: Transmit) {
        self.counters.transmits += 1;
        let now = self.clock.now();
        let out = Outgoing { transmit, buffer: &mut self.transmit_buffer };
        let frames = out.frame_count();
        let Some(port) = self.side.get_mut(transmit.port) else {
            self.counters.transmits_to_nowhere += 1;
            return;
        };
        if out.segment().min(out.frames().len()) > port.info.mtu {
            port.counters.drops.count(DropReason::TooLarge, frames);
            return;
        }
        let slot = port.transport;
        let (side, poller) = (&mut self.side, &mut self.poller);
        let progress = match self.slots.get_mut(slot).and_then(|slot| slot.transport.as_mut()) {
            Some(Transport::Udp(endpoint)) => {
                endpoint.send(side, poller, now, out);
                Progress::Open
            }
            Some(Transport::Tun(tun)) => {
                tun.send(side, poller, now, out);
                Progress::Open
            }
            Some(Transport::Connection(connection)) => connection.send(side, poller, now, out),
            Some(Transport::Listener(_)) | None => Progress::Open,
        };
        if progress == Progress::Ended {
            self.close_slot(slot, now);
        }
    }
}

/// Who attached, as far as the kernel tells.
fn caller_of(stream: &std::os::unix::net::UnixStream) -> String {
    match rustix::net::sockopt::socket_peercred(stream) {
        Ok(credentials) => format!("process {}", credentials.pid.as_raw_nonzero()),
        Err(_) => "local program".to_owned(),
    }
}
