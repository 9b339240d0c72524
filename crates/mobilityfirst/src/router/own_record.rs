//! The router's own record in the name service: the address of its name is the name itself, so a
//! node that looks it up reaches the router.

use core::time::Duration;

use whimbrel_core::{Guid, Time};
use whimbrel_gnrs::wire::Code;
use whimbrel_gnrs::{Address, KeyPair, Record, Rejection, Statement, VERSION_BOUND};

/// Lifetime of the record, in milliseconds. It says nothing that changes; a name server that loses it is
/// told again at once.
const LIFETIME_MS: u64 = 3_600_000;
/// A third of that: two renewals may fail.
const RENEWAL: Duration = Duration::from_secs(1200);
/// Time until a record is registered again that no server has taken.
const RETRY: Duration = Duration::from_secs(10);

/// The record, as long as the router has been given the keys of its name.
#[derive(Debug, Default)]
pub(super) struct OwnRecord {
    keys: Option<KeyPair>,
    version: u64,
    // The latest refusal was for the time of the record.
    is_clock_refused: bool,
}

impl OwnRecord {
    /// Signs the record with these keys from now on.
    pub(super) fn sign_with(&mut self, keys: KeyPair) {
        self.keys = Some(keys);
    }

    /// Returns a new record, and the time of the next one.
    pub(super) fn renew(&mut self, now: Time, now_ms: u64) -> Option<(Record, Time)> {
        let keys = self.keys.as_ref()?;
        let address = Address::new(keys.guid());
        let said = Statement::new(now_ms, LIFETIME_MS, vec![address]);
        self.version = said.version.max(self.version.saturating_add(1));
        let version = self.version;
        let record = Record::binding(keys, &Statement { version, ..said }).ok()?;
        Some((record, now + RENEWAL))
    }

    /// Notes that no name server has taken the record of `name`. Returns the time of the next one if it is
    /// this router's.
    pub(super) fn note_refused(&mut self, now: Time, name: &Guid, why: Rejection) -> Option<Time> {
        let is_own = self.keys.as_ref().is_some_and(|it| it.guid() == *name);
        // The clock has gone back; a revocation is above all versions.
        if let (true, Rejection::Server { stored, .. }) = (is_own, why)
            && stored < VERSION_BOUND - 1
        {
            self.version = self.version.max(stored);
        }
        if is_own {
            self.note_clock(why);
        }
        let wait = match why {
            Rejection::Server {
                code: Code::Revoked,
                ..
            } => RENEWAL,
            _ => RETRY,
        };
        is_own.then_some(now + wait)
    }

    /// Logs that the clocks differ, once until another refusal.
    fn note_clock(&mut self, why: Rejection) {
        let is_clock = matches!(
            why,
            Rejection::Server {
                code: Code::Expired | Code::FromTheFuture,
                ..
            }
        );
        let was_clock = core::mem::replace(&mut self.is_clock_refused, is_clock);
        if is_clock && !was_clock {
            tracing::warn!(
                "the clock differs from the name server's, which accepts no records: set the wrong one of the two"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routers_record_names_it_and_its_versions_rise() {
        let keys = KeyPair::from_secret(&[1; 32]);
        let guid = keys.guid();
        let mut own = OwnRecord::default();
        assert_eq!(own.renew(Time::ZERO, 1_000_000), None);
        own.sign_with(keys);
        let (first, next) = own.renew(Time::ZERO, 1_000_000).unwrap();
        assert_eq!(
            first.addresses().map(|at| at.na).collect::<Vec<_>>(),
            [guid]
        );
        assert_eq!((first.subject(), next), (guid, Time::ZERO + RENEWAL));
        assert_eq!(first.verify(1_000_000), Ok(()));
        let (second, _) = own.renew(Time::ZERO, 5).unwrap();
        assert!(second.version() > first.version());
        let stored = second.version() + 7;
        let code = Code::Stale;
        let why = Rejection::Server { code, stored };
        assert_eq!(own.note_refused(Time::ZERO, &Guid([9; 32]), why), None);
        let again = own.note_refused(Time::ZERO, &guid, why);
        assert_eq!(again, Some(Time::ZERO + RETRY));
        assert!(!own.is_clock_refused);
        let code = Code::FromTheFuture;
        let by_clock = Rejection::Server { code, stored: 0 };
        own.note_refused(Time::ZERO, &Guid([9; 32]), by_clock);
        assert!(!own.is_clock_refused);
        own.note_refused(Time::ZERO, &guid, by_clock);
        assert!(own.is_clock_refused);
        own.note_refused(Time::ZERO, &guid, Rejection::Unreachable);
        assert!(!own.is_clock_refused);
        let revoked = Rejection::Server {
            code: Code::Revoked,
            stored: u64::MAX,
        };
        let later = own.note_refused(Time::ZERO, &guid, revoked);
        assert_eq!(later, Some(Time::ZERO + RENEWAL));
        assert!(own.renew(Time::ZERO, 6).unwrap().0.version() > stored);
    }
}
