//! The chunks that a neighbour took a moment ago: a request that crosses them on its way is not a
//! request for them.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::{Guid, Time};

use crate::wire::{Data, NetworkHeader, Request};

/// Maximum of remembered chunks per neighbour; the oldest is forgotten.
const MAX_ENTRIES: usize = 64;
/// For this long, at least, a chunk that was delivered is not sent again for a repeated request ...
pub(crate) const MIN_GUARD: Duration = Duration::from_secs(1);
/// ... and for this long at most.
const MAX_GUARD: Duration = Duration::from_secs(30);

/// Returns for how long a chunk of this size that was delivered over a link of this rate, in bytes
/// per second, is not sent again for a repeated request: for what it takes on the link. A request
/// that a thin link, or a link that was thought silent, has held up comes as late.
pub(crate) fn repeat_guard(bytes: usize, rate: Option<u64>) -> Duration {
    let takes = rate.map_or(0, |rate| bytes as u64 * 1_000 / rate.max(1));
    Duration::from_millis(takes).clamp(MIN_GUARD, MAX_GUARD)
}

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
    /// The neighbour has taken a chunk, which is remembered for this long.
    pub(crate) fn note(&mut self, now: Time, lasts: Duration, header: &NetworkHeader, data: &Data) {
        let Some(request) = header.extensions.request else {
            return;
        };
        let is_over = |it: &Taken| it.until <= now;
        while self.0.len() >= MAX_ENTRIES || self.0.front().is_some_and(is_over) {
            self.0.pop_front();
        }
        self.0.push_back(Taken {
            client: header.receiver(),
            content: data.content,
            request,
            chunk: (data.chunk_log2, data.index),
            until: now + lasts,
        });
    }

    /// The neighbour is another run, which has nothing.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::wire::{ChunkRanges, ContentKind, Reliability, ServiceId, UpperProtocol};

    const CLIENT: Guid = Guid([9; 32]);
    const CONTENT: Guid = Guid([7; 32]);

    fn note(taken: &mut RecentlyTaken, now: Time, index: u32) {
        let (service, upper) = (ServiceId::CONTENT_RESPONSE, UpperProtocol::Transport);
        let mut header = NetworkHeader::new(service, upper, Guid([1; 32]), CLIENT);
        header.extensions.request = Some(77);
        let data = Data {
            content: CONTENT,
            index,
            chunk_log2: 14,
            content_len: 1 << 30,
            kind: ContentKind::File,
            reliability: Reliability::Nack,
            file_name: String::new(),
            proof: Bytes::new(),
            payload: Bytes::new(),
        };
        taken.note(now, MIN_GUARD, &header, &data);
    }

    /// Returns what is left of a request for the first thousand chunks.
    fn left(taken: &RecentlyTaken, now: Time, client: Guid, id: Option<u64>) -> ChunkRanges {
        let mut request = Request::new(CONTENT, 14, Reliability::Nack, ChunkRanges::from(0..1_000));
        taken.subtract_from(now, &client, id, &mut request);
        request.chunks
    }

    #[test]
    fn the_last_chunks_count_for_the_request_that_they_answer() {
        let mut taken = RecentlyTaken::default();
        (0..1_000).for_each(|index| note(&mut taken, Time::ZERO, index));
        assert_eq!(taken.0.len(), MAX_ENTRIES);
        let all = ChunkRanges::from(0..1_000);
        let older = ChunkRanges::from(0..1_000 - MAX_ENTRIES as u32);
        assert_eq!(left(&taken, Time::ZERO, CLIENT, Some(77)), older);
        for (client, id) in [(CLIENT, Some(78)), (CLIENT, None), (CONTENT, Some(77))] {
            assert_eq!(left(&taken, Time::ZERO, client, id), all);
        }
        assert_eq!(left(&taken, Time::from_secs(1), CLIENT, Some(77)), all);
        note(&mut taken, Time::from_secs(1), 5);
        assert_eq!(taken.0.len(), 1);
        taken.forget();
        assert_eq!(left(&taken, Time::from_secs(1), CLIENT, Some(77)), all);
    }

    #[test]
    fn the_guard_follows_the_link() {
        let guard = |rate| repeat_guard(16 << 10, rate).as_secs();
        let rates = [None, Some(1_000_000), Some(1_200), Some(0)];
        assert_eq!(rates.map(guard), [1, 1, 13, 30]);
    }
}
