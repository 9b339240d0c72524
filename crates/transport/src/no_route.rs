//! How long a consumer retries while no route leads to the content.

use core::time::Duration;

use whimbrel_core::Time;

/// The first pause before another attempt; it doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(16);
/// A route that came back is noticed within this time.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The wait for a route, from the first Nack `NoRoute` on until an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoRoute {
    patience: Duration,
    since: Option<Time>,
    next: Time,
    pause: Duration,
}

impl NoRoute {
    pub(crate) const fn new(patience: Duration) -> NoRoute {
        NoRoute {
            patience,
            since: None,
            next: Time::ZERO,
            pause: FIRST_PAUSE,
        }
    }

    /// Notes a Nack. Returns when to try again; `None` if this has lasted too long. Nacks of one
    /// attempt count once.
    pub(crate) fn refused(&mut self, now: Time) -> Option<Time> {
        let since = *self.since.get_or_insert(now);
        if now >= since + self.patience {
            return None;
        }
        if self.next <= now {
            self.next = (now + self.pause).min(since + self.patience);
            self.pause = (self.pause * 2).min(MAX_PAUSE);
        }
        Some(self.next)
    }

    /// Content has come.
    pub(crate) fn answered(&mut self) {
        *self = NoRoute::new(self.patience);
    }

    /// Returns true since the first Nack.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_a_few_and_the_last_one_is_at_the_end() {
        let patience = Duration::from_secs(10);
        let mut wait = NoRoute::new(patience);
        let start = Time::from_secs(5);
        let (mut now, mut attempts) = (start, 1);
        while let Some(next) = wait.refused(now) {
            assert_eq!(wait.refused(now), Some(next), "two Nacks of one attempt");
            assert!(next > now);
            (now, attempts) = (next, attempts + 1);
        }
        assert_eq!(now, start + patience);
        assert!((10..25).contains(&attempts), "{attempts}");
        wait.answered();
        assert!(wait.refused(now).is_some());
        assert!(NoRoute::new(Duration::ZERO).refused(now).is_none());
    }
}
