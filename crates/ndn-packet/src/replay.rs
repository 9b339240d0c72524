//! Protection of signed Interests from replay.
//!
//! The specification's rule for SignatureTime (later than the last one of the same key) refuses
//! commands that were sent in the same millisecond or arrived out of order, as happens when a
//! program registers many prefixes. This module accepts a time again with another nonce, as long as
//! it remembers the Interests accepted at that time. It never accepts an Interest twice: when it
//! forgets Interests, because memory is bounded or time has passed, it raises a floor, and refuses
//! times and sequence numbers below it.

use std::collections::{BTreeMap, BTreeSet};

use core::time::Duration;

use crate::name::{Name, NameRef};
use crate::signature::{SignatureInfoRef, sha256};

/// The bounds of memory and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayConfig {
    /// Maximum difference between a SignatureTime and this host's clock, either way. The
    /// specification recommends 60 s.
    pub grace: Duration,
    /// Maximum of remembered Interests per key. A larger burst within `grace` is accepted as long
    /// as its times increase.
    pub max_per_key: usize,
    /// Maximum of remembered keys.
    pub max_keys: usize,
}

impl Default for ReplayConfig {
    /// 60 s, 4096 Interests for each of 256 keys: at most about 48 MiB, about 48 bytes for each
    /// remembered Interest.
    fn default() -> ReplayConfig {
        ReplayConfig {
            grace: Duration::from_secs(60),
            max_per_key: 4096,
            max_keys: 256,
        }
    }
}

/// Why a correctly signed Interest is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// It has neither time nor sequence number.
    #[error(
        "the signed Interest has neither SignatureTime nor SignatureSeqNum: it could be replayed"
    )]
    Unprotected,
    /// Its time is too long ago.
    #[error("the signed Interest is {0:?} old: check the clocks")]
    TooOld(Duration),
    /// Its time is too far ahead.
    #[error("the signed Interest comes from {0:?} in the future: check the clocks")]
    TooNew(Duration),
    /// It has been accepted before.
    #[error("the signed Interest has been accepted before")]
    Replayed,
    /// Its sequence number is not greater than the last one.
    #[error("the signed Interest's sequence number is not greater than {0}")]
    Sequence(u64),
    /// It is older than the memory reaches, so that a replay cannot be excluded.
    #[error(
        "the signed Interest is older than the memory for its key: send it again with the present time"
    )]
    Forgotten,
}

/// Remembers accepted signed Interests, in bounded memory.
///
/// It forgets everything when the program ends: Interests accepted less than
/// [`ReplayConfig::grace`] before could then be replayed.
#[derive(Clone, Debug)]
pub struct ReplayGuard {
    config: ReplayConfig,
    keys: BTreeMap<Name, Account>,
    /// The floor of all forgotten keys.
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

/// The memory of one key.
#[derive(Clone, Debug)]
struct Account {
    /// Times in milliseconds since the Unix epoch, with a digest of the nonce.
    seen: BTreeSet<(u64, [u8; 16])>,
    floor: Floor,
    /// The value of [`ReplayGuard::accepted`] when the key was last used.
    used: u64,
}

impl ReplayGuard {
    /// Returns a guard without any accepted Interest.
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

    /// Accepts an Interest signed by `key`, once. Call it after its signature was verified with a
    /// trusted key, so that only trusted signers can fill the memory. `unix_millis` is this host's
    /// clock.
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

    /// Returns the number of remembered keys and Interests.
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
        if !self.keys.contains_key(&key) && self.keys.len() >= self.config.max_keys.max(1) {
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
        while account.seen.len() > self.config.max_per_key {
            account.forget_oldest();
        }
    }

    /// Forgets the least recently used key.
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

/// A nonce may be of any length; this part of its digest represents it.
fn fingerprint(nonce: &[u8]) -> [u8; 16] {
    let mut short = [0; 16];
    short
        .iter_mut()
        .zip(sha256(&[nonce]))
        .for_each(|(octet, digest)| *octet = digest);
    short
}
