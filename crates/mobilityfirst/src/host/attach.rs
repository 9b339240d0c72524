//! Registration: the host's binding to its access routers, and its announcements of contents.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use core::time::Duration;
use whimbrel_core::{Guid, PortId, Time, WallClock};
use whimbrel_gnrs::{Address, GroupAdmission, KeyPair, Record, Statement};

use super::access::Access;
use super::catalogue::Catalogue;
use super::clocks::{ClockDifference, Clocks};
use super::effects::{Action, Effects};
use super::memberships::{self, Memberships};
use super::services::Services;
use super::{App, Timer, Way};
use crate::links::Links;
use crate::local::{LocalEvent, MembershipChange};
use crate::next_hops::{Branch, NextHops};
use crate::wire::{
    ATTACH_CONTEXT, Control, ControlCode, OfferTerms, OfferUse, SignedOffer, attach_statement,
};

/// Pause after which a failed announcement is tried again.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(5);
/// Approximate bytes of a renewal and its answer on a link, ...
const RENEWAL_BYTES: u64 = 1_000;
/// ... which may take at most one part in this many of the link's rate.
const RENEWAL_SHARE: u64 = 200;
/// Bound of a lifetime that is extended because of a slow link.
const MAX_SLOW_LIFETIME: Duration = Duration::from_secs(600);
/// One hour in microseconds. A host whose version was refused, because its clock once ran ahead,
/// goes on this far above that version.
const VERSION_LEAP: u64 = 3_600_000_000;
/// Ten years in microseconds.
const MAX_VERSION_LEAP: u64 = 87_600 * VERSION_LEAP;

/// The keys that sign a host's records, and the lifetimes of the records.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) keys: KeyPair,
    pub(super) binding_lifetime: Duration,
    pub(super) announcement_lifetime: Duration,
}

/// What a router answers about a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordAnswer {
    pub(super) guid: Guid,
    pub(super) version: u64,
    pub(super) code: ControlCode,
}

/// The state of a host's registration with its routers.
#[derive(Debug)]
pub(super) struct Registration {
    // The host's GUID.
    guid: Guid,
    terms: Terms,
    clocks: Clocks,
    nonces: BTreeMap<PortId, [u8; 16]>,
    // Ports whose router has come up in a new run and not yet sent its challenge.
    new_routers: BTreeSet<PortId>,
    // Ports named in the newest record, and how: with preference and weight.
    announced: Vec<(PortId, u8, u16)>,
    // Routers named in it, the preferred one first.
    named: Vec<Guid>,
    // True if another one is preferred since that was last asked, and the former one still reaches the host.
    has_moved: bool,
    version: u64,
    // The next step of the version after a refusal as too old.
    leap: u64,
    // The name service has the newest record that it has answered about.
    registered: bool,
    // The routers' latest answer about the binding.
    outcome: Option<ControlCode>,
    // Contents to announce as soon as there is room, and the times of the other announcements.
    to_announce: VecDeque<Guid>,
    due: BTreeMap<Guid, Time>,
    services: Services,
    memberships: Memberships,
}

impl Registration {
    pub(super) fn new(terms: Terms, wall: WallClock) -> Registration {
        Registration {
            guid: terms.keys.guid(),
            terms,
            clocks: Clocks::new(wall),
            nonces: BTreeMap::new(),
            new_routers: BTreeSet::new(),
            announced: Vec::new(),
            named: Vec::new(),
            has_moved: false,
            version: 0,
            leap: VERSION_LEAP,
            registered: false,
            outcome: None,
            to_announce: VecDeque::new(),
            due: BTreeMap::new(),
            services: Services::default(),
            memberships: Memberships::default(),
        }
    }

    pub(super) fn is_registered(&self) -> bool {
        self.registered
    }

    pub(super) fn outcome(&self) -> Option<ControlCode> {
        self.outcome
    }
}

impl Registration {
    /// Forgets the challenge of a router that has come up: its next challenge follows, and an
    /// answer to the last one is void. After `new_run` (another router, or a restart) so are the
    /// announcements there.
    pub(super) fn forget_challenge(&mut self, port: PortId, new_run: bool) {
        self.nonces.remove(&port);
        if new_run {
            self.new_routers.insert(port);
        } else {
            self.new_routers.remove(&port);
        }
    }

    /// Announces all contents again if the router on `port`, to which the host is attached now, has
    /// restarted. Otherwise it would not know the names of the contents until their next renewal.
    pub(super) fn announce_to_new_router(&mut self, port: PortId) {
        if self.new_routers.remove(&port) {
            self.announce_all();
        }
    }

    fn announce_all(&mut self) {
        self.to_announce
            .extend(core::mem::take(&mut self.due).into_keys());
    }

    /// Notes a router's challenge. If the router's clock has stepped, announcements there may have
    /// expired, and are made again. Returns false for a repetition without news: an answer would
    /// repeat what was refused.
    pub(super) fn note_challenge(
        &mut self,
        now: Time,
        port: PortId,
        nonce: [u8; 16],
        unix_ms: u64,
    ) -> bool {
        let is_new = self.nonces.insert(port, nonce) != Some(nonce);
        let has_stepped = self.clocks.note(now, port, unix_ms);
        if has_stepped {
            self.announce_all();
        }
        is_new || has_stepped
    }

    /// Replaces the clock by which records are signed; all records are made anew.
    pub(super) fn set_wall_clock(&mut self, wall: WallClock) {
        self.clocks.set(wall);
        self.announce_all();
    }

    /// Returns the difference between the host's clock and its routers' if it agrees with none.
    pub(super) fn clock_difference(&self, now: Time, access: &Access) -> Option<ClockDifference> {
        let uplinks = access.hops(Way::Uplink);
        self.clocks.difference(now, &self.attachable(&uplinks))
    }

    /// Handles a router's answer about a record. Returns true if a new record must be made.
    pub(super) fn handle_outcome(
        &mut self,
        now: Time,
        answer: RecordAnswer,
        catalogue: &Catalogue,
        effects: &mut Effects,
    ) -> bool {
        let RecordAnswer {
            guid,
            version,
            code,
        } = answer;
        if guid == self.guid {
            return self.note_binding_outcome(version, code, effects);
        }
        self.note_announcement_outcome(now, guid, code, catalogue, effects);
        false
    }

    fn note_binding_outcome(
        &mut self,
        version: u64,
        code: ControlCode,
        effects: &mut Effects,
    ) -> bool {
        // "Attached" means only that the name service has not answered yet.
        if code != ControlCode::Attached || self.outcome.is_none() {
            self.outcome = Some(code);
        }
        // Without an answer of the name service, it has what it had.
        let is_known = matches!(code, ControlCode::Attached | ControlCode::Unreachable);
        if version == self.version && !is_known {
            self.registered = code == ControlCode::Registered;
        }
        match code {
            ControlCode::Registered => self.leap = VERSION_LEAP,
            ControlCode::Attached => {}
            ControlCode::Stale if version == self.version => {
                self.leap();
                return true;
            }
            ControlCode::Clock => effects.drop("clock-refused"),
            _ => effects.drop("binding-refused"),
        }
        false
    }

    /// Skips versions, twice as many each time: a clock that was wrong by years is overtaken within
    /// some twenty refusals.
    fn leap(&mut self) {
        self.version = self.version.saturating_add(self.leap);
        self.leap = self.leap.saturating_mul(2).min(MAX_VERSION_LEAP);
    }

    /// Returns the ports of the routers that answer and have sent a challenge.
    fn attachable(&self, uplinks: &NextHops) -> Vec<PortId> {
        let ready = |branch: &&Branch| branch.up && self.nonces.contains_key(&branch.port);
        let ready = uplinks.iter().filter(ready);
        ready.map(|branch| branch.port).collect()
    }

    /// Returns the ports at which the host is to be reached, the best first, with preference and
    /// weight: as it sends by them. Those that are used together have preference 0.
    fn wanted(&self, uplinks: &NextHops) -> Vec<(PortId, u8, u16)> {
        let ready = |branch: &&Branch| branch.up && self.nonces.contains_key(&branch.port);
        let mut next = 0u8;
        let mut wanted = Vec::new();
        for branch in uplinks.iter().filter(ready) {
            let preference = if branch.preference == 0 { 0 } else { next };
            next = preference.saturating_add(1);
            let weight = branch.weight.min(u16::MAX.into()) as u16;
            wanted.push((branch.port, preference, weight));
        }
        wanted
    }

    /// Returns the Unix time in milliseconds by the host's own clock, which no router moves.
    pub(super) fn own_millis(&self, now: Time) -> u64 {
        self.clocks.own_millis(now)
    }

    /// Signs an offer of a content to a receiver.
    pub(super) fn sign_offer(
        &self,
        now: Time,
        terms: &OfferTerms<'_>,
        proposed: OfferUse,
    ) -> SignedOffer {
        SignedOffer::sign(&self.terms.keys, terms, proposed, self.own_millis(now))
    }

    /// Attaches anew if the routers that answer are not those of the newest record.
    pub(super) fn renew_if_changed(&mut self, now: Time, access: &Access, effects: &mut Effects) {
        let wanted = self.wanted(&access.hops(Way::Uplink));
        if !wanted.is_empty() && wanted != self.announced {
            self.renew(now, access, effects);
        }
    }

    /// Signs a new record that names all routers that answer, and sends it to each of them.
    pub(super) fn renew(&mut self, now: Time, access: &Access, effects: &mut Effects) {
        let (uplinks, links) = (access.hops(Way::Uplink), &access.links);
        let ports = self.attachable(&uplinks);
        let lifetime = self.lifetime_on(&ports, links);
        effects.set(Timer::Renewal, now + lifetime / 3);
        if ports.is_empty() {
            // A router may have forgotten the host when it answers again, which is to be told at once.
            self.announced.clear();
            return;
        }
        let wanted = self.wanted(&uplinks);
        let addresses = addresses(&wanted, links);
        let named: Vec<Guid> = addresses.iter().map(|address| address.na).collect();
        let mut former = core::mem::replace(&mut self.named, named);
        let preferred = former.first().copied();
        former.retain(|router| !self.named.contains(router));
        // What has left its router is forwarded there, and by who knows the newer record.
        self.has_moved |= preferred.is_some_and(|router| !former.contains(&router))
            && preferred != self.named.first().copied();
        let unix_ms = self.clocks.unix_millis(now, &ports);
        let statement = self.statement(unix_ms, lifetime, addresses);
        let version = statement.version;
        let Ok(record) = Record::binding(&self.terms.keys, &statement) else {
            return;
        };
        for port in &ports {
            let (Some(nonce), Some(router)) = (self.nonces.get(port), links.neighbour(*port))
            else {
                continue;
            };
            let signed = attach_statement(&router, nonce, version);
            let signature = self.terms.keys.sign(ATTACH_CONTEXT, &signed).0;
            let record = bytes::Bytes::copy_from_slice(record.as_bytes());
            effects.control(*port, Control::Attach { record, signature });
        }
        for router in former {
            let record = bytes::Bytes::copy_from_slice(record.as_bytes());
            effects.push(Action::Leave(router, Control::Left { record }));
        }
        self.announced = wanted;
    }

    /// Returns true if another router is preferred since the last call, while the former one still reaches
    /// the host.
    pub(super) fn take_moved(&mut self) -> bool {
        core::mem::take(&mut self.has_moved)
    }

    /// Returns the lifetime of a binding: longer than configured if a link is so slow that renewals
    /// would take a noticeable part of it.
    fn lifetime_on(&self, ports: &[PortId], links: &Links) -> Duration {
        let rates = ports
            .iter()
            .filter_map(|port| links.neighbours.state(*port).delivery_rate);
        let renewals = rates.min().map_or(Duration::ZERO, |slowest| {
            let millis = RENEWAL_BYTES * RENEWAL_SHARE * 1_000 / slowest.max(1);
            Duration::from_millis(millis).min(MAX_SLOW_LIFETIME / 3)
        });
        self.terms.binding_lifetime.max(renewals * 3)
    }

    /// Returns a statement with a higher version than all that this host has made.
    fn statement(
        &mut self,
        unix_ms: u64,
        lifetime: Duration,
        addresses: Vec<Address>,
    ) -> Statement {
        let mut statement = Statement::new(unix_ms, lifetime.as_millis() as u64, addresses);
        statement.version = statement.version.max(self.version.saturating_add(1));
        self.version = statement.version;
        statement
    }

    /// Schedules an announcement, for as soon as a router has room.
    pub(super) fn announce(&mut self, content: Guid) {
        self.due.remove(&content);
        self.to_announce.push_back(content);
    }

    /// Returns true if an announcement waits for room.
    pub(super) fn has_to_announce(&self) -> bool {
        !self.to_announce.is_empty()
    }

    /// Sends the first waiting announcement if the uplink has room. Returns true if it was sent.
    pub(super) fn send_announcements(
        &mut self,
        now: Time,
        access: &Access,
        catalogue: &Catalogue,
        effects: &mut Effects,
    ) -> bool {
        let mut sent = false;
        // One for each check of the room: a control message is one small chunk.
        if let Some(content) = self.to_announce.front().copied() {
            let uplink = access.port_by(Way::Uplink);
            let Some(port) = uplink.filter(|port| access.links.has_room(*port)) else {
                return false;
            };
            self.to_announce.pop_front();
            sent = true;
            let unix_ms = self.clocks.unix_millis(now, &[port]);
            let is_member = self.memberships.has(&content);
            let statement = if is_member || self.is_here(catalogue, &content) {
                let again = match is_member {
                    true => now + memberships::RENEWAL,
                    false => now + self.terms.announcement_lifetime / 3,
                };
                self.due.insert(content, again);
                effects.set_earlier(Timer::Announcements, again);
                self.statement(unix_ms, self.terms.announcement_lifetime, Vec::new())
            } else {
                let lifetime = self.terms.announcement_lifetime;
                let mut statement = self.statement(unix_ms, lifetime, Vec::new());
                statement.removed = true;
                statement
            };
            let record = self.services.sign(&content, self.guid, &statement);
            let record =
                record.or_else(|| (self.memberships).sign(&content, &self.terms.keys, &statement));
            let record =
                record.unwrap_or_else(|| Record::provider(&self.terms.keys, content, &statement));
            if let Ok(record) = record {
                let record = bytes::Bytes::copy_from_slice(record.as_bytes());
                effects.control(port, Control::Register { record });
            }
        }
        sent
    }

    pub(super) fn renew_announcements(&mut self, now: Time, effects: &mut Effects) {
        let due: Vec<Guid> = self
            .due
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(guid, _)| *guid)
            .collect();
        for content in due {
            self.announce(content);
        }
        if let Some(next) = self.due.values().min() {
            effects.set(Timer::Announcements, *next);
        }
    }

    fn note_announcement_outcome(
        &mut self,
        now: Time,
        content: Guid,
        code: ControlCode,
        catalogue: &Catalogue,
        effects: &mut Effects,
    ) {
        if code == ControlCode::Stale {
            self.leap();
        }
        let is_here = self.is_here(catalogue, &content) || self.memberships.has(&content);
        if code != ControlCode::Registered && is_here {
            self.due.insert(content, now + ANNOUNCE_AGAIN);
            effects.set_earlier(Timer::Announcements, now + ANNOUNCE_AGAIN);
        }
        for app in catalogue.publishers(&content) {
            effects.tell(app, LocalEvent::Published { content, code });
        }
        for (app, content) in self.services.programs(&content) {
            effects.tell(app, LocalEvent::Published { content, code });
        }
        for (app, content) in self.memberships.programs(&content) {
            effects.tell(app, LocalEvent::Published { content, code });
        }
        self.memberships.note_outcome(&content, code);
    }

    /// Returns true if the host has a content, or is attached by a service's name.
    fn is_here(&self, catalogue: &Catalogue, name: &Guid) -> bool {
        catalogue.contains(name) || self.services.is_attached(name)
    }

    /// Joins or leaves a group, for a program.
    pub(super) fn set_membership(
        &mut self,
        now: Time,
        app: App,
        admission: GroupAdmission,
        change: MembershipChange,
        effects: &mut Effects,
    ) {
        let content = admission.group_name();
        let has_ended = admission.expires_ms <= self.own_millis(now);
        let admits = admission.member.is_none_or(|member| member == self.guid);
        let refused = match change != MembershipChange::Leave {
            true if has_ended => Some(ControlCode::Clock),
            true if !admits => Some(ControlCode::Invalid),
            _ => (!admission.is_signed()).then_some(ControlCode::Invalid),
        };
        let refused = refused.or_else(|| {
            let group = self.memberships.set(app, admission, change);
            group.map_or(Some(ControlCode::Full), |group| {
                self.announce(group);
                None
            })
        });
        if let Some(code) = refused {
            effects.tell(app, LocalEvent::Published { content, code });
        }
    }

    pub(super) fn memberships(&mut self) -> &mut Memberships {
        &mut self.memberships
    }

    /// Attaches the host by the name of a key, for a program.
    pub(super) fn attach_service(&mut self, app: App, keys: KeyPair, effects: &mut Effects) {
        let (content, code) = (keys.guid(), ControlCode::Full);
        match self.services.attach(app, keys) {
            Some(members) => self.announce(members),
            None => effects.tell(app, LocalEvent::Published { content, code }),
        }
    }

    /// Ends what a program has attached the host by.
    pub(super) fn forget_services_of(&mut self, app: App) {
        self.memberships.forget(app);
        let left = self.services.forget(app);
        self.withdraw_announcements(left);
    }

    /// Returns true if the host is attached by the name with these members.
    pub(super) fn is_member_of(&self, members: &Guid) -> bool {
        self.services.is_attached(members)
    }

    fn forget_announcement(&mut self, content: Guid) {
        self.due.remove(&content);
    }

    /// Replaces the announcements of a program that has left by removals.
    pub(super) fn withdraw_announcements(&mut self, contents: Vec<Guid>) {
        for content in contents {
            self.forget_announcement(content);
            self.to_announce.push_back(content);
        }
    }
}

/// Returns the addresses of a record: of each router the best of the links to it, the preferred
/// router first. A router that is reached by several links has their weight together.
fn addresses(wanted: &[(PortId, u8, u16)], links: &Links) -> Vec<Address> {
    let mut addresses: Vec<Address> = Vec::new();
    for (port, preference, weight) in wanted {
        let Some(na) = links.neighbour(*port) else {
            continue;
        };
        match addresses.iter_mut().find(|address| address.na == na) {
            Some(known) if known.preference == *preference => {
                known.weight = known.weight.saturating_add(*weight);
            }
            Some(_) => {}
            None => addresses.push(Address {
                na,
                preference: *preference,
                weight: *weight,
            }),
        }
    }
    addresses.truncate(whimbrel_gnrs::MAX_ADDRESSES);
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_whose_newest_record_was_refused_is_not_registered() {
        let terms = Terms {
            keys: KeyPair::from_secret(&[1; 32]),
            binding_lifetime: Duration::from_secs(60),
            announcement_lifetime: Duration::from_secs(60),
        };
        let mut registration = Registration::new(terms, WallClock::new(1_800_000_000_000));
        registration.version = 7;
        let mut after = |version, code| {
            registration.note_binding_outcome(version, code, &mut Effects::default());
            let is_registered = registration.is_registered();
            registration.version = 7;
            is_registered
        };
        assert!(!after(7, ControlCode::Attached));
        assert!(after(7, ControlCode::Registered));
        // A late answer about an older record, and none of the name service, change nothing.
        assert!(after(6, ControlCode::Stale));
        assert!(after(7, ControlCode::Unreachable));
        for refusal in [
            ControlCode::Stale,
            ControlCode::Clock,
            ControlCode::Invalid,
            ControlCode::Full,
        ] {
            assert!(after(7, ControlCode::Registered));
            assert!(!after(7, refusal), "{refusal:?}");
        }
    }
}
