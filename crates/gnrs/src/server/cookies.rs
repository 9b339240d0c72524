//! The proofs that a client receives at its address. They age, so that one who was there once cannot
//! ask in the name of the address later.

use core::fmt;

use whimbrel_core::{PortId, Time};

/// A cookie is told for so long, and taken for as long again, as a hop's is.
const PERIOD_SECS: u64 = 16;

/// Never printed, not even by `Debug`.
pub(super) struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    pub(super) fn new(secret: [u8; 32]) -> Secret {
        Secret(secret)
    }

    /// Derived with a keyed hash, not drawn from a generator: an attacker who has seen some words
    /// cannot guess another.
    fn word(&self, port: PortId, period: Option<u64>) -> u32 {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&port.0.to_be_bytes());
        if let Some(period) = period {
            hasher.update(&period.to_be_bytes());
        }
        let [a, b, c, d, ..] = *hasher.finalize().as_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    /// The first half stays the same as long as the server knows the port, the second half is of one
    /// period.
    fn cookie(&self, port: PortId, period: u64) -> u64 {
        // 0 means "none" on the wire.
        let session = u64::from(self.word(port, None).max(1));
        session << 32 | u64::from(self.word(port, Some(period)))
    }
}

/// The cookies of one client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cookies {
    period: u64,
    /// The one that is told.
    pub(super) present: u64,
    former: u64,
}

impl Cookies {
    pub(super) fn new(secret: &Secret, port: PortId, now: Time) -> Cookies {
        let period = period_of(now);
        Cookies {
            period,
            present: secret.cookie(port, period),
            former: secret.cookie(port, period.wrapping_sub(1)),
        }
    }

    /// Goes to the cookies of `now`.
    pub(super) fn turn(&mut self, secret: &Secret, port: PortId, now: Time) {
        if self.period != period_of(now) {
            *self = Cookies::new(secret, port, now);
        }
    }

    /// Returns true if this cookie was told within the last two periods.
    pub(super) fn prove(&self, cookie: u64) -> bool {
        cookie == self.present || cookie == self.former
    }
}

fn period_of(now: Time) -> u64 {
    now.as_nanos() / (PERIOD_SECS * 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_taken_for_two_periods_and_its_first_half_stays() {
        let (secret, port) = (Secret::new([7; 32]), PortId(3));
        let at = |seconds| Cookies::new(&secret, port, Time::from_secs(seconds));
        let told = at(15).present;
        let mut later = at(15);
        for (seconds, taken) in [(15, true), (31, true), (32, false), (300, false)] {
            later.turn(&secret, port, Time::from_secs(seconds));
            assert_eq!(later.prove(told), taken, "{seconds}");
            assert_eq!(later.present >> 32, told >> 32);
        }
        let other = Cookies::new(&secret, PortId(4), Time::from_secs(15));
        assert!(!other.prove(told) && other.present >> 32 != told >> 32);
    }
}
