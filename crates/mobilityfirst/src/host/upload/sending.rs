//! Contents that a program sends to a receiver which has not requested them: `send(destination,
//! content)` of [MFTP §2]. The upload is the one that a request for all chunks would make.

use whimbrel_content::ChunkSize;
use whimbrel_core::Time;

use super::one::count_of;
use super::push::{Pushed, SentContent};
use super::{Key, Timer, Uploads};
use crate::host::catalogue::Offer;
use crate::host::effects::Effects;
use crate::host::status::PushStatus;
use crate::host::{App, Way};
use crate::local::{LocalEvent, SendState};
use crate::wire::{ChunkRanges, Reliability};

/// Maximum of contents that one program sends, with those that wait for their turn.
const MAX_SENDS: usize = 1024;

impl Uploads {
    /// Begins to send a content.
    pub(in crate::host) fn push_content(
        &mut self,
        now: Time,
        app: App,
        pushed: Pushed<'_>,
        effects: &mut Effects,
    ) {
        let send = pushed.send;
        let key = Key {
            content: send.content.content,
            client: send.destination,
            way: Way::Uplink,
            is_sent: true,
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
        // A send of the same content to the same receiver takes the place of an earlier one. After a new start of
        // the host it is the same one.
        let same = (app, send.request);
        let earlier = self.by_key.get(&key).and_then(|it| it.push.as_ref());
        if let Some(earlier) = earlier.filter(|it| (it.app(), it.request()) != same) {
            earlier.end(SendState::Replaced, effects);
        }
        self.by_key.remove(&key);
        let presence = super::Presence::Lost;
        let request = pushed.request.clone();
        self.note_wanted(now, key, pushed.header, request, presence, effects);
        let is_waiting = self.by_key.must_wait(app, &key.client);
        if let Some(upload) = self.by_key.get_mut(&key) {
            upload.delivery = send.options.delivery;
            upload.push = Some(SentContent::new(now, app, &pushed, is_waiting));
            effects.set_earlier(Timer::Uploads, now);
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
        let size = self.by_key.get(key).map(|upload| upload.chunk_size);
        let smaller = size.and_then(|size| ChunkSize::from_code(size.code() - 1));
        smaller.is_some_and(|smaller| self.begin_in_chunks_of(now, key, smaller))
    }

    /// Sends a content anew, in chunks of another size. Returns false if it is no sent one.
    pub(super) fn begin_in_chunks_of(&mut self, now: Time, key: &Key, size: ChunkSize) -> bool {
        let length = self.len_of(key);
        let Some(upload) = self.by_key.get_mut(key) else {
            return false;
        };
        let Some(push) = &mut upload.push else {
            return false;
        };
        let count = count_of(size, length);
        push.note_new_size(count, &ChunkRanges::from(0..count));
        if let Some(group) = &mut push.group {
            group.begin_again();
        }
        upload.begin_again(now, size, count);
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
    pub(super) fn len_of(&self, key: &Key) -> u64 {
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
        if left.is_empty() && self.by_key.end(key, SendState::Delivered, effects) {
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
            let is_probed = push.report(now, &status, effects);
            // "Sends and forgets" [MFTP §3.2.2].
            if push.is_taken() && upload.reliability == Reliability::DontCare {
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
        if let Some(group) = &push.group {
            stored.union(&group.stored());
        }
        let kept = upload.kept.as_ref();
        let kept = kept.map_or(0, |(_, chunks)| chunks.count());
        let count = self.count_of(key).into();
        Some(PushStatus {
            content: key.content,
            to: key.client,
            length,
            state: push.state(now, count, kept, upload.pending.is_empty()),
            taken: bytes(push.taken()),
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
