//! The uploads under way: which there are, and which of them make room for others.

use std::collections::BTreeMap;

use core::time::Duration;
use whimbrel_core::{Guid, Time};

use super::one::Upload;
use super::push::SentContent;
use super::{Asked, Key};
use crate::host::effects::Effects;
use crate::host::{App, Way};
use crate::local::{SendState, Service};
use crate::wire::{ChunkRanges, DropReason, Reliability};

/// An upload without messages for this long is forgotten; a NACK brings it back.
const IDLE: Duration = Duration::from_secs(300);
/// Contents of one program that leave for one receiver at the same time: half of what an inbox receives at the
/// same time, which is to take the first ones before it is offered the next ones.
const AT_ONCE: usize = 32;

/// The uploads of a host, by content, receiver and way.
pub(super) struct UploadTable {
    by_key: BTreeMap<Key, Upload>,
    // Bound of the contents that are sent to others at one time.
    most: usize,
}

impl UploadTable {
    pub(super) fn new(most: usize) -> UploadTable {
        UploadTable {
            by_key: BTreeMap::new(),
            most,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Upload> {
        self.by_key.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut Upload> {
        self.by_key.get_mut(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Upload)> {
        self.by_key.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Key, &mut Upload)> {
        self.by_key.iter_mut()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.by_key.keys()
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Upload> {
        self.by_key.remove(key)
    }

    /// Returns the upload that a request, or a message with its id, is about: a content that is sent without a
    /// request has an id of its own.
    pub(super) fn key_of(
        &self,
        content: Guid,
        client: Guid,
        way: Way,
        request_id: Option<u64>,
    ) -> Key {
        let sent = Key {
            content,
            client,
            way,
            is_sent: true,
        };
        let upload = self.by_key.get(&sent);
        Key {
            is_sent: upload.is_some_and(|it| it.is_about(request_id)),
            ..sent
        }
    }

    /// A receiver wants no further chunk. Whether it has a content that it was sent, or refuses it, is said in
    /// a message of its own, which this one may overtake.
    pub(super) fn stop(&mut self, now: Time, key: &Key) {
        match self.by_key.get_mut(key) {
            Some(upload) if upload.push.is_some() => upload.stop(now),
            _ => {
                self.by_key.remove(key);
            }
        }
    }

    /// Returns the upload that a request is about, with whether it is a new one, which takes the place of one in
    /// chunks of another size; `None` if there is no room.
    pub(super) fn open(
        &mut self,
        now: Time,
        key: Key,
        asked: &Asked<'_>,
        wanted: &ChunkRanges,
    ) -> Option<(&mut Upload, bool)> {
        let resized = |_: &Key, upload: &mut Upload| upload.chunk_size != asked.chunk_size;
        let before = self.by_key.extract_if(key..=key, resized).next();
        let push = before.and_then(|(_, upload)| upload.push);
        let is_new = !self.by_key.contains_key(&key);
        if is_new && push.is_none() && !self.make_room(now, &key) {
            return None;
        }
        let upload = self.by_key.entry(key);
        let upload = upload.or_insert_with(|| Upload::new(asked, now));
        if let Some(mut push) = push {
            push.note_new_size(asked.count, wanted);
            upload.push = Some(push);
        }
        if let Some(push) = &mut upload.push {
            push.note_asked();
        }
        Some((upload, is_new))
    }

    /// Returns true if there is room for one more upload to this client: it has at most as many as are
    /// left for others.
    fn make_room(&mut self, now: Time, new: &Key) -> bool {
        if self.len() < self.most / 2 {
            return true;
        }
        let is_of_client = |key: &Key| (key.way, key.client) == (new.way, new.client);
        let of_client = self.iter().filter(|(key, _)| is_of_client(key));
        let busy = of_client.filter(|(_, upload)| upload.is_busy()).count();
        if busy > 0 && busy >= self.most.saturating_sub(self.len()) {
            return false;
        }
        if self.len() < self.most {
            return true;
        }
        self.forget_idle(now);
        // Sent chunks that were not requested again may be forgotten at any time: a NACK brings
        // them back.
        let sent = self.iter().filter(|(_, upload)| !upload.is_busy());
        let oldest = sent.min_by_key(|(_, upload)| upload.last_use);
        if let Some(key) = oldest
            .map(|(key, _)| *key)
            .filter(|_| self.len() >= self.most)
        {
            self.by_key.remove(&key);
        }
        self.len() < self.most
    }

    pub(super) fn forget_idle(&mut self, now: Time) {
        self.by_key.retain(|_, upload| {
            upload.push.is_some()
                || now.since(upload.last_use) < if upload.is_busy() { IDLE * 12 } else { IDLE }
        });
    }

    /// Moves a client's uploads to another way. Its requests by that way take precedence.
    pub(super) fn follow(&mut self, from: Way, to: Way) {
        let leaving = self.by_key.extract_if(.., |key, _| key.way == from);
        for (key, upload) in leaving.collect::<Vec<_>>() {
            self.by_key.entry(key.moved(from, to)).or_insert(upload);
        }
    }

    /// Forgets the uploads by a way that has ended.
    pub(super) fn forget_way(&mut self, way: Way) {
        self.by_key.retain(|key, _| key.way != way);
    }

    /// Returns the upload that a receiver speaks of: that to the receiver, or that to a name by which it is
    /// attached, which carries the same id.
    pub(super) fn sent_by(&self, key: Key, request_id: Option<u64>) -> Key {
        let sent = self.shared_by(&key, request_id, Service::Anycast);
        sent.unwrap_or(key)
    }

    /// Returns the upload of the same content, with this id, to a name that several hosts have.
    pub(super) fn shared_by(
        &self,
        key: &Key,
        request_id: Option<u64>,
        service: Service,
    ) -> Option<Key> {
        let first = Key {
            client: Guid::NONE,
            ..*key
        };
        let of_content = self.by_key.range(first..);
        let mut of_content = of_content.take_while(|(it, _)| it.content == key.content);
        let is_meant = |upload: &Upload| {
            let is_shared = upload.delivery.service == service;
            is_shared && upload.push.is_some() && upload.is_about(request_id)
        };
        let sent = of_content.find(|(_, upload)| is_meant(upload));
        sent.map(|(sent, _)| *sent)
    }

    /// A router has restarted, or another one is in its place: it keeps nothing any more.
    pub(super) fn forget_kept_by(&mut self, router: &Guid) {
        for upload in self.by_key.values_mut() {
            upload.kept = upload.kept.take().filter(|(by, _)| by != router);
        }
    }

    /// Returns the sent contents, with their receivers.
    fn pushes(&self) -> impl Iterator<Item = (&Key, &SentContent)> {
        let all = self.by_key.iter();
        all.filter_map(|(key, upload)| Some((key, upload.push.as_ref()?)))
    }

    /// Returns the number of contents that a program sends.
    pub(super) fn pushes_of(&self, app: App) -> usize {
        self.pushes().filter(|(_, push)| push.app() == app).count()
    }

    /// Forgets what a program sends: nobody would read it.
    pub(super) fn forget_pushes_of(&mut self, app: App) {
        self.by_key
            .retain(|_, upload| upload.push.as_ref().map(SentContent::app) != Some(app));
    }

    /// Returns the uploads to groups.
    pub(super) fn groups(&self) -> Vec<Key> {
        let groups = self.pushes().filter(|(_, push)| push.group.is_some());
        groups.map(|(key, _)| *key).collect()
    }

    /// Returns true if a program's next content for a receiver waits for its turn.
    pub(super) fn must_wait(&self, app: App, client: &Guid) -> bool {
        let to_client = self.pushes().filter(|(key, _)| key.client == *client);
        let leaving = to_client.filter(|(_, push)| push.app() == app && push.is_leaving());
        leaving.count() >= AT_ONCE
    }

    /// Begins the sent contents whose turn has come, in the order in which they were given to the host.
    pub(super) fn start_waiting(&mut self) -> Vec<Key> {
        let waiting = self.pushes().filter(|(_, push)| push.is_waiting());
        let mut waiting: Vec<(App, u32, Key)> = waiting
            .map(|(key, push)| (push.app(), push.request(), *key))
            .collect();
        waiting.sort_unstable();
        let mut started = Vec::new();
        for (app, _, key) in waiting {
            if self.must_wait(app, &key.client) {
                continue;
            }
            if let Some(push) = (self.by_key.get_mut(&key)).and_then(|it| it.push.as_mut()) {
                push.start();
                started.push(key);
            }
        }
        started
    }

    /// Ends a sent content. Returns false if it is no sent one.
    pub(super) fn end(&mut self, key: &Key, state: SendState, effects: &mut Effects) -> bool {
        let upload = self.by_key.get(key);
        let Some(push) = upload.and_then(|upload| upload.push.as_ref()) else {
            return false;
        };
        push.end(state, effects);
        self.by_key.remove(key);
        true
    }

    /// The receiver has refused a content. Returns false if it is no sent one, or the reason is another.
    pub(super) fn end_refused(
        &mut self,
        key: &Key,
        reason: DropReason,
        effects: &mut Effects,
    ) -> bool {
        let state = SendState::of_refusal(reason);
        state.is_some_and(|state| self.end(key, state, effects))
    }

    /// A router has dropped chunks of a content that its sender does not send again: it is over. Returns
    /// false for another content.
    pub(super) fn end_lost(&mut self, key: &Key, effects: &mut Effects) -> bool {
        let is_once = |it: &Upload| it.reliability == Reliability::DontCare;
        let is_lost = self.by_key.get(key).is_some_and(is_once);
        if is_lost {
            self.end(key, SendState::Lost, effects);
        }
        is_lost
    }
}
