//! Copies of content in a router: taken on the way, sent to those that ask [MFTP §3.2.1, 3.3].

use whimbrel_core::{PortId, Source, Time};
use whimbrel_link::Room;

use super::Timer;
use super::binding::Binding;
use super::effects::{Action, Effects};
use super::fetches::{Fetches, Requester};
use super::proxy::Proxy;
use super::store::Purpose;
use super::store::copies::{CopyTerms, is_proven};
use crate::chunk::{Chunk, Message};
use crate::links::{ChunkToSend, Links};
use crate::next_hops::Spread;
use crate::wire::{
    Data, HOP_LIMIT, NetworkHeader, Request, ServiceId, Transport, TransportKind, UpperProtocol,
};

/// The clients that are served from copies.
#[derive(Debug, Default)]
pub(super) struct ContentCache {
    pub(super) fetches: Fetches,
}

impl ContentCache {
    /// Copies a chunk of a content that a client fetches through this router, or that is sent to a group: its
    /// members may ask for it again [MFTP §3.5]. The chunk must be proven: a false one would else be given to all
    /// that ask.
    pub(super) fn copy_passing(
        &mut self,
        now: Time,
        chunk: &Chunk,
        data: &Data,
        proxy: &mut Proxy,
        effects: &mut Effects,
    ) {
        let copies = proxy.store().copies();
        let is_offer = chunk.header.extensions.offer.is_some();
        let is_wanted = match is_offer && chunk.header.is_of_group() {
            true => copies.is_caching() && !copies.has_offered(&chunk.header, data),
            // What its sender offers to one receiver is not for others.
            false if is_offer => false,
            false => (self.fetches).wants(&data.content, data.chunk_log2, data.index),
        };
        if !is_wanted {
            return;
        }
        if !is_proven(data) {
            return effects.drop("unproven-copy");
        }
        let keeping = CopyTerms {
            purpose: Purpose::Cached,
            expires: None,
        };
        if proxy.keep_copy(chunk, data, keeping) {
            effects.counters.chunks_cached += 1;
            let key = (data.content, data.index);
            let count = proxy.store().copies().count_of(&data.content);
            self.fetches.note_copy(now, key, data.chunk_log2, count);
        }
    }

    /// Takes from a request what this router has copies of, or what another client fetches through it.
    pub(super) fn subtract_copies(
        &mut self,
        now: Time,
        asker: Requester<'_>,
        request: &mut Request,
        proxy: &Proxy,
        effects: &mut Effects,
    ) {
        let copies = proxy.store().copies();
        let answered = (self.fetches).subtract_from(now, asker, copies, request);
        effects.counters.cache_hits += answered.copies;
        effects.counters.chunks_awaited += answered.awaited;
        if let Some(next) = self.fetches.next_check(now) {
            effects.push(Action::SetEarlier(Timer::Fetches, next));
        }
    }

    /// Counts a router with copies that a member's request has passed in vain [MFTP §3.5]: "transport proxies can
    /// be instructed through proper chunk marking, to discard retransmission requests that exceed a number of
    /// traversed proxies". Returns false if it goes no further.
    pub(super) fn pass_nack(&mut self, chunk: &mut Chunk, proxy: &Proxy) -> bool {
        let kinds = [TransportKind::Nack as u8, TransportKind::Resend as u8];
        let asks = (chunk.message.head.first()).is_some_and(|kind| kinds.contains(kind));
        let Some(left) = chunk.header.extensions.nack_routers else {
            return true;
        };
        if !asks || !proxy.store().copies().is_caching() {
            return true;
        }
        chunk.header.extensions.nack_routers = left.checked_sub(1);
        if left == 0
            && let Ok(Transport::Nack(request) | Transport::Resend(request)) = chunk.transport()
        {
            // It brings nothing for which others could wait.
            (self.fetches).abandon(&chunk.header.source, &request.content);
        }
        left > 0
    }

    /// Takes from a request for chunks that are known to be lost what this router has copies of. Returns true
    /// if that is all.
    pub(super) fn answer_resend(
        &mut self,
        now: Time,
        from: PortId,
        at: Source,
        chunk: &mut Chunk,
        proxy: &Proxy,
        effects: &mut Effects,
    ) -> bool {
        let is_resend = chunk.message.head.first() == Some(&(TransportKind::Resend as u8));
        if chunk.header.upper != UpperProtocol::Transport || !is_resend {
            return false;
        }
        let Ok(Transport::Resend(mut request)) = chunk.transport() else {
            return false;
        };
        let was = request.clone();
        let header = &chunk.header;
        self.subtract_copies(
            now,
            Requester { from, at, header },
            &mut request,
            proxy,
            effects,
        );
        let is_all = request.chunks.is_empty() && !was.chunks.is_empty();
        if request != was {
            chunk.message = Message::of_transport(&Transport::Resend(request));
        }
        is_all
    }

    /// Requests of clients whose fetcher brings nothing go on.
    pub(super) fn check_fetches(&mut self, now: Time, proxy: &Proxy, effects: &mut Effects) {
        for (from, request) in self.fetches.due(now) {
            let mut request = request;
            if !self.pass_nack(&mut request, proxy) {
                effects.drop("nack-limit");
                continue;
            }
            request.header.hop_limit = request.header.hop_limit.saturating_sub(1);
            let outgoing = ChunkToSend {
                chunk: request,
                room: Room::default(),
                from: Some(from),
                origin: Some(from),
                order: None,
                until: None,
            };
            effects.push(Action::Forward(outgoing));
        }
        if let Some(next) = self.fetches.next_check(now) {
            effects.push(Action::SetEarlier(Timer::Fetches, next));
        }
    }

    /// Sends a copy to the next client in turn whose next hop has room. Returns true if one was sent.
    pub(super) fn send_copy(
        &mut self,
        now: Time,
        binding: &Binding,
        links: &Links,
        proxy: &mut Proxy,
        effects: &mut Effects,
    ) -> bool {
        while let Some((turn, asked, index)) = self.fetches.next() {
            let (client, content) = turn;
            let hops = binding.ways_to(&asked, links);
            let Some(first) = hops.best().map(|branch| branch.port) else {
                // Away: it asks again when it is back.
                self.fetches.stop(&client, &content);
                continue;
            };
            let Some((copy, room)) = proxy.copy(&(content, index), &asked) else {
                self.fetches.note_sent(now, turn, index, false);
                continue;
            };
            let chunk = answer(copy, &asked);
            let flow = chunk.flow();
            let divides = Spread::of_chunk(&chunk) == Spread::Divide
                && links.division.may_divide(&flow, &hops);
            let has_room = match divides {
                true => links.has_room_to_divide(&flow, &hops),
                false => hops.iter().any(|branch| {
                    let link = links.at(branch.port);
                    link.is_some_and(|link| link.has_room_for(&flow))
                }),
            };
            if !has_room {
                self.fetches.note_blocked(turn, first);
                continue;
            }
            self.fetches.note_sent(now, turn, index, true);
            effects.counters.copies_sent += 1;
            effects.counters.copy_bytes_sent += chunk.size() as u64;
            let outgoing = ChunkToSend::originated(chunk, room);
            effects.push(Action::Forward(outgoing));
            return true;
        }
        false
    }
}

/// Returns a copy as the answer to a request: it comes from the source of the copy, as a stored chunk does.
fn answer(copy: &Chunk, asked: &NetworkHeader) -> Chunk {
    let was = &copy.header;
    let mut service = ServiceId::CONTENT_RESPONSE.with(ServiceId::DELAY_TOLERANT);
    if asked.service.has(ServiceId::MULTIHOMING) {
        service = service.with(ServiceId::MULTIHOMING);
    }
    let mut header = NetworkHeader::new(service, was.upper, was.source, asked.source);
    header.hop_limit = HOP_LIMIT;
    header.source_address = was.source_address;
    header.destination_address = asked.source_address;
    header.extensions.request = asked.extensions.request;
    if was.is_of_group() {
        // It stays a copy for members at the routers that it passes.
        let group = was.extensions.group.clone();
        header.extensions.group = Some(group.unwrap_or_else(|| Box::new(was.destination)));
        header.extensions.offer = was.extensions.offer.clone();
    } else if asked.source == was.destination {
        header.extensions.offer = was.extensions.offer.clone();
    }
    let message = copy.message.clone();
    Chunk { header, message }
}
