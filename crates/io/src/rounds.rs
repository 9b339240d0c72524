//! One round of the loop: wait, read, report deadlines, drain, write.

use std::time::Duration;

use whimbrel_core::{Deadline, Machine, Time, Transmit};

use crate::counters::DropReason;
use crate::event_loop::{SIGNAL_TOKEN, Task, WAKE_TOKEN};
use crate::poller::Ready;
use crate::sockets::ROUTES_TOKEN;
use crate::transport::{FramesToSend, PREFIX, Progress, Shared, Transport};
use crate::{EventLoop, IoError, TransportId};

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

impl<M: Machine + 'static> EventLoop<M> {
    pub(crate) fn round(
        &mut self,
        max_wait: Option<Duration>,
        on_event: &mut dyn FnMut(&mut M, Time, M::Event),
    ) -> Result<(), IoError> {
        self.counters.rounds += 1;
        let wait = self.time_to_wait(max_wait);
        self.sockets
            .transports
            .poller
            .wait(wait)
            .map_err(|source| IoError::Loop {
                action: "wait for its sockets",
                source,
            })?;
        let mut index = 0;
        while let Some(ready) = self.sockets.transports.poller.ready(index) {
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
                    let now = self.sockets.clock.now();
                    self.sockets
                        .routes
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
        let now = self.sockets.clock.now();
        if let Some(wall) = watch.look(now) {
            tracing::warn!(
                unix_ms = wall.unix_millis(now),
                "the system's clock was set, or the system was suspended: records are made anew"
            );
            on_change(&mut self.sockets.side.machine, now, wall);
            self.sockets.side.count_report();
        }
    }

    /// Returns the time to wait; `None` waits until something becomes ready.
    fn time_to_wait(&mut self, max_wait: Option<Duration>) -> Option<Duration> {
        if self.sockets.side.may_have_output() {
            return Some(Duration::ZERO);
        }
        let now = self.sockets.clock.now();
        let machine = self.sockets.side.machine.poll_timeout().map(|deadline| {
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
        let transports = self
            .sockets
            .transports
            .next_deadline()
            .map(|at| at.since(now));
        let names = self.sockets.names.next_retry().map(|at| at.since(now));
        let routes = self.sockets.routes.as_ref().and_then(|routes| routes.due());
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
                Task::Machine(work) => {
                    work(&mut self.sockets.side.machine, self.sockets.clock.now())
                }
                Task::EventLoop(work) => work(self),
            }
        }
    }

    /// Reads from one ready transport, and writes its unsent output.
    fn serve(&mut self, ready: Ready) {
        let sockets = &mut self.sockets;
        let id = TransportId::from_token(ready.token);
        let Some(slot) = sockets.transports.slot_of(id) else {
            return;
        };
        let now = sockets.clock.now();
        let progress = match sockets.transports.polled(slot) {
            Some((Transport::Listener(_), _)) => {
                sockets.accept(slot, ready.token);
                Progress::Open
            }
            Some((Transport::Connecting(_), _)) => {
                sockets.arrive(slot, now);
                return;
            }
            Some((transport, poller)) => transport.serve(
                ready,
                Shared {
                    side: &mut sockets.side,
                    poller,
                    buffers: &mut sockets.receive_buffers,
                    now,
                },
            ),
            None => return,
        };
        sockets.follow_up(slot, now, progress);
    }

    fn hand_in_deadlines(&mut self) {
        let now = self.sockets.clock.now();
        for slot in self.sockets.transports.take_due(now) {
            self.sockets.expire(slot, now);
        }
        self.sockets.retry_names(now);
        self.sockets.recheck_routes(now);
        if let Some(Deadline { at, reason }) = self.sockets.side.machine.poll_timeout()
            && at <= now
        {
            tracing::trace!(reason, "deadline");
            self.counters.timeouts += 1;
            self.handed_deadline = Some(at);
            self.sockets.side.machine.handle_timeout(now);
        }
    }

    /// Drains the machine, up to the bound of transmits per round.
    fn drain(&mut self, on_event: &mut dyn FnMut(&mut M, Time, M::Event)) {
        let mut budget = BUDGET_PER_ROUND;
        self.sockets.side.expect_output(false);
        loop {
            let reports = self.sockets.side.reports();
            while budget > 0
                && let Some((now, transmit)) = self.next_transmit()
            {
                budget = budget.saturating_sub(self.transmit(now, transmit));
            }
            self.write_gathered();
            let mut again = self.sockets.side.reports() != reports;
            while let Some(event) = self.sockets.side.machine.poll_event() {
                again = true;
                self.counters.events += 1;
                on_event(
                    &mut self.sockets.side.machine,
                    self.sockets.clock.now(),
                    event,
                );
            }
            while let Some(request) = self.sockets.side.machine.poll_port_request() {
                again = true;
                self.sockets.grant(request);
            }
            if budget == 0 {
                self.sockets.side.expect_output(true);
                return;
            }
            // The program's reaction to events, or reports about ports, may have made new output.
            self.sockets.side.expect_output(false);
            if !again {
                return;
            }
        }
    }

    fn next_transmit(&mut self) -> Option<(Time, Transmit)> {
        self.transmit_buffer.clear();
        self.transmit_buffer.extend_from_slice(&[0; PREFIX]);
        let now = self.sockets.clock.now();
        let transmit = self.sockets.side.machine.poll_transmit(
            now,
            MAX_SEGMENTS,
            &mut self.transmit_buffer,
        )?;
        Some((now, transmit))
    }

    /// Sends one transmit. Returns its cost, at least one.
    fn transmit(&mut self, now: Time, transmit: Transmit) -> usize {
        self.counters.transmits += 1;
        let out = FramesToSend {
            transmit,
            buffer: &mut self.transmit_buffer,
        };
        let sockets = &mut self.sockets;
        let Some(port) = sockets.side.get_mut(transmit.port) else {
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
        let Some((transport, poller)) = sockets.transports.polled(slot) else {
            return CALL_COST;
        };
        let gathered_before = transport.gathers();
        let size = out.frames().len();
        let progress = transport.send(&mut sockets.side, poller, now, out);
        let gathers = transport.gathers();
        if gathers && !gathered_before {
            self.gathered.push(slot);
        }
        if progress == Progress::Ended || !gathers {
            sockets.follow_up(slot, now, progress);
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
        let now = self.sockets.clock.now();
        let mut gathered = std::mem::take(&mut self.gathered);
        for slot in gathered.drain(..) {
            let sockets = &mut self.sockets;
            if let Some((transport, poller)) = sockets.transports.polled(slot) {
                let progress = transport.push(&mut sockets.side, poller, now);
                sockets.follow_up(slot, now, progress);
            }
        }
        self.gathered = gathered;
    }
}
