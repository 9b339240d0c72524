//! Contents that a program sends to a receiver which has not requested them: `send(destination,
//! content)` of [MFTP §2]. The upload is the one that a request for all chunks would make.

use core::time::Duration;

use whimbrel_content::ChunkSize;
use whimbrel_core::{KeyedState, SeededRng, Time};

use super::group::GroupPush;
use super::one::count_of;
use super::{Key, Uploads};
use crate::host::catalogue::Offer;
use crate::host::effects::Effects;
use crate::host::status::PushStatus;
use crate::host::{App, Way};
use crate::local::{LocalEvent, SendContent, SendState, Service};
use crate::wire::{ChunkRanges, NetworkHeader, Reliability, Request, SignedOffer};

/// A router that cannot store a chunk says so soon after it has taken it. Before the sender is told
/// that it may end, this long has passed since the last chunk left.
const GRACE: Duration = Duration::from_secs(1);
/// While no receiver has confirmed a content that has been taken, its last chunk is sent again after this
/// long, and then after twice as long each time: the confirmation, or its receiver's memory, may be lost.
const PROBE: Duration = Duration::from_secs(20);
const MAX_PROBE: Duration = Duration::from_secs(600);
/// Maximum of contents that one program sends, with those that wait for their turn.
const MAX_SENDS: usize = 1024;

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
    // When, and how long after the last time, the receiver is probed.
    probe: (Time, Duration),
    told: Option<(SendState, u64, u64)>,
    // If its receiver is a group.
    pub(super) group: Option<GroupPush>,
}

/// A content to send: `request` and `header` are those by which its receiver would request it.
pub(in crate::host) struct Pushed<'a> {
    pub(in crate::host) send: &'a SendContent,
    pub(in crate::host) offer: SignedOffer,
    pub(in crate::host) header: &'a NetworkHeader,
    pub(in crate::host) request: Request,
}

impl SentContent {
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

    /// Its turn has come.
    pub(super) fn start(&mut self) {
        self.is_waiting = false;
    }

    /// Returns true while its chunks leave.
    pub(super) fn is_leaving(&self) -> bool {
        !self.is_waiting && !self.is_taken
    }

    pub(super) fn offer(&self) -> SignedOffer {
        self.offer
    }

    pub(super) fn note_taken(&mut self, now: Time, index: u32) {
        self.taken.insert(index);
        self.taken_at = now;
    }

    pub(super) fn note_dropped(&mut self, chunks: &ChunkRanges) {
        self.taken.subtract(chunks);
        self.is_taken = false;
    }

    /// Returns true if the receiver is to be probed now.
    fn take_probe(&mut self, now: Time) -> bool {
        let (at, pause) = self.probe;
        let is_due = self.is_taken && now >= at;
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

impl Uploads {
    /// Begins to send a content.
    pub(in crate::host) fn push_content(
        &mut self,
        now: Time,
        app: App,
        pushed: Pushed<'_>,
        effects: &mut Effects,
    ) {
        let Pushed {
            send,
            offer,
            header,
            request,
        } = pushed;
        let key = Key {
            content: send.content.content,
            client: send.destination,
            way: Way::Uplink,
        };
        let full = self.by_key.pushes_of(app) >= MAX_SENDS;
        let offer_here = Offer {
            app,
            publish: send.content.clone(),
            options: send.options,
        };
        if full || !self.contents.add(offer_here) {
            effects.drop("too-many-sends");
            return effects.tell(
                app,
                LocalEvent::Sending {
                    request: send.request,
                    state: SendState::InboxFull,
                    taken: 0,
                    stored: 0,
                },
            );
        }
        // A send of the same content to the same receiver takes the place of an earlier one.
        self.by_key.remove(&key);
        let presence = super::Presence::Lost;
        self.handle_wanted(now, key.way, header, request, presence, effects);
        let is_waiting = self.by_key.is_at_once(app, &key.client);
        if let Some(upload) = self.by_key.get_mut(&key) {
            let delivery = send.options.delivery;
            upload.delivery = delivery;
            upload.push = Some(SentContent {
                app,
                request: send.request,
                offer,
                is_waiting,
                taken: ChunkRanges::default(),
                taken_at: now,
                is_taken: false,
                probe: (now, PROBE),
                told: None,
                group: (delivery.service == Service::Multicast).then(GroupPush::default),
            });
        }
    }

    /// Contents whose turn has come leave.
    fn start_waiting(&mut self) {
        for key in self.by_key.start_waiting() {
            self.take_turn(key);
        }
    }

    /// Halves the chunks of a sent content, because a hop does not carry them. Returns false if the content
    /// is no sent one, or its chunks are the smallest.
    pub(super) fn shrink_push(&mut self, now: Time, key: &Key) -> bool {
        let length = self.len_of(key);
        let Some(upload) = self.by_key.get_mut(key) else {
            return false;
        };
        let smaller = ChunkSize::from_code(upload.chunk_size.code() - 1);
        let (Some(push), Some(smaller)) = (&mut upload.push, smaller) else {
            return false;
        };
        let count = count_of(smaller, length);
        push.note_new_size(count, &ChunkRanges::from(0..count));
        if let Some(group) = &mut push.group {
            group.begin_again();
        }
        upload.begin_again(now, smaller, count);
        true
    }

    /// Returns the number of chunks of an upload.
    pub(super) fn count_of(&self, key: &Key) -> u32 {
        let length = self.len_of(key);
        self.by_key
            .get(key)
            .map_or(0, |upload| upload.count(length))
    }

    /// Returns the length of the content of an upload in bytes; 0 if it is no longer on offer.
    fn len_of(&self, key: &Key) -> u64 {
        let catalogue = self.contents.catalogue();
        catalogue.len_of(&key.content).unwrap_or_default()
    }

    /// The receiver confirms chunks of a sent content: all of them end it.
    pub(super) fn note_confirmed(
        &mut self,
        key: &Key,
        chunks: &ChunkRanges,
        effects: &mut Effects,
    ) {
        let mut left = ChunkRanges::from(0..self.count_of(key));
        left.subtract(chunks);
        let upload = self.by_key.get(key);
        let Some(push) = upload.and_then(|upload| upload.push.as_ref()) else {
            return;
        };
        if left.is_empty() {
            push.end(SendState::Delivered, effects);
            self.by_key.remove(key);
            self.start_waiting();
        }
    }

    /// Tells programs how far their contents are, where that has changed.
    pub(super) fn report_pushes(&mut self, now: Time, effects: &mut Effects) {
        let keys: Vec<Key> = self.by_key.keys().copied().collect();
        for key in keys {
            let Some(status) = self.push_status_of(now, &key) else {
                continue;
            };
            let last = self.count_of(&key).saturating_sub(1);
            let Some(upload) = self.by_key.get_mut(&key) else {
                continue;
            };
            let Some(push) = &mut upload.push else {
                continue;
            };
            if status.state != SendState::Leaving && !push.is_taken {
                push.is_taken = true;
                push.probe = (now + PROBE, PROBE * 2);
            }
            let is_probed = push.take_probe(now);
            let told = (status.state, status.taken, status.stored);
            if push.told != Some(told) {
                push.told = Some(told);
                push.end(status.state, effects);
            }
            // "Sends and forgets" [MFTP §3.2.2].
            if push.is_taken && upload.reliability == Reliability::DontCare {
                self.by_key.remove(&key);
            } else if is_probed
                && !self.probe_group(&key, last)
                && let Some(upload) = self.by_key.get_mut(&key)
            {
                upload.pending.insert(last);
            }
        }
        self.start_waiting();
    }

    fn push_status_of(&self, now: Time, key: &Key) -> Option<PushStatus> {
        let upload = self.by_key.get(key)?;
        let push = upload.push.as_ref()?;
        let length = self.contents.catalogue().len_of(&key.content)?;
        let bytes = |chunks: &ChunkRanges| (chunks.count() << upload.chunk_size.code()).min(length);
        let mut stored = ChunkRanges::default();
        upload
            .stored
            .values()
            .for_each(|chunks| stored.union(chunks));
        let is_whole = push.taken.count() >= u64::from(self.count_of(key));
        let is_over = upload.pending.is_empty() && now.since(push.taken_at) >= GRACE;
        let kept = upload.kept.as_ref();
        let kept = kept.map_or(0, |(_, chunks)| chunks.count());
        let state = match push.is_taken || is_whole && is_over {
            true if kept >= u64::from(self.count_of(key)) => SendState::Kept,
            true => SendState::Taken,
            false => SendState::Leaving,
        };
        Some(PushStatus {
            content: key.content,
            to: key.client,
            length,
            state,
            taken: bytes(&push.taken),
            stored: bytes(&stored),
            group: self.group_status(key),
        })
    }

    /// Returns the first sent contents, for reports.
    pub(in crate::host) fn push_status(&self, now: Time, most: usize) -> Vec<PushStatus> {
        let all = self.by_key.keys();
        all.filter_map(|key| self.push_status_of(now, key))
            .take(most)
            .collect()
    }
}
