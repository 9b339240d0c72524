//! What an inbox keeps over its restarts: the offers that it has accepted, and those that it has received.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{ContentOffer, OfferId, Publish};
use whimbrel_mobilityfirst::wire::{ContentKind, OfferUse};

use crate::kept::KeptFile;

/// The file, in the inbox's folder.
const NAME: &str = ".whimbrel-inbox.json";
/// Bound of the received offers that are remembered; the oldest are forgotten.
const MAX_DONE: usize = 2048;

/// An accepted offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeptOffer {
    id: OfferId,
    issued_ms: u64,
    proposed: OfferUse,
    content: Guid,
    length: u64,
    kind: ContentKind,
    file_name: String,
}

/// A received offer, and where its file was put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DoneOffer {
    id: OfferId,
    content: Guid,
    length: u64,
    path: Option<PathBuf>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct InboxState {
    accepted: Vec<KeptOffer>,
    received: Vec<DoneOffer>,
}

/// The record of an inbox.
pub(super) struct InboxRecord {
    file: KeptFile<InboxState>,
    kept: InboxState,
}

impl InboxRecord {
    /// Reads the record of the inbox in `folder`.
    pub(super) fn read(folder: &Path) -> std::io::Result<InboxRecord> {
        let file = KeptFile::at(folder.join(NAME), "the offers of an inbox");
        let kept = file.read()?;
        Ok(InboxRecord { file, kept })
    }

    /// Returns the offers that were accepted, and not settled since.
    pub(super) fn accepted(&self) -> Vec<ContentOffer> {
        let offers = self.kept.accepted.iter();
        offers
            .map(|it| ContentOffer {
                id: it.id,
                issued_ms: it.issued_ms,
                proposed: it.proposed,
                content: Publish {
                    content: it.content,
                    content_len: it.length,
                    kind: it.kind,
                    file_name: it.file_name.clone(),
                },
            })
            .collect()
    }

    /// Returns true if an offer was received, or the same sender has sent the same content before and its
    /// file is still there.
    pub(super) fn has(&self, offer: &ContentOffer) -> bool {
        let is_there = |done: &DoneOffer| {
            let path = done.path.as_ref();
            path.and_then(|path| path.metadata().ok())
                .is_some_and(|found| found.is_file() && found.len() == done.length)
        };
        let received = self.kept.received.iter();
        received.rev().any(|done| {
            let is_same =
                done.id.sender == offer.id.sender && done.content == offer.content.content;
            done.id == offer.id || is_same && is_there(done)
        })
    }

    /// Notes that an offer is accepted.
    pub(super) fn accept(&mut self, offer: &ContentOffer) {
        self.forget(&offer.id);
        self.kept.accepted.push(KeptOffer {
            id: offer.id,
            issued_ms: offer.issued_ms,
            proposed: offer.proposed,
            content: offer.content.content,
            length: offer.content.content_len,
            kind: offer.content.kind,
            file_name: offer.content.file_name.clone(),
        });
        self.file.note(&self.kept);
    }

    /// Notes that the content of an offer is here.
    pub(super) fn receive(&mut self, offer: &ContentOffer, path: Option<PathBuf>) {
        self.forget(&offer.id);
        let received = &mut self.kept.received;
        let excess = (received.len() + 1).saturating_sub(MAX_DONE);
        received.drain(..excess);
        received.push(DoneOffer {
            id: offer.id,
            content: offer.content.content,
            length: offer.content.content_len,
            path,
        });
        self.file.note(&self.kept);
    }

    /// Notes that an offer is refused.
    pub(super) fn refuse(&mut self, id: &OfferId) {
        if self.forget(id) {
            self.file.note(&self.kept);
        }
    }

    fn forget(&mut self, id: &OfferId) -> bool {
        let before = self.kept.accepted.len();
        self.kept.accepted.retain(|kept| kept.id != *id);
        self.kept.accepted.len() < before
    }
}
