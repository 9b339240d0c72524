//! What the programs of a host offer, and what they read of it for the uploads: whose turn it is, and the reads
//! that are not done yet.

use std::collections::{BTreeMap, BTreeSet};

use core::time::Duration;
use whimbrel_content::ChunkSize;
use whimbrel_core::{Guid, Time};

use super::turns::{Client, Turns};
use super::{CHECK_INTERVAL, Key};
use crate::host::catalogue::{Catalogue, Offer};
use crate::host::effects::Effects;
use crate::host::holds::ReadAhead;
use crate::host::{App, Timer, Way};
use crate::local::LocalEvent;
use crate::wire::{ChunkRanges, ControlCode};

/// Bound of the chunks that one program is asked to read ahead of the link.
const MAX_READS: usize = 4;
/// Uploads to one receiver among which one is looked for that begins while the link is full.
const MAX_BEGIN_LOOKED_AT: usize = 16;
/// A program that leaves a chunk unread for this long is asked for no further one until it has
/// read; another one that offers the same content is asked instead.
const READ_PATIENCE: Duration = Duration::from_secs(10);

/// A chunk that a program was asked to read.
pub(super) struct PendingRead {
    app: App,
    pub(super) key: Key,
    pub(super) index: u32,
    asked_at: Time,
}

/// The reads that a program has not done yet.
#[derive(Clone, Copy, Debug, Default)]
struct Reader {
    // Chunks that the program was asked for.
    asked: usize,
    // True if the program has left one of them unread for too long.
    is_silent: bool,
}

/// What an upload sends next.
pub(super) enum NextChunk {
    /// This chunk.
    Due { index: u32, size: ChunkSize },
    /// Nothing before this time.
    PausedUntil(Time),
    /// Nothing until something happens.
    None,
}

/// The contents on offer, and the chunks that are read of them.
#[derive(Default)]
pub(in crate::host) struct Contents {
    catalogue: Catalogue,
    // The turns of the uploads with something pending.
    turns: Turns,
    // Uploads that take no turns because a router holds them back, in the order in which they had
    // them: often there is a turn for one of them only before the next hold.
    held: Turns,
    // By number, hence in the order in which they were requested.
    reads: BTreeMap<u64, PendingRead>,
    // Programs that were asked to read.
    readers: BTreeMap<App, Reader>,
    next_read: u64,
}

impl Contents {
    pub(in crate::host) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Offers a program's content, and announces it.
    pub(in crate::host) fn publish(&mut self, now: Time, offer: Offer, effects: &mut Effects) {
        let (app, content) = (offer.app, offer.publish.content);
        if !self.catalogue.add(offer) {
            let code = ControlCode::Full;
            return effects.tell(app, LocalEvent::Published { content, code });
        }
        effects.set_earlier(Timer::Uploads, now + CHECK_INTERVAL);
        effects.announce(content);
    }

    /// Offers a content that its program sends. Returns false if there are too many.
    pub(super) fn add(&mut self, offer: Offer) -> bool {
        self.catalogue.add(offer)
    }

    /// Ends a program's offer. Returns true if no other program offers the content.
    pub(in crate::host) fn withdraw(
        &mut self,
        app: App,
        content: Guid,
        effects: &mut Effects,
    ) -> bool {
        let is_last = self.catalogue.remove(app, &content);
        if is_last {
            effects.withdraw(vec![content]);
        }
        is_last
    }

    /// Ends the offers of a program that has left. Returns the chunks that it has not read.
    pub(super) fn forget(&mut self, app: App, effects: &mut Effects) -> Vec<PendingRead> {
        effects.withdraw(self.catalogue.remove_all_of(app));
        let unread = self.take_reads_of(app);
        self.readers.remove(&app);
        self.redistribute(app);
        unread
    }

    fn take_reads_of(&mut self, app: App) -> Vec<PendingRead> {
        let unread = self.reads.extract_if(.., |_, read| read.app == app);
        unread.map(|(_, read)| read).collect()
    }

    /// Returns the chunks of an upload that programs are reading.
    pub(super) fn under_way(&self, key: &Key) -> ChunkRanges {
        let mut chunks = ChunkRanges::default();
        let reads = self.reads.values().filter(|read| read.key == *key);
        reads.for_each(|read| chunks.insert(read.index));
        chunks
    }

    /// Lets an upload with something pending take turns at the program that reads its content.
    pub(super) fn take_turn(&mut self, key: Key) {
        if let Some(app) = self.reader_of(&key.content) {
            self.turns.insert(app, key);
        }
    }

    /// Lets the uploads that a program was to read for take turns at other programs, if there are
    /// any.
    fn redistribute(&mut self, app: App) {
        for key in self.turns.remove_app(app) {
            self.take_turn(key);
        }
    }

    /// Lets uploads take turns again that a router no longer holds back.
    pub(in crate::host) fn resume_held(&mut self) {
        let mut held = core::mem::take(&mut self.held);
        for app in held.apps() {
            let keys = held.remove_app(app);
            keys.into_iter().for_each(|key| self.take_turn(key));
        }
    }

    /// Moves what is for an inbound peer to another way.
    pub(super) fn follow(&mut self, from: Way, to: Way) {
        for read in self.reads.values_mut() {
            read.key = read.key.moved(from, to);
        }
        self.held.rename(|key| Some(key.moved(from, to)));
        self.turns.rename(|key| Some(key.moved(from, to)));
    }

    /// Forgets the turns of the uploads by a way that has ended.
    pub(super) fn forget_way(&mut self, way: Way) {
        self.held.rename(|key| (key.way != way).then_some(key));
        self.turns.rename(|key| (key.way != way).then_some(key));
    }

    /// Asks programs for as many chunks as the link will take soon, and for one of each content
    /// that is to be ready when a flow may continue. `next` returns what an upload sends next, and counts it as
    /// sent. Returns true if any was requested.
    pub(super) fn read_ahead(
        &mut self,
        now: Time,
        ahead: &ReadAhead<'_>,
        mut next: impl FnMut(&Key) -> NextChunk,
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
                let held = ahead.is_held(client);
                if !held && !ahead.has_room(client) {
                    let key = self.first_to_begin(app, client, ahead);
                    asked |=
                        key.is_some_and(|key| self.read_next(now, app, key, &mut next, effects));
                    continue;
                }
                // One chunk for each client in turn; paused and complete uploads leave.
                while let Some(key) = self.turns.pop(app, client) {
                    let is_ready = |key: &Key| {
                        let mut reads = self.reads.values();
                        reads.any(|read| read.key == *key)
                            || !ahead.should_get_ready(client, &key.content)
                    };
                    if held && is_ready(&key) {
                        self.held.insert(app, key);
                        continue;
                    }
                    if self.read_next(now, app, key, &mut next, effects) {
                        asked = true;
                        break;
                    }
                }
            }
        }
        asked
    }

    /// Takes the first upload of a client that begins although the link is full, or continues after all that was
    /// on its way has left: a letter does not wait for what a thin link has of a film.
    fn first_to_begin(&mut self, app: App, client: Client, ahead: &ReadAhead<'_>) -> Option<Key> {
        if !ahead.is_full_for_long(client) {
            return None;
        }
        let reads = &self.reads;
        let begins = |key: &Key| {
            ahead.should_get_ready(client, &key.content)
                && reads.values().all(|read| read.key != *key)
        };
        self.turns.take(app, client, MAX_BEGIN_LOOKED_AT, begins)
    }

    /// Asks a program for the next chunk of an upload. Returns false if it has none now: it is paused, complete,
    /// or to be read by another program.
    fn read_next(
        &mut self,
        now: Time,
        app: App,
        key: Key,
        next: &mut impl FnMut(&Key) -> NextChunk,
        effects: &mut Effects,
    ) -> bool {
        if !self.catalogue.publishers(&key.content).contains(&app) {
            self.take_turn(key);
            return false;
        }
        match next(&key) {
            NextChunk::Due { index, size } => {
                let read = PendingRead {
                    app,
                    key,
                    index,
                    asked_at: now,
                };
                self.ask(read, size, effects);
                return true;
            }
            NextChunk::PausedUntil(end) => effects.set_earlier(Timer::Uploads, end),
            NextChunk::None => {}
        }
        false
    }

    /// Asks a program for a chunk of an upload, which takes its next turn behind the others.
    fn ask(&mut self, read: PendingRead, size: ChunkSize, effects: &mut Effects) {
        let (number, app, key, index) = (self.next_read, read.app, read.key, read.index);
        self.next_read += 1;
        self.reads.insert(number, read);
        self.readers.entry(app).or_default().asked += 1;
        self.take_turn(key);
        let event = LocalEvent::Read {
            read: number,
            content: key.content,
            index,
            chunk_log2: size.code(),
        };
        effects.tell(app, event);
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

    /// A program has read. Returns what it was asked for; `None` if it was not asked.
    pub(super) fn finish_read(&mut self, app: App, number: u64) -> Option<PendingRead> {
        if let Some(reader) = self.readers.get_mut(&app) {
            reader.is_silent = false;
        }
        self.reads.get(&number).filter(|read| read.app == app)?;
        let read = self.reads.remove(&number)?;
        if let Some(reader) = self.readers.get_mut(&app) {
            reader.asked -= 1;
        }
        Some(read)
    }

    /// Returns the reads of programs that have left one undone for too long: other programs may do them.
    pub(super) fn take_late_reads(&mut self, now: Time, effects: &mut Effects) -> Vec<PendingRead> {
        let late = |read: &PendingRead| now.since(read.asked_at) >= READ_PATIENCE;
        let oldest = self.reads.values().take_while(|read| late(read));
        let apps: BTreeSet<App> = oldest.map(|read| read.app).collect();
        let mut unread = Vec::new();
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
            let silent = Reader {
                asked: 0,
                is_silent: true,
            };
            self.readers.insert(app, silent);
            unread.extend(self.take_reads_of(app));
        }
        unread.iter().for_each(|_| effects.drop("unanswered-read"));
        unread
    }

    /// Passes over programs that do not read: another one may have come in the meantime.
    pub(super) fn pass_over_silent(&mut self) {
        let silent = self.readers.iter().filter(|(_, it)| it.is_silent);
        let silent: Vec<App> = silent.map(|(app, _)| *app).collect();
        silent.into_iter().for_each(|app| self.redistribute(app));
    }
}
