//! Hosts that are attached to this router.

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_core::{Guid, PortId, Time};
use whimbrel_gnrs::{Kind, Record, Rejection, Signature, wire::Code};

use super::{Router, Timer};
use crate::chunk::{Chunk, Message};
use crate::links::Links;
use crate::next_hops::{Branch, NextHops};
use crate::wire::{
    ATTACH_CONTEXT, Control, ControlCode, NetworkHeader, ServiceId, UpperProtocol, attach_statement,
};

/// Attachments at one time, to bound memory.
const MAX_ATTACHMENTS: usize = 65_536;
/// GUIDs that one port may attach.
const MAX_PER_PORT: usize = 256;
/// Records on their way to the name service whose outcome a host waits for.
const MAX_PENDING: usize = 65_536;

/// Ports that one GUID may be attached on; the one with the oldest record makes room.
const MAX_PORTS: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Attachment {
    port: PortId,
    version: u64,
}

/// Which GUID is on which ports, and what hosts wait to hear.
#[derive(Debug, Default)]
pub(super) struct Attachments {
    // Newest record first; never empty.
    by_guid: BTreeMap<Guid, Vec<Attachment>>,
    entries: usize,
    per_port: BTreeMap<PortId, usize>,
    nonces: BTreeMap<PortId, [u8; 16]>,
    pending: BTreeMap<(Guid, u64), PortId>,
}

impl Attachments {
    /// The ports that a GUID is attached on. Those of its newest record are preferred: a host gives
    /// each new record to all routers that it wants to be reached by.
    pub(super) fn hops_to(&self, guid: &Guid, links: &Links) -> NextHops {
        let attached = self.by_guid.get(guid).map_or(&[][..], Vec::as_slice);
        let newest = attached.first().map(|attachment| attachment.version);
        attached
            .iter()
            .map(|attachment| Branch {
                preference: u32::from(Some(attachment.version) != newest),
                ..Branch::over(attachment.port, links)
            })
            .collect()
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

    /// Attaches a GUID, or renews its attachment; false if there is no room.
    pub(super) fn insert(&mut self, guid: Guid, port: PortId, version: u64) -> bool {
        let attachment = Attachment { port, version };
        self.remove(&guid, port);
        let oldest = self.by_guid.get(&guid).and_then(|attached| attached.last());
        if let Some(oldest) = oldest.copied()
            && self.by_guid.get(&guid).map_or(0, Vec::len) >= MAX_PORTS
        {
            self.remove(&guid, oldest.port);
        }
        let on_port = self.per_port.get(&attachment.port).copied();
        if self.entries >= MAX_ATTACHMENTS || on_port.is_some_and(|count| count >= MAX_PER_PORT) {
            return false;
        }
        *self.per_port.entry(attachment.port).or_default() += 1;
        self.entries += 1;
        let attached = self.by_guid.entry(guid).or_default();
        let at = attached.partition_point(|it| it.version > attachment.version);
        attached.insert(at, attachment);
        true
    }

    /// A newer binding elsewhere ends an attachment here.
    pub(super) fn forget_if_moved(&mut self, guid: &Guid, router: &Guid, binding: Option<&Record>) {
        let Some(binding) = binding else { return };
        let newer = self
            .newest_version(guid)
            .is_some_and(|here| binding.version() > here);
        if newer && !binding.addresses().any(|at| at.na == *router) {
            self.remove_all(guid);
        }
    }
}

impl Router {
    /// Offers a neighbour that came up a fresh challenge to sign.
    pub(super) fn challenge(&mut self, port: PortId) {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&self.rng.next_word().to_be_bytes());
        nonce[8..].copy_from_slice(&self.rng.next_word().to_be_bytes());
        self.attachments.nonces.insert(port, nonce);
        self.send_control(port, &Control::Challenge { nonce });
    }

    fn send_control(&mut self, port: PortId, control: &Control) {
        let Some(neighbour) = self.links.neighbour(port) else {
            return;
        };
        let header = NetworkHeader::new(
            ServiceId::NEIGHBOUR,
            UpperProtocol::Control,
            self.config.guid,
            neighbour,
        );
        let mut head = Vec::new();
        control.encode(&mut head);
        let message = Message {
            head: head.into(),
            body: Bytes::new(),
        };
        // A port that is gone needs no answer.
        if let Some(outgoing) = self.own(Chunk { header, message }) {
            let _ = self.links.enqueue(port, outgoing);
        }
    }

    pub(super) fn handle_attach(
        &mut self,
        now: Time,
        port: PortId,
        record: Bytes,
        signature: [u8; 64],
    ) {
        let Ok(record) = Record::parse(record) else {
            return self.counters.drop("bad-record");
        };
        let (guid, version) = (record.subject(), record.version());
        let code = match self.check_attach(now, port, &record, signature) {
            Ok(()) => {
                if self.attachments.insert(guid, port, version) {
                    self.counters.attachments += 1;
                    let left = record
                        .expires_ms()
                        .saturating_sub(self.config.wall.unix_millis(now));
                    self.timers.set(
                        Timer::Attachment(guid, port),
                        now + core::time::Duration::from_millis(left),
                    );
                    self.pass_on(now, port, record);
                    self.retry_destination(now, guid);
                    ControlCode::Attached
                } else {
                    ControlCode::Full
                }
            }
            Err(code) => {
                self.counters.drop("refused-attach");
                code
            }
        };
        self.send_control(
            port,
            &Control::Outcome {
                guid,
                version,
                code,
            },
        );
    }

    /// The record must be the sender's own, name this router, be newer than what is known, and its
    /// key must have signed this port's challenge: a record is public, so having it proves nothing.
    fn check_attach(
        &self,
        now: Time,
        port: PortId,
        record: &Record,
        signature: [u8; 64],
    ) -> Result<(), ControlCode> {
        let nonce = self
            .attachments
            .nonces
            .get(&port)
            .ok_or(ControlCode::Invalid)?;
        let statement = attach_statement(&self.config.guid, nonce, record.version());
        let names_us = record.addresses().any(|at| at.na == self.config.guid);
        if record.kind() != Kind::Binding || !names_us {
            return Err(ControlCode::Invalid);
        }
        record
            .verify(self.config.wall.unix_millis(now))
            .map_err(|_| ControlCode::Invalid)?;
        let signed = record
            .key()
            .verify(ATTACH_CONTEXT, &statement, &Signature(signature));
        signed.map_err(|_| ControlCode::Invalid)?;
        match self.attachments.newest_version(&record.subject()) {
            Some(known) if known > record.version() => Err(ControlCode::Stale),
            _ => Ok(()),
        }
    }

    pub(super) fn handle_register(&mut self, now: Time, port: PortId, record: Bytes) {
        let Ok(record) = Record::parse(record) else {
            return self.counters.drop("bad-record");
        };
        if record.verify(self.config.wall.unix_millis(now)).is_err() {
            self.counters.drop("refused-record");
            let (guid, version) = (record.subject(), record.version());
            let code = ControlCode::Invalid;
            return self.send_control(
                port,
                &Control::Outcome {
                    guid,
                    version,
                    code,
                },
            );
        }
        self.pass_on(now, port, record);
    }

    fn pass_on(&mut self, now: Time, port: PortId, record: Record) {
        let (guid, version) = (record.subject(), record.version());
        let record = match self.keep_name(now, record) {
            Ok(code) => {
                return self.send_control(
                    port,
                    &Control::Outcome {
                        guid,
                        version,
                        code,
                    },
                );
            }
            Err(record) => record,
        };
        if self.attachments.pending.len() < MAX_PENDING {
            self.attachments
                .pending
                .insert((record.subject(), record.version()), port);
        }
        self.resolver.insert(now, record);
    }

    pub(super) fn report_registered(&mut self, guid: Guid, version: u64) {
        self.report(guid, version, ControlCode::Registered);
    }

    pub(super) fn report_refused(&mut self, guid: Guid, rejection: Rejection) {
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
            Rejection::Server { .. } => ControlCode::Invalid,
        };
        // The name service names the subject alone; of the few records about it, all hear the bad
        // news.
        let about = self.attachments.pending.range((guid, 0)..=(guid, u64::MAX));
        let versions: Vec<u64> = about.map(|((_, version), _)| *version).collect();
        for version in versions {
            self.report(guid, version, code);
        }
    }

    fn report(&mut self, guid: Guid, version: u64, code: ControlCode) {
        if let Some(port) = self.attachments.pending.remove(&(guid, version)) {
            self.send_control(
                port,
                &Control::Outcome {
                    guid,
                    version,
                    code,
                },
            );
        }
    }

    /// The port is gone, and with it whoever was on it.
    pub(super) fn detach_port(&mut self, port: PortId) {
        let attached = self.attachments.by_guid.iter();
        let gone: Vec<Guid> = attached
            .filter(|(_, attached)| attached.iter().any(|it| it.port == port))
            .map(|(guid, _)| *guid)
            .collect();
        for guid in gone {
            self.attachments.remove(&guid, port);
            self.timers.cancel(&Timer::Attachment(guid, port));
        }
        self.attachments.nonces.remove(&port);
        self.attachments
            .pending
            .retain(|_, waiting| *waiting != port);
    }
}
