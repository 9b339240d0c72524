//! Requests: which chunks, when, and from which source.

use core::time::Duration;
use whimbrel_content::ChunkSize;
use whimbrel_core::{Guid, Time};

use super::super::Timer;
use super::super::effects::{Effects, Located, Uplink};
use super::Downloads;
use super::window::{QUIET, send_stop};
use crate::local::{FailReason, TransferState};
use crate::wire::{ChunkRanges, Data, DropReason, NetworkHeader, Notice, ServiceId, Transport};

/// Pause between notices to a source that sends chunks which no program here wants.
const STOP_INTERVAL: Duration = Duration::from_secs(1);
/// A router's restart is acted on once in this time: any node can claim that one has restarted.
const RESEND_INTERVAL: Duration = Duration::from_secs(1);
/// Bound of the sources that are remembered as told to stop.
const MAX_STOPPED: usize = 1024;

impl Downloads {
    /// Sends a request (no holder has answered yet, or the source has gone silent) or a NACK to the
    /// source.
    pub(super) fn ask(&mut self, now: Time, id: u64, uplink: &Uplink, effects: &mut Effects) {
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        if let Some(look) = download.awaits_rate(now, uplink) {
            return effects.set(Timer::Download(id), look);
        }
        if uplink.is_up {
            download.asking.asked_at.get_or_insert(now);
        }
        let chunks = download.wanted();
        let request = download.request_for(chunks);
        download.refusals.note_asked();
        let (content, patience) = (download.content, download.patience());
        let request_id = Some(download.request_id);
        // A source that has not answered two NACKs may be gone; another holder may answer.
        let is_sent = download.is_unrequested();
        let source = (download.source).filter(|_| download.asking.attempts <= 2 || is_sent);
        match source {
            Some(source) => {
                effects.counters.nacks_sent += 1;
                let treatment = download.treatment(ServiceId::UNICAST);
                let nack = Transport::Nack(request);
                effects.send_about(request_id, treatment, source, nack)
            }
            None => {
                effects.counters.requests_sent += 1;
                let (service, to) = match download.caller() {
                    Some(caller) => (ServiceId::UNICAST, caller),
                    None => (ServiceId::CONTENT_REQUEST, content),
                };
                let treatment = download.treatment(service);
                let message = match download.asking.again {
                    true => Transport::Resend(request),
                    false => Transport::Request(request),
                };
                effects.send_about(request_id, treatment, Located::anywhere(to), message)
            }
        };
        let hedge = download.next_hedge(now, uplink.round_trip);
        let at = hedge.filter(|_| uplink.is_up).unwrap_or(now + patience);
        if !uplink.is_up {
            self.set_state(id, TransferState::Disconnected, effects);
        }
        effects.set(Timer::Download(id), at);
    }

    /// Handles the notice that a router which had taken over chunks has restarted. The notice came
    /// behind all chunks that the router had passed on, so those still missing are lost.
    pub(in crate::host) fn handle_lost(
        &mut self,
        now: Time,
        notice: &Notice,
        effects: &mut Effects,
    ) {
        for id in self.ids_of(&notice.content) {
            let Some(download) = self.by_id.get_mut(&id) else {
                continue;
            };
            let chunks = download.awaited().intersection(&notice.chunks);
            let recent = download
                .asking
                .last_resend
                .is_some_and(|last| now.since(last) < RESEND_INTERVAL);
            let Some(source) = download.source.filter(|it| it.name == notice.source) else {
                continue;
            };
            if chunks.is_empty() || recent || download.is_sent_once() {
                continue;
            }
            download.asking.last_resend = Some(now);
            let request = download.request_for(chunks);
            effects.counters.nacks_sent += 1;
            let request_id = Some(download.request_id);
            let treatment = download.treatment(ServiceId::UNICAST);
            effects.send_about(request_id, treatment, source, Transport::Resend(request));
        }
    }

    /// "The receiver provides notification only when a chunk is not delivered over a conservatively
    /// long period of time."
    pub(in crate::host) fn check_download(
        &mut self,
        now: Time,
        id: u64,
        uplink: &Uplink,
        effects: &mut Effects,
    ) {
        let connected = uplink.is_up;
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        let is_asked = download.asking.asked_at.is_some();
        if download.is_sent_once() && is_asked && !download.program_is_slow() {
            return self.end_incomplete(id, effects);
        }
        if !connected || download.program_is_slow() {
            let patience = download.patience();
            effects.set(Timer::Download(id), now + patience);
            if !connected {
                self.set_state(id, TransferState::Disconnected, effects);
            }
            return;
        }
        if download.asking.asked_at.is_none() {
            return self.ask(now, id, uplink, effects);
        }
        // Chunks that were lost on the way may have used up the window.
        if let (Some(_), Some(last)) = (download.quiet_time(), download.arrivals.last) {
            let at = (last + download.patience()).max(now + QUIET);
            effects.set(Timer::Download(id), at);
            return self.repeat_window(id, effects);
        }
        // The router passes a repeated request to a provider that was not asked yet; the others may
        // still answer.
        if download.is_hedged_at(now) {
            download.asking.hedges += 1;
            return self.ask(now, id, uplink, effects);
        }
        download.asking.attempts += 1;
        self.set_state(id, TransferState::Stalled, effects);
        self.ask(now, id, uplink, effects);
    }

    /// Stops a source of chunks that no program here wants: a program has gone, or this host
    /// restarted.
    pub(super) fn stop_source(
        &mut self,
        now: Time,
        header: &NetworkHeader,
        data: &Data,
        effects: &mut Effects,
    ) {
        effects.counters.drop("unwanted-chunk");
        self.tell_to_stop(now, header, data, effects);
    }

    /// Tells who sent a chunk to send no more, once in [`STOP_INTERVAL`].
    pub(super) fn tell_to_stop(
        &mut self,
        now: Time,
        header: &NetworkHeader,
        data: &Data,
        effects: &mut Effects,
    ) {
        let key = (header.source, data.content);
        if self
            .stopped
            .get(&key)
            .is_some_and(|last| now.since(*last) < STOP_INTERVAL)
        {
            return;
        }
        if self.stopped.len() >= MAX_STOPPED {
            self.stopped
                .retain(|_, last| now.since(*last) < STOP_INTERVAL);
        }
        if self.stopped.len() < MAX_STOPPED {
            self.stopped.insert(key, now);
            let (request_id, source) = (header.extensions.request, Located::source_of(header));
            send_stop(request_id, data.content, data.chunk_log2, source, effects);
        }
    }

    /// Returns true if the dropped chunk was a request for content, not content that this host
    /// sent.
    pub(in crate::host) fn sent(&self, dropped: &Notice) -> bool {
        let of_request = dropped.destination == dropped.content || dropped.chunks.is_empty();
        of_request && self.by_content.contains_key(&dropped.content)
    }

    /// Notes that a router keeps a request because it reaches no holder of the content. Returns
    /// false if the notice is about something else.
    pub(in crate::host) fn note_stored(
        &mut self,
        now: Time,
        router: Guid,
        notice: &Notice,
    ) -> bool {
        let mut is_ours = false;
        for id in self.ids_of(&notice.content) {
            let Some(download) = self.by_id.get_mut(&id) else {
                continue;
            };
            let of_source = download
                .source
                .is_some_and(|source| source.name == notice.destination);
            if notice.destination == notice.content || of_source {
                is_ours = true;
                download.silence.absent_since = None;
                download.silence.kept_by.get_or_insert((router, now)).0 = router;
            }
        }
        is_ours
    }

    /// Handles the notice that the network has dropped a request.
    pub(in crate::host) fn handle_drop(
        &mut self,
        now: Time,
        from: Guid,
        content: &Guid,
        reason: DropReason,
        uplink: &Uplink,
        effects: &mut Effects,
    ) {
        for id in self.ids_of(content) {
            self.request_dropped(now, from, id, reason, uplink, effects);
        }
    }

    fn request_dropped(
        &mut self,
        now: Time,
        from: Guid,
        id: u64,
        reason: DropReason,
        uplink: &Uplink,
        effects: &mut Effects,
    ) {
        let asked_directly = uplink.router == Some(from);
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        // Its sender alone has it, and may come back.
        if download.is_unrequested() && reason != DropReason::TooLarge {
            download.silence.absent_since.get_or_insert(now);
            return;
        }
        let begun = download.arrivals.last.is_some() || download.assembly.verified_bytes() > 0;
        match reason {
            // Only this host's own router has asked the name service on its behalf. Anyone else who
            // was asked can say so too, and knows of itself alone.
            DropReason::NoSuchName | DropReason::NoNameService if !asked_directly => {
                self.not_served(now, from, id, uplink, effects)
            }
            DropReason::NoSuchName if !begun => self.fail(id, FailReason::NoSuchName, effects),
            DropReason::NoNameService if !begun => {
                self.fail(id, FailReason::NoNameService, effects)
            }
            // Who served it may come back.
            DropReason::NoSuchName | DropReason::NoNameService => {
                download.silence.absent_since.get_or_insert(now);
            }
            // After a direct request to one host, there is no other holder to ask. One that has sent a part may
            // be starting again, before its programs have returned.
            DropReason::NotServed if asked_directly && !begun => {
                self.fail(id, FailReason::NotServed, effects)
            }
            DropReason::NotServed => self.not_served(now, from, id, uplink, effects),
            DropReason::TooLarge => match ChunkSize::from_code(download.chunk_size.code() - 1) {
                Some(smaller) => {
                    download.chunk_size = smaller;
                    download.window.divide(1, u32::MAX);
                    download.window.forget_under_way();
                    self.ask(now, id, uplink, effects);
                }
                None => self.fail(id, FailReason::TooLarge, effects),
            },
            // The timer asks again.
            _ => {}
        }
    }

    /// Handles a node's answer that it does not serve a content. Anyone may announce it: the next
    /// provider may have it, and one that says so again and again says it for itself alone.
    fn not_served(
        &mut self,
        now: Time,
        from: Guid,
        id: u64,
        uplink: &Uplink,
        effects: &mut Effects,
    ) {
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        download.source = download.source.filter(|source| source.name != from);
        if download.source.is_some() {
            return;
        }
        if download.refusals.note(from) {
            return self.ask(now, id, uplink, effects);
        }
        if download.refusals.are_final() {
            self.fail(id, FailReason::NotServed, effects);
        }
    }

    /// Resumes transfers when a router answers again. Chunks that were requested are on their way
    /// or stored in the network, and "the client relies on the network to re-deliver" [MFTP
    /// §5.2.1]; only requests that never left this host are sent at once.
    pub(in crate::host) fn resume_transfers(
        &mut self,
        now: Time,
        uplink: &Uplink,
        effects: &mut Effects,
    ) {
        for id in self.by_uplink() {
            let Some(download) = self.by_id.get_mut(&id) else {
                continue;
            };
            download.asking.attempts = 0;
            let patience = download.patience();
            if download.arrivals.last.is_none() {
                self.set_state(id, TransferState::Requested, effects);
                self.ask(now, id, uplink, effects);
            } else {
                effects.set(Timer::Download(id), now + patience);
            }
        }
    }

    /// Tells the sources of the transfers under way that the host is to be reached at another router
    /// from now on: they send to where the newest message comes from.
    ///
    /// Nothing is lost, and what is on its way by the former router arrives. So one chunk is named, the
    /// last one that is missing: the source has most likely not sent it yet.
    pub(in crate::host) fn move_transfers(&mut self, effects: &mut Effects) {
        for id in self.by_uplink() {
            let Some(download) = self.by_id.get(&id) else {
                continue;
            };
            let last = download.awaited().iter().last().map(|range| range.end - 1);
            let (Some(to), Some(last)) = (download.source, last) else {
                continue;
            };
            let request = download.request_for(ChunkRanges::from(last..last + 1));
            let request_id = Some(download.request_id);
            effects.counters.nacks_sent += 1;
            let treatment = download.treatment(ServiceId::UNICAST);
            effects.send_about(request_id, treatment, to, Transport::Nack(request));
        }
    }

    pub(in crate::host) fn note_connectivity(&mut self, uplink: &Uplink, effects: &mut Effects) {
        if uplink.is_up {
            return;
        }
        for id in self.by_uplink() {
            self.set_state(id, TransferState::Disconnected, effects);
        }
    }

    /// Returns the downloads that the uplink matters to.
    fn by_uplink(&self) -> Vec<u64> {
        let all = self.by_id.iter();
        let all = all.filter(|(_, download)| download.caller().is_none());
        all.map(|(id, _)| *id).collect()
    }
}
