//! Hosts attached to this router.

use std::collections::BTreeMap;

use bytes::Bytes;
use core::time::Duration;
use whimbrel_core::{Distrust, Guid, Limit, Meter, PortId, SeededRng, Source, Time, WallClock};
use whimbrel_gnrs::{Address, Kind, Record, Rejection, Signature, VerifyError, wire::Code};

use super::Timer;
use super::effects::{Action, Effects};
use crate::links::Links;
use crate::next_hops::{Branch, NextHops};
use crate::wire::{ATTACH_CONTEXT, Control, ControlCode, attach_statement};

/// Maximum of attachments.
const MAX_ATTACHMENTS: usize = 65_536;
/// A port may use this fraction of the remaining attachments, and one in any case: at first 63, and
/// fewer as fewer are left. So no peer can take all of them.
const PARTS: usize = 1024;
/// Maximum of records being registered whose outcome a host waits for.
const MAX_PENDING: usize = 65_536;

/// Records of the hosts on one port that are taken: two signatures are checked for each, the name service
/// checks another, and tells who watches the name. A host renews its record three times a minute.
const CHANGES: Limit = Limit {
    at_once: 32,
    per_second: 4,
};
/// After this, a host whose record was not taken is asked for its newest one.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Maximum of ports per GUID; the one with the oldest record is replaced.
const MAX_PORTS: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Attachment {
    port: PortId,
    version: u64,
    // The address that this record prefers to this router.
    better: Option<Guid>,
    // The router's count of chunks when the host last sent one by this port.
    spoke: u64,
}

/// The ports of each attached GUID, and the hosts' pending records.
#[derive(Debug)]
pub(super) struct Attachments {
    // This router's GUID, which is the address in its hosts' records.
    router: Guid,
    wall: WallClock,
    // Newest record first, and of those with the same one the port that the host used last; never
    // empty.
    by_guid: BTreeMap<Guid, Vec<Attachment>>,
    // Chunks of hosts with several ports so far.
    spoken: u64,
    entries: usize,
    per_port: BTreeMap<PortId, usize>,
    nonces: BTreeMap<PortId, [u8; 16]>,
    // The name of the neighbour on each port.
    neighbours: BTreeMap<PortId, Guid>,
    pending: BTreeMap<(Guid, u64), PortId>,
    distrust: Distrust<PortId>,
    changes: BTreeMap<PortId, Meter>,
    // The same of records of hosts that have left: neighbours pass them on for anybody.
    relayed: Distrust<PortId>,
}

impl Attachments {
    /// No attachments to the router of this GUID.
    pub(super) fn new(router: Guid, wall: WallClock) -> Attachments {
        Attachments {
            router,
            wall,
            by_guid: BTreeMap::new(),
            spoken: 0,
            entries: 0,
            per_port: BTreeMap::new(),
            nonces: BTreeMap::new(),
            neighbours: BTreeMap::new(),
            pending: BTreeMap::new(),
            distrust: Distrust::default(),
            changes: BTreeMap::new(),
            relayed: Distrust::default(),
        }
    }

    /// Returns this router's GUID.
    pub(super) fn router(&self) -> Guid {
        self.router
    }

    /// Returns true if a host is attached.
    pub(super) fn is_here(&self, guid: &Guid) -> bool {
        self.by_guid.contains_key(guid)
    }

    /// Returns the ports that a GUID is attached on. Those of its newest record are preferred: a
    /// host sends each new record to all routers at which it wants to be reachable. Among them, the
    /// one that the host used last: a record names this router and not the links to it, but a host
    /// sends by the link that it prefers.
    pub(super) fn hops_to(&self, guid: &Guid, links: &Links) -> NextHops {
        let attached = self.by_guid.get(guid).map_or(&[][..], Vec::as_slice);
        let newest = attached.first().map(|attachment| attachment.version);
        attached
            .iter()
            .map(|attachment| Branch {
                preference: u32::from(Some(attachment.version) != newest),
                ..links.branch(attachment.port)
            })
            .collect()
    }

    /// Notes the best address of the record that a host has attached with, if that is better than this
    /// router.
    fn note_better(&mut self, guid: &Guid, port: PortId, record: &Record) {
        let own = record.addresses().find(|at| at.na == self.router);
        let is_better = |at: &Address| own.is_some_and(|own| at.preference < own.preference);
        let better = record.addresses().filter(is_better);
        let better = better.min_by_key(|at| at.preference).map(|at| at.na);
        let mut attached = self.by_guid.get_mut(guid).into_iter().flatten();
        if let Some(attachment) = attached.find(|it| it.port == port) {
            attachment.better = better;
        }
    }

    /// Returns the address that a host's newest record prefers to this router.
    pub(super) fn better(&self, guid: &Guid) -> Option<Guid> {
        self.by_guid.get(guid)?.first()?.better
    }

    /// Returns true if a GUID is attached on this port.
    pub(super) fn is_on(&self, guid: &Guid, port: PortId) -> bool {
        let attached = self.by_guid.get(guid);
        attached.is_some_and(|attached| attached.iter().any(|it| it.port == port))
    }

    /// Returns where a GUID is attached: by its preferred port, whether that responds or not.
    pub(super) fn place_of(&self, guid: &Guid, links: &Links) -> Option<Source> {
        let port = self.by_guid.get(guid)?.first()?.port;
        Some(links.source_of(port))
    }

    /// Notes that a chunk of a host came by a port.
    pub(super) fn note_use(&mut self, guid: &Guid, port: PortId) {
        let Some(attached) = self.by_guid.get_mut(guid).filter(|it| it.len() > 1) else {
            return;
        };
        if let Some(at) = attached.iter().position(|it| it.port == port) {
            self.spoken += 1;
            attached[at].spoke = self.spoken;
            let version = attached[at].version;
            let first = attached.partition_point(|it| it.version > version);
            attached[first..=at].rotate_right(1);
        }
    }

    pub(super) fn contains(&self, guid: &Guid) -> bool {
        self.by_guid.contains_key(guid)
    }

    pub(super) fn len(&self) -> usize {
        self.by_guid.len()
    }

    fn newest_version(&self, guid: &Guid) -> Option<u64> {
        Some(self.by_guid.get(guid)?.first()?.version)
    }

    /// Ends one attachment.
    pub(super) fn remove(&mut self, guid: &Guid, port: PortId) {
        let Some(attached) = self.by_guid.get_mut(guid) else {
            return;
        };
        let Some(at) = attached.iter().position(|it| it.port == port) else {
            return;
        };
        attached.remove(at);
        if attached.is_empty() {
            self.by_guid.remove(guid);
        }
        self.entries -= 1;
        if let Some(count) = self.per_port.get_mut(&port) {
            *count -= 1;
            if *count == 0 {
                self.per_port.remove(&port);
            }
        }
    }

    fn remove_all(&mut self, guid: &Guid) {
        let ports = self.by_guid.get(guid).into_iter().flatten();
        let ports: Vec<PortId> = ports.map(|attachment| attachment.port).collect();
        ports.iter().for_each(|port| self.remove(guid, *port));
    }

    /// Attaches a GUID, or renews its attachment; returns false if there is no room.
    pub(super) fn insert(&mut self, guid: Guid, port: PortId, version: u64) -> bool {
        let attached = self.by_guid.get(&guid).into_iter().flatten();
        let mut before = attached.filter(|it| it.port == port);
        let attachment = Attachment {
            port,
            version,
            better: None,
            spoke: before.next().map_or(0, |it| it.spoke),
        };
        self.remove(&guid, port);
        let oldest = self.by_guid.get(&guid).and_then(|attached| attached.last());
        if let Some(oldest) = oldest.copied()
            && self.by_guid.get(&guid).map_or(0, Vec::len) >= MAX_PORTS
        {
            self.remove(&guid, oldest.port);
        }
        let on_port = self.per_port.get(&attachment.port).copied();
        let share = (MAX_ATTACHMENTS.saturating_sub(self.entries) / PARTS).max(1);
        if self.entries >= MAX_ATTACHMENTS || on_port.is_some_and(|count| count >= share) {
            return false;
        }
        *self.per_port.entry(attachment.port).or_default() += 1;
        self.entries += 1;
        let attached = self.by_guid.entry(guid).or_default();
        let rank = |it: &Attachment| (it.version, it.spoke);
        let at = attached.partition_point(|it| rank(it) >= rank(&attachment));
        attached.insert(at, attachment);
        true
    }

    /// Ends an attachment here if a newer binding names other routers.
    pub(super) fn forget_if_moved(&mut self, guid: &Guid, binding: Option<&Record>) {
        let Some(binding) = binding else { return };
        let newer = self
            .newest_version(guid)
            .is_some_and(|here| binding.version() > here);
        if newer && !binding.addresses().any(|at| at.na == self.router) {
            self.remove_all(guid);
        }
    }

    /// Returns the version of the record that a host is attached with.
    pub(super) fn version_of(&self, guid: &Guid) -> Option<u64> {
        self.newest_version(guid)
    }

    /// Returns true if a record that came in on `port` holds. Bad ones are counted against it.
    pub(super) fn holds(
        &mut self,
        now: Time,
        port: PortId,
        record: &Record,
        effects: &mut Effects,
    ) -> bool {
        if !self.relayed.may_check(now, port) {
            effects.drop("too-many-bad-signatures");
            return false;
        }
        let verdict = record.verify(self.wall.unix_millis(now)).map_err(refusal);
        if verdict == Err(ControlCode::Invalid) {
            self.relayed.note_bad(now, port);
        }
        if verdict.is_err() {
            effects.drop("refused-record");
        }
        verdict.is_ok()
    }

    /// Ends all attachments of a host. Returns their ports.
    pub(super) fn detach(&mut self, guid: &Guid, effects: &mut Effects) -> Vec<PortId> {
        let attached = self.by_guid.get(guid).into_iter().flatten();
        let ports: Vec<PortId> = attached.map(|attachment| attachment.port).collect();
        for port in &ports {
            effects.push(Action::Cancel(Timer::Attachment(*guid, *port)));
        }
        self.remove_all(guid);
        ports
    }

    /// Sends a fresh challenge to a neighbour that came up. If it has another name than the one
    /// before, what was attached on the port was the former's.
    pub(super) fn challenge(
        &mut self,
        now: Time,
        port: PortId,
        neighbour: Guid,
        rng: &mut SeededRng,
        effects: &mut Effects,
    ) {
        let before = self.neighbours.insert(port, neighbour);
        if before.is_some_and(|before| before != neighbour) {
            self.detach_port(port, effects);
            self.neighbours.insert(port, neighbour);
        }
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&rng.next_word().to_be_bytes());
        nonce[8..].copy_from_slice(&rng.next_word().to_be_bytes());
        self.nonces.insert(port, nonce);
        self.repeat_challenge(now, port, effects);
    }

    /// Sends the present challenge with the present time. Challenges are chunks, which may overtake
    /// each other: who got an older one last could never attach.
    pub(super) fn repeat_challenge(&self, now: Time, port: PortId, effects: &mut Effects) {
        if let Some(nonce) = self.nonces.get(&port).copied() {
            let unix_ms = self.wall.unix_millis(now);
            effects.push(Action::Tell(port, Control::Challenge { nonce, unix_ms }));
        }
    }

    /// Judges by another clock from now on, and repeats all challenges, which tells neighbours of
    /// it. Attachments stay as long as they would have.
    pub(super) fn set_wall_clock(&mut self, now: Time, wall: WallClock, effects: &mut Effects) {
        self.wall = wall;
        for port in self.nonces.keys() {
            self.repeat_challenge(now, *port, effects);
        }
    }

    pub(super) fn handle_attach(
        &mut self,
        now: Time,
        port: PortId,
        record: Bytes,
        signature: [u8; 64],
        effects: &mut Effects,
    ) {
        let Ok(record) = Record::parse(record) else {
            return effects.drop("bad-record");
        };
        if !self.distrust.may_check(now, port) {
            return effects.drop("too-many-bad-signatures");
        }
        if !self.changes.entry(port).or_default().admits(now, CHANGES) {
            effects.push(Action::SetEarlier(
                Timer::Challenge(port),
                now + ASKED_AGAIN_AFTER,
            ));
            return effects.drop("attaches-too-often");
        }
        let (guid, version) = (record.subject(), record.version());
        let code = match self.check(now, port, &record, signature) {
            Ok(()) if self.insert(guid, port, version) => {
                self.note_better(&guid, port, &record);
                effects.counters.attachments += 1;
                let left = record
                    .expires_ms()
                    .saturating_sub(self.wall.unix_millis(now));
                let expiry = now + Duration::from_millis(left);
                effects.push(Action::Set(Timer::Attachment(guid, port), expiry));
                effects.push(Action::Register(port, record));
                effects.push(Action::Retry(guid));
                ControlCode::Attached
            }
            Ok(()) => ControlCode::Full,
            Err(code) => {
                effects.drop("refused-attach");
                if code == ControlCode::Invalid {
                    self.distrust.note_bad(now, port);
                }
                if matches!(code, ControlCode::Invalid | ControlCode::Clock) {
                    self.repeat_challenge(now, port, effects);
                }
                code
            }
        };
        effects.push(outcome(port, guid, version, code));
    }

    /// The record must be the sender's own, name this router and be newer than the known one, and
    /// its key must have signed this port's challenge: a record is public, so having it proves
    /// nothing.
    fn check(
        &self,
        now: Time,
        port: PortId,
        record: &Record,
        signature: [u8; 64],
    ) -> Result<(), ControlCode> {
        let nonce = self.nonces.get(&port).ok_or(ControlCode::Invalid)?;
        let statement = attach_statement(&self.router, nonce, record.version());
        let names_us = record.addresses().any(|at| at.na == self.router);
        if record.kind() != Kind::Binding || !names_us {
            return Err(ControlCode::Invalid);
        }
        record.verify(self.wall.unix_millis(now)).map_err(refusal)?;
        let signed = record
            .key()
            .verify(ATTACH_CONTEXT, &statement, &Signature(signature));
        signed.map_err(|_| ControlCode::Invalid)?;
        match self.newest_version(&record.subject()) {
            Some(known) if known > record.version() => Err(ControlCode::Stale),
            _ => Ok(()),
        }
    }

    pub(super) fn handle_register(
        &mut self,
        now: Time,
        port: PortId,
        record: Record,
        effects: &mut Effects,
    ) {
        if !self.distrust.may_check(now, port) {
            return effects.drop("too-many-bad-signatures");
        }
        if let Err(fault) = record.verify(self.wall.unix_millis(now)) {
            if refusal(fault) == ControlCode::Invalid {
                self.distrust.note_bad(now, port);
            }
            effects.drop("refused-record");
            let (guid, version) = (record.subject(), record.version());
            return effects.push(outcome(port, guid, version, refusal(fault)));
        }
        effects.push(Action::Register(port, record));
    }

    /// Records that a record of the host on this port is being registered.
    pub(super) fn await_outcome(&mut self, port: PortId, record: &Record) {
        if self.pending.len() < MAX_PENDING {
            self.pending
                .insert((record.subject(), record.version()), port);
        }
    }

    /// Handles the name service's refusal of a record.
    pub(super) fn report_refused(
        &mut self,
        guid: Guid,
        rejection: Rejection,
        effects: &mut Effects,
    ) {
        let code = match rejection {
            Rejection::Unreachable => ControlCode::Unreachable,
            Rejection::Busy => ControlCode::Full,
            Rejection::Server {
                code: Code::Stale | Code::Conflict,
                ..
            } => ControlCode::Stale,
            Rejection::Server {
                code: Code::Full | Code::StoreFailed,
                ..
            } => ControlCode::Full,
            Rejection::Server {
                code: Code::Expired | Code::FromTheFuture,
                ..
            } => ControlCode::Clock,
            Rejection::Server { .. } => ControlCode::Invalid,
        };
        // The name service names only the subject; the refusal is reported for each of its few
        // pending records.
        let about = self.pending.range((guid, 0)..=(guid, u64::MAX));
        let versions: Vec<u64> = about.map(|((_, version), _)| *version).collect();
        if versions.is_empty() && code == ControlCode::Stale {
            self.report_outdated(guid, effects);
        }
        for version in versions {
            self.report(guid, version, code, effects);
        }
    }

    /// The record that was registered again for a host here, after the name service had lost it, is
    /// older than what somebody else has told meanwhile: the host signs a newer one.
    fn report_outdated(&self, guid: Guid, effects: &mut Effects) {
        let newest = self.by_guid.get(&guid).and_then(|it| it.first());
        if let Some(newest) = newest {
            let (port, version) = (newest.port, newest.version);
            effects.push(outcome(port, guid, version, ControlCode::Stale));
        }
    }

    /// Reports the outcome of a record to the host that waits for it.
    pub(super) fn report(
        &mut self,
        guid: Guid,
        version: u64,
        code: ControlCode,
        effects: &mut Effects,
    ) {
        if let Some(port) = self.pending.remove(&(guid, version)) {
            effects.push(outcome(port, guid, version, code));
        }
    }

    /// Ends all attachments on a closed port.
    pub(super) fn detach_port(&mut self, port: PortId, effects: &mut Effects) {
        let attached = self.by_guid.iter();
        let gone: Vec<Guid> = attached
            .filter(|(_, attached)| attached.iter().any(|it| it.port == port))
            .map(|(guid, _)| *guid)
            .collect();
        for guid in gone {
            self.remove(&guid, port);
            effects.push(Action::Cancel(Timer::Attachment(guid, port)));
        }
        self.nonces.remove(&port);
        self.neighbours.remove(&port);
        self.distrust.forget(port);
        self.changes.remove(&port);
        effects.push(Action::Cancel(Timer::Challenge(port)));
        self.relayed.forget(port);
        self.pending.retain(|_, waiting| *waiting != port);
    }
}

/// What to tell the host whose record does not hold.
fn refusal(fault: VerifyError) -> ControlCode {
    match fault {
        VerifyError::Expired | VerifyError::FromTheFuture => ControlCode::Clock,
        _ => ControlCode::Invalid,
    }
}

/// Returns the message about a record's outcome.
pub(super) fn outcome(port: PortId, guid: Guid, version: u64, code: ControlCode) -> Action {
    Action::Tell(
        port,
        Control::Outcome {
            guid,
            version,
            code,
        },
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use whimbrel_gnrs::{Address, KeyPair, Statement};

    use super::*;

    const NOW: Time = Time::from_secs(1);
    const PORT: PortId = PortId(3);
    const ROUTER: Guid = Guid([1; 32]);
    const WALL: WallClock = WallClock::new(1_800_000_000_000);

    /// Attaches with an answer to `nonce`, by a clock that is ahead by so many milliseconds.
    /// Returns what the router says.
    fn attach(attachments: &mut Attachments, nonce: [u8; 16], ahead: i64) -> Vec<Control> {
        let unix_ms = WALL.shifted(ahead).unix_millis(NOW);
        told(&mut attach_at(attachments, NOW, nonce, unix_ms))
    }

    /// The same at a time, with a record that was signed at this one.
    fn attach_at(
        attachments: &mut Attachments,
        now: Time,
        nonce: [u8; 16],
        unix_ms: u64,
    ) -> Effects {
        let keys = KeyPair::from_secret(&[7; 32]);
        let statement = Statement::new(unix_ms, 60_000, vec![Address::new(ROUTER)]);
        let record = Record::binding(&keys, &statement).unwrap();
        let signed = attach_statement(&ROUTER, &nonce, statement.version);
        let signature = keys.sign(ATTACH_CONTEXT, &signed).0;
        let mut effects = Effects::default();
        let bytes = Bytes::copy_from_slice(record.as_bytes());
        attachments.handle_attach(now, PORT, bytes, signature, &mut effects);
        effects
    }

    fn told(effects: &mut Effects) -> Vec<Control> {
        let actions = core::iter::from_fn(|| effects.next());
        let told = actions.filter_map(|action| match action {
            Action::Tell(PORT, control) => Some(control),
            _ => None,
        });
        told.collect()
    }

    fn code(control: &Control) -> Option<ControlCode> {
        match control {
            Control::Outcome { code, .. } => Some(*code),
            _ => None,
        }
    }

    #[test]
    fn however_many_attach_there_is_room_for_another() {
        let mut attachments = Attachments::new(ROUTER, WALL);
        let mut number = 0u32;
        let mut guid = || {
            number += 1;
            let mut guid = [7; 32];
            guid[..4].copy_from_slice(&number.to_be_bytes());
            Guid(guid)
        };
        for port in 0..4096 {
            while attachments.insert(guid(), PortId(port), 1) {}
        }
        assert_eq!(attachments.per_port[&PortId(0)], 63);
        assert!(attachments.entries > MAX_ATTACHMENTS / 10 * 9);
        assert!(attachments.insert(guid(), PortId(5000), 1));
    }

    /// Records are renewed on all ports, in any order: the port that the host uses stays the first.
    #[test]
    fn a_host_is_reached_by_the_port_that_it_used_last() {
        let mut attachments = Attachments::new(ROUTER, WALL);
        let (host, ports) = (Guid([7; 32]), [PortId(1), PortId(2), PortId(3)]);
        let order = |attachments: &Attachments| -> Vec<u32> {
            let attached = attachments.by_guid[&host].iter();
            attached.map(|it| it.port.0).collect()
        };
        for port in ports {
            attachments.insert(host, port, 1);
        }
        assert_eq!(order(&attachments), [1, 2, 3]);
        attachments.note_use(&host, ports[1]);
        attachments.note_use(&host, ports[2]);
        attachments.note_use(&host, PortId(9));
        assert_eq!(order(&attachments), [3, 2, 1]);
        // Newer records go first, whichever port they come by.
        attachments.insert(host, ports[0], 2);
        assert_eq!(order(&attachments), [1, 3, 2]);
        attachments.note_use(&host, ports[1]);
        assert_eq!(order(&attachments), [1, 2, 3]);
        attachments.insert(host, ports[2], 2);
        attachments.insert(host, ports[1], 2);
        assert_eq!(order(&attachments), [2, 3, 1]);
    }

    /// A host that got the older of two challenges last answers that one.
    #[test]
    fn who_answers_an_old_challenge_or_by_a_wrong_clock_is_told_the_present_one() {
        let mut attachments = Attachments::new(ROUTER, WALL);
        let (mut effects, mut rng) = (Effects::default(), SeededRng::new(1));
        let mut challenge = |attachments: &mut Attachments| {
            attachments.challenge(NOW, PORT, Guid([7; 32]), &mut rng, &mut effects);
            let [Control::Challenge { nonce, unix_ms }] = told(&mut effects)[..] else {
                panic!("one challenge");
            };
            (nonce, unix_ms)
        };
        let (old, _) = challenge(&mut attachments);
        let (nonce, unix_ms) = challenge(&mut attachments);
        assert_ne!(old, nonce);
        let present = Control::Challenge { nonce, unix_ms };
        for (answered, ahead, expected) in [
            (old, 0, ControlCode::Invalid),
            (nonce, 7_200_000, ControlCode::Clock),
        ] {
            let said = attach(&mut attachments, answered, ahead);
            assert!(said.contains(&present), "{said:?}");
            assert!(said.iter().filter_map(code).eq([expected]), "{said:?}");
        }
        let said = attach(&mut attachments, nonce, 0);
        assert!(said.iter().filter_map(code).eq([ControlCode::Attached]));
        assert!(!said.contains(&present));
    }

    /// Nobody waits for the outcome of a record that is registered again. If it is refused because
    /// somebody has given the restarted server a newer one of the host's past, the host is told.
    #[test]
    fn a_host_is_told_when_its_record_is_refused_on_registering_again() {
        let mut attachments = Attachments::new(ROUTER, WALL);
        let (mut effects, host) = (Effects::default(), Guid([7; 32]));
        let stale = Rejection::Server {
            code: Code::Stale,
            stored: 9,
        };
        attachments.report_refused(host, stale, &mut effects);
        assert_eq!(told(&mut effects), [], "it is not here");
        attachments.insert(host, PORT, 5);
        attachments.report_refused(host, Rejection::Unreachable, &mut effects);
        assert_eq!(told(&mut effects), [], "the name service has what it had");
        attachments.report_refused(host, stale, &mut effects);
        let told = told(&mut effects);
        assert!(told.iter().filter_map(code).eq([ControlCode::Stale]));
        assert!(
            matches!(told[..], [Control::Outcome { version: 5, .. }]),
            "{told:?}"
        );
    }

    /// What is not taken is not lost: the host is asked for its newest record when there is room again.
    #[test]
    fn a_host_that_attaches_thousands_of_times_is_taken_now_and_then() {
        let mut attachments = Attachments::new(ROUTER, WALL);
        let nonce = [1; 16];
        attachments.nonces.insert(PORT, nonce);
        let attach = |attachments: &mut Attachments, now: Time| {
            let mut effects = attach_at(attachments, now, nonce, WALL.unix_millis(now));
            let actions: Vec<Action> = core::iter::from_fn(|| effects.next()).collect();
            let taken = actions.iter().any(|it| matches!(it, Action::Register(..)));
            let is_asked = |it: &Action| matches!(it, Action::SetEarlier(Timer::Challenge(PORT), at) if *at > now);
            assert_ne!(taken, actions.iter().any(is_asked));
            taken
        };
        let mut taken = 0;
        for millis in 0..1_000 {
            let now = NOW + Duration::from_millis(millis);
            taken += u64::from(attach(&mut attachments, now));
        }
        assert!((32..=36).contains(&taken), "{taken}");
        let later = NOW + Duration::from_secs(1) + ASKED_AGAIN_AFTER;
        assert!(attach(&mut attachments, later));
    }
}
