//! Whom a port may speak for: a name counts only for whom it was proven.
//!
//! From a neighbour a router takes chunks whose source is the name that the neighbour has proven, a
//! GUID that is attached on that port, or one for which the neighbour vouches: it is a router, and has
//! the source's signed binding record, which names it. It is asked for the record when its first chunk
//! of a source comes. A router that has proven a name which the configuration gives is believed. An
//! address in the configuration is no name: whoever answers there vouches as others do.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use whimbrel_core::{Guid, PortId, SeededRng, SharedRecent, Source, Time, WallClock};
use whimbrel_gnrs::{Kind, Record};

use super::effects::{Action, Effects};
use super::{RouterConfig, Timer};
use crate::links::ChunkToSend;
use crate::wire::{Control, NetworkHeader};

/// Chunks of a source wait for so long for the proof that their neighbour speaks for it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum of sources whose chunks wait on one port; their chunks hold room in the buffer.
const MAX_PARKED_PER_PORT: usize = 64;
/// Maximum of sources that neighbours are known to speak for; one beyond it is asked for again.
const MAX_VOUCHED: usize = 16_384;
/// For so long a neighbour is not asked again for a source.
const VOUCHED_FOR: Duration = Duration::from_secs(600);
/// A record proves that a neighbour speaks for its host for so long after its expiry, in
/// milliseconds: what a host has sent may have been stored on its way.
const GRACE_MS: u64 = 24 * 3600 * 1000;
/// Maximum of own hosts' records kept for this, of some 300 bytes, those of hosts that have left
/// among them.
const MAX_RECORDS: usize = 8192;
/// The place of records that were on the disk at the start: where their hosts were is not known.
const RESTORED: Source = Source::Port(PortId(u32::MAX));
/// A refusal is logged this often.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum of neighbours' questions about hosts that have not attached yet.
const MAX_WANTED: usize = 1024;

#[derive(Debug)]
struct Vouched {
    until: Time,
    // The routers that the source is reached at.
    addresses: Vec<Guid>,
}

#[derive(Debug)]
struct Parked {
    since: Time,
    chunks: Vec<ChunkToSend>,
}

/// What is known of the sources behind neighbours, and what this router can prove of its own.
#[derive(Debug)]
pub(super) struct Sources {
    // Routers that the configuration names.
    believed: BTreeSet<Guid>,
    // By neighbour and source, shared among the networks of the neighbours.
    vouched: SharedRecent<Source, (Guid, Guid), Vouched>,
    parked: BTreeMap<(PortId, Guid), Parked>,
    // The newest binding record of each own host, shared among the networks of the hosts.
    records: SharedRecent<Source, Guid, Record>,
    wanted: BTreeSet<(Guid, PortId)>,
    // When a refusal was logged last.
    logged: Option<Time>,
}

impl Sources {
    pub(super) fn new(config: &RouterConfig, rng: &mut SeededRng) -> Sources {
        let named = config.routes.iter().flat_map(|route| {
            let via = route.via.name();
            via.into_iter().chain([route.to])
        });
        let default = config.default_route.and_then(|via| via.name());
        Sources {
            believed: named.chain(default).collect(),
            vouched: SharedRecent::new(MAX_VOUCHED, rng),
            parked: BTreeMap::new(),
            records: SharedRecent::new(MAX_RECORDS, rng),
            wanted: BTreeSet::new(),
            logged: None,
        }
    }

    pub(super) fn believe(&mut self, router: Guid) {
        self.believed.insert(router);
    }

    /// Takes a neighbour for a stranger.
    #[cfg(test)]
    pub(super) fn disbelieve(&mut self, router: &Guid) {
        self.believed.remove(router);
    }

    /// Returns true if the configuration names this router.
    pub(super) fn believes(&self, router: &Guid) -> bool {
        self.believed.contains(router)
    }

    /// Returns the routers that the configuration names.
    pub(super) fn believed(&self) -> impl Iterator<Item = &Guid> {
        self.believed.iter()
    }

    /// The addresses of a source for which a neighbour has vouched.
    pub(super) fn vouched(&mut self, now: Time, neighbour: Guid, source: Guid) -> Option<&[Guid]> {
        let known = self.vouched.touch(&(neighbour, source))?;
        (known.until > now).then_some(&known.addresses[..])
    }

    /// Lets a chunk wait until its neighbour has vouched for its source. A flood of names gets none
    /// but the first of them.
    pub(super) fn park(
        &mut self,
        now: Time,
        port: PortId,
        outgoing: ChunkToSend,
        effects: &mut Effects,
    ) {
        let source = outgoing.chunk.header.source;
        if let Some(parked) = self.parked.get_mut(&(port, source)) {
            return parked.chunks.push(outgoing);
        }
        let on_port = (port, Guid([0; 32]))..=(port, Guid([255; 32]));
        if self.parked.range(on_port).count() >= MAX_PARKED_PER_PORT {
            return effects.drop("source-not-proven");
        }
        let chunks = vec![outgoing];
        self.parked
            .insert((port, source), Parked { since: now, chunks });
        effects.push(Action::Tell(port, Control::Ask { guid: source }));
        effects.push(Action::SetEarlier(Timer::Parked, now + PATIENCE));
    }

    /// Drops the chunks whose neighbour has not vouched for their source in time.
    pub(super) fn give_up(&mut self, now: Time, effects: &mut Effects) {
        let late = |_: &(PortId, Guid), parked: &mut Parked| now.since(parked.since) >= PATIENCE;
        for ((port, source), parked) in self.parked.extract_if(.., late) {
            if self.logged.is_none_or(|at| now.since(at) >= LOG_INTERVAL) {
                self.logged = Some(now);
                tracing::warn!(
                    %port, %source,
                    "a neighbour sends for a source that it has not shown to speak for; a router that \
                     forwards for others belongs into [router] neighbours"
                );
            }
            (0..parked.chunks.len()).for_each(|_| effects.drop("source-not-proven"));
        }
        if let Some(oldest) = self.parked.values().map(|parked| parked.since).min() {
            effects.push(Action::SetEarlier(Timer::Parked, oldest + PATIENCE));
        }
    }

    /// Drops what waits on a closed port.
    pub(super) fn forget_port(&mut self, port: PortId) {
        self.parked.retain(|(at, _), _| *at != port);
        self.wanted.retain(|(_, at)| *at != port);
    }

    /// Handles a neighbour's proof that it speaks for a source. Returns the chunks that have waited
    /// for it. What was not asked for is not looked at: checking a signature is work.
    pub(super) fn handle_vouch(
        &mut self,
        now: Time,
        (port, at, neighbour): (PortId, Source, Guid),
        record: Bytes,
        wall: WallClock,
        effects: &mut Effects,
    ) -> Vec<ChunkToSend> {
        let record = Record::parse(record);
        let asked = |record: &Record| self.parked.contains_key(&(port, record.subject()));
        let Some(record) = record.ok().filter(asked) else {
            effects.drop("vouched-unasked");
            return Vec::new();
        };
        let source = record.subject();
        let is_kept = record.expires_ms().saturating_add(GRACE_MS) > wall.unix_millis(now);
        let names_it = record.addresses().any(|at| at.na == neighbour);
        let is_good = record.kind() == Kind::Binding
            && is_kept
            && names_it
            && record.verify(record.issued_ms()).is_ok();
        let parked = self.parked.remove(&(port, source));
        if !is_good {
            effects.drop("bad-vouch");
            return Vec::new();
        }
        let vouched = Vouched {
            until: now + VOUCHED_FOR,
            addresses: record.addresses().map(|at| at.na).collect(),
        };
        self.vouched.insert(at, (neighbour, source), vouched);
        parked.map_or(Vec::new(), |parked| parked.chunks)
    }

    /// Keeps the newest binding record of a host that has attached here, at `at`, and shows it to the
    /// neighbours that have asked for it.
    pub(super) fn note_record(&mut self, at: Source, record: &Record, effects: &mut Effects) {
        let host = record.subject();
        self.records.insert(at, host, record.clone());
        let asked = (host, PortId(0))..=(host, PortId(u32::MAX));
        let asked = self.wanted.extract_if(asked, |_| true);
        for (_, port) in asked {
            effects.push(vouch(port, record));
        }
    }

    /// Takes up the record of a host that may have ended: chunks of it are on the disk.
    pub(super) fn restore_record(&mut self, record: Record) {
        let host = record.subject();
        self.records.insert(RESTORED, host, record);
    }

    /// Returns the record with which this router vouches for a host.
    pub(super) fn record_of(&self, host: &Guid) -> Option<&Record> {
        self.records.get(host)
    }

    /// Answers a neighbour. The question of one that this router calls may wait until the host has
    /// attached.
    pub(super) fn handle_ask(
        &mut self,
        port: PortId,
        host: Guid,
        may_wait: bool,
        effects: &mut Effects,
    ) {
        match self.records.get(&host) {
            Some(record) => effects.push(vouch(port, record)),
            None if !may_wait => effects.drop("asked-for-a-stranger"),
            None if self.wanted.len() < MAX_WANTED => drop(self.wanted.insert((host, port))),
            None => effects.drop("asked-too-much"),
        }
    }

    /// Returns the address that answers to a chunk go to: `own` unless its source is reached where
    /// it says.
    pub(super) fn answered_at(&self, header: &NetworkHeader, own: Guid) -> Guid {
        let (source, at) = (&header.source, header.source_address);
        let is_there = |record: &Record| record.addresses().any(|known| known.na == at);
        match at.is_none() || at == *source || self.records.get(source).is_some_and(is_there) {
            true => at,
            false => own,
        }
    }
}

fn vouch(port: PortId, record: &Record) -> Action {
    let record = Bytes::copy_from_slice(record.as_bytes());
    Action::Tell(port, Control::Vouch { record })
}
