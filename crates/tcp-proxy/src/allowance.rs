//! How many answers to what is not carried may be sent: a flood must not bring as large a flood back.

use core::time::Duration;

use whimbrel_core::Time;

/// Answers at once, and the time in which one more is allowed (RFC 1812 §4.3.2.8).
pub(crate) const BURST: u32 = 50;
const INTERVAL: Duration = Duration::from_millis(10);

/// A bucket of tokens.
#[derive(Debug)]
pub(crate) struct Allowance {
    tokens: u32,
    filled: Time,
}

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance {
            tokens: BURST,
            filled: Time::ZERO,
        }
    }
}

impl Allowance {
    /// Takes one; returns false if there is none.
    pub(crate) fn take(&mut self, now: Time) -> bool {
        let gained = now.since(self.filled).as_nanos() / INTERVAL.as_nanos();
        if gained > 0 {
            let gained = u32::try_from(gained).unwrap_or(u32::MAX);
            self.tokens = self.tokens.saturating_add(gained).min(BURST);
            self.filled = now;
        }
        let left = self.tokens.checked_sub(1);
        self.tokens = left.unwrap_or(0);
        left.is_some()
    }
}
