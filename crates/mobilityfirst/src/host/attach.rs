//! The host's bindings: to its access routers, and of the contents that it offers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use core::time::Duration;
use whimbrel_core::{Guid, PortId, PortOrigin, Time};
use whimbrel_gnrs::{Address, Record, Statement};

use super::{Host, Timer};
use crate::charge::Charge;
use crate::chunk::{Chunk, Message};
use crate::links::Outgoing;
use crate::local::LocalEvent;
use crate::next_hops::{Branch, NextHops};
use crate::room::Room;
use crate::wire::{
    ATTACH_CONTEXT, Control, ControlCode, NetworkHeader, ServiceId, UpperProtocol, attach_statement,
};

/// When an announcement could not be made, it is tried again after this long.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(5);
/// An hour of microseconds: a host whose clock ran ahead once starts so far above the version that
/// was refused.
const VERSION_LEAP: u64 = 3_600_000_000;

/// What the host has told its routers.
#[derive(Debug, Default)]
pub(super) struct Registration {
    nonces: BTreeMap<PortId, [u8; 16]>,
    // Ports named in the newest record.
    announced: BTreeSet<PortId>,
    version: u64,
    registered: bool,
    // Contents whose announcement is to be made as soon as there is room, and when the others' are
    // due.
    to_announce: VecDeque<Guid>,
    due: BTreeMap<Guid, Time>,
}

impl Registration {
    pub(super) fn is_registered(&self) -> bool {
        self.registered
    }
}

impl Host {
    pub(super) fn router_up(&mut self, now: Time, port: PortId, _router: Guid) {
        // Its challenge follows; the answer to the last one is worth nothing to it any more.
        self.registration.nonces.remove(&port);
        self.resume_transfers(now);
    }

    pub(super) fn router_back(&mut self, now: Time) {
        self.renew_if_changed(now);
        self.resume_transfers(now);
    }

    /// A router has stopped answering: with another one at hand, the host is bound to that alone,
    /// so that what is stored for it comes by there.
    pub(super) fn router_silent(&mut self, now: Time) {
        self.renew_if_changed(now);
        self.note_connectivity(now);
    }

    pub(super) fn router_gone(&mut self, now: Time, port: PortId) {
        self.registration.nonces.remove(&port);
        self.renew_if_changed(now);
        self.note_connectivity(now);
    }

    /// True if this host opened the link of `port`. Who calls is another host that wants something
    /// of this one, whatever it says of itself: it neither binds this host nor carries what this
    /// host sends to others.
    pub(super) fn is_uplink(&self, port: PortId) -> bool {
        !self.callers.contains(&port)
    }

    /// The links that lead to routers, or to the host that this one was told to ask directly, by
    /// the configured preference.
    pub(super) fn uplinks(&self) -> NextHops {
        let rank = |port: &PortId| {
            let origin = self.links.info(*port).map(|info| info.origin);
            let mut preferred = self.config.preference.iter();
            preferred
                .position(|link| origin == Some(PortOrigin::Configured(*link)))
                .map_or(u32::MAX, |rank| rank as u32)
        };
        self.links
            .ports()
            .filter(|port| self.is_uplink(*port))
            .map(|port| Branch {
                preference: rank(&port),
                ..Branch::over(port, &self.links)
            })
            .collect()
    }

    pub(super) fn handle_control(&mut self, now: Time, port: PortId, control: Control) {
        match control {
            Control::Challenge { .. } if !self.is_uplink(port) => {
                self.counters.drop("challenge-of-a-caller")
            }
            Control::Challenge { nonce } => {
                self.registration.nonces.insert(port, nonce);
                self.renew(now);
            }
            Control::Outcome {
                guid,
                version,
                code,
            } if guid == self.guid => {
                self.note_binding_outcome(now, version, code);
            }
            Control::Outcome { guid, code, .. } => self.note_announcement_outcome(now, guid, code),
            Control::Attach { .. } | Control::Register { .. } => {
                self.counters.drop("attach-to-a-host")
            }
        }
    }

    fn note_binding_outcome(&mut self, now: Time, version: u64, code: ControlCode) {
        match code {
            ControlCode::Registered => self.registration.registered = true,
            ControlCode::Attached => {}
            ControlCode::Stale if version == self.registration.version => {
                self.registration.version = self.registration.version.saturating_add(VERSION_LEAP);
                self.renew(now);
            }
            _ => self.counters.drop("binding-refused"),
        }
    }

    /// Routers that answer and have sent a challenge.
    fn attachable(&self) -> Vec<PortId> {
        let ready = |branch: &&Branch| {
            branch.link.up && self.registration.nonces.contains_key(&branch.port)
        };
        let uplinks = self.uplinks();
        let ready = uplinks.iter().filter(ready);
        ready.map(|branch| branch.port).collect()
    }

    fn renew_if_changed(&mut self, now: Time) {
        let ports: BTreeSet<PortId> = self.attachable().into_iter().collect();
        if !ports.is_empty() && ports != self.registration.announced {
            self.renew(now);
        }
    }

    /// Signs a new record that names all routers at hand, and gives it to each of them.
    pub(super) fn renew(&mut self, now: Time) {
        let ports = self.attachable();
        self.timers
            .set(Timer::Renewal, now + self.config.binding_lifetime / 3);
        if ports.is_empty() {
            return;
        }
        let addresses = ports
            .iter()
            .filter_map(|port| self.links.neighbour(*port))
            .enumerate();
        let addresses: Vec<Address> = addresses
            .take(whimbrel_gnrs::MAX_ADDRESSES)
            .map(|(rank, na)| Address {
                preference: rank as u8,
                ..Address::new(na)
            })
            .collect();
        let statement = self.statement(now, self.config.binding_lifetime, addresses);
        let version = statement.version;
        let Ok(record) = Record::binding(&self.config.keys, &statement) else {
            return;
        };
        for port in &ports {
            let (Some(nonce), Some(router)) = (
                self.registration.nonces.get(port),
                self.links.neighbour(*port),
            ) else {
                continue;
            };
            let signed = attach_statement(&router, nonce, version);
            let signature = self.config.keys.sign(ATTACH_CONTEXT, &signed).0;
            let record = bytes::Bytes::copy_from_slice(record.as_bytes());
            self.send_control(*port, &Control::Attach { record, signature });
        }
        self.registration.announced = ports.into_iter().collect();
    }

    /// A statement whose version is above all that this host has made.
    fn statement(&mut self, now: Time, lifetime: Duration, addresses: Vec<Address>) -> Statement {
        let unix = self.config.wall.unix_millis(now);
        let mut statement = Statement::new(unix, lifetime.as_millis() as u64, addresses);
        statement.version = statement.version.max(self.registration.version + 1);
        self.registration.version = statement.version;
        statement
    }

    fn send_control(&mut self, port: PortId, control: &Control) {
        let Some(router) = self.links.neighbour(port) else {
            return;
        };
        let header = NetworkHeader::new(
            ServiceId::NEIGHBOUR,
            UpperProtocol::Control,
            self.guid,
            router,
        );
        let mut head = Vec::new();
        control.encode(&mut head);
        let message = Message {
            head: head.into(),
            body: bytes::Bytes::new(),
        };
        // A port that is gone needs no message.
        let chunk = Chunk { header, message };
        let _ = self.links.enqueue(
            port,
            Outgoing {
                chunk,
                room: Room::default(),
                charge: Charge::default(),
            },
        );
    }

    /// A content is to be announced as soon as there is a router with room.
    pub(super) fn announce(&mut self, content: Guid) {
        self.registration.due.remove(&content);
        self.registration.to_announce.push_back(content);
    }

    /// Makes the announcements that wait, as far as the link has room. True if any went.
    pub(super) fn send_announcements(&mut self, now: Time) -> bool {
        let mut sent = false;
        while let Some(content) = self.registration.to_announce.front().copied() {
            let Some(port) = self.uplink().filter(|port| self.links.has_room(*port)) else {
                break;
            };
            self.registration.to_announce.pop_front();
            sent = true;
            let statement = if self.uploads.catalogue.contains(&content) {
                let again = now + self.config.announcement_lifetime / 3;
                self.registration.due.insert(content, again);
                self.timers.set_earlier(Timer::Announcements, again);
                self.statement(now, self.config.announcement_lifetime, Vec::new())
            } else {
                let lifetime = self.config.announcement_lifetime;
                let mut statement = self.statement(now, lifetime, Vec::new());
                statement.removed = true;
                statement
            };
            if let Ok(record) = Record::provider(&self.config.keys, content, &statement) {
                let record = bytes::Bytes::copy_from_slice(record.as_bytes());
                self.send_control(port, &Control::Register { record });
            }
        }
        sent
    }

    pub(super) fn renew_announcements(&mut self, now: Time) {
        let due: Vec<Guid> = self
            .registration
            .due
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(guid, _)| *guid)
            .collect();
        for content in due {
            self.announce(content);
        }
        if let Some(next) = self.registration.due.values().min() {
            self.timers.set(Timer::Announcements, *next);
        }
    }

    fn note_announcement_outcome(&mut self, now: Time, content: Guid, code: ControlCode) {
        if code == ControlCode::Stale {
            self.registration.version = self.registration.version.saturating_add(VERSION_LEAP);
        }
        if code != ControlCode::Registered && self.uploads.catalogue.contains(&content) {
            self.registration.due.insert(content, now + ANNOUNCE_AGAIN);
            self.timers
                .set_earlier(Timer::Announcements, now + ANNOUNCE_AGAIN);
        }
        for app in self.uploads.catalogue.publishers(&content) {
            self.tell(app, LocalEvent::Published { content, code });
        }
    }

    pub(super) fn forget_announcement(&mut self, content: Guid) {
        self.registration.due.remove(&content);
    }

    /// Contents of a program that has left are no longer announced; a removal is.
    pub(super) fn withdraw_announcements(&mut self, contents: Vec<Guid>) {
        for content in contents {
            self.forget_announcement(content);
            self.registration.to_announce.push_back(content);
        }
    }
}
