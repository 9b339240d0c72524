//! One Interest with its retries, and the matching of Data with Interests.

use core::time::Duration;

use bytes::Bytes;
use whimbrel_core::{Deadline, SeededRng, Time};
use whimbrel_ndn_packet::{DataRef, Interest, InterestRef, NackReason, NameRef, types};

use crate::application::due;
use crate::ledger::Sent;
use crate::no_route::NoRoute;
use crate::path::PathId;

/// Maximum delay of a retransmission after a Nack for congestion.
const MAX_BACK_OFF: Duration = Duration::from_secs(10);

/// Returns true if `data` answers an Interest for `name` (packet format v0.3: the same name, a
/// longer one with CanBePrefix, or the implicit digest as last component). Content stores check
/// freshness.
pub fn answers(name: NameRef<'_>, can_be_prefix: bool, data: &DataRef<'_>) -> bool {
    if data.name.value() == name.value() || (can_be_prefix && name.is_prefix_of(data.name)) {
        return true;
    }
    let Some(last) = name
        .last()
        .filter(|last| u64::from(last.typ()) == types::IMPLICIT_SHA256_DIGEST)
    else {
        return false;
    };
    let parent = name.prefix(name.len() - 1);
    parent.value() == data.name.value() && last.value() == data.implicit_digest()
}

/// Why an [`Exchange`] failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeFailure {
    /// No answer to any transmission.
    #[error("no answer within {lifetime:?} to {transmissions} Interests")]
    Timeout {
        /// Lifetime of each Interest.
        lifetime: Duration,
        /// The number of transmissions.
        transmissions: u32,
    },
    /// A Nack, and no retry is left or useful.
    #[error("the network answered with a Nack ({})", nack_text(*.0))]
    Nack(NackReason),
}

/// Returns a Nack's reason in words, as the tools print it.
pub fn nack_text(reason: NackReason) -> String {
    match reason {
        NackReason::None => String::from("None"),
        NackReason::Congestion => String::from("Congestion"),
        NackReason::Duplicate => String::from("Duplicate"),
        NackReason::NoRoute => String::from("NoRoute"),
        NackReason::Other(code) => code.to_string(),
    }
}

/// The effect of an input on an [`Exchange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It was not for this exchange.
    None,
    /// The exchange continues.
    Continues,
    /// The Data answers it.
    Answered,
}

/// Sends one Interest until it is answered, like `ndnget`'s data fetcher: at a Nack `Duplicate` it
/// is retransmitted at once, at `Congestion` after 1 ms, 2 ms, 4 ms ... (at most 10 s), at the end
/// of its lifetime at once. Retries after Nacks and after timeouts are counted separately, each up to
/// the same limit. `NoRoute` is put up with for a given time; any other Nack ends it.
#[derive(Debug)]
pub struct Exchange {
    interest: Interest,
    /// `None` without limit.
    retries: Option<u32>,
    nacks: u32,
    timeouts: u32,
    congestion_nacks: u32,
    no_route: NoRoute,
    /// The last transmission's Nack, until a timeout.
    refusal: Option<NackReason>,
    /// `None` before the first transmission.
    sent: Option<Sent>,
    state: State,
    seen: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// To send as soon as possible from this time on.
    Due(Time),
    /// Sent; times out at this time.
    Waiting(Time),
    Answered,
    Failed(ExchangeFailure),
}

impl Exchange {
    /// Returns an exchange to start at the next [`Exchange::poll`]. Each transmission gets a new
    /// nonce.
    pub fn new(interest: Interest, retries: Option<u32>, now: Time) -> Exchange {
        Exchange {
            interest,
            retries,
            nacks: 0,
            timeouts: 0,
            congestion_nacks: 0,
            no_route: NoRoute::new(Duration::ZERO),
            refusal: None,
            sent: None,
            state: State::Due(now),
            seen: now,
        }
    }

    /// Returns the Interest, without a nonce.
    pub const fn interest(&self) -> &Interest {
        &self.interest
    }

    /// Goes on for so long while no route leads to the name.
    pub(crate) const fn endure_no_route(&mut self, patience: Duration) {
        self.no_route = NoRoute::new(patience);
    }

    /// Returns the reason of the last Nack, unless an Interest timed out since.
    pub const fn refusal(&self) -> Option<NackReason> {
        self.refusal
    }

    /// Changes the limit of retries.
    pub const fn limit_retries(&mut self, retries: u32) {
        self.retries = Some(retries);
    }

    fn lifetime(&self) -> Duration {
        self.interest
            .lifetime
            .unwrap_or(whimbrel_ndn_packet::interest::DEFAULT_LIFETIME)
    }

    /// Returns the Interest if it is due.
    pub fn poll(&mut self, now: Time, rng: &mut SeededRng) -> Option<Bytes> {
        match self.state {
            State::Due(at) if at <= now => {}
            _ => return None,
        }
        let (nonce, until) = (rng.next_word() as u32, now + self.lifetime());
        let (path, deadline) = (PathId::FIRST, Some(until));
        self.sent = Some(match self.sent {
            None => Sent::first(now, path, nonce, deadline),
            Some(sent) => sent.again(now, path, nonce, deadline, true),
        });
        self.state = State::Waiting(until);
        self.interest.nonce = Some(nonce.to_be_bytes());
        Some(self.interest.encode().into())
    }

    /// Handles a Data.
    pub fn handle_data(&mut self, data: &DataRef<'_>) -> Progress {
        if matches!(self.state, State::Answered | State::Failed(_))
            || self.sent.is_none()
            || !answers(
                self.interest.name.as_ref(),
                self.interest.can_be_prefix,
                data,
            )
        {
            return Progress::None;
        }
        self.state = State::Answered;
        Progress::Answered
    }

    /// Handles a Nack.
    pub fn handle_nack(
        &mut self,
        now: Time,
        reason: NackReason,
        interest: &InterestRef<'_>,
    ) -> Progress {
        // The nonce distinguishes a Nack for this transmission from one for an earlier one.
        if !matches!(self.state, State::Waiting(_))
            || interest.name.value() != self.interest.name.as_ref().value()
            || interest.nonce != self.interest.nonce
        {
            return Progress::None;
        }
        self.refusal = Some(reason);
        if reason == NackReason::NoRoute {
            let again = self.no_route.refused(now).map(State::Due);
            self.state = again.unwrap_or(State::Failed(ExchangeFailure::Nack(reason)));
            return Progress::Continues;
        }
        self.nacks += 1;
        let again = match reason {
            NackReason::Duplicate => Some(now),
            NackReason::Congestion => {
                let wait =
                    Duration::from_millis(1 << self.congestion_nacks.min(14)).min(MAX_BACK_OFF);
                self.congestion_nacks += 1;
                Some(now + wait)
            }
            _ => None,
        };
        self.state = match again {
            Some(at) if self.retries.is_none_or(|retries| self.nacks <= retries) => State::Due(at),
            _ => State::Failed(ExchangeFailure::Nack(reason)),
        };
        Progress::Continues
    }

    /// Handles the passing of time.
    pub fn handle_timeout(&mut self, now: Time) {
        self.seen = now;
        let State::Waiting(until) = self.state else {
            return;
        };
        if until > now {
            return;
        }
        self.timeouts += 1;
        self.refusal = None;
        self.state = if self.retries.is_none_or(|retries| self.timeouts <= retries) {
            State::Due(now)
        } else {
            let (lifetime, transmissions) = (self.lifetime(), self.transmissions());
            State::Failed(ExchangeFailure::Timeout {
                lifetime,
                transmissions,
            })
        };
    }

    /// The face is up again: the pending Interest is lost and sent again, which does not count as a
    /// retry.
    pub fn send_again(&mut self, now: Time) {
        if let State::Waiting(_) = self.state {
            self.state = State::Due(now);
        }
    }

    /// Returns the reason of the failure, if it has failed.
    pub fn failure(&self) -> Option<&ExchangeFailure> {
        match &self.state {
            State::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// Returns the number of transmissions.
    fn transmissions(&self) -> u32 {
        self.sent.map_or(0, |sent| sent.transmissions)
    }

    /// When to call [`Exchange::handle_timeout`], then [`Exchange::poll`].
    pub fn poll_timeout(&self) -> Option<Deadline> {
        match self.state {
            State::Due(at) => due(at, self.seen, "an Interest is retransmitted"),
            State::Waiting(at) => Some(Deadline::new(at, "an Interest's lifetime ends")),
            State::Answered | State::Failed(_) => None,
        }
    }
}
