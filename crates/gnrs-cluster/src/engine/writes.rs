//! Writes, and those that are written again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use redis::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;
use whimbrel_gnrs::record::VerifyError;
use whimbrel_gnrs::store::{Outcome, Put, PutResult, Refusal, Reply, StoreLimits, Ticket};

use super::{Engine, Event, busy, lock};
use crate::connections::Fault;
use crate::keys;
use crate::topology::text;

/// Writes again under way at a time.
const REPLAYED_AT_ONCE: usize = 64;

impl Engine {
    /// Stores records: those of a slot in order, the slots at the same time.
    pub(super) async fn put_batch(self: Arc<Self>, ticket: Ticket, batch: Vec<Put>) {
        let mut by_slot: BTreeMap<u16, Vec<(usize, Put)>> = BTreeMap::new();
        let mut results = vec![Err(Refusal::Busy); batch.len()];
        for (index, put) in batch.into_iter().enumerate() {
            let slot = keys::slot(&put.record.subject());
            by_slot.entry(slot).or_default().push((index, put));
        }
        let mut tasks = JoinSet::new();
        for (slot, puts) in by_slot {
            let engine = self.clone();
            tasks.spawn(async move {
                let mut results = Vec::new();
                for (index, put) in puts {
                    results.push((index, engine.put(slot, put, true).await));
                }
                results
            });
        }
        let mut fault = None;
        while let Some(part) = tasks.join_next().await {
            for (index, result) in part.unwrap_or_default() {
                match result {
                    Ok(result) => results[index] = result,
                    Err(why) => fault = Some(why),
                }
            }
        }
        let all_failed = results.iter().all(|it| *it == Err(Refusal::Busy));
        let reply = match fault {
            Some(fault) if all_failed => Err(busy(&fault)),
            _ => Ok(results),
        };
        self.shared.tell(Event::Reply(ticket, Reply::Put(reply)));
    }

    /// Stores a record. With `keep`, it is written again after a failover.
    async fn put(&self, slot: u16, put: Put, keep: bool) -> Result<PutResult, Fault> {
        let (key, field) = keys::place(&put.record);
        let mut discarded = false;
        loop {
            let now_ms = self.shared.now_ms();
            let mut command = redis::cmd("FCALL");
            command.arg(keys::PUT).arg(1).arg(&key);
            let most = StoreLimits::most_of(self.config.max_providers, put.record.kind());
            for argument in keys::arguments(now_ms, &put, &field, most) {
                command.arg(argument);
            }
            let echo = self.echo_of(&put.record);
            let answer = self
                .on_slot(slot, self.config.write_patience, &command)
                .await;
            let answer = answer.inspect_err(|_| self.count(|status| status.failed += 1))?;
            let (outcome, stored, rest) = outcome(answer)
                .ok_or_else(|| Fault::Engine("its function answers strangely".into()))?;
            let result = match outcome.as_str() {
                "created" => Ok(Outcome::Created),
                "stored" => Ok(Outcome::Stored),
                "same" => Ok(Outcome::Unchanged),
                "full" => Err(Refusal::Full),
                _ => {
                    // What is there may be no owner's: then it goes.
                    let is_owners = keys::parsed(&rest).is_some_and(|it| {
                        let verdict = it.verify(now_ms);
                        it.version() == stored
                            && it.filed_under() == put.record.filed_under()
                            && matches!(verdict, Ok(()) | Err(VerifyError::Expired))
                    });
                    if !is_owners && !discarded {
                        discarded = true;
                        self.discard(slot, &key, &rest, &field).await?;
                        continue;
                    }
                    Err(match outcome.as_str() {
                        "stale" => Refusal::Stale { stored },
                        _ => Refusal::Conflict { stored },
                    })
                }
            };
            if matches!(result, Ok(Outcome::Created | Outcome::Stored)) {
                if keep {
                    lock(&self.replay).note(Instant::now(), slot, put);
                }
                if let Some(echo) = echo {
                    // Either way it has been told, or will never be.
                    let _ = timeout(self.config.patience, echo).await;
                }
            } else {
                let stored = (put.record.filed_under(), put.record.version());
                lock(&self.echoes).remove(&stored);
            }
            return Ok(result);
        }
    }

    async fn discard(
        &self,
        slot: u16,
        key: &[u8],
        record: &[u8],
        field: &str,
    ) -> Result<(), Fault> {
        self.count(|status| status.forged += 1);
        let mut command = redis::cmd("FCALL");
        command
            .arg(keys::DISCARD)
            .arg(1)
            .arg(key)
            .arg(record)
            .arg(field);
        let patience = self.config.write_patience;
        self.on_slot(slot, patience, &command).await.map(drop)
    }

    /// Writes again what a primary that has changed may have lost.
    pub(super) fn write_again(self: Arc<Self>, puts: Vec<Put>) {
        if puts.is_empty() {
            return;
        }
        self.count(|status| status.primaries_changed += 1);
        tokio::spawn(async move {
            let (count, mut restored) = (puts.len(), 0);
            let mut left = puts.into_iter();
            let mut tasks = JoinSet::new();
            loop {
                while tasks.len() < REPLAYED_AT_ONCE
                    && let Some(put) = left.next()
                {
                    let engine = self.clone();
                    let slot = keys::slot(&put.record.subject());
                    tasks.spawn(async move { engine.put(slot, put, false).await });
                }
                let Some(done) = tasks.join_next().await else {
                    break;
                };
                let written = matches!(done, Ok(Ok(Ok(Outcome::Created | Outcome::Stored))));
                restored += u64::from(written);
            }
            self.count(|status| status.restored += restored);
            tracing::info!(
                writes = count,
                restored,
                "a primary of the cluster has changed: the writes of the last minute are there again"
            );
        });
    }
}

/// Reads the answer of the function that stores: outcome, version, and what belongs to it.
fn outcome(answer: Value) -> Option<(String, u64, Vec<u8>)> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let [outcome, stored, rest] = &parts[..] else {
        return None;
    };
    let Value::BulkString(rest) = rest else {
        return None;
    };
    let stored = text(stored)?.parse().unwrap_or(0);
    Some((text(outcome)?, stored, rest.clone()))
}
