//! Contents that a program sends to a receiver which has not requested them: `send(destination,
//! content)` of [MFTP §2]. The upload is the one that a request for all chunks would make.

use core::time::Duration;

use whimbrel_content::ChunkSize;
use whimbrel_core::{Guid, Time};

use super::group::GroupPush;
use super::one::Upload;
use super::{Key, Uploads};
use crate::host::catalogue::Offer;
use crate::host::effects::Effects;
use crate::host::status::PushStatus;
use crate::host::{App, Way};
use crate::local::{LocalEvent, SendContent, SendState, Service};
use crate::wire::{ChunkRanges, DropReason, NetworkHeader, Reliability, Request, SignedOffer};

/// A router that cannot store a chunk says so soon after it has taken it. Before the sender is told
/// that it may end, this long has passed since the last chunk left.
const GRACE: Duration = Duration::from_secs(1);
/// While no receiver has confirmed a content that has been taken, its last chunk is sent again after this
/// long, and then after twice as long each time: the confirmation, or its receiver's memory, may be lost.
const PROBE: Duration = Duration::from_secs(20);
const MAX_PROBE: Duration = Duration::from_secs(600);
/// Maximum of contents that one program sends, with those that wait for their turn.
const MAX_SENDS: usize = 1024;
/// Contents of one program that leave for one receiver at the same time: half of what an inbox receives at the
/// same time, which is to take the first ones before it is offered the next ones.
const AT_ONCE: usize = 32;

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

    /// Returns true while it waits for others to the same receiver.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting
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

impl Uploads {
    /// Returns an id for what is sent without a request.
    pub(in crate::host) fn draw_id(&mut self) -> u64 {
        self.pushes += 1;
        core::hash::BuildHasher::hash_one(&self.draw, self.pushes)
    }

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
            is_sent: true,
        };
        let pushes = self.by_key.values().filter_map(|it| it.push.as_ref());
        let full = pushes.filter(|push| push.app == app).count() >= MAX_SENDS;
        let offer_here = Offer {
            app,
            publish: send.content.clone(),
            options: send.options,
        };
        if full || !self.catalogue.add(offer_here) {
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
        self.note_wanted(now, key, header, request, presence, effects);
        let is_waiting = self.leaving_to(app, &key.client) >= AT_ONCE;
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
                is_stopped: false,
                probe: (now, PROBE),
                told: None,
                group: (delivery.service == Service::Multicast).then(GroupPush::default),
            });
        }
    }

    /// Returns the number of a program's contents that leave for a receiver now.
    fn leaving_to(&self, app: App, client: &Guid) -> usize {
        let to_client = self.by_key.iter().filter(|(key, _)| key.client == *client);
        let pushes = to_client.filter_map(|(_, upload)| upload.push.as_ref());
        let leaving =
            pushes.filter(|it| it.app == app && !it.is_waiting && !it.is_taken && !it.is_stopped);
        leaving.count()
    }

    /// Contents whose turn has come leave, in the order in which they were given to the host.
    fn start_waiting(&mut self) {
        let waiting = self.by_key.iter().filter_map(|(key, upload)| {
            let push = upload.push.as_ref().filter(|it| it.is_waiting)?;
            Some((push.app, push.request, *key))
        });
        let mut waiting: Vec<(App, u32, Key)> = waiting.collect();
        waiting.sort_unstable();
        for (app, _, key) in waiting {
            if self.leaving_to(app, &key.client) >= AT_ONCE {
                continue;
            }
            if let Some(push) = (self.by_key.get_mut(&key)).and_then(|it| it.push.as_mut()) {
                push.is_waiting = false;
                self.take_turn(key);
            }
        }
    }

    /// Forgets what a program sends: nobody would read it.
    pub(super) fn forget_pushes_of(&mut self, app: App) {
        self.by_key
            .retain(|_, upload| upload.push.as_ref().map(SentContent::app) != Some(app));
    }

    /// The receiver has refused a sent content. Returns false if it is no sent one, or the reason is
    /// another.
    pub(super) fn end_refused(
        &mut self,
        key: &Key,
        reason: DropReason,
        effects: &mut Effects,
    ) -> bool {
        let Some(state) = SendState::of_refusal(reason) else {
            return false;
        };
        let upload = self.by_key.get(key);
        let Some(push) = upload.and_then(|upload| upload.push.as_ref()) else {
            return false;
        };
        push.end(state, effects);
        self.by_key.remove(key);
        true
    }

    /// A router has dropped chunks of a content that its sender does not send again: it is over. Returns
    /// false for another content.
    pub(super) fn end_lost(&mut self, key: &Key, effects: &mut Effects) -> bool {
        let upload = self.by_key.get(key);
        let Some(upload) = upload.filter(|it| it.reliability == Reliability::DontCare) else {
            return false;
        };
        if let Some(push) = &upload.push {
            push.end(SendState::Lost, effects);
            self.by_key.remove(key);
        }
        true
    }

    /// Halves the chunks of a sent content, because a hop does not carry them. Returns false if the content
    /// is no sent one, or its chunks are the smallest.
    pub(super) fn shrink_push(&mut self, now: Time, key: &Key) -> bool {
        let length = self.catalogue.len_of(&key.content).unwrap_or_default();
        let Some(upload) = self.by_key.get_mut(key) else {
            return false;
        };
        let smaller = ChunkSize::from_code(upload.chunk_size.code() - 1);
        let (Some(push), Some(smaller)) = (&mut upload.push, smaller) else {
            return false;
        };
        let count = smaller.count(length).min(u32::MAX.into()) as u32;
        let all = ChunkRanges::from(0..count);
        push.note_new_size(count, &all);
        if let Some(group) = &mut push.group {
            group.begin_again();
        }
        upload.chunk_size = smaller;
        upload.first = count.checked_sub(1);
        upload.pending = all;
        upload.sent = Default::default();
        upload.sent_since = now;
        upload.stored.clear();
        upload.unconfirmed = Default::default();
        upload.kept = None;
        true
    }

    /// Returns the number of chunks of an upload.
    pub(super) fn count_of(&self, key: &Key) -> u32 {
        let length = self.catalogue.len_of(&key.content).unwrap_or_default();
        let size = self.by_key.get(key).map(|upload| upload.chunk_size);
        size.map_or(0, |size| size.count(length).min(u32::MAX.into()) as u32)
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
        let length = self.catalogue.len_of(&key.content)?;
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

    /// Returns the uploads to groups.
    pub(super) fn groups(&self) -> Vec<Key> {
        let is_for_group = |it: &Upload| it.push.as_ref().is_some_and(|push| push.group.is_some());
        let all = self
            .by_key
            .iter()
            .filter(|(_, upload)| is_for_group(upload));
        all.map(|(key, _)| *key).collect()
    }

    /// Returns the first sent contents, for reports.
    pub(in crate::host) fn push_status(&self, now: Time, most: usize) -> Vec<PushStatus> {
        let all = self.by_key.keys();
        all.filter_map(|key| self.push_status_of(now, key))
            .take(most)
            .collect()
    }
}
