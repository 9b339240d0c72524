//! Updates: checked, stored together, acknowledged.

use std::collections::BTreeSet;

use whimbrel_core::{Guid, PortId, Source, Time};

use super::Server;
use super::waiting::{Asked, Update};
use crate::record::{Kind, Record, RecordKey, RecordView, VERSION_BOUND, VerifyError};
use crate::store::{Outcome, Put, PutResult, Refusal, Request, Store};
use crate::wire::{Code, Message};

impl<S: Store> Server<S> {
    /// Handles a record from a source that is proven by its cookie, or is not (`None`).
    pub(super) fn insert(
        &mut self,
        now: Time,
        port: PortId,
        id: u64,
        record: RecordView<'_>,
        source: Option<Source>,
    ) {
        let now_ms = self.now_ms(now);
        let guid = record.subject();
        let Some(from) = self.ports.get(&port).map(|state| state.source) else {
            return;
        };
        if let Some((code, version)) = self.known_outcome(now_ms, &record) {
            return self.answer_insert(port, id, guid, code, version);
        }
        let key = record.filed_under();
        if !self.budgets.may_change(now, key) {
            self.counters.updates_limited += 1;
            return self.answer_insert(port, id, guid, Code::StoreFailed, 0);
        }
        // Checking a signature is work.
        if !self.budgets.admit_check(now, source) {
            self.counters.checks_refused += 1;
            return match source {
                Some(_) => {}
                None => self.refuse(port, id, Code::NeedCookie),
            };
        }
        if let Err(fault) = record.verify(now_ms) {
            let code = code_of(fault);
            if code == Code::BadSignature {
                self.budgets.note_bad(now, source);
            }
            return self.answer_insert(port, id, guid, code, 0);
        }
        if !self.waiting.admit(from) {
            self.counters.busy += 1;
            return self.answer_insert(port, id, guid, Code::StoreFailed, 0);
        }
        // It counts as new until the store says that it is not.
        let reserves = self.store.get(&key).is_none_or(|it| it.is_expired(now_ms));
        let free = self.store.usage().free.saturating_sub(self.updates.len());
        let may_create = reserves && self.budgets.admit_new(now, source, free);
        self.budgets.note_change(now, key);
        self.updates.push(Update {
            port,
            id,
            from,
            reserved: may_create.then_some(source),
            put: Put {
                record: record.to_owned(),
                // A key has its places for pointers and members, wherever its owner is: none gives way to another.
                network: source
                    .filter(|_| !matches!(record.kind(), Kind::Pointer | Kind::Member))
                    .map(network),
                may_create: may_create || !reserves,
            },
        });
        if self.updates.len() >= self.config.max_batch {
            self.commit(now);
        }
    }

    /// Returns the cases without a signature check: an old record is refused and a repeated one is
    /// accepted from any sender.
    fn known_outcome(&self, now_ms: u64, record: &RecordView<'_>) -> Option<(Code, u64)> {
        if record.is_expired(now_ms) {
            return Some((Code::Expired, 0));
        }
        if let Some(revocation) = self.revocation(now_ms, &record.signer())
            && record.kind() != Kind::Revocation
        {
            return Some((Code::Revoked, revocation.version()));
        }
        let stored = self.store.get(&record.filed_under())?;
        if stored.version() > record.version() {
            Some((Code::Stale, stored.version()))
        } else if stored.as_bytes() == record.as_bytes() {
            Some((Code::Ok, stored.version()))
        } else {
            None
        }
    }

    /// Returns the revocation of a name, if it is at hand: in an embedded store it always is.
    fn revocation(&self, now_ms: u64, name: &Guid) -> Option<Record> {
        let binding = self.store.get(&RecordKey::binding(*name))?;
        let is_one = binding.kind() == Kind::Revocation && !binding.is_expired(now_ms);
        is_one.then_some(binding)
    }

    fn answer_insert(&mut self, port: PortId, id: u64, guid: Guid, code: Code, version: u64) {
        if code == Code::Ok {
            self.counters.updates_unchanged += 1;
        } else {
            self.counters.count_refusal(code);
        }
        self.send(port, id, code, Message::InsertAnswer { guid, version });
    }

    /// Asks the store to store the updates of this round.
    pub(super) fn commit(&mut self, now: Time) {
        if self.updates.is_empty() {
            return;
        }
        let updates = core::mem::take(&mut self.updates);
        let batch = updates.iter().map(|update| update.put.clone()).collect();
        self.counters.commits += 1;
        self.ask_store(now, Asked::Put(updates), Request::Put(batch));
    }

    /// Acknowledges and pushes what is stored.
    pub(super) fn stored(
        &mut self,
        now: Time,
        updates: Vec<Update>,
        results: Option<Vec<PutResult>>,
    ) {
        let mut changed = BTreeSet::new();
        for (index, update) in updates.into_iter().enumerate() {
            self.waiting.release(update.from);
            let result = results.as_ref().and_then(|results| results.get(index));
            if let Some(owner) = update.reserved
                && result != Some(&Ok(Outcome::Created))
            {
                self.budgets.give_back(owner);
            }
            if self.answer_update(&update, result) {
                self.peers.spread(now, &update.put.record);
                changed.insert(update.put.record.filed_under());
            }
        }
        for key in changed {
            self.push_change(now, key);
        }
    }

    /// Returns true if the record is new.
    fn answer_update(&mut self, update: &Update, result: Option<&PutResult>) -> bool {
        let record = &update.put.record;
        let (guid, version) = (record.subject(), record.version());
        let (code, version) = match result {
            Some(Ok(Outcome::Created | Outcome::Stored)) => {
                self.counters.updates_stored += 1;
                self.send(
                    update.port,
                    update.id,
                    Code::Ok,
                    Message::InsertAnswer { guid, version },
                );
                return true;
            }
            Some(Ok(Outcome::Unchanged)) => (Code::Ok, version),
            Some(Err(Refusal::Stale { stored })) if *stored >= VERSION_BOUND => {
                (Code::Revoked, *stored)
            }
            Some(Err(Refusal::Stale { stored })) => (Code::Stale, *stored),
            Some(Err(Refusal::Conflict { stored })) => (Code::Conflict, *stored),
            Some(Err(Refusal::Full)) => (Code::Full, 0),
            Some(Err(Refusal::Busy)) | None => (Code::StoreFailed, 0),
        };
        self.answer_insert(update.port, update.id, guid, code, version);
        false
    }
}

/// Returns the network under which a proven source's records are kept.
fn network(source: Source) -> u128 {
    match source {
        Source::Network(network) => network,
        // A port without addresses is a network of its own.
        Source::Port(port) => 1 << 127 | u128::from(port.0),
    }
}

fn code_of(fault: VerifyError) -> Code {
    match fault {
        VerifyError::Expired => Code::Expired,
        VerifyError::FromTheFuture => Code::FromTheFuture,
        VerifyError::TooLong => Code::Malformed,
        VerifyError::WrongKey => Code::WrongKey,
        VerifyError::BadKey | VerifyError::BadSignature | VerifyError::NotAdmitted => {
            Code::BadSignature
        }
    }
}
