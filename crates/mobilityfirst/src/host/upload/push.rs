//! A content that a program sends without a request: whose turn it is, and how far it is.

use core::time::Duration;

use whimbrel_core::{KeyedState, SeededRng, Time};

use super::group::GroupPush;
use crate::host::App;
use crate::host::effects::Effects;
use crate::host::status::PushStatus;
use crate::local::{LocalEvent, SendContent, SendState, Service};
use crate::wire::{ChunkRanges, NetworkHeader, Request, SignedOffer};

/// A router that cannot store a chunk says so soon after it has taken it. Before the sender is told
/// that it may end, this long has passed since the last chunk left.
const GRACE: Duration = Duration::from_secs(1);
/// While no receiver has confirmed a content that has been taken, its last chunk is sent again after this
/// long, and then after twice as long each time: the confirmation, or its receiver's memory, may be lost.
const PROBE: Duration = Duration::from_secs(20);
const MAX_PROBE: Duration = Duration::from_secs(300);

/// A content to send: `request` and `header` are those by which its receiver would request it.
pub(in crate::host) struct Pushed<'a> {
    pub(in crate::host) send: &'a SendContent,
    pub(in crate::host) offer: SignedOffer,
    pub(in crate::host) header: &'a NetworkHeader,
    pub(in crate::host) request: Request,
}

/// What a sent content has beyond a requested one.
pub(super) struct SentContent {
    app: App,
    request: u32,
    offer: SignedOffer,
    // Its turn has not come.
    is_waiting: bool,
    // Chunks that the first router has, but for those that a router has dropped since.
    taken: ChunkRanges,
    taken_at: Time,
    // True once all have been taken for long enough.
    is_taken: bool,
    // The receiver wants no further chunk, and has not said yet whether it has the content.
    is_stopped: bool,
    // When, and how long after the last time, the receiver is probed.
    probe: (Time, Duration),
    told: Option<(SendState, u64, u64)>,
    // If its receiver is a group.
    pub(super) group: Option<GroupPush>,
}

impl SentContent {
    /// A content that waits for its turn, or leaves from now on.
    pub(super) fn new(now: Time, app: App, pushed: &Pushed<'_>, is_waiting: bool) -> SentContent {
        let is_for_group = pushed.send.options.delivery.service == Service::Multicast;
        let group = || match pushed.request.is_exact {
            true => GroupPush::default(),
            false => GroupPush::waiting_for_members(now),
        };
        SentContent {
            app,
            request: pushed.send.request,
            offer: pushed.offer,
            is_waiting,
            taken: ChunkRanges::default(),
            taken_at: now,
            is_taken: false,
            is_stopped: false,
            probe: (now, PROBE),
            told: None,
            group: is_for_group.then(group),
        }
    }

    pub(super) fn app(&self) -> App {
        self.app
    }

    pub(super) fn request(&self) -> u32 {
        self.request
    }

    /// Returns true while it waits for others to the same receiver.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Returns true while nothing of it leaves.
    pub(super) fn is_held(&self) -> bool {
        self.is_waiting || self.group.as_ref().is_some_and(GroupPush::is_waiting)
    }

    /// Its turn has come.
    pub(super) fn start(&mut self) {
        self.is_waiting = false;
    }

    /// Returns true while its chunks leave.
    pub(super) fn is_leaving(&self) -> bool {
        !self.is_waiting && !self.is_taken && !self.is_stopped
    }

    pub(super) fn offer(&self) -> SignedOffer {
        self.offer
    }

    /// Returns the chunks that the first router has.
    pub(super) fn taken(&self) -> &ChunkRanges {
        &self.taken
    }

    /// Returns true once the first router has had everything for long enough.
    pub(super) fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// Returns how far a content of this number of chunks is, of which the access router keeps some; `is_idle`
    /// is true if nothing is to be sent.
    pub(super) fn state(&self, now: Time, count: u64, kept: u64, is_idle: bool) -> SendState {
        let is_over = is_idle && now.since(self.taken_at) >= GRACE;
        match self.is_taken || self.taken.count() >= count && is_over {
            true if kept >= count => SendState::Kept,
            true => SendState::Taken,
            false => SendState::Leaving,
        }
    }

    /// Tells its program how far it is, if that has changed. Returns true if the receiver is to be probed now.
    pub(super) fn report(&mut self, now: Time, status: &PushStatus, effects: &mut Effects) -> bool {
        if status.state != SendState::Leaving && !self.is_taken {
            self.is_taken = true;
            self.probe = (now + PROBE, PROBE * 2);
        }
        let is_probed = self.take_probe(now);
        let told = (status.state, status.taken, status.stored);
        if self.told != Some(told) {
            self.told = Some(told);
            self.end(status.state, effects);
        }
        is_probed
    }

    pub(super) fn note_taken(&mut self, now: Time, index: u32) {
        self.taken.insert(index);
        self.taken_at = now;
    }

    pub(super) fn note_dropped(&mut self, chunks: &ChunkRanges) {
        self.taken.subtract(chunks);
        self.is_taken = false;
    }

    /// The receiver wants no further chunk. If it does not say why, it is probed.
    pub(super) fn note_stop(&mut self, now: Time) {
        if !core::mem::replace(&mut self.is_stopped, true) {
            self.probe = (now + PROBE, PROBE * 2);
        }
    }

    /// The receiver asks for chunks.
    pub(super) fn note_asked(&mut self) {
        self.is_stopped = false;
    }

    /// Returns true if the receiver is to be probed now.
    fn take_probe(&mut self, now: Time) -> bool {
        let (at, pause) = self.probe;
        let is_due = (self.is_taken || self.is_stopped) && now >= at;
        if is_due {
            self.probe = (now + pause, (pause * 2).min(MAX_PROBE));
        }
        is_due
    }

    /// The chunks have another size now; `wanted` are those that the receiver misses.
    pub(super) fn note_new_size(&mut self, count: u32, wanted: &ChunkRanges) {
        self.taken = ChunkRanges::from(0..count);
        self.taken.subtract(wanted);
        self.is_taken = false;
    }

    /// The final state of the content: its program is told.
    pub(super) fn end(&self, state: SendState, effects: &mut Effects) {
        let (taken, stored) = self
            .told
            .map_or((0, 0), |(_, taken, stored)| (taken, stored));
        effects.tell(
            self.app,
            LocalEvent::Sending {
                request: self.request,
                state,
                taken,
                stored,
            },
        );
    }
}

/// Draws the ids of what is sent without a request: those that others have seen tell nothing about the next one.
pub(in crate::host) struct PushIds {
    draw: KeyedState,
    drawn: u64,
}

impl PushIds {
    pub(super) fn new(rng: &mut SeededRng) -> PushIds {
        PushIds {
            draw: KeyedState::new(rng),
            drawn: 0,
        }
    }

    pub(in crate::host) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        core::hash::BuildHasher::hash_one(&self.draw, self.drawn)
    }
}
