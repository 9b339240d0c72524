//! Programs that take their chunks more slowly than they arrive: end-to-end flow control [MFTP
//! §3.4.2].
//!
//! Back-pressure holds up everything that comes by the same hop, so it is unsuitable against one
//! slow program. Its source is told to stop instead, and then asked for as many chunks as there is
//! room for. "The NACK and flow control are fulfilled by a single message": that message names the
//! chunks, so a source needs no knowledge of windows.

use super::super::App;
use super::super::effects::Effects;
use super::Downloads;
use crate::wire::{ChunkRanges, ServiceId, Transport};

impl Downloads {
    /// Notes that a program holds, or soon will hold, more than it may. `asked` is true if the
    /// chunk was requested as one that there would be room for.
    pub(super) fn note_overflow(&mut self, id: u64, asked: bool, effects: &mut Effects) {
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        let half = self.shares.limit(download.app) / 2 / download.chunk_packets;
        if download.is_unrequested() || download.is_sent_once() {
            return;
        }
        let outgrown = download.under_way.count() > half.max(1);
        match download.window {
            Some(window) if !outgrown => {
                if asked {
                    download.window = Some((window / 2).max(1));
                }
            }
            _ => {
                download.window = Some(half.max(1));
                download.under_way = ChunkRanges::default();
                self.metered.insert((download.app, id));
                self.stop_sending(id, effects);
            }
        }
    }

    /// Tells the source of a download to send nothing for now, unless another download of the same
    /// content takes all that comes.
    fn stop_sending(&mut self, id: u64, effects: &mut Effects) {
        let Some(download) = self.by_id.get(&id) else {
            return;
        };
        let (content, log2) = (download.content, download.chunk_size.code());
        let same = self.by_content.get(&content).into_iter().flatten();
        let is_wanted = same
            .filter_map(|id| self.by_id.get(id))
            .any(|other| other.window.is_none());
        if let Some((source, address)) = download.source.filter(|_| !is_wanted) {
            let (request_id, at) = (Some(download.request_id), (source, address));
            self.send_stop(request_id, (content, log2), at, effects);
        }
    }

    /// Continues the metered downloads of a program that has used a chunk, or reads again.
    pub(in crate::host) fn refill(&mut self, app: App, effects: &mut Effects) {
        let of_app = (app, u64::MIN)..=(app, u64::MAX);
        let ids: Vec<u64> = self.metered.range(of_app).map(|(_, id)| *id).collect();
        ids.into_iter().for_each(|id| self.refill_one(id, effects));
    }

    fn refill_one(&mut self, id: u64, effects: &mut Effects) {
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        let (Some(window), Some((source, address))) = (download.window, download.source) else {
            return;
        };
        let taken = download.waiting() + download.under_way.count();
        // Its program has nothing left to do: it is no longer slow, or waits for a chunk that comes
        // before those that are here.
        let starved = download.unconsumed == 0;
        // Each message asks for a few chunks.
        if taken * 4 > window * 3 && !(starved && download.under_way.is_empty()) {
            return;
        }
        let growth = if starved { (window / 8).max(1) } else { 0 };
        let window = window.saturating_add(growth);
        download.window = Some(window);
        let chunks = download.first_missing(window.saturating_sub(taken).max(1));
        if chunks.is_empty() {
            return;
        }
        download.under_way.union(&chunks);
        let request = download.request_for(chunks);
        effects.counters.nacks_sent += 1;
        // This host knows what is not under way: chunks that were sent lately and came too soon
        // must be sent again.
        let message = Transport::Resend(request);
        let (request_id, at) = (Some(download.request_id), (source, address));
        let treatment = download.treatment(ServiceId::UNICAST);
        effects.send_about(request_id, treatment, at, message);
    }
}
