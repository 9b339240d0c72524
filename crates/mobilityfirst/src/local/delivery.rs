//! Contents that a program sends without a request, and those that come so: `send(destination,
//! content)` and `recv` of [MFTP §2 and 4].

use bytes::Bytes;
use whimbrel_core::Guid;

use super::{Get, Publish, TransferOptions};
use crate::wire::{ContentKind, DropReason, OfferUse, Reader, WireError, codes, put_short_text};

/// A content for one receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendContent {
    /// Chosen by the program; identifies the request.
    pub request: u32,
    /// The receiver.
    pub destination: Guid,
    /// What the program chooses.
    pub options: TransferOptions,
    /// The use that the sender proposes.
    pub proposed: OfferUse,
    /// The content. It is read by [`LocalEvent::Read`](super::LocalEvent::Read), and not announced.
    pub content: Publish,
}

/// The name of an offered content: its sender, and the sender's number for this offer.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct OfferId {
    /// The sender, as the offer's signature proves.
    pub sender: Guid,
    /// Drawn by the sender.
    pub number: u64,
}

/// A content that a sender offers to this host's programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentOffer {
    /// Which offer it is.
    pub id: OfferId,
    /// The time of issue by the sender's clock, Unix time in milliseconds.
    pub issued_ms: u64,
    /// The use that the sender proposes.
    pub proposed: OfferUse,
    /// The content. Its file name must not be used as a path.
    pub content: Publish,
}

/// The state of a sent content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SendState {
    /// On its way to the first router.
    Leaving,
    /// The first router has every chunk, and no router has given one back: the sender may end.
    Taken,
    /// The receiver has it.
    Delivered,
    /// As [`SendState::Taken`], and the access router keeps a copy of every chunk.
    Kept,
    /// Refused: see [`DropReason::NotAccepted`].
    NotAccepted,
    /// Refused: see [`DropReason::TooLong`].
    TooLong,
    /// Refused: see [`DropReason::InboxFull`].
    InboxFull,
    /// Refused: see [`DropReason::Unusable`].
    Unusable,
    /// A router has dropped chunks, and they are not sent again (`don't care`).
    Lost,
    /// Another send of this host has the same content for the same receiver: that one is reported on.
    Replaced,
    /// Of the members of a group some have it, and all others have refused it.
    DeliveredToSome,
}

codes!(SendState, "state of a sent content", {
    Leaving = 0,
    Taken = 1,
    Delivered = 2,
    NotAccepted = 3,
    TooLong = 4,
    InboxFull = 5,
    Unusable = 6,
    Lost = 7,
    Kept = 8,
    Replaced = 9,
    DeliveredToSome = 10,
});

impl SendState {
    /// Returns the state that follows from a receiver's refusal; `None` for other reasons.
    pub(crate) fn of_refusal(reason: DropReason) -> Option<SendState> {
        match reason {
            DropReason::NotAccepted => Some(SendState::NotAccepted),
            DropReason::TooLong => Some(SendState::TooLong),
            DropReason::InboxFull => Some(SendState::InboxFull),
            DropReason::Unusable => Some(SendState::Unusable),
            _ => None,
        }
    }

    /// Returns true if nothing follows.
    pub fn is_final(self) -> bool {
        !matches!(
            self,
            SendState::Leaving | SendState::Taken | SendState::Kept
        )
    }
}

/// A program's decision about an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferVerdict {
    /// The content is here whole, and where it belongs.
    Received,
    /// Refused: see [`DropReason::NotAccepted`].
    NotAccepted,
    /// Refused: see [`DropReason::TooLong`].
    TooLong,
    /// Refused: see [`DropReason::InboxFull`].
    InboxFull,
    /// Refused: see [`DropReason::Unusable`].
    Unusable,
}

codes!(OfferVerdict, "verdict about an offer", {
    Received = 0,
    NotAccepted = 1,
    TooLong = 2,
    InboxFull = 3,
    Unusable = 4,
});

impl OfferVerdict {
    /// Returns the reason that the sender is told; `None` for a received content.
    pub(crate) fn refusal(self) -> Option<DropReason> {
        match self {
            OfferVerdict::Received => None,
            OfferVerdict::NotAccepted => Some(DropReason::NotAccepted),
            OfferVerdict::TooLong => Some(DropReason::TooLong),
            OfferVerdict::InboxFull => Some(DropReason::InboxFull),
            OfferVerdict::Unusable => Some(DropReason::Unusable),
        }
    }
}

/// Acceptance of an offer: how its content is to be handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptOffer {
    /// Which offer.
    pub id: OfferId,
    /// The content, as for a request of one's own.
    pub get: Get,
}

pub(super) fn put_publish(out: &mut Vec<u8>, publish: &Publish) {
    out.extend_from_slice(publish.content.as_bytes());
    out.extend_from_slice(&publish.content_len.to_be_bytes());
    out.push(publish.kind.code());
    put_short_text(out, &publish.file_name);
}

pub(super) fn read_publish(reader: &mut Reader<'_>) -> Result<Publish, WireError> {
    Ok(Publish {
        content: reader.guid()?,
        content_len: reader.u64()?,
        kind: ContentKind::from_code(reader.u8()?)?,
        file_name: reader.short_text()?,
    })
}

impl OfferId {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.sender.as_bytes());
        out.extend_from_slice(&self.number.to_be_bytes());
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<OfferId, WireError> {
        Ok(OfferId {
            sender: reader.guid()?,
            number: reader.u64()?,
        })
    }
}

impl SendContent {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.request.to_be_bytes());
        out.extend_from_slice(self.destination.as_bytes());
        self.options.encode(out);
        out.push(self.proposed.code());
        put_publish(out, &self.content);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<SendContent, WireError> {
        Ok(SendContent {
            request: reader.u32()?,
            destination: reader.guid()?,
            options: TransferOptions::read(reader)?,
            proposed: OfferUse::from_code(reader.u8()?)?,
            content: read_publish(reader)?,
        })
    }
}

impl ContentOffer {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        self.id.encode(out);
        out.extend_from_slice(&self.issued_ms.to_be_bytes());
        out.push(self.proposed.code());
        put_publish(out, &self.content);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<ContentOffer, WireError> {
        Ok(ContentOffer {
            id: OfferId::read(reader)?,
            issued_ms: reader.u64()?,
            proposed: OfferUse::from_code(reader.u8()?)?,
            content: read_publish(reader)?,
        })
    }
}

/// Appends an acceptance, except for the record at its end, which is returned.
pub(super) fn put_accept(
    out: &mut Vec<u8>,
    accept: &AcceptOffer,
    put_get: impl Fn(&mut Vec<u8>, &Get) -> Bytes,
) -> Bytes {
    accept.id.encode(out);
    put_get(out, &accept.get)
}

#[cfg(test)]
mod tests {
    use super::super::options::tests::any_options;
    use super::super::{LocalEvent, LocalRequest};
    use super::*;
    use proptest::prelude::*;

    fn any_offer() -> impl Strategy<Value = ContentOffer> {
        let names = (any::<[u8; 32]>(), any::<[u8; 32]>(), "[a-zäß]{0,20}");
        let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), 0u8..3);
        (names, numbers).prop_map(
            |((sender, content, file_name), (number, issued_ms, content_len, code))| ContentOffer {
                id: OfferId {
                    sender: Guid(sender),
                    number,
                },
                issued_ms,
                proposed: OfferUse::from_code(code).expect("a code"),
                content: Publish {
                    content: Guid(content),
                    content_len,
                    kind: ContentKind::File,
                    file_name,
                },
            },
        )
    }

    fn whole(encode: impl Fn(&mut Vec<u8>) -> Bytes) -> Bytes {
        let mut head = Vec::new();
        let tail = encode(&mut head);
        head.extend_from_slice(&tail);
        head.into()
    }

    proptest! {
        #[test]
        fn requests_and_events_of_deliveries_round_trip(
            offer in any_offer(), request: u32, options in any_options(), at in 0usize..5, resume in prop::collection::vec(any::<u8>(), 0..40),
            numbers: (u64, u64), state in 0usize..8,
        ) {
            let (id, content) = (offer.id, offer.content.content);
            let get = Get {
                request,
                content,
                options,
                in_order: false,
                credit: 16,
                resume: resume.into(),
            };
            let requests = [
                LocalRequest::Send(SendContent {
                    request,
                    destination: id.sender,
                    options,
                    proposed: offer.proposed,
                    content: offer.content.clone(),
                }),
                LocalRequest::TakeOffers,
                LocalRequest::Accept(AcceptOffer { id, get }),
                LocalRequest::Settle { id, content, verdict: OfferVerdict::ALL[at] },
            ];
            for request in requests {
                let frame = whole(|out| request.encode_head(out));
                prop_assert_eq!(LocalRequest::decode(&frame), Ok(request));
            }
            let (taken, stored) = numbers;
            let state = SendState::ALL[state];
            for event in [LocalEvent::Offered(offer), LocalEvent::Sending { request, state, taken, stored }] {
                let frame = whole(|out| event.encode_head(out));
                prop_assert_eq!(LocalEvent::decode(&frame), Ok(event));
            }
        }
    }
}
