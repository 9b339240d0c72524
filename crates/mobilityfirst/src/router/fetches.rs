//! Who waits for chunks that others fetch through this router.
//!
//! A request for chunks that are on their way to another client through this router waits for them, in place
//! of crossing the same links again: with the cache, what many hosts behind a thin link want crosses it
//! once. If nothing of a content has come for a while, the first of those that wait asks for itself, and
//! the others wait for what it brings.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_core::{Guid, PortId, Shares, Source, Time};

use super::store::copies::{Copies, CopyKey};
use crate::chunk::Chunk;
use crate::wire::{ChunkRanges, NetworkHeader, Request, Transport};

/// ClientShares that fetch or wait, of all contents, by the networks that they ask from: of one network half of
/// the first half that is left, and a few in any case.
const CLIENTS: Shares = Shares {
    max: 4096,
    parts: 1,
    few: 8,
};
/// ClientShares of one content of which it is known what they fetch.
const MAX_LEADERS: usize = 8;
/// Ranges of chunks that are remembered for one client.
const MAX_REMEMBERED: usize = 1024;
/// A fetch of which nothing has come for this long is dead, ...
const PATIENCE: Duration = Duration::from_secs(3);
/// ... or for this multiple of the time between its chunks, if that is longer, up to a limit.
const INTERVALS: u32 = 4;
const MAX_PATIENCE: Duration = Duration::from_secs(30);
/// A client that has asked for nothing for this long, and takes nothing, has gone.
const IDLE: Duration = Duration::from_secs(120);
/// Interval at which fetches are checked while somebody waits, and while nobody does.
const CHECK: Duration = Duration::from_millis(500);
const CHECK_IDLE: Duration = Duration::from_secs(10);
/// ClientShares without room that are looked at again when their port has some.
const LOOKED_AT: usize = 8;

/// A client that waits for copies, or takes them.
#[derive(Debug)]
struct Waiter {
    from: PortId,
    at: Source,
    header: NetworkHeader,
    request: Request,
    // Copies that are here, and chunks that others fetch.
    ready: ChunkRanges,
    waiting: ChunkRanges,
    last_use: Time,
}

/// A client that fetches, and the chunks that it has asked for.
#[derive(Debug)]
struct Leader {
    at: Source,
    chunks: ChunkRanges,
}

/// The clients of one content.
#[derive(Debug)]
struct Fetch {
    chunk_log2: u8,
    leaders: BTreeMap<Guid, Leader>,
    waiters: BTreeMap<Guid, Waiter>,
    // When its last chunk came, or was asked for, and the smoothed time between two.
    progress_at: Time,
    interval: Duration,
}

/// A client and a content.
type ClientTurn = (Guid, Guid);

/// How many clients there are, of each network.
#[derive(Debug, Default)]
struct ClientShares {
    of_network: BTreeMap<Source, usize>,
    all: usize,
}

impl ClientShares {
    /// Returns true if there is a place for one more from there.
    fn admit(&self, at: Source) -> bool {
        let own = self.of_network.get(&at).copied().unwrap_or_default();
        CLIENTS.admit(own, self.all)
    }

    fn add(&mut self, at: Source) {
        *self.of_network.entry(at).or_default() += 1;
        self.all += 1;
    }

    fn remove(&mut self, at: Source) {
        self.all -= 1;
        if let Some(count) = self.of_network.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                self.of_network.remove(&at);
            }
        }
    }
}

/// All fetches.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    by_content: BTreeMap<Guid, Fetch>,
    clients: ClientShares,
    // ClientShares that wait, or take copies.
    waiters: usize,
    // Those that may take a copy now, and those whose port has no room, in turn.
    turns: VecDeque<ClientTurn>,
    queued: BTreeSet<ClientTurn>,
    blocked: BTreeMap<(PortId, u64), ClientTurn>,
    // The place of each of these in `blocked`: a client has one, however many copies come meanwhile.
    blocked_at: BTreeMap<ClientTurn, (PortId, u64)>,
    next_number: u64,
}

/// A client's request: the port that it came in on, where that leads, and its header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requester<'a> {
    pub(super) from: PortId,
    pub(super) at: Source,
    pub(super) header: &'a NetworkHeader,
}

/// The answer to a request of which a part is here or on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FromCopies {
    /// Chunks that are sent from here.
    pub(super) copies: u64,
    /// Chunks that are waited for.
    pub(super) awaited: u64,
}

impl Fetch {
    fn patience(&self) -> Duration {
        (self.interval * INTERVALS).clamp(PATIENCE, MAX_PATIENCE)
    }

    /// Returns what other clients than this one fetch.
    fn under_way(&self, client: &Guid) -> ChunkRanges {
        let mut chunks = ChunkRanges::default();
        let others = self.leaders.iter().filter(|(who, _)| *who != client);
        others.for_each(|(_, leader)| chunks.union(&leader.chunks));
        chunks
    }

    /// Continues in smaller chunks, because the source does.
    fn divide(&mut self, chunk_log2: u8) {
        let parts = self.chunk_log2 - chunk_log2;
        for leader in self.leaders.values_mut() {
            leader.chunks = leader.chunks.divided(parts);
        }
        for waiter in self.waiters.values_mut() {
            waiter.waiting = waiter.waiting.divided(parts);
            waiter.waiting.union(&waiter.ready.divided(parts));
            waiter.ready = ChunkRanges::default();
        }
        self.chunk_log2 = chunk_log2;
    }
}

impl Waiter {
    fn is_done(&self) -> bool {
        self.ready.is_empty() && self.waiting.is_empty()
    }
}

/// Keeps what a client has asked for within its bound: the latest counts.
fn add(all: &mut ChunkRanges, more: &ChunkRanges) {
    all.union(more);
    if all.iter().count() > MAX_REMEMBERED {
        *all = more.clone();
    }
}

impl Fetches {
    /// Returns the number of clients that fetch or wait.
    pub(super) fn clients(&self) -> usize {
        self.clients.all
    }

    /// Returns when to check them next.
    pub(super) fn next_check(&self, now: Time) -> Option<Time> {
        let pause = if self.waiters > 0 { CHECK } else { CHECK_IDLE };
        (self.clients.all > 0).then_some(now + pause)
    }

    /// Takes from a request the chunks that are here, which the client gets from here, and those that
    /// another client fetches, for which it waits. What is left goes on: the client fetches it.
    pub(super) fn subtract_from(
        &mut self,
        now: Time,
        asker: Requester<'_>,
        copies: &Copies,
        request: &mut Request,
    ) -> FromCopies {
        let header = asker.header;
        let (content, client) = (request.content, header.source);
        let known = copies.chunk_log2(&content);
        let under_way = self.by_content.get(&content).map(|it| it.chunk_log2);
        // Both have one size, for what is fetched becomes a copy.
        let chunk_log2 = under_way.or(known).unwrap_or(request.chunk_log2);
        let is_fitting = !request.is_exact && chunk_log2 <= request.chunk_log2;
        let is_caching = copies.is_caching();
        if !is_fitting || request.chunks.is_empty() || !is_caching && known.is_none() {
            return FromCopies::default();
        }
        let mut asked = request.clone().in_chunks_of(chunk_log2);
        let ready = match known == Some(chunk_log2) {
            true => copies.among(&content, header, &asked.chunks),
            false => ChunkRanges::default(),
        };
        let mut rest = asked.chunks.clone();
        rest.subtract(&ready);
        if let Some(count) = copies.count_of(&content) {
            rest.remove_range(count..u32::MAX);
        }
        let fetch = self.by_content.get(&content);
        let live = fetch.filter(|it| now.since(it.progress_at) < it.patience());
        let waiting = live.map_or(ChunkRanges::default(), |it| {
            rest.intersection(&it.under_way(&client))
        });
        rest.subtract(&waiting);
        let answered = FromCopies {
            copies: ready.count(),
            awaited: waiting.count(),
        };
        let is_part = !ready.is_empty() || !waiting.is_empty();
        if !self.note(now, asker, &asked, [ready, waiting, rest.clone()]) || !is_part {
            return FromCopies::default();
        }
        asked.chunks = rest;
        *request = asked;
        answered
    }

    /// Notes what a client takes from here, waits for and fetches. Returns false if it is not served,
    /// because of a bound.
    fn note(
        &mut self,
        now: Time,
        asker: Requester<'_>,
        request: &Request,
        [ready, waiting, rest]: [ChunkRanges; 3],
    ) -> bool {
        let Requester { from, at, header } = asker;
        let client = header.source;
        let turn = (client, request.content);
        let may_add = self.clients.admit(at);
        let fetch = self.by_content.get(&request.content);
        let has_waiter = fetch.is_some_and(|it| it.waiters.contains_key(&client));
        let is_leader = fetch.is_some_and(|it| it.leaders.contains_key(&client));
        let is_part = !ready.is_empty() || !waiting.is_empty();
        if is_part && !has_waiter && !may_add {
            return false;
        }
        let room = fetch.is_none_or(|it| it.leaders.len() < MAX_LEADERS);
        let leads = !rest.is_empty() && (is_leader || room && may_add);
        if !is_part && !leads {
            return true;
        }
        let fetch = self.by_content.entry(request.content);
        let fetch = fetch.or_insert_with(|| Fetch {
            chunk_log2: request.chunk_log2,
            leaders: BTreeMap::new(),
            waiters: BTreeMap::new(),
            progress_at: now,
            interval: Duration::ZERO,
        });
        if leads {
            if fetch.leaders.is_empty() {
                fetch.progress_at = now;
            }
            let leader = fetch.leaders.entry(client).or_insert_with(|| Leader {
                at,
                chunks: ChunkRanges::default(),
            });
            add(&mut leader.chunks, &rest);
            if !is_leader {
                self.clients.add(at);
            }
        }
        let is_ready = !ready.is_empty();
        if is_part {
            let waiter = fetch.waiters.entry(client).or_insert_with(|| Waiter {
                from,
                at,
                header: header.clone(),
                request: request.clone(),
                ready: ChunkRanges::default(),
                waiting: ChunkRanges::default(),
                last_use: now,
            });
            waiter.header = header.clone();
            waiter.last_use = now;
            add(&mut waiter.ready, &ready);
            add(&mut waiter.waiting, &waiting);
            if !has_waiter {
                self.clients.add(at);
                self.waiters += 1;
            }
        }
        if is_ready {
            // It may ask by another port now.
            self.unblock(&turn);
            self.queue(turn);
        }
        true
    }

    fn queue(&mut self, turn: ClientTurn) {
        if !self.blocked_at.contains_key(&turn) && self.queued.insert(turn) {
            self.turns.push_back(turn);
        }
    }

    fn unblock(&mut self, turn: &ClientTurn) {
        if let Some(place) = self.blocked_at.remove(turn) {
            self.blocked.remove(&place);
        }
    }

    /// Returns true if a client fetches this chunk, so that it is worth a copy.
    pub(super) fn wants(&self, content: &Guid, chunk_log2: u8, index: u32) -> bool {
        let Some(fetch) = self.by_content.get(content) else {
            return false;
        };
        let Some(parts) = fetch.chunk_log2.checked_sub(chunk_log2) else {
            return false;
        };
        let index = index >> parts;
        fetch.leaders.values().any(|it| it.chunks.contains(index))
    }

    /// A proven chunk has come, and is a copy now: those that wait for it may have it.
    pub(super) fn note_copy(
        &mut self,
        now: Time,
        key: CopyKey,
        chunk_log2: u8,
        count: Option<u32>,
    ) {
        let (content, index) = key;
        let Some(fetch) = self.by_content.get_mut(&content) else {
            return;
        };
        if chunk_log2 < fetch.chunk_log2 {
            fetch.divide(chunk_log2);
        }
        let gap = now.since(fetch.progress_at).min(MAX_PATIENCE);
        fetch.interval = (fetch.interval * 3 + gap) / 4;
        fetch.progress_at = now;
        let here = index..index.saturating_add(1);
        let mut served = Vec::new();
        for (client, waiter) in &mut fetch.waiters {
            if waiter.waiting.contains(index) {
                waiter.waiting.remove_range(here.clone());
                waiter.ready.insert(index);
                served.push((*client, content));
            }
        }
        for leader in fetch.leaders.values_mut() {
            leader.chunks.remove_range(here.clone());
            if let Some(count) = count {
                leader.chunks.remove_range(count..u32::MAX);
            }
        }
        if let Some(count) = count {
            for waiter in fetch.waiters.values_mut() {
                waiter.waiting.remove_range(count..u32::MAX);
            }
        }
        served.into_iter().for_each(|turn| self.queue(turn));
        self.forget_done(&content);
    }

    /// Forgets clients that fetch and wait for nothing.
    fn forget_done(&mut self, content: &Guid) {
        let Some(fetch) = self.by_content.get_mut(content) else {
            return;
        };
        let leaders = (fetch.leaders).extract_if(.., |_, it| it.chunks.is_empty());
        leaders.for_each(|(_, it)| self.clients.remove(it.at));
        let waiters = (fetch.waiters).extract_if(.., |_, it| it.is_done());
        let served: Vec<(Guid, Source)> = waiters.map(|(client, it)| (client, it.at)).collect();
        if fetch.leaders.is_empty() && fetch.waiters.is_empty() {
            self.by_content.remove(content);
        }
        for (client, at) in served {
            self.unblock(&(client, *content));
            self.clients.remove(at);
            self.waiters -= 1;
        }
    }

    /// A client wants a content no more: those that wait for what it fetches ask for themselves.
    pub(super) fn stop(&mut self, client: &Guid, content: &Guid) {
        if let Some(fetch) = self.by_content.get_mut(content) {
            if let Some(leader) = fetch.leaders.get_mut(client) {
                leader.chunks = ChunkRanges::default();
            }
            if let Some(waiter) = fetch.waiters.get_mut(client) {
                (waiter.ready, waiter.waiting) = Default::default();
            }
            self.forget_done(content);
        }
    }

    /// What a client has asked for goes no further: those that wait for it ask for themselves.
    pub(super) fn abandon(&mut self, client: &Guid, content: &Guid) {
        let fetch = self.by_content.get_mut(content);
        if let Some(leader) = fetch.and_then(|it| it.leaders.get_mut(client)) {
            leader.chunks = ChunkRanges::default();
        }
        self.forget_done(content);
    }

    /// Ports have room: clients behind them have another turn.
    pub(super) fn note_gained(&mut self, ports: &BTreeSet<PortId>) {
        for port in ports {
            let of_port = self.blocked.range((*port, 0)..=(*port, u64::MAX));
            let keys: Vec<_> = of_port.take(LOOKED_AT).map(|(key, _)| *key).collect();
            for key in keys {
                if let Some(turn) = self.blocked.get(&key).copied() {
                    self.unblock(&turn);
                    self.queue(turn);
                }
            }
        }
    }

    /// Returns the next client that may take a copy, the header of its request and the chunk's index.
    pub(super) fn next(&mut self) -> Option<(ClientTurn, NetworkHeader, u32)> {
        while let Some(turn) = self.turns.pop_front() {
            self.queued.remove(&turn);
            let fetch = self.by_content.get(&turn.1);
            let waiter = fetch.and_then(|it| it.waiters.get(&turn.0));
            if let Some(waiter) = waiter
                && let Some(index) = waiter.ready.first()
            {
                return Some((turn, waiter.header.clone(), index));
            }
        }
        None
    }

    /// The next hop of a client has no room: it has its next turn when that has some.
    pub(super) fn note_blocked(&mut self, turn: ClientTurn, port: PortId) {
        self.unblock(&turn);
        self.next_number += 1;
        let place = (port, self.next_number);
        self.blocked.insert(place, turn);
        self.blocked_at.insert(turn, place);
    }

    /// A client has got a chunk, or its copy has gone: then it waits for another one.
    pub(super) fn note_sent(&mut self, now: Time, turn: ClientTurn, index: u32, had: bool) {
        let (client, content) = turn;
        let fetch = self.by_content.get_mut(&content);
        if let Some(waiter) = fetch.and_then(|it| it.waiters.get_mut(&client)) {
            waiter.ready.remove_range(index..index.saturating_add(1));
            waiter.last_use = now;
            if !had {
                waiter.waiting.insert(index);
            }
            if !waiter.ready.is_empty() {
                self.queue((client, content));
            }
        }
        self.forget_done(&content);
    }

    /// Returns the requests of clients that wait for what nobody fetches any more, and the ports that they
    /// came in on.
    pub(super) fn due(&mut self, now: Time) -> Vec<(PortId, Chunk)> {
        let mut requests = Vec::new();
        let contents: Vec<Guid> = self.by_content.keys().copied().collect();
        for content in contents {
            if let Some(fetch) = self.by_content.get_mut(&content) {
                fetch.take_due(now, &mut self.clients, &mut requests);
            }
            self.forget_done(&content);
        }
        requests
    }
}

impl Fetch {
    /// Ends what is dead, and has the first of those that wait for it ask for themselves. Of more clients
    /// than may fetch what others wait for, the requests continue alone.
    fn take_due(
        &mut self,
        now: Time,
        clients: &mut ClientShares,
        requests: &mut Vec<(PortId, Chunk)>,
    ) {
        if now.since(self.progress_at) >= self.patience() {
            let dead = core::mem::take(&mut self.leaders);
            dead.into_values().for_each(|it| clients.remove(it.at));
            self.progress_at = now;
        }
        let mut under_way = self.under_way(&Guid::NONE);
        for (client, waiter) in &mut self.waiters {
            if now.since(waiter.last_use) >= IDLE {
                (waiter.ready, waiter.waiting) = Default::default();
            }
            let mut rest = waiter.waiting.clone();
            rest.subtract(&under_way);
            if rest.is_empty() {
                continue;
            }
            waiter.waiting.subtract(&rest);
            let request = Request {
                chunk_log2: self.chunk_log2,
                chunks: rest.clone(),
                ..waiter.request.clone()
            };
            let again = Chunk::of_transport(waiter.header.clone(), &Transport::Request(request));
            requests.push((waiter.from, again));
            let is_leader = self.leaders.contains_key(client);
            if !is_leader && (self.leaders.len() >= MAX_LEADERS || !clients.admit(waiter.at)) {
                continue;
            }
            let leader = self.leaders.entry(*client).or_insert_with(|| Leader {
                at: waiter.at,
                chunks: ChunkRanges::default(),
            });
            add(&mut leader.chunks, &rest);
            under_way.union(&rest);
            if !is_leader {
                clients.add(waiter.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Reliability, ServiceId, UpperProtocol};

    const CONTENT: Guid = Guid([9; 32]);

    fn ask(fetches: &mut Fetches, client: u8, port: u32, lists: [ChunkRanges; 3]) {
        let upper = UpperProtocol::Transport;
        let source = Guid([client; 32]);
        let header = NetworkHeader::new(ServiceId::CONTENT_REQUEST, upper, source, CONTENT);
        let request = Request::new(CONTENT, 14, Reliability::Nack, ChunkRanges::from(0..100));
        let from = PortId(port);
        let asker = Requester {
            from,
            at: Source::Port(from),
            header: &header,
        };
        assert!(fetches.note(Time::ZERO, asker, &request, lists));
    }

    /// Whatever comes for a client whose next hop has no room, it has one place among those that wait for room,
    /// and none once it has gone.
    #[test]
    fn a_client_without_room_has_one_place() {
        let mut fetches = Fetches::default();
        let (none, all) = (ChunkRanges::default(), ChunkRanges::from(0..100));
        ask(
            &mut fetches,
            1,
            1,
            [none.clone(), none.clone(), all.clone()],
        );
        ask(&mut fetches, 2, 2, [none.clone(), all, none.clone()]);
        for index in 0..50 {
            fetches.note_copy(Time::ZERO, (CONTENT, index), 14, None);
            while let Some((turn, ..)) = fetches.next() {
                fetches.note_blocked(turn, PortId(2));
            }
        }
        assert_eq!((fetches.blocked.len(), fetches.turns.len()), (1, 0));
        // By another port it is asked at once.
        ask(
            &mut fetches,
            2,
            3,
            [ChunkRanges::from(0..50), none.clone(), none],
        );
        assert_eq!((fetches.blocked.len(), fetches.turns.len()), (0, 1));
        let Some((turn, ..)) = fetches.next() else {
            panic!("no turn");
        };
        fetches.note_blocked(turn, PortId(3));
        fetches.note_gained(&BTreeSet::from([PortId(3)]));
        assert_eq!((fetches.blocked.len(), fetches.turns.len()), (0, 1));
        fetches.next();
        fetches.note_blocked(turn, PortId(3));
        fetches.due(Time::ZERO + IDLE);
        assert_eq!((fetches.blocked.len(), fetches.blocked_at.len()), (0, 0));
    }

    #[test]
    fn many_clients_of_one_network_leave_places_for_another() {
        let mut fetches = Fetches::default();
        let upper = UpperProtocol::Transport;
        let mut note = |client: u32, network: u128| {
            let mut source = [1; 32];
            source[..4].copy_from_slice(&client.to_be_bytes());
            let header =
                NetworkHeader::new(ServiceId::CONTENT_REQUEST, upper, Guid(source), CONTENT);
            let request = Request {
                content: CONTENT,
                chunk_log2: 14,
                is_exact: false,
                reliability: Reliability::Nack,
                chunks: ChunkRanges::from(0..100),
                window: None,
            };
            let asker = Requester {
                // Each by a port of its own.
                from: PortId(client),
                at: Source::Network(network),
                header: &header,
            };
            let ready = ChunkRanges::from(0..1);
            let lists = [ready, ChunkRanges::default(), ChunkRanges::default()];
            fetches.note(Time::ZERO, asker, &request, lists)
        };
        let greedy = (0..2 * CLIENTS.max as u32).filter(|client| note(*client, 1));
        assert_eq!(greedy.count(), CLIENTS.max / 4);
        assert!((0..CLIENTS.few as u32).all(|client| note(client + 100_000, 2)));
        assert_eq!(fetches.clients(), CLIENTS.max / 4 + CLIENTS.few);
    }

    /// However many wait for what a dead client has fetched, some of them fetch it, and all requests
    /// continue.
    #[test]
    fn of_many_that_wait_for_different_chunks_a_few_lead() {
        let mut fetches = Fetches::default();
        let none = ChunkRanges::default();
        let (all, clients) = (ChunkRanges::from(0..100), 2..=60u8);
        ask(&mut fetches, 1, 1, [none.clone(), none.clone(), all]);
        for client in clients.clone() {
            let own = ChunkRanges::from(u32::from(client)..u32::from(client) + 1);
            let port = u32::from(client);
            ask(
                &mut fetches,
                client,
                port,
                [none.clone(), own, none.clone()],
            );
        }
        assert_eq!(fetches.due(Time::ZERO + PATIENCE).len(), clients.count());
        let fetch = &fetches.by_content[&CONTENT];
        assert_eq!((fetch.leaders.len(), fetch.waiters.len()), (MAX_LEADERS, 0));
        assert_eq!((fetches.clients(), fetches.waiters), (MAX_LEADERS, 0));
    }
}
