//! Hop: the reliable transfer of whole chunks to one neighbour (seed 000, sections 3.2.1 and 3.4.1).
//!
//! The wire format, the rules and the timers are in `docs/protocols/hop.md`.
//! The one invariant: **a chunk that is reported [`HopEvent::Delivered`] was handed to the owner at the other end,
//! intact and once in the session** (a session ends when either neighbour restarts).
//!
//! An owner works in rounds, as a driver does with a [`Machine`](whimbrel_core::Machine): inputs first
//! ([`Hop::send`], [`Hop::handle_frame`], [`Hop::handle_timeout`]), then [`Hop::poll_transmit`] and
//! [`Hop::poll_event`] until they answer `None`, then [`Hop::poll_timeout`].

mod budget;
mod config;
mod event;
mod stats;

use bytes::Bytes;
use std::collections::VecDeque;
use whimbrel_core::{Deadline, SeededRng, Time};

pub use budget::PacketBudget;
pub use config::{HopConfig, MAX_CHUNK, MAX_MTU, MIN_MTU, Pacing};
pub use event::HopEvent;
pub use stats::{HopDrops, HopStats};

/// One neighbour on one port.
pub struct Hop {
    config: HopConfig,
    queue: VecDeque<(u64, Bytes, Bytes)>,
    events: VecDeque<HopEvent>,
    stats: HopStats,
}

impl Hop {
    /// A hop that starts to greet its neighbour at once. Settings out of bounds are brought within them.
    pub fn new(config: HopConfig, rng: SeededRng, now: Time) -> Hop {
        let _ = (rng, now);
        Hop {
            config: config.bounded(),
            queue: VecDeque::new(),
            events: VecDeque::new(),
            stats: HopStats::default(),
        }
    }

    /// The largest frame is now `mtu` bytes. Chunks whose packets would no longer fit start anew.
    pub fn set_mtu(&mut self, now: Time, mtu: usize) {
        let _ = now;
        self.config.mtu = mtu.clamp(MIN_MTU, MAX_MTU);
    }

    /// Queues a chunk, `head` followed by `body`; neither is copied until it is written into packets.
    ///
    /// `tag` comes back in [`HopEvent::Delivered`]; the owner chooses it, unique among the chunks it has here.
    /// An empty chunk is never sent: it counts as delivered at once.
    pub fn send(&mut self, now: Time, tag: u64, head: Bytes, body: Bytes) {
        let _ = now;
        self.queue.push_back((tag, head, body));
    }

    /// Takes back a chunk that is not yet acknowledged: to bind it anew, or to store it (seed 000, section 3.3).
    /// `None` if it is not here. The neighbour may nevertheless have received it.
    pub fn withdraw(&mut self, now: Time, tag: u64) -> Option<(Bytes, Bytes)> {
        let _ = now;
        let index = self.queue.iter().position(|queued| queued.0 == tag)?;
        self.queue.remove(index).map(|(_, head, body)| (head, body))
    }

    /// Takes back all chunks that are not yet acknowledged, in the order in which they were sent.
    pub fn withdraw_all(&mut self, now: Time) -> Vec<(u64, Bytes, Bytes)> {
        let _ = now;
        self.queue.drain(..).collect()
    }

    /// How many more bytes of chunks the owner should queue here now: enough to keep the hop busy, few enough
    /// that chunks wait where they can still be routed elsewhere. 0 before the neighbour is up, while it is
    /// unresponsive, and while its window is shut.
    pub fn ready_for(&self) -> usize {
        0
    }

    /// One frame arrived from the neighbour. Bad frames are counted in [`HopStats::drops`].
    pub fn handle_frame(&mut self, now: Time, frame: &[u8], budget: &mut PacketBudget) {
        let _ = (now, frame, budget);
    }

    /// A deadline of [`Hop::poll_timeout`] has passed. Early or repeated calls do no harm.
    pub fn handle_timeout(&mut self, now: Time, budget: &mut PacketBudget) {
        let _ = (now, budget);
    }

    /// Room came free in `budget`: chunks that were refused are granted now and a shut window opens.
    pub fn budget_released(&mut self, now: Time, budget: &mut PacketBudget) {
        let _ = (now, budget);
    }

    /// The hop is not used any more (its port is down): releases all that it holds of `budget` and returns the
    /// chunks that are not yet acknowledged, in the order in which they were sent.
    pub fn close(mut self, now: Time, budget: &mut PacketBudget) -> Vec<(u64, Bytes, Bytes)> {
        let _ = budget;
        self.withdraw_all(now)
    }

    /// Appends the next frames to `buffer`: `(bytes appended, segment size)` as in
    /// [`Transmit`](whimbrel_core::Transmit), or `None` if nothing may be sent now.
    pub fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<(usize, Option<usize>)> {
        let _ = (now, max_segments, buffer);
        None
    }

    /// The next thing to tell the owner.
    pub fn poll_event(&mut self) -> Option<HopEvent> {
        self.events.pop_front()
    }

    /// When [`Hop::handle_timeout`] wants to be called, and why.
    pub fn poll_timeout(&self) -> Option<Deadline> {
        None
    }

    /// True between [`HopEvent::Up`] and the end of the hop, except while the neighbour is unresponsive.
    pub fn is_up(&self) -> bool {
        false
    }

    /// Counters and estimates.
    pub fn stats(&self) -> HopStats {
        self.stats.clone()
    }
}
