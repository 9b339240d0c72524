//! Contents whose reliability a program delegates to the access router [MFTP §3.3]: their chunks are
//! marked, and the router says which of them it keeps.

use std::collections::BTreeMap;

use whimbrel_core::Guid;

use super::Uploads;
use crate::host::effects::Effects;
use crate::host::status::DelegatedStatus;
use crate::host::{App, Way};
use crate::wire::{ChunkRanges, NetworkHeader, Notice};

/// Maximum of contents that programs delegate.
const MAX_DELEGATED: usize = 65_536;

/// The contents that programs delegate.
#[derive(Debug, Default)]
pub(in crate::host) struct Delegations(BTreeMap<Guid, App>);

impl Delegations {
    /// Begins or ends to mark the chunks of a content.
    pub(in crate::host) fn set(
        &mut self,
        app: App,
        content: Guid,
        is_on: bool,
        effects: &mut Effects,
    ) {
        match is_on {
            true if self.0.len() >= MAX_DELEGATED => effects.drop("too-many-delegations"),
            true => {
                self.0.insert(content, app);
            }
            false => {
                self.0.remove(&content);
            }
        }
    }

    /// Returns true if chunks of a content are marked.
    pub(in crate::host) fn has(&self, content: &Guid) -> bool {
        self.0.contains_key(content)
    }

    pub(super) fn forget(&mut self, app: App) {
        self.0.retain(|_, of| *of != app);
    }
}

impl Uploads {
    /// Handles the notice that the access router keeps chunks. Nobody else can keep them, and a notice
    /// without the id of the request is not believed.
    pub(in crate::host) fn handle_kept(
        &mut self,
        router: Option<Guid>,
        header: &NetworkHeader,
        notice: &Notice,
        effects: &mut Effects,
    ) {
        let id = header.extensions.request;
        let key = self
            .by_key
            .key_of(notice.content, notice.destination, Way::Uplink, id);
        let is_delegated = notice.source == self.guid && self.delegations.has(&key.content);
        if router != Some(header.source) || !is_delegated {
            return effects.drop("forged-kept");
        }
        let all = ChunkRanges::from(0..self.count_of(&key));
        let Some(upload) = self.by_key.get_mut(&key) else {
            return;
        };
        if !upload.is_about(header.extensions.request) {
            return effects.drop("wrong-request-id");
        }
        upload.note_kept(header.source, notice.chunks.intersection(&all));
    }

    /// A router has restarted, or another one is in its place: it keeps nothing any more.
    pub(in crate::host) fn note_forgotten(&mut self, router: &Guid) {
        self.by_key.forget_kept_by(router);
    }

    /// Returns what routers keep of each content, for reports.
    pub(in crate::host) fn delegated_status(&self, most: usize) -> Vec<DelegatedStatus> {
        let mut by_content: BTreeMap<(Guid, Guid), (ChunkRanges, u64)> = BTreeMap::new();
        for (key, upload) in self.by_key.iter() {
            if let Some((router, kept)) = &upload.kept {
                let entry = by_content.entry((key.content, *router));
                let (chunks, count) = entry.or_default();
                chunks.union(kept);
                *count = u64::from(self.count_of(key));
            }
        }
        let status = by_content.into_iter().take(most);
        let status = status.map(|((content, kept_by), (kept, chunks))| DelegatedStatus {
            content,
            kept_by,
            kept: kept.count(),
            chunks,
        });
        status.collect()
    }
}
