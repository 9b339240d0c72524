//! What a host has used of its links' quotas, over its restarts: a file beside its key.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use whimbrel_gnrs::Store;
use whimbrel_io::{IoError, LoopHandle};
use whimbrel_mobilityfirst::host::interfaces::QuotaUse;

use crate::config::LinkSection;
use crate::kept::KeptFile;
use crate::machine::Node;
use crate::run::StartError;

/// The file is written this often if something has been used, and at the end of the run: what a run
/// that was killed has used since is not counted.
const INTERVAL: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(5);

/// The file, and the labels of the links, by which it knows them: numbers change with the
/// configuration.
#[derive(Clone, Debug)]
pub(crate) struct QuotaFile {
    file: KeptFile<BTreeMap<String, QuotaUse>>,
    labels: Vec<String>,
}

impl QuotaFile {
    /// Returns the file of the host with this key, if any of its links has a quota.
    pub(crate) fn beside(key: &Path, links: &[LinkSection]) -> Option<QuotaFile> {
        let is_wanted = links.iter().any(|link| link.quota.is_some());
        is_wanted.then(|| QuotaFile {
            file: KeptFile::beside(key, ".quotas.json", "what was used of the links' quotas"),
            labels: links.iter().map(|link| link.label.clone()).collect(),
        })
    }

    /// Reads what earlier runs have used, by the links' numbers.
    pub(crate) fn read(&self) -> BTreeMap<u32, QuotaUse> {
        let used = self.file.read_if_possible();
        let numbered = (0..).zip(&self.labels);
        numbered
            .filter_map(|(number, label)| Some((number, *used.get(label)?)))
            .collect()
    }

    /// Writes what has been used.
    pub(crate) fn note(&self, used: &BTreeMap<u32, QuotaUse>) {
        self.file.note(&by_label(&self.labels, used));
    }

    /// Keeps the file up to date until the host's loop ends.
    pub(crate) fn follow<S: Store + 'static>(
        self,
        handle: LoopHandle<Node<S>>,
    ) -> Result<(), StartError> {
        let labels = self.labels;
        let ask = move || {
            let (answer, asked) = mpsc::channel();
            let task = move |node: &mut Node<S>, _| {
                let _ = answer.send(node.quota_use());
            };
            handle.post(task)?;
            // It does not answer while it is busy.
            let used = asked.recv_timeout(PATIENCE).ok();
            Ok::<_, IoError>(used.map(|used| by_label(&labels, &used)))
        };
        self.file.follow(BTreeMap::new(), INTERVAL, ask, |_, _| {})
    }
}

fn by_label(labels: &[String], used: &BTreeMap<u32, QuotaUse>) -> BTreeMap<String, QuotaUse> {
    let label = |number: &u32| labels.get(*number as usize);
    let named = used.iter();
    named
        .filter_map(|(number, used)| Some((label(number)?.clone(), *used)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(label: &str) -> LinkSection {
        LinkSection {
            quota: Some(whimbrel_core::units::ByteSize(1)),
            ..LinkSection::new(label)
        }
    }

    #[test]
    fn use_is_kept_by_label() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("host.pem");
        let file = QuotaFile::beside(&key, &[link("wifi"), link("lte")]).unwrap();
        let used = |bytes| QuotaUse { period: 7, bytes };
        file.note(&BTreeMap::from([(0, used(10)), (1, used(20))]));
        let other = QuotaFile::beside(&key, &[link("lte"), link("ethernet")]).unwrap();
        assert_eq!(other.read(), BTreeMap::from([(0, used(20))]));
        assert!(QuotaFile::beside(&key, &[LinkSection::new("a")]).is_none());
    }
}
