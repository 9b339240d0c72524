//! Contents that others send to this host without a request.

use std::collections::{BTreeSet, VecDeque};

use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{ContentOffer, OfferVerdict};

/// Offers that wait for the program. Further ones are refused, as by a full inbox.
const MAX_OFFERS: usize = 1024;

/// Which offers a program accepts. The sender of another one is told why not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OfferRule {
    /// Those that may send; `None` for anyone.
    pub senders: Option<BTreeSet<Guid>>,
    /// The longest content in bytes; `None` for any.
    pub max_size: Option<u64>,
}

impl OfferRule {
    /// Returns why an offer is refused, or `None` if it is not.
    pub fn refuses(&self, offer: &ContentOffer) -> Option<OfferVerdict> {
        let senders = self.senders.as_ref();
        if senders.is_some_and(|senders| !senders.contains(&offer.id.sender)) {
            return Some(OfferVerdict::NotAccepted);
        }
        let most = self.max_size.unwrap_or(u64::MAX);
        (offer.content.content_len > most).then_some(OfferVerdict::TooLong)
    }
}

/// Offers without a decision.
#[derive(Debug, Default)]
pub(super) struct OpenOffers {
    rule: Option<OfferRule>,
    waiting: VecDeque<ContentOffer>,
}

impl OpenOffers {
    pub(super) fn are_wanted(&self) -> bool {
        self.rule.is_some()
    }

    /// Sets the rule. Returns true if there was none.
    pub(super) fn want(&mut self, rule: OfferRule) -> bool {
        self.rule.replace(rule).is_none()
    }

    /// Keeps an offer for the program, or returns why it is refused.
    pub(super) fn note(&mut self, offer: &ContentOffer) -> Option<OfferVerdict> {
        if let Some(verdict) = self.rule.as_ref()?.refuses(offer) {
            return Some(verdict);
        }
        // A host that has returned offers again what waits.
        if self.waiting.iter().any(|waiting| waiting.id == offer.id) {
            return None;
        }
        if self.waiting.len() >= MAX_OFFERS {
            return Some(OfferVerdict::InboxFull);
        }
        self.waiting.push_back(offer.clone());
        None
    }

    pub(super) fn take(&mut self) -> Option<ContentOffer> {
        self.waiting.pop_front()
    }
}
