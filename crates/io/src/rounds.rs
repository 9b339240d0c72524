//! One round of the loop: wait, read, report deadlines, drain, write.

use std::num::NonZeroU64;
use std::time::Duration;

use whimbrel_core::{Deadline, Machine, Time, Transmit};

use crate::counters::DropReason;
use crate::event_loop::{ROUTES_TOKEN, SIGNAL_TOKEN, WAKE_TOKEN};
use crate::handle::Task;
use crate::poller::Ready;
use crate::transport::{FramesToSend, PREFIX, Progress, Shared, Transport};
use crate::{EventLoop, IoError};

/// Frames of one transmit: one call with segmentation offload carries 44 full Ethernet frames.
const MAX_SEGMENTS: usize = 44;
/// Output per round, before the sockets are polled again, in units of [`GATHERED_COST`]: 44 system
/// calls with up to 2.8 MB, or about 2800 gathered packets of 1000 bytes.
const BUDGET_PER_ROUND: usize = 44 * CALL_COST;
/// Cost of a transmit that needs its own system call.
const CALL_COST: usize = 64;
/// Bytes of gathered output that count as one unit.
const GATHERED_COST: usize = 1024;
/// Pause after the machine left a past deadline unchanged. That is a fault of the machine, which
/// must not become a busy loop.
const STALL_PAUSE: Duration = Duration::from_millis(1);

/// Makes this thread's sleeps end on time rather than up to 50 microseconds late (prctl(2),
/// PR_SET_TIMERSLACK). Pacing depends on it.
pub(crate) fn sharpen_timers() {
    if let Err(error) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
        tracing::debug!(%error, "cannot sharpen timers");
    }
}

impl<M: Machine + 'static> EventLoop<M> {
    pub(crate) fn round(
        &mut self,
        max_wait: Option<Duration>,
        on_event: &mut dyn FnMut(&mut M, Time, M::Event),
    ) -> Result<(), IoError> {
        self.counters.rounds += 1;
        let wait = self.time_to_wait(max_wait);
        self.poller.wait(wait).map_err(|source| IoError::Loop {
            action: "wait for its sockets",
            source,
        })?;
        let mut index = 0;
        while let Some(ready) = self.poller.ready(index) {
            index += 1;
            match ready.token {
                WAKE_TOKEN => self.run_posted(),
                SIGNAL_TOKEN => {
                    if self.signals.as_mut().is_some_and(|signals| signals.came()) {
                        tracing::info!("stopping because of a signal");
                        self.mailbox.stop();
                    }
                }
                ROUTES_TOKEN => {
                    let now = self.clock.now();
                    self.routes
                        .as_mut()
                        .into_iter()
                        .for_each(|routes| routes.note_change(now));
                }
                _ => self.serve(ready),
            }
        }
        self.look_at_wall_clock();
        self.hand_in_deadlines();
        self.drain(on_event);
        Ok(())
    }

    fn look_at_wall_clock(&mut self) {
        let Some((watch, on_change)) = &mut self.wall_watch else {
            return;
        };
        let now = self.clock.now();
        if let Some(wall) = watch.look(now) {
            tracing::warn!(
                unix_ms = wall.unix_millis(now),
                "the system's clock was set, or the system was suspended: records are made anew"
            );
            on_change(&mut self.side.machine, now, wall);
            self.undrained = true;
        }
    }

    /// Returns the time to wait; `None` waits until something becomes ready.
    fn time_to_wait(&mut self, max_wait: Option<Duration>) -> Option<Duration> {
        if self.undrained {
            return Some(Duration::ZERO);
        }
        let now = self.clock.now();
        let machine = self.side.machine.poll_timeout().map(|deadline| {
            if deadline.at <= now && self.handed_deadline == Some(deadline.at) {
                if self.counters.stalled_deadlines == 0 {
                    tracing::warn!(
                        reason = deadline.reason,
                        "the machine left a past deadline unchanged"
                    );
                }
                self.counters.stalled_deadlines += 1;
                return STALL_PAUSE;
            }
            deadline.wait(now)
        });
        let transports = self.timers.next().map(|(at, _)| at.since(now));
        let names = self.names.next_retry().map(|at| at.since(now));
        let routes = self.routes.as_ref().and_then(|routes| routes.due());
        let routes = routes.map(|at| at.since(now));
        let wall = self.wall_watch.as_ref().map(|(watch, _)| watch);
        let wall = wall.map(|watch| watch.next_look().since(now));
        [machine, transports, names, routes, wall, max_wait]
            .into_iter()
            .flatten()
            .min()
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

    /// Reads from one ready transport, and writes its unsent output.
    fn serve(&mut self, ready: Ready) {
        let Some(slot) = self.slot_of(ready.token) else {
            return;
        };
        let now = self.clock.now();
        let (side, poller, buffers) = (&mut self.side, &mut self.poller, &mut self.receive_buffers);
        let progress = match self
            .slots
            .get_mut(slot)
            .and_then(|slot| slot.transport.as_mut())
        {
            Some(Transport::Listener(_)) => {
                self.accept(slot, ready.token);
                Progress::Open
            }
            Some(Transport::Connecting(_)) => {
                self.arrive(slot, now);
                return;
            }
            Some(transport) => transport.serve(
                ready,
                Shared {
                    side,
                    poller,
                    buffers,
                    now,
                },
            ),
            None => return,
        };
        self.follow_up(slot, now, progress);
    }

    /// Acts on the outcome of an operation on a transport.
    pub(crate) fn follow_up(&mut self, slot: usize, now: Time, progress: Progress) {
        if !self.outcomes.is_empty() {
            self.report_outcome(slot, now);
        }
        match progress {
            Progress::Open => self.arm(slot),
            Progress::Ended => self.close_slot(slot, now, None),
        }
    }

    fn hand_in_deadlines(&mut self) {
        let now = self.clock.now();
        if self.timers.next().is_some_and(|(at, _)| at <= now) {
            let due: Vec<usize> = std::iter::from_fn(|| self.timers.pop_due(now))
                .map(|(_, slot)| slot)
                .collect();
            due.into_iter().for_each(|slot| self.expire(slot, now));
        }
        self.retry_names(now);
        self.recheck_routes(now);
        if let Some(Deadline { at, reason }) = self.side.machine.poll_timeout()
            && at <= now
        {
            tracing::trace!(reason, "deadline");
            self.counters.timeouts += 1;
            self.handed_deadline = Some(at);
            self.side.machine.handle_timeout(now);
        }
    }

    fn expire(&mut self, slot: usize, now: Time) {
        let (side, poller) = (&mut self.side, &mut self.poller);
        let Some(transport) = self
            .slots
            .get_mut(slot)
            .and_then(|slot| slot.transport.as_mut())
        else {
            return;
        };
        if transport.next_deadline().is_none_or(|at| at > now) {
            self.arm(slot);
            return;
        }
        let progress = transport.expire(side, poller, now, &mut self.receive_buffers);
        if let (Progress::Ended, Transport::Connecting(connecting)) = (progress, transport) {
            let failure = connecting.timed_out();
            self.close_slot(slot, now, Some(failure));
        } else {
            self.follow_up(slot, now, progress);
        }
    }

    /// Drains the machine, up to the bound of transmits per round.
    fn drain(&mut self, on_event: &mut dyn FnMut(&mut M, Time, M::Event)) {
        let mut budget = BUDGET_PER_ROUND;
        self.undrained = false;
        loop {
            let reports = self.side.reports();
            while budget > 0
                && let Some((now, transmit)) = self.next_transmit()
            {
                budget = budget.saturating_sub(self.transmit(now, transmit));
            }
            self.write_gathered();
            let mut again = self.side.reports() != reports;
            while let Some(event) = self.side.machine.poll_event() {
                again = true;
                self.counters.events += 1;
                on_event(&mut self.side.machine, self.clock.now(), event);
            }
            while let Some(request) = self.side.machine.poll_port_request() {
                again = true;
                self.grant(request);
            }
            if budget == 0 {
                self.undrained = true;
                return;
            }
            // The program's reaction to events, or reports about ports, may have made new output.
            self.undrained = false;
            if !again {
                return;
            }
        }
    }

    fn next_transmit(&mut self) -> Option<(Time, Transmit)> {
        self.transmit_buffer.clear();
        self.transmit_buffer.extend_from_slice(&[0; PREFIX]);
        let now = self.clock.now();
        let transmit =
            self.side
                .machine
                .poll_transmit(now, MAX_SEGMENTS, &mut self.transmit_buffer)?;
        Some((now, transmit))
    }

    /// Sends one transmit. Returns its cost, at least one.
    fn transmit(&mut self, now: Time, transmit: Transmit) -> usize {
        self.counters.transmits += 1;
        let out = FramesToSend {
            transmit,
            buffer: &mut self.transmit_buffer,
        };
        let Some(port) = self.side.get_mut(transmit.port) else {
            self.counters.transmits_to_nowhere += 1;
            return CALL_COST;
        };
        if !port.concatenates && out.segment().min(out.frames().len()) > port.info.mtu {
            port.counters
                .drops
                .count(DropReason::TooLarge, out.frame_count());
            return CALL_COST;
        }
        let slot = port.transport;
        let Some(transport) = self
            .slots
            .get_mut(slot)
            .and_then(|slot| slot.transport.as_mut())
        else {
            return CALL_COST;
        };
        let gathered_before = transport.gathers();
        let size = out.frames().len();
        let progress = transport.send(&mut self.side, &mut self.poller, now, out);
        let gathers = transport.gathers();
        if gathers && !gathered_before {
            self.gathered.push(slot);
        }
        if progress == Progress::Ended || !gathers {
            self.follow_up(slot, now, progress);
        }
        if gathers {
            1 + size / GATHERED_COST
        } else {
            CALL_COST
        }
    }

    /// Writes the gathered output of streams.
    fn write_gathered(&mut self) {
        if self.gathered.is_empty() {
            return;
        }
        let now = self.clock.now();
        let mut gathered = std::mem::take(&mut self.gathered);
        for slot in gathered.drain(..) {
            let (side, poller) = (&mut self.side, &mut self.poller);
            if let Some(transport) = self
                .slots
                .get_mut(slot)
                .and_then(|slot| slot.transport.as_mut())
            {
                let progress = transport.push(side, poller, now);
                self.follow_up(slot, now, progress);
            }
        }
        self.gathered = gathered;
    }
}
