//! Turns of uploads, and reads that programs do for them.

use std::collections::BTreeSet;

use whimbrel_core::{Guid, Time};

use super::sending::SentContent;
use super::{Key, MAX_READS, READ_PATIENCE, Read, Reader, Ready, Recipients, Uploads};
use crate::host::effects::Effects;
use crate::host::holds::Ahead;
use crate::host::{App, Timer};
use crate::local::{LocalEvent, ReadChunk, Service};
use crate::wire::{Data, DropReason};

impl Uploads {
    /// Returns a chunk that a program did not read to those pending: another program may read it.
    pub(super) fn read_again(&mut self, key: Key, index: u32) {
        if !self.catalogue.contains(&key.content) {
            return;
        }
        if let Some(upload) = self.by_key.get_mut(&key) {
            upload.take_back(index);
            self.take_turn(key);
        }
    }

    pub(super) fn take_turn(&mut self, key: Key) {
        if !self.by_key.contains_key(&key) {
            return;
        }
        if let Some(app) = self.reader_of(&key.content) {
            self.turns.insert(app, key);
        }
    }

    /// Lets the uploads that a program was to read for take turns at other programs, if there are
    /// any.
    pub(super) fn redistribute(&mut self, app: App) {
        for key in self.turns.remove_app(app) {
            self.take_turn(key);
        }
    }

    /// Resumes uploads that a router no longer holds back.
    pub(in crate::host) fn go_on_with_held(&mut self) {
        let mut held = core::mem::take(&mut self.held);
        for app in held.apps() {
            let keys = held.remove_app(app);
            keys.into_iter().for_each(|key| self.take_turn(key));
        }
    }

    /// Asks programs for as many chunks as the link will take soon, and for one of each content
    /// that is to be ready when a flow may go on. Returns true if any was requested.
    pub(in crate::host) fn read_ahead(
        &mut self,
        now: Time,
        ahead: &Ahead<'_>,
        effects: &mut Effects,
    ) -> bool {
        let mut asked = false;
        for app in self.turns.apps() {
            let mut visits = self.turns.clients(app);
            while visits > 0
                && self.may_ask(app)
                && let Some(client) = self.turns.next_client(app)
            {
                visits -= 1;
                let held = ahead.is_held(client.0, client.1);
                if !held && !ahead.has_room(client.0, client.1) {
                    continue;
                }
                // One chunk for each client in turn; paused and complete uploads leave.
                while let Some(key) = self.turns.pop(app, client) {
                    let is_ready = |key: &Key| {
                        let mut reads = self.reads.values();
                        reads.any(|read| read.key == *key)
                            || !ahead.should_get_ready(client.0, client.1, &key.content)
                    };
                    if held && is_ready(&key) {
                        self.held.insert(app, key);
                    } else if self.ask_for_next(now, app, key, effects) {
                        asked = true;
                        break;
                    }
                }
            }
        }
        asked
    }

    /// Asks a program for the next chunk of an upload. Returns false if none is due.
    fn ask_for_next(&mut self, now: Time, app: App, key: Key, effects: &mut Effects) -> bool {
        let content = key.content;
        if !self.catalogue.publishers(&content).contains(&app) {
            self.take_turn(key);
            return false;
        }
        let Some(upload) = self.by_key.get_mut(&key) else {
            return false;
        };
        if upload.paused_until > now {
            effects.set_earlier(Timer::Uploads, upload.paused_until);
            return false;
        }
        let Some(index) = upload.next() else {
            return false;
        };
        let chunk_log2 = upload.chunk_size.code();
        let read = self.next_read;
        self.next_read += 1;
        let asked = Read {
            app,
            key,
            index,
            asked_at: now,
        };
        self.reads.insert(read, asked);
        self.readers.entry(app).or_default().asked += 1;
        self.take_turn(key);
        let event = LocalEvent::Read {
            read,
            content,
            index,
            chunk_log2,
        };
        effects.tell(app, event);
        true
    }

    /// Returns the program that should read a content: of those that offer it the latest one,
    /// unless that is silent and another one is not.
    fn reader_of(&self, content: &Guid) -> Option<App> {
        let publishers = self.catalogue.publishers(content);
        let is_silent = |app: &App| self.readers.get(app).is_some_and(|it| it.is_silent);
        let awake = publishers.iter().rev().find(|app| !is_silent(app));
        awake.or(publishers.last()).copied()
    }

    /// Returns true if a program should be asked for one more chunk.
    fn may_ask(&self, app: App) -> bool {
        let reader = self.readers.get(&app);
        reader.is_none_or(|reader| !reader.is_silent && reader.asked < MAX_READS)
    }

    /// Returns reads that were not done in time to those pending, for other programs.
    pub(super) fn check_reads(&mut self, now: Time, effects: &mut Effects) {
        let late = |read: &Read| now.since(read.asked_at) >= READ_PATIENCE;
        let oldest = self.reads.values().take_while(|read| late(read));
        let apps: BTreeSet<App> = oldest.map(|read| read.app).collect();
        for app in apps {
            let seconds = READ_PATIENCE.as_secs();
            match app {
                App::Port(port) => tracing::warn!(
                    %port,
                    "a local program has left chunks unread for {seconds} s; passed over until it reads"
                ),
                // A program of this process, which is itself slow then.
                App::Inner(program) => {
                    tracing::debug!(program, "chunks have been unread for {seconds} s")
                }
            }
            let unread = self.reads.extract_if(.., |_, read| read.app == app);
            let unread: Vec<Read> = unread.map(|(_, read)| read).collect();
            let silent = Reader {
                asked: 0,
                is_silent: true,
            };
            self.readers.insert(app, silent);
            for read in unread {
                effects.counters.drop("unanswered-read");
                self.read_again(read.key, read.index);
            }
        }
        // Another program may have come in the meantime.
        let silent = self.readers.iter().filter(|(_, it)| it.is_silent);
        let silent: Vec<App> = silent.map(|(app, _)| *app).collect();
        silent.into_iter().for_each(|app| self.redistribute(app));
    }

    /// Handles the end of a program's read. Returns the chunk to send now, unless the read failed.
    pub(in crate::host) fn finish_read(
        &mut self,
        now: Time,
        app: App,
        read: u64,
        chunk: Option<ReadChunk>,
        effects: &mut Effects,
    ) -> Option<Ready> {
        if let Some(reader) = self.readers.get_mut(&app) {
            reader.is_silent = false;
        }
        self.reads.get(&read).filter(|read| read.app == app)?;
        let Read { key, index, .. } = self.reads.remove(&read)?;
        if let Some(reader) = self.readers.get_mut(&app) {
            reader.asked -= 1;
        }
        let Some(chunk) = chunk else {
            effects.drop("unreadable-chunk");
            self.end_unreadable(app, key, index, effects);
            return None;
        };
        let offer = self.catalogue.get(&key.content)?;
        let upload = self.by_key.get_mut(&key)?;
        let recipients = match upload.group_mut() {
            Some(group) => group.recipients_of(index)?,
            None => Recipients::All,
        };
        let data = Data {
            content: key.content,
            index,
            chunk_log2: upload.chunk_size.code(),
            content_len: offer.publish.content_len,
            kind: offer.publish.kind,
            reliability: upload.reliability,
            file_name: self.catalogue.file_name(&key.content).to_owned(),
            proof: chunk.proof,
            payload: chunk.data,
        };
        if recipients == Recipients::All {
            upload.note_sent(now, index);
        }
        let (to, delivery) = match &recipients {
            Recipients::One(member) => (*member, upload.delivery.to_one()),
            _ => (key.client, upload.delivery),
        };
        Some(Ready {
            key,
            index,
            way: key.way,
            to,
            address: upload.client_address,
            data,
            request_id: upload.request_id(),
            multihoming: upload.multihoming,
            more: upload.pending.count() << upload.chunk_size.code(),
            delivery,
            nack_timeout_ms: upload.nack_timeout_ms,
            offer: upload.push.as_ref().map(SentContent::offer),
            group: matches!(recipients, Recipients::One(_)).then_some(key.client),
            nack_routers: self
                .nack_routers
                .filter(|_| upload.delivery.service == Service::Multicast),
            members: match recipients {
                Recipients::Some(members) => members,
                _ => Vec::new(),
            },
        })
    }

    /// Ends the offer of a program that cannot read its content any more. Without another offer,
    /// the client is told.
    fn end_unreadable(&mut self, app: App, key: Key, index: u32, effects: &mut Effects) {
        if !self.catalogue.remove(app, &key.content) {
            return self.read_again(key, index);
        }
        effects.withdraw(vec![key.content]);
        if let Some(upload) = self.by_key.remove(&key) {
            if upload.delivery.service == Service::Multicast {
                // A group has asked for nothing.
                return;
            }
            let (address, request_id) = (upload.client_address, upload.request_id());
            self.tell_client(key, address, request_id, DropReason::NotServed, effects);
        }
    }
}
