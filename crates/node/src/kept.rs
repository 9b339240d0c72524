//! A part of a node's state that is kept over its restarts, as JSON in a file beside its key.

use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use whimbrel_keychain::small_file;

use crate::place::make_folder_of;
use crate::run::StartError;

/// The file of one part of the state.
#[derive(Clone, Debug)]
pub(crate) struct KeptFile<T> {
    path: PathBuf,
    /// What it has, for the log.
    what: &'static str,
    content: PhantomData<T>,
}

impl<T: Serialize + DeserializeOwned + Default + PartialEq + Send + 'static> KeptFile<T> {
    /// The file of the node with this key whose name is the key's and `suffix`.
    pub(crate) fn beside(key: &Path, suffix: &str, what: &'static str) -> KeptFile<T> {
        let mut path = key.as_os_str().to_owned();
        path.push(suffix);
        KeptFile::at(path.into(), what)
    }

    /// The file at this path.
    pub(crate) fn at(path: PathBuf, what: &'static str) -> KeptFile<T> {
        KeptFile {
            path,
            what,
            content: PhantomData,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it. A file that is absent is empty; a damaged one is an error.
    pub(crate) fn try_read(&self) -> io::Result<T> {
        match small_file::read_text(&self.path) {
            Ok(text) => Ok(serde_json::from_str(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
            Err(error) => Err(error),
        }
    }

    /// Reads it. A file that is absent or damaged is empty.
    pub(crate) fn read(&self) -> T {
        self.try_read().unwrap_or_else(|error| self.without(&error))
    }

    fn without(&self, error: &dyn std::error::Error) -> T {
        tracing::warn!(file = %self.path.display(), %error, "cannot read {}; starting without", self.what);
        T::default()
    }

    /// Writes it; a failure is only logged.
    pub(crate) fn note(&self, state: &T) {
        if let Err(error) = self.write(state) {
            self.log(&error);
        }
    }

    fn write(&self, state: &T) -> io::Result<()> {
        make_folder_of(&self.path)?;
        small_file::write(&self.path, &serde_json::to_vec(state)?)
    }

    fn log(&self, error: &io::Error) {
        tracing::warn!(file = %self.path.display(), %error, "cannot keep {}", self.what);
    }

    /// Keeps the file up to date on a thread of its own, until `ask` returns `Err`. `ask` returns
    /// `None` if the state cannot be known for now.
    pub(crate) fn follow<E>(
        self,
        mut written: T,
        interval: Duration,
        mut ask: impl FnMut() -> Result<Option<T>, E> + Send + 'static,
    ) -> Result<(), StartError> {
        let keep = move || {
            let mut failing = false;
            while let Ok(state) = ask() {
                if let Some(state) = state.filter(|state| *state != written) {
                    match self.write(&state) {
                        Ok(()) => (written, failing) = (state, false),
                        // It is tried again, and logged once.
                        Err(error) if !failing => {
                            failing = true;
                            self.log(&error);
                        }
                        Err(_) => {}
                    }
                }
                std::thread::sleep(interval);
            }
        };
        let started = std::thread::Builder::new().name("kept".into()).spawn(keep);
        started.map(drop).map_err(|source| StartError::System {
            what: "thread",
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_is_kept_is_read_again_and_damage_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("host.pem");
        let file: KeptFile<BTreeSet<u32>> = KeptFile::beside(&key, ".numbers.json", "numbers");
        assert!(file.read().is_empty());
        file.note(&BTreeSet::from([3, 5]));
        assert_eq!(file.read(), BTreeSet::from([3, 5]));
        std::fs::write(folder.path().join("host.pem.numbers.json"), "{").unwrap();
        assert!(file.read().is_empty());
    }
}
