//! The sending side: laps are made by a thread ahead of their time, offered one after the other,
//! and read from memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, sync_channel};

use bytes::Bytes;
use whimbrel_content::ChunkSize;
use whimbrel_core::{Guid, SeededRng};
use whimbrel_mobilityfirst::local::{LocalRequest, Publish, ReadChunk};
use whimbrel_mobilityfirst::wire::ContentKind;

use super::LAP;
use super::words::Word;
use crate::shelf::{BLOCK, Repeated, Shelf};

/// Laps that are made ahead.
const AHEAD: usize = 2;

/// Makes contents whose names nobody has seen.
struct Maker {
    block: Vec<u8>,
    made: u64,
}

impl Maker {
    fn new(seed: u64) -> Maker {
        let mut rng = SeededRng::new(seed);
        let words = (0..BLOCK / 8).flat_map(|_| rng.next_word().to_le_bytes());
        Maker {
            block: words.collect(),
            made: 0,
        }
    }

    fn next(&mut self, length: u64) -> Repeated {
        self.made += 1;
        // The content begins with its number.
        self.block[..8].copy_from_slice(&self.made.to_le_bytes());
        Repeated::of(Bytes::copy_from_slice(&self.block), length)
    }
}

struct Offered {
    name: Guid,
    length: u64,
    last: bool,
}

#[derive(Default)]
struct Stream {
    /// Bytes that no lap holds yet; `None` without an end.
    left: Option<u64>,
    offered: BTreeMap<u32, Offered>,
    next: u32,
}

/// The streams that one end of a test sends.
pub(super) struct Laps {
    streams: BTreeMap<u16, Stream>,
    shelf: Shelf,
    whole: Receiver<Repeated>,
    /// For laps that are shorter.
    maker: Maker,
    /// Bytes that were read for receivers, by stream.
    read: BTreeMap<Guid, u16>,
    pub(super) sent: BTreeMap<u16, u64>,
}

impl Laps {
    /// Makes laps for `streams`, each with its bytes. `seed` must be another one for each test.
    pub(super) fn new(
        streams: impl Iterator<Item = (u16, Option<u64>)>,
        seed: u64,
    ) -> io::Result<Laps> {
        let (made, whole) = sync_channel(AHEAD);
        let streams: BTreeMap<u16, Stream> = streams
            .map(|(number, left)| {
                let stream = Stream {
                    left,
                    ..Stream::default()
                };
                (number, stream)
            })
            .collect();
        let is_long = |stream: &Stream| stream.left.is_none_or(|left| left >= LAP);
        if streams.values().any(is_long) {
            let mut maker = Maker::new(seed);
            // Ends with the receiving end of the channel.
            std::thread::Builder::new()
                .name("laps".into())
                .spawn(move || while made.send(maker.next(LAP)).is_ok() {})?;
        }
        Ok(Laps {
            sent: streams.keys().map(|number| (*number, 0)).collect(),
            streams,
            shelf: Shelf::new(None),
            whole,
            maker: Maker::new(!seed),
            read: BTreeMap::new(),
        })
    }

    /// Answers a receiver that wants a lap. Its name may reach the name service later than the
    /// answer the receiver, who then looks for it again.
    pub(super) fn wanted(
        &mut self,
        number: u16,
        lap: u32,
        requests: &mut Vec<LocalRequest>,
    ) -> Option<Word> {
        let stream = self.streams.get_mut(&number)?;
        if let Some(offered) = stream.offered.get(&lap) {
            return Some(word(number, lap, offered));
        }
        // A receiver asks for a lap when at most one before it is not whole.
        if lap != stream.next || stream.left == Some(0) {
            return None;
        }
        stream.next += 1;
        let length = stream.left.map_or(LAP, |left| left.min(LAP));
        let content = match length {
            LAP => self.whole.recv().ok()?,
            _ => self.maker.next(length),
        };
        stream.left = stream.left.map(|left| left - length);
        let offered = Offered {
            name: content.name(),
            length,
            last: stream.left == Some(0),
        };
        let word = word(number, lap, &offered);
        requests.push(LocalRequest::Publish(Publish {
            content: offered.name,
            content_len: length,
            kind: ContentKind::File,
            file_name: String::new(),
        }));
        self.read.insert(offered.name, number);
        self.shelf.put_repeated(content);
        stream.offered.insert(lap, offered);
        while stream.offered.len() > 2
            && let Some((_, old)) = stream.offered.pop_first()
        {
            requests.push(withdraw(old.name));
            self.shelf.remove(&old.name);
            self.read.remove(&old.name);
        }
        Some(word)
    }

    /// Reads a chunk; `None` if the content is none of these.
    pub(super) fn read(
        &mut self,
        content: &Guid,
        index: u32,
        chunk_log2: u8,
    ) -> Option<Option<ReadChunk>> {
        let stream = self.read.get(content)?;
        let size = ChunkSize::from_code(chunk_log2);
        let chunk = size.and_then(|size| self.shelf.read(*content, index, size).ok());
        let bytes = chunk.as_ref().map_or(0, |chunk| chunk.data.len() as u64);
        *self.sent.entry(*stream).or_default() += bytes;
        Some(chunk)
    }

    /// Returns the requests that take everything back.
    pub(super) fn end(&self) -> impl Iterator<Item = LocalRequest> {
        self.read.keys().map(|name| withdraw(*name))
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

fn withdraw(content: Guid) -> LocalRequest {
    LocalRequest::Withdraw { content }
}
