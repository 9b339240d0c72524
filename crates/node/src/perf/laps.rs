//! The sending side: laps are hashed by a thread ahead of their time, offered one after the other, and
//! read from memory that all of them share.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, sync_channel};

use whimbrel_client::session::{ProgramSession, WantedChunk};
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{Publish, ReadChunk, TransferOptions};
use whimbrel_mobilityfirst::wire::ContentKind;

use super::LAP;
use super::words::Word;
use crate::shelf::{Blocks, Repeated, Shelf};

/// Laps that are made ahead.
const AHEAD: usize = 2;
/// Laps of a stream that are on offer at a time.
const OFFERED: usize = 2;

struct Offered {
    name: Guid,
    length: u64,
    last: bool,
    /// Bytes of it that were read for its receiver.
    read: u64,
}

#[derive(Default)]
struct Stream {
    /// Bytes that no lap holds yet; `None` without an end.
    left: Option<u64>,
    offered: BTreeMap<u32, Offered>,
    next: u32,
    /// Bytes that were read for its receiver.
    sent: u64,
}

impl Stream {
    /// Whether a lap is the next one, and its receiver has half of the one before: naming it costs more
    /// than asking.
    fn may_name(&self, lap: u32) -> bool {
        let before = self.offered.last_key_value();
        let has_half = before.is_none_or(|(_, before)| before.read * 2 >= before.length);
        lap == self.next && self.left != Some(0) && has_half
    }
}

/// The streams that one end of a test sends.
pub(super) struct Laps {
    streams: BTreeMap<u16, Stream>,
    shelf: Shelf,
    blocks: Blocks,
    /// Long laps, once one was wanted.
    long: Option<Receiver<Repeated>>,
    /// The stream and lap of each content on offer.
    names: BTreeMap<Guid, (u16, u32)>,
}

impl Laps {
    /// Offers laps for `streams`, each with its bytes.
    pub(super) fn new(streams: impl Iterator<Item = (u16, Option<u64>)>, blocks: Blocks) -> Laps {
        let stream = |(number, left)| {
            let stream = Stream {
                left,
                ..Stream::default()
            };
            (number, stream)
        };
        Laps {
            streams: streams.map(stream).collect(),
            shelf: Shelf::new(None),
            blocks,
            long: None,
            names: BTreeMap::new(),
        }
    }

    /// Returns the number of streams.
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Returns the bytes that were read for receivers, by stream.
    pub(super) fn sent(&self) -> impl Iterator<Item = (u16, u64)> {
        let streams = self.streams.iter();
        streams.map(|(number, stream)| (*number, stream.sent))
    }

    /// Answers a receiver that wants a lap. Its name may reach the name service later than the
    /// answer the receiver, who then looks for it again.
    pub(super) fn wanted(
        &mut self,
        number: u16,
        lap: u32,
        session: &mut ProgramSession,
    ) -> io::Result<Option<Word>> {
        let Some(stream) = self.streams.get(&number) else {
            return Ok(None);
        };
        if let Some(offered) = stream.offered.get(&lap) {
            return Ok(Some(word(number, lap, offered)));
        }
        if !stream.may_name(lap) {
            return Ok(None);
        }
        let length = stream.left.map_or(LAP, |left| left.min(LAP));
        let content = match length {
            LAP => self.long_lap()?,
            _ => self.blocks.next(length),
        };
        let Some(stream) = self.streams.get_mut(&number) else {
            return Ok(None);
        };
        stream.next = lap.wrapping_add(1);
        stream.left = stream.left.map(|left| left - length);
        let offered = Offered {
            name: content.name(),
            length,
            last: stream.left == Some(0),
            read: 0,
        };
        let word = word(number, lap, &offered);
        let publish = Publish {
            content: offered.name,
            content_len: length,
            kind: ContentKind::File,
            file_name: String::new(),
        };
        let options = TransferOptions::default();
        session.publish(publish, options, false);
        self.names.insert(offered.name, (number, lap));
        self.shelf.put_repeated(content);
        stream.offered.insert(lap, offered);
        while stream.offered.len() > OFFERED
            && let Some((_, old)) = stream.offered.pop_first()
        {
            session.withdraw(old.name);
            self.shelf.remove(&old.name);
            self.names.remove(&old.name);
        }
        Ok(Some(word))
    }

    /// Returns a lap of [`LAP`] bytes. The thread that makes them ends with the receiving end of its
    /// channel.
    fn long_lap(&mut self) -> io::Result<Repeated> {
        if self.long.is_none() {
            let (made, whole) = sync_channel(AHEAD);
            let blocks = self.blocks.clone();
            let make = move || while made.send(blocks.next(LAP)).is_ok() {};
            std::thread::Builder::new()
                .name("laps".into())
                .spawn(make)?;
            self.long = Some(whole);
        }
        let made = self.long.as_ref().and_then(|long| long.recv().ok());
        Ok(made.unwrap_or_else(|| self.blocks.next(LAP)))
    }

    /// Reads a chunk; `None` if the content is none of these.
    pub(super) fn read(&mut self, wanted: &WantedChunk) -> Option<Option<ReadChunk>> {
        let (number, lap) = self.names.get(&wanted.content)?;
        let read = (self.shelf).read(wanted.content, wanted.index, wanted.chunk_size);
        let chunk = read.ok();
        let bytes = chunk.as_ref().map_or(0, |chunk| chunk.data.len() as u64);
        if let Some(stream) = self.streams.get_mut(number) {
            stream.sent += bytes;
            if let Some(offered) = stream.offered.get_mut(lap) {
                offered.read += bytes;
            }
        }
        Some(chunk)
    }

    /// Takes everything back.
    pub(super) fn end(&self, session: &mut ProgramSession) {
        self.names.keys().for_each(|name| session.withdraw(*name));
    }
}

fn word(stream: u16, lap: u32, offered: &Offered) -> Word {
    Word::Lap {
        stream,
        lap,
        name: offered.name,
        length: offered.length,
        last: offered.last,
    }
}
