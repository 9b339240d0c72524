//! What a host has used of its links' quotas, over its restarts: a file beside its key.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use whimbrel_gnrs::Store;
use whimbrel_io::{IoError, LoopHandle};
use whimbrel_keychain::small_file;
use whimbrel_mobilityfirst::host::interfaces::QuotaUse;

use crate::config::LinkSection;
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
    path: PathBuf,
    labels: Vec<String>,
}

impl QuotaFile {
    /// Returns the file of the host with this key, if any of its links has a quota.
    pub(crate) fn beside(key: &Path, links: &[LinkSection]) -> Option<QuotaFile> {
        let is_wanted = links.iter().any(|link| link.quota.is_some());
        let mut path = key.as_os_str().to_owned();
        path.push(".quotas.json");
        is_wanted.then(|| QuotaFile {
            path: path.into(),
            labels: links.iter().map(|link| link.label.clone()).collect(),
        })
    }

    /// Reads what earlier runs have used, by the links' numbers. A file that is absent or damaged is
    /// none.
    pub(crate) fn read(&self) -> BTreeMap<u32, QuotaUse> {
        let text = match small_file::read_text(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return BTreeMap::new(),
            Err(error) => {
                self.warn(&error);
                return BTreeMap::new();
            }
        };
        let used: BTreeMap<String, QuotaUse> = match serde_json::from_str(&text) {
            Ok(used) => used,
            Err(error) => {
                self.warn(&error);
                return BTreeMap::new();
            }
        };
        let numbered = (0..).zip(&self.labels);
        numbered
            .filter_map(|(number, label)| Some((number, *used.get(label)?)))
            .collect()
    }

    fn warn(&self, error: &dyn std::error::Error) {
        tracing::warn!(
            file = %self.path.display(), %error,
            "what was used of the links' quotas is not known; they count from nothing"
        );
    }

    /// Writes what has been used; a failure is only logged.
    pub(crate) fn note(&self, used: &BTreeMap<u32, QuotaUse>) -> bool {
        let written = self.write(used);
        if let Err(error) = &written {
            tracing::warn!(
                file = %self.path.display(), %error,
                "cannot note what was used of the links' quotas"
            );
        }
        written.is_ok()
    }

    fn write(&self, used: &BTreeMap<u32, QuotaUse>) -> io::Result<()> {
        let label = |number: &u32| self.labels.get(*number as usize);
        let named: BTreeMap<&String, &QuotaUse> = used
            .iter()
            .filter_map(|(number, used)| Some((label(number)?, used)))
            .collect();
        small_file::write(&self.path, &serde_json::to_vec(&named)?)
    }

    /// Keeps the file up to date until the host's loop ends.
    pub(crate) fn follow<S: Store + 'static>(
        self,
        handle: LoopHandle<Node<S>>,
    ) -> Result<(), StartError> {
        let ask = move || {
            let (answer, asked) = mpsc::channel();
            let task = move |node: &mut Node<S>, _| {
                let _ = answer.send(node.quota_use());
            };
            handle.post(task)?;
            Ok::<_, IoError>(asked.recv_timeout(PATIENCE).ok())
        };
        let keep = move || {
            let mut written = BTreeMap::new();
            while let Ok(used) = ask() {
                // It does not answer while it is busy.
                if let Some(used) = used.filter(|used| *used != written)
                    && self.note(&used)
                {
                    written = used;
                }
                std::thread::sleep(INTERVAL);
            }
        };
        let started = std::thread::Builder::new()
            .name("quotas".into())
            .spawn(keep);
        started.map(drop).map_err(|source| StartError::System {
            what: "thread",
            source,
        })
    }
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
    fn use_is_kept_by_label_and_damage_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("host.pem");
        let file = QuotaFile::beside(&key, &[link("wifi"), link("lte")]).unwrap();
        assert!(file.read().is_empty());
        let used = |bytes| QuotaUse { period: 7, bytes };
        file.write(&BTreeMap::from([(0, used(10)), (1, used(20))]))
            .unwrap();
        let other = QuotaFile::beside(&key, &[link("lte"), link("ethernet")]).unwrap();
        assert_eq!(other.read(), BTreeMap::from([(0, used(20))]));
        std::fs::write(folder.path().join("host.pem.quotas.json"), "{").unwrap();
        assert!(other.read().is_empty());
        assert!(QuotaFile::beside(&key, &[LinkSection::new("a")]).is_none());
    }
}
