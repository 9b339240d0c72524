//! The programs of a world's hosts, and the model of what they must be told.

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_core::Time;
use whimbrel_mobilityfirst::local::{
    Get, LocalChunk, LocalEvent, LocalRequest, Publish, ReadChunk,
};
use whimbrel_mobilityfirst::wire::{ContentKind, Reliability};

use super::{Fault, library};

/// Chunks that a program takes before it has used the first.
const CREDIT: u16 = 4;
/// The smallest chunk, so that small contents have several.
const CHUNK_LOG2: u8 = 16;

/// One request of a program.
#[derive(Debug)]
pub(super) struct Download {
    pub(super) content: usize,
    /// How often the content had been asked for before in vain.
    pub(super) repeated: u64,
    // Start and end of what was handed over, in bytes.
    parts: BTreeMap<u64, u64>,
}

impl Download {
    fn new(content: usize, repeated: u64) -> Download {
        Download {
            content,
            repeated,
            parts: BTreeMap::new(),
        }
    }

    /// Bytes handed over.
    pub(super) fn got(&self) -> u64 {
        self.parts.iter().map(|(start, end)| end - start).sum()
    }

    /// Notes a part; false if some of it has been handed over before.
    fn add(&mut self, start: u64, end: u64) -> bool {
        let before = self.parts.range(..end.max(start + 1)).next_back();
        if before.is_some_and(|(_, known_end)| *known_end > start) {
            return false;
        }
        self.parts.insert(start, end.max(start));
        true
    }
}

/// What a program wants of the world after an event.
#[derive(Debug, PartialEq)]
pub(super) enum Consequence {
    /// Say this to the host.
    Request(LocalRequest),
    /// A request has completed.
    Completed,
    /// A request was refused; ask for this content again later.
    AskAgain { content: usize, repeated: u64 },
}

/// The one program of a host: it serves its share of the library and fetches what it is told to.
#[derive(Debug)]
pub(super) struct Program {
    host: usize,
    hosts: usize,
    paused: bool,
    // What it will say when it is no longer paused.
    held: Vec<LocalRequest>,
    pub(super) downloads: BTreeMap<u32, Download>,
}

impl Program {
    pub(super) fn new(host: usize, hosts: usize) -> Program {
        Program {
            host,
            hosts,
            paused: false,
            held: Vec::new(),
            downloads: BTreeMap::new(),
        }
    }

    /// What it says when its host starts.
    pub(super) fn greetings(&self) -> Vec<LocalRequest> {
        let mine = library::contents().iter().enumerate();
        mine.filter(|(number, _)| number % self.hosts == self.host)
            .map(|(_, content)| {
                LocalRequest::Publish(Publish {
                    content: content.name(),
                    content_len: content.len(),
                    kind: ContentKind::File,
                    file_name: String::from("content"),
                })
            })
            .collect()
    }

    /// Asks for a content under a fresh number.
    pub(super) fn get(&mut self, request: u32, content: usize, repeated: u64) -> LocalRequest {
        self.downloads
            .insert(request, Download::new(content, repeated));
        LocalRequest::Get(Get {
            request,
            content: library::contents()[content].name(),
            chunk_log2: CHUNK_LOG2,
            in_order: request.is_multiple_of(2),
            reliability: Reliability::Nack,
            nack_timeout_ms: 0,
            credit: CREDIT,
            resume: Bytes::new(),
        })
    }

    /// Gives up the oldest request.
    pub(super) fn cancel(&mut self) -> Option<LocalRequest> {
        let (request, _) = self.downloads.pop_first()?;
        Some(LocalRequest::Cancel { request })
    }

    /// Stops to answer its host, or starts again with all that it owes.
    pub(super) fn pause(&mut self, paused: bool) -> Vec<LocalRequest> {
        self.paused = paused;
        if paused {
            Vec::new()
        } else {
            core::mem::take(&mut self.held)
        }
    }

    /// What its host tells it.
    pub(super) fn handle(&mut self, event: LocalEvent) -> Result<Option<Consequence>, Fault> {
        match event {
            LocalEvent::Read {
                read,
                content,
                index,
                chunk_log2,
            } => {
                let known = library::contents()
                    .iter()
                    .find(|known| known.name() == content);
                let chunk: Option<ReadChunk> =
                    known.and_then(|content| content.read(index, chunk_log2));
                Ok(self.say(LocalRequest::ReadDone { read, chunk }))
            }
            LocalEvent::Chunk(chunk) => {
                self.check(&chunk)?;
                let request = chunk.request;
                Ok(self.say(LocalRequest::Consumed { request }))
            }
            LocalEvent::Complete {
                request,
                content_len,
            } => self.complete(request, content_len),
            LocalEvent::Failed { request, .. } => {
                let Some(download) = self.downloads.remove(&request) else {
                    return Ok(None);
                };
                Ok(Some(Consequence::AskAgain {
                    content: download.content,
                    repeated: download.repeated + 1,
                }))
            }
            LocalEvent::State { .. }
            | LocalEvent::Published { .. }
            | LocalEvent::Pong { .. }
            | LocalEvent::Message { .. }
            | LocalEvent::Status { .. } => Ok(None),
        }
    }

    fn say(&mut self, request: LocalRequest) -> Option<Consequence> {
        if self.paused {
            self.held.push(request);
            return None;
        }
        Some(Consequence::Request(request))
    }

    fn check(&mut self, chunk: &LocalChunk) -> Result<(), Fault> {
        let Some(download) = self.downloads.get_mut(&chunk.request) else {
            return Ok(()); // Given up; its host may not know yet.
        };
        let (host, content) = (self.host, download.content);
        let known = &library::contents()[content];
        let start = u64::from(chunk.index) << chunk.chunk_log2;
        let end = start + chunk.data.len() as u64;
        if end > known.len() || known.bytes(start, end) != chunk.data {
            return Err(Fault::WrongBytes { host, content });
        }
        if !download.add(start, end) {
            return Err(Fault::Twice { host, content });
        }
        Ok(())
    }

    fn complete(&mut self, request: u32, content_len: u64) -> Result<Option<Consequence>, Fault> {
        let Some(download) = self.downloads.remove(&request) else {
            return Ok(None);
        };
        let (host, content) = (self.host, download.content);
        let len = library::contents()[content].len();
        let got = download.got();
        if got != len || content_len != len {
            return Err(Fault::Incomplete {
                host,
                content,
                got,
                len,
            });
        }
        Ok(Some(Consequence::Completed))
    }

    /// What keeps the world from being done.
    pub(super) fn stuck(&self, ended: Time, now: Time) -> Option<Fault> {
        let download = self.downloads.values().next()?;
        Some(Fault::Stuck {
            host: self.host,
            content: download.content,
            got: download.got(),
            len: library::contents()[download.content].len(),
            waited_s: now.since(ended).as_secs(),
            repeated: download.repeated,
        })
    }
}
