//! The signed offer that comes with each chunk of a content which its receiver has not requested:
//! `send(destination, content)` of [MFTP §2].
//!
//! Each chunk carries it, so that no loss of a single message makes the others worthless, and the
//! receiver can judge whichever of them arrives first.

use whimbrel_core::Guid;
use whimbrel_core::identity::{KeyPair, PublicKey, Signature};

use super::{ContentKind, Reader, WireError, put_short_text};

/// The purpose of the signature.
const CONTEXT: &str = "whimbrel 2026 offer of a content v1";
const VERSION: u8 = 1;
const NOTE: u8 = 1;
const BUNDLE: u8 = 2;

/// The use that the sender proposes for a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OfferUse {
    /// A file to keep.
    #[default]
    File,
    /// A short text to show.
    Note,
    /// A folder: its list, then the contents of its files.
    Bundle,
}

impl OfferUse {
    pub(crate) fn code(self) -> u8 {
        match self {
            OfferUse::File => 0,
            OfferUse::Note => NOTE,
            OfferUse::Bundle => BUNDLE,
        }
    }

    pub(crate) fn from_code(code: u8) -> Result<OfferUse, WireError> {
        match code {
            0 => Ok(OfferUse::File),
            NOTE => Ok(OfferUse::Note),
            BUNDLE => Ok(OfferUse::Bundle),
            _ => Err(WireError::Invalid("use of an offer")),
        }
    }
}

/// What an offer is about: the fields of the chunk and of its header that the signature covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferTerms<'a> {
    /// The receiver.
    pub destination: Guid,
    /// Drawn by the sender for each of its sends: the request id of the chunks.
    pub id: u64,
    /// The content's name.
    pub content: Guid,
    /// The content's length in bytes.
    pub content_len: u64,
    /// Its kind.
    pub kind: ContentKind,
    /// The suggested file name.
    pub file_name: &'a str,
}

/// The offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignedOffer {
    /// The use that the sender proposes.
    pub proposed: OfferUse,
    /// The time of issue by the sender's clock, Unix time in milliseconds.
    pub issued_ms: u64,
    /// The sender's key, whose hash is the source's name.
    pub key: PublicKey,
    /// By that key, over all of this and the terms.
    pub signature: Signature,
}

impl SignedOffer {
    /// Size of the encoding, in bytes.
    pub const LEN: usize = 10 + PublicKey::LEN + Signature::LEN;

    /// Signs an offer.
    pub fn sign(
        keys: &KeyPair,
        terms: &OfferTerms<'_>,
        proposed: OfferUse,
        issued_ms: u64,
    ) -> SignedOffer {
        let statement = statement(terms, proposed, issued_ms);
        SignedOffer {
            proposed,
            issued_ms,
            key: keys.public(),
            signature: keys.sign(CONTEXT, &statement),
        }
    }

    /// Returns true if `source` has signed this offer with these terms.
    pub fn is_by(&self, source: &Guid, terms: &OfferTerms<'_>) -> bool {
        let statement = statement(terms, self.proposed, self.issued_ms);
        self.key.guid() == *source
            && (self.key)
                .verify(CONTEXT, &statement, &self.signature)
                .is_ok()
    }

    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, self.proposed.code()]);
        out.extend_from_slice(&self.issued_ms.to_be_bytes());
        out.extend_from_slice(self.key.as_bytes());
        out.extend_from_slice(&self.signature.0);
    }

    /// Decodes all of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<SignedOffer, WireError> {
        let mut reader = Reader(bytes);
        if reader.u8()? != VERSION {
            return Err(WireError::Invalid("version of an offer"));
        }
        let proposed = OfferUse::from_code(reader.u8()?)?;
        let issued_ms = reader.u64()?;
        let fixed = |_| WireError::Truncated;
        let key = reader.take(PublicKey::LEN)?.try_into().map_err(fixed)?;
        let signature = reader.take(Signature::LEN)?.try_into().map_err(fixed)?;
        reader.finish()?;
        Ok(SignedOffer {
            proposed,
            issued_ms,
            key: PublicKey(key),
            signature: Signature(signature),
        })
    }
}

fn statement(terms: &OfferTerms<'_>, proposed: OfferUse, issued_ms: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    out.extend_from_slice(terms.destination.as_bytes());
    out.extend_from_slice(&terms.id.to_be_bytes());
    out.extend_from_slice(terms.content.as_bytes());
    out.extend_from_slice(&terms.content_len.to_be_bytes());
    out.extend_from_slice(&[terms.kind.code(), proposed.code()]);
    out.extend_from_slice(&issued_ms.to_be_bytes());
    put_short_text(&mut out, terms.file_name);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn terms(name: &str) -> OfferTerms<'_> {
        OfferTerms {
            destination: Guid([1; 32]),
            id: 7,
            content: Guid([2; 32]),
            content_len: 5_000,
            kind: ContentKind::File,
            file_name: name,
        }
    }

    #[test]
    fn an_offer_holds_for_its_terms_and_its_sender_alone() {
        let (keys, other) = (
            KeyPair::from_secret(&[3; 32]),
            KeyPair::from_secret(&[4; 32]),
        );
        let signed = SignedOffer::sign(&keys, &terms("log.txt"), OfferUse::File, 1_000);
        assert!(signed.is_by(&keys.guid(), &terms("log.txt")));
        assert!(!signed.is_by(&other.guid(), &terms("log.txt")));
        let mut changed = vec![terms("log"); 5];
        changed[0].destination = Guid([9; 32]);
        changed[1].id = 8;
        changed[2].content = Guid([9; 32]);
        changed[3].content_len = 5_001;
        changed[4].kind = ContentKind::Folder;
        changed.iter_mut().for_each(|it| it.file_name = "log.txt");
        changed.push(terms("other.txt"));
        for terms in &changed {
            assert!(!signed.is_by(&keys.guid(), terms), "{terms:?}");
        }
        let later = SignedOffer {
            issued_ms: 1_001,
            ..signed
        };
        assert!(!later.is_by(&keys.guid(), &terms("log.txt")));
        let proposed = OfferUse::Note;
        let note = SignedOffer { proposed, ..signed };
        assert!(!note.is_by(&keys.guid(), &terms("log.txt")));
    }

    proptest! {
        #[test]
        fn an_offer_round_trips(secret: [u8; 32], issued_ms: u64, code in 0u8..3, len in 0usize..SignedOffer::LEN) {
            let proposed = OfferUse::from_code(code).expect("a code");
            let keys = KeyPair::from_secret(&secret);
            let signed = SignedOffer::sign(&keys, &terms("a"), proposed, issued_ms);
            let mut bytes = Vec::new();
            signed.encode(&mut bytes);
            prop_assert_eq!(bytes.len(), SignedOffer::LEN);
            prop_assert_eq!(SignedOffer::decode(&bytes), Ok(signed));
            prop_assert!(SignedOffer::decode(&bytes[..len]).is_err());
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..150)) {
            let _ = SignedOffer::decode(&bytes);
        }
    }
}
