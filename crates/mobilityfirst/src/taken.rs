//! The chunks that a neighbour took a moment ago: a request that crosses them on its way is not a
//! request for them.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::{Guid, Time};

use crate::chunk::Chunk;
use crate::wire::Request;

/// Maximum of remembered chunks per neighbour; the oldest is forgotten.
const MAX_ENTRIES: usize = 64;
/// A chunk is remembered for what it takes on the link, within these bounds: a request that a thin
/// link, or a link that was thought silent, has held up comes as late.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Taken {
    client: Guid,
    content: Guid,
    // Of the request that it answers: one of a later download has another.
    request: u64,
    chunk: (u8, u32),
    until: Time,
}

/// What one neighbour took last.
#[derive(Debug, Default)]
pub(crate) struct RecentlyTaken(VecDeque<Taken>);

impl RecentlyTaken {
    /// The neighbour has taken a chunk over a link of this rate, in bytes per second.
    pub(crate) fn note(&mut self, now: Time, chunk: &Chunk, rate: Option<u64>) {
        let (Some(data), Some(request)) = (chunk.data(), chunk.header.extensions.request) else {
            return;
        };
        let takes = rate.map_or(0, |rate| chunk.size() as u64 * 1_000 / rate.max(1));
        let lasts = Duration::from_millis(takes).clamp(SHORTEST, LONGEST);
        if self.0.len() >= MAX_ENTRIES {
            self.0.pop_front();
        }
        self.0.push_back(Taken {
            client: chunk.header.destination,
            content: data.content,
            request,
            chunk: (data.chunk_log2, data.index),
            until: now + lasts,
        });
    }

    /// Takes from a request of `client` with this id what answers it already.
    pub(crate) fn subtract_from(
        &self,
        now: Time,
        client: &Guid,
        id: Option<u64>,
        request: &mut Request,
    ) {
        let answers = |it: &&Taken| {
            it.until > now
                && it.client == *client
                && it.content == request.content
                && Some(it.request) == id
        };
        let chunks = self.0.iter().filter(answers).map(|it| it.chunk).collect();
        request.subtract(chunks);
    }
}
