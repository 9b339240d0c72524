//! Signed Interests are accepted once.
//!
//! The specification's rule for SignatureTime (later than the last one of the same key) refuses
//! commands that were sent in the same millisecond or came out of order, as they do when a program
//! registers many prefixes. Here a time may come again with another nonce, as long as what was
//! accepted at that time is still remembered. Nothing is ever accepted twice: what has to be
//! forgotten, because memory is bounded or time has passed, raises a floor below which times and
//! sequence numbers are refused.

use std::collections::{BTreeMap, BTreeSet};

use core::time::Duration;

use crate::name::{Name, NameRef};
use crate::signature::{SignatureInfoRef, sha256};

/// How much is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayConfig {
    /// How far a SignatureTime may be from this host's clock, either way. The specification
    /// recommends 60 s.
    pub grace: Duration,
    /// Signed Interests remembered of one key. A burst of more within `grace` is accepted as long
    /// as its times increase.
    pub most_per_key: usize,
    /// Keys remembered.
    pub most_keys: usize,
}

impl Default for ReplayConfig {
    /// 60 s, 4096 Interests of each of 256 keys: at most about 48 MiB, in use about 48 bytes for
    /// each Interest.
    fn default() -> ReplayConfig {
        ReplayConfig {
            grace: Duration::from_secs(60),
            most_per_key: 4096,
            most_keys: 256,
        }
    }
}

/// Why a signed Interest is refused although its signature is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// It has neither time nor sequence number.
    #[error(
        "the signed Interest has neither SignatureTime nor SignatureSeqNum: nothing keeps it from being replayed"
    )]
    Unprotected,
    /// Its time is too long ago.
    #[error("the signed Interest is {0:?} old: is a clock wrong?")]
    TooOld(Duration),
    /// Its time is too far ahead.
    #[error("the signed Interest comes from {0:?} in the future: is a clock wrong?")]
    TooNew(Duration),
    /// It has been accepted before.
    #[error("the signed Interest has been accepted before")]
    Replayed,
    /// Its sequence number is not greater than the last one.
    #[error("the signed Interest's sequence number is not greater than {0}")]
    Sequence(u64),
    /// So much has come since that it cannot be told from a replay.
    #[error(
        "the signed Interest is older than what is remembered of its key: send it again with the present time"
    )]
    Forgotten,
}

/// Remembers the signed Interests that were accepted, in bounded memory.
///
/// It forgets everything when the program ends: what was accepted less than [`ReplayConfig::grace`]
/// before could then be replayed.
#[derive(Clone, Debug)]
pub struct ReplayGuard {
    config: ReplayConfig,
    keys: BTreeMap<Name, Account>,
    /// Of the keys that were forgotten.
    floor: Floor,
    accepted: u64,
}

/// Times and sequence numbers up to these are refused.
#[derive(Clone, Copy, Debug, Default)]
struct Floor {
    /// Milliseconds since the Unix epoch.
    time: Option<u64>,
    sequence: Option<u64>,
}

/// What is remembered of one key.
#[derive(Clone, Debug)]
struct Account {
    /// Times in milliseconds since the Unix epoch, with a digest of the nonce.
    seen: BTreeSet<(u64, [u8; 16])>,
    floor: Floor,
    /// The value of [`ReplayGuard::accepted`] when the key was last used.
    used: u64,
}

impl ReplayGuard {
    /// That has accepted nothing yet.
    pub const fn new(config: ReplayConfig) -> ReplayGuard {
        ReplayGuard {
            config,
            keys: BTreeMap::new(),
            floor: Floor {
                time: None,
                sequence: None,
            },
            accepted: 0,
        }
    }

    /// Accepts an Interest signed by `key`, once. To be called after its signature was verified
    /// with a trusted key: only then do strangers have no say in what is remembered. `unix_millis`
    /// is this host's clock.
    pub fn accept(
        &mut self,
        unix_millis: u64,
        key: NameRef<'_>,
        info: &SignatureInfoRef<'_>,
    ) -> Result<(), ReplayError> {
        if info.time.is_none() && info.sequence.is_none() {
            return Err(ReplayError::Unprotected);
        }
        if let Some(time) = info.time {
            self.check_clock(unix_millis, time)?;
        }
        let key = key.to_name();
        let known = self.keys.get_mut(&key);
        let floor = known.as_ref().map_or(self.floor, |account| account.floor);
        if let (Some(sequence), Some(last)) = (info.sequence, floor.sequence)
            && sequence <= last
        {
            return Err(ReplayError::Sequence(last));
        }
        let entry = info
            .time
            .map(|time| (time, fingerprint(info.nonce.unwrap_or_default())));
        if let Some(entry) = entry {
            if known.is_some_and(|account| account.seen.contains(&entry)) {
                return Err(ReplayError::Replayed);
            }
            if floor.time.is_some_and(|floor| entry.0 <= floor) {
                return Err(ReplayError::Forgotten);
            }
        }
        self.record(unix_millis, key, entry, info.sequence);
        Ok(())
    }

    /// How many keys and Interests are remembered.
    pub fn remembered(&self) -> (usize, usize) {
        (
            self.keys.len(),
            self.keys.values().map(|account| account.seen.len()).sum(),
        )
    }

    fn check_clock(&self, now: u64, time: u64) -> Result<(), ReplayError> {
        let (age, lead) = (now.saturating_sub(time), time.saturating_sub(now));
        let (age, lead) = (Duration::from_millis(age), Duration::from_millis(lead));
        if age > self.config.grace {
            Err(ReplayError::TooOld(age))
        } else if lead > self.config.grace {
            Err(ReplayError::TooNew(lead))
        } else {
            Ok(())
        }
    }

    fn record(
        &mut self,
        now: u64,
        key: Name,
        entry: Option<(u64, [u8; 16])>,
        sequence: Option<u64>,
    ) {
        if !self.keys.contains_key(&key) && self.keys.len() >= self.config.most_keys.max(1) {
            self.forget_a_key();
        }
        self.accepted += 1;
        let floor = self.floor;
        let account = self.keys.entry(key).or_insert_with(|| Account {
            seen: BTreeSet::new(),
            floor,
            used: 0,
        });
        account.used = self.accepted;
        account.floor.sequence = account.floor.sequence.max(sequence);
        account.seen.extend(entry);
        let grace = u64::try_from(self.config.grace.as_millis()).unwrap_or(u64::MAX);
        account.forget_before(now.saturating_sub(grace));
        while account.seen.len() > self.config.most_per_key {
            account.forget_oldest();
        }
    }

    /// Forgets the key that has been silent for longest.
    fn forget_a_key(&mut self) {
        let silent = self
            .keys
            .iter()
            .min_by_key(|(_, account)| account.used)
            .map(|(key, _)| key.clone());
        if let Some(account) = silent.and_then(|key| self.keys.remove(&key)) {
            let newest = account.seen.last().map(|(time, _)| *time);
            self.floor.time = self.floor.time.max(newest).max(account.floor.time);
            self.floor.sequence = self.floor.sequence.max(account.floor.sequence);
        }
    }
}

impl Default for ReplayGuard {
    fn default() -> ReplayGuard {
        ReplayGuard::new(ReplayConfig::default())
    }
}

impl Account {
    fn forget_before(&mut self, time: u64) {
        while self.seen.first().is_some_and(|(first, _)| *first < time) {
            self.forget_oldest();
        }
    }

    /// The floor rises even if the time has left the grace period: the clock may be set back.
    fn forget_oldest(&mut self) {
        if let Some((time, _)) = self.seen.pop_first() {
            self.floor.time = self.floor.time.max(Some(time));
        }
    }
}

/// A nonce may be of any length; this much of its digest stands for it.
fn fingerprint(nonce: &[u8]) -> [u8; 16] {
    let mut short = [0; 16];
    short
        .iter_mut()
        .zip(sha256(&[nonce]))
        .for_each(|(octet, digest)| *octet = digest);
    short
}
