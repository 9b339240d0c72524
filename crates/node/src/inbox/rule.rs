//! What an inbox takes: from whom, how much, and what becomes of a file whose name is taken.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use whimbrel_core::Guid;
use whimbrel_core::units::ByteSize;
use whimbrel_mobilityfirst::local::{ContentOffer, OfferVerdict};
use whimbrel_mobilityfirst::wire::{MAX_MESSAGE, OfferUse};

use crate::output::safe_name;

/// Bound of the files of a folder that are looked at for its size.
const MAX_LOOKED_AT: usize = 1 << 20;

/// What becomes of a file whose name is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Existing {
    /// The one that is there stays, and the new one is refused.
    Keep,
    /// The new one gets a numbered name.
    #[default]
    Number,
    /// The new one replaces it, once it is whole.
    Replace,
}

/// The rule of an inbox.
#[derive(Clone, Debug, Default)]
pub struct InboxRule {
    /// Those who may send; `None` for anyone.
    pub senders: Option<BTreeSet<Guid>>,
    /// The longest content, in bytes.
    pub max_size: Option<u64>,
    /// The most that the folder may hold, in bytes.
    pub total: Option<u64>,
    /// What becomes of a file whose name is taken.
    pub existing: Existing,
}

/// A refusal: what the sender is told, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefusedOffer {
    /// What the sender is told.
    pub verdict: OfferVerdict,
    /// The reason, in a sentence.
    pub why: String,
}

impl RefusedOffer {
    fn new(verdict: OfferVerdict, why: impl Into<String>) -> RefusedOffer {
        let why = why.into();
        RefusedOffer { verdict, why }
    }
}

impl InboxRule {
    /// Judges an offer to an inbox whose folder holds `held` bytes, with all that it has accepted.
    pub(super) fn judge(
        &self,
        offer: &ContentOffer,
        folder: &Path,
        held: u64,
    ) -> Result<(), RefusedOffer> {
        let length = offer.content.content_len;
        if let Some(senders) = &self.senders
            && !senders.contains(&offer.id.sender)
        {
            let why = "its sender is not among those that may send";
            return Err(RefusedOffer::new(OfferVerdict::NotAccepted, why));
        }
        if offer.proposed == OfferUse::Note {
            return match length > MAX_MESSAGE as u64 {
                true => Err(RefusedOffer::new(
                    OfferVerdict::TooLong,
                    format!("a message has at most {MAX_MESSAGE} bytes, this one {length}"),
                )),
                false => Ok(()),
            };
        }
        if let Some(most) = self.max_size.filter(|most| length > *most) {
            let (length, most) = (ByteSize(length), ByteSize(most));
            let why = format!("it has {length}, more than --max-size {most}");
            return Err(RefusedOffer::new(OfferVerdict::TooLong, why));
        }
        if let Some(total) = self.total
            && held.saturating_add(length) > total
        {
            let (length, held, total) = (ByteSize(length), ByteSize(held), ByteSize(total));
            let why = format!("it has {length}, and the folder holds {held} of --total {total}");
            return Err(RefusedOffer::new(OfferVerdict::InboxFull, why));
        }
        if self.existing == Existing::Keep
            && let Some(path) = place_of(offer, folder)
            && fs::symlink_metadata(&path).is_ok()
        {
            let why = format!("{} exists and is kept", path.display());
            return Err(RefusedOffer::new(OfferVerdict::Unusable, why));
        }
        Ok(())
    }
}

/// Returns the path that an offered content would get; `None` if its name is not usable.
pub(super) fn place_of(offer: &ContentOffer, folder: &Path) -> Option<PathBuf> {
    safe_name(&offer.content.file_name).map(|name| folder.join(name))
}

/// Returns the bytes of the files below a folder, but for hidden ones beside them, on which downloads are
/// under way.
pub(super) fn bytes_in(folder: &Path) -> u64 {
    let mut due = vec![folder.to_owned()];
    let (mut bytes, mut looked_at) = (0u64, 0);
    while let Some(path) = due.pop() {
        let Ok(items) = fs::read_dir(&path) else {
            continue;
        };
        for item in items.flatten() {
            looked_at += 1;
            let Ok(metadata) = item.metadata() else {
                continue;
            };
            let is_hidden = path == folder && item.file_name().as_encoded_bytes().starts_with(b".");
            if looked_at > MAX_LOOKED_AT || is_hidden {
                continue;
            }
            match metadata.is_dir() {
                true => due.push(item.path()),
                false => bytes = bytes.saturating_add(metadata.len()),
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_mobilityfirst::local::{OfferId, Publish};
    use whimbrel_mobilityfirst::wire::ContentKind;

    fn offer(sender: u8, length: u64, name: &str) -> ContentOffer {
        ContentOffer {
            id: OfferId {
                sender: Guid([sender; 32]),
                number: 1,
            },
            issued_ms: 0,
            proposed: OfferUse::File,
            content: Publish {
                content: Guid([9; 32]),
                content_len: length,
                kind: ContentKind::File,
                file_name: name.to_owned(),
            },
        }
    }

    #[test]
    fn an_offer_is_judged_by_sender_length_and_room() {
        let folder = tempfile::tempdir().unwrap();
        let rule = InboxRule {
            senders: Some(BTreeSet::from([Guid([1; 32])])),
            max_size: Some(100),
            total: Some(150),
            existing: Existing::Keep,
        };
        fs::write(folder.path().join("here"), "x").unwrap();
        fs::write(folder.path().join(".part"), "hidden").unwrap();
        assert_eq!(bytes_in(folder.path()), 1);
        let judge = |offer: &ContentOffer, held| {
            let judged = rule.judge(offer, folder.path(), held);
            judged.map_err(|refused| refused.verdict)
        };
        assert_eq!(judge(&offer(1, 100, "new"), 50), Ok(()));
        for (offer, held, verdict) in [
            (offer(2, 1, "new"), 0, OfferVerdict::NotAccepted),
            (offer(1, 101, "new"), 0, OfferVerdict::TooLong),
            (offer(1, 100, "new"), 51, OfferVerdict::InboxFull),
            (offer(1, u64::MAX, "new"), 51, OfferVerdict::TooLong),
            (offer(1, 1, "here"), 0, OfferVerdict::Unusable),
            (offer(1, 1, "/here"), 0, OfferVerdict::Unusable),
        ] {
            assert_eq!(judge(&offer, held), Err(verdict), "{offer:?}");
        }
    }

    #[test]
    fn a_suggested_name_never_leaves_the_folder() {
        let folder = Path::new("/in/box");
        for name in ["../../etc/passwd", "/etc/passwd", "..", "a/../../b", ".ssh"] {
            let place = place_of(&offer(1, 1, name), folder).unwrap();
            assert_eq!(place.parent(), Some(folder), "{name}");
            assert!(!place.ends_with(".."), "{name}");
        }
        assert_eq!(place_of(&offer(1, 1, "//"), folder), None);
    }
}
