//! One download: what has come, what is missing, and what may be handed over.

use std::collections::BTreeMap;

use core::time::Duration;
use whimbrel_content::{Assembly, ChunkSize};
use whimbrel_core::{Guid, Time};

use super::super::App;
use crate::local::{Get, LocalChunk, TransferState};
use crate::room::Room;
use crate::wire::{ChunkRanges, MAX_RANGES, Reliability};

/// Longest pause between two NACKs or requests.
const MAX_PAUSE: Duration = Duration::from_secs(30);

pub(super) struct Held {
    pub(super) chunk: LocalChunk,
    // Held until a program has the chunk.
    pub(super) _room: Room,
}

pub(super) struct Download {
    pub(super) app: App,
    pub(super) request: u32,
    pub(super) content: Guid,
    pub(super) chunk_size: ChunkSize,
    pub(super) in_order: bool,
    pub(super) reliability: Reliability,
    pub(super) nack_timeout: Duration,
    pub(super) credit: u16,
    pub(super) unconsumed: u16,
    pub(super) assembly: Assembly,
    // By offset in the content, in bytes.
    pub(super) held: BTreeMap<u64, Held>,
    pub(super) next_offset: u64,
    pub(super) source: Option<(Guid, Guid)>,
    pub(super) state: TransferState,
    pub(super) attempts: u32,
    pub(super) unserved: u32,
    pub(super) last_arrival: Option<Time>,
    pub(super) last_resend: Option<Time>,
    // Smoothed time between two chunks: a slow link is no reason to complain.
    pub(super) interval: Duration,
}

impl Download {
    pub(super) fn new(
        app: App,
        get: &Get,
        assembly: Assembly,
        chunk_size: ChunkSize,
        nack_timeout: Duration,
    ) -> Download {
        let next_offset = if get.in_order {
            assembly.deliverable().end
        } else {
            0
        };
        Download {
            app,
            request: get.request,
            content: get.content,
            chunk_size,
            in_order: get.in_order,
            reliability: get.reliability,
            nack_timeout,
            credit: get.credit.max(1),
            unconsumed: 0,
            assembly,
            held: BTreeMap::new(),
            next_offset,
            source: None,
            state: TransferState::Requested,
            attempts: 0,
            unserved: 0,
            last_arrival: None,
            last_resend: None,
            interval: Duration::ZERO,
        }
    }

    /// What to ask for: all that is missing, as far as one message can say it.
    pub(super) fn missing(&self) -> ChunkRanges {
        let mut missing = ChunkRanges::default();
        if self.assembly.expected_len().is_none() {
            missing = ChunkRanges::all();
            for range in self.assembly.verified().iter() {
                let whole = range.start.div_ceil(self.chunk_size.bytes())
                    ..self.chunk_size.index_of(range.end);
                missing.remove_range(whole.start as u32..whole.end as u32);
            }
            return missing;
        }
        let mut ranges = 0;
        let mut last = None;
        for index in self.assembly.missing_chunks(self.chunk_size) {
            ranges += usize::from(last.is_none_or(|last| index > last + 1));
            if ranges > MAX_RANGES {
                break;
            }
            missing.insert(index as u32);
            last = Some(index);
        }
        missing
    }

    /// How long nothing may come before it is asked for again.
    pub(super) fn patience(&self) -> Duration {
        let slow = self.nack_timeout.max(self.interval * 4);
        slow.saturating_mul(1 << self.attempts.min(5))
            .min(MAX_PAUSE.max(self.nack_timeout))
    }

    /// The next held chunk that may be handed over.
    pub(super) fn next_deliverable(&mut self) -> Option<Held> {
        if self.unconsumed >= self.credit {
            return None;
        }
        if !self.in_order {
            return self.held.pop_first().map(|(_, held)| held);
        }
        let first = *self.held.keys().next()?;
        if first > self.next_offset {
            return None;
        }
        let held = self.held.remove(&first)?;
        self.next_offset = self.next_offset.max(first + held.chunk.data.len() as u64);
        Some(held)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.assembly.is_complete() && self.held.is_empty()
    }

    pub(super) fn note_arrival(&mut self, now: Time) {
        if let Some(last) = self.last_arrival {
            self.interval = (self.interval * 3 + now.since(last)) / 4;
        }
        self.last_arrival = Some(now);
        self.attempts = 0;
    }
}
