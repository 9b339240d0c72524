//! Hosts that are attached to this router.

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_core::{Guid, PortId, Time};
use whimbrel_gnrs::{Kind, Record, Rejection, Signature, wire::Code};

use super::{Router, Timer};
use crate::chunk::{Chunk, Message};
use crate::wire::{
    ATTACH_CONTEXT, Control, ControlCode, NetworkHeader, ServiceId, UpperProtocol, attach_statement,
};

/// GUIDs attached at one time, to bound memory.
const MAX_ATTACHMENTS: usize = 65_536;
/// GUIDs that one port may attach.
const MAX_PER_PORT: usize = 256;
/// Records on their way to the name service whose outcome a host waits for.
const MAX_PENDING: usize = 65_536;

#[derive(Clone, Debug)]
struct Attachment {
    port: PortId,
    version: u64,
}

/// Which GUID is on which port, and what hosts wait to hear.
#[derive(Debug, Default)]
pub(super) struct Attachments {
    by_guid: BTreeMap<Guid, Attachment>,
    per_port: BTreeMap<PortId, usize>,
    nonces: BTreeMap<PortId, [u8; 16]>,
    pending: BTreeMap<(Guid, u64), PortId>,
}

impl Attachments {
    pub(super) fn port_of(&self, guid: &Guid) -> Option<PortId> {
        self.by_guid.get(guid).map(|attachment| attachment.port)
    }

    pub(super) fn len(&self) -> usize {
        self.by_guid.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Guid, PortId)> + '_ {
        self.by_guid
            .iter()
            .map(|(guid, attachment)| (*guid, attachment.port))
    }

    pub(super) fn remove(&mut self, guid: &Guid) -> bool {
        let Some(old) = self.by_guid.remove(guid) else {
            return false;
        };
        if let Some(count) = self.per_port.get_mut(&old.port) {
            *count -= 1;
            if *count == 0 {
                self.per_port.remove(&old.port);
            }
        }
        true
    }

    fn insert(&mut self, guid: Guid, attachment: Attachment) -> bool {
        self.remove(&guid);
        let on_port = self
            .per_port
            .get(&attachment.port)
            .copied()
            .unwrap_or_default();
        if self.by_guid.len() >= MAX_ATTACHMENTS || on_port >= MAX_PER_PORT {
            return false;
        }
        self.per_port.insert(attachment.port, on_port + 1);
        self.by_guid.insert(guid, attachment);
        true
    }

    /// A newer binding elsewhere ends an attachment here.
    pub(super) fn forget_if_moved(&mut self, guid: &Guid, router: &Guid, binding: Option<&Record>) {
        let Some(binding) = binding else { return };
        let newer = self
            .by_guid
            .get(guid)
            .is_some_and(|here| binding.version() > here.version);
        if newer && !binding.addresses().any(|at| at.na == *router) {
            self.remove(guid);
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
                let attachment = Attachment { port, version };
                if self.attachments.insert(guid, attachment) {
                    self.counters.attachments += 1;
                    let left = record
                        .expires_ms()
                        .saturating_sub(self.config.wall.unix_millis(now));
                    self.timers.set(
                        Timer::Attachment(guid),
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
        match self.attachments.by_guid.get(&record.subject()) {
            Some(known) if known.version > record.version() => Err(ControlCode::Stale),
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
        let gone: Vec<Guid> = self
            .attachments
            .iter()
            .filter(|(_, on)| *on == port)
            .map(|(guid, _)| guid)
            .collect();
        for guid in gone {
            self.attachments.remove(&guid);
            self.timers.cancel(&Timer::Attachment(guid));
        }
        self.attachments.nonces.remove(&port);
        self.attachments
            .pending
            .retain(|_, waiting| *waiting != port);
    }
}
