//! A part of a node's state that is kept over its restarts, as JSON in a file beside its key.

use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use whimbrel_keychain::small_file;

use crate::run::StartError;
use whimbrel_client::place::{check_own, make_folder_of};

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

    /// Reads it. A file that is absent is empty; one that is damaged, or that another user could have
    /// prepared, is an error.
    pub(crate) fn read(&self) -> io::Result<T> {
        check_own(&self.path).map_err(io::Error::other)?;
        match small_file::read_text(&self.path) {
            Ok(text) => Ok(serde_json::from_str(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
            Err(error) => Err(error),
        }
    }

    /// Reads it, for a state without which the node can start: a file that cannot be read is empty.
    pub(crate) fn read_if_possible(&self) -> T {
        self.read().unwrap_or_else(|error| {
            tracing::warn!(file = %self.path.display(), %error, "cannot read {}; starting without", self.what);
            T::default()
        })
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes it; a failure is only logged.
    pub(crate) fn note(&self, state: &T) {
        if let Err(error) = self.write(state) {
            self.log(&error);
        }
    }

    fn write(&self, state: &T) -> io::Result<()> {
        make_folder_of(&self.path).map_err(io::Error::other)?;
        small_file::write(&self.path, &serde_json::to_vec(state)?)
    }

    fn log(&self, error: &io::Error) {
        tracing::warn!(file = %self.path.display(), %error, "cannot keep {}", self.what);
    }

    /// Keeps the file up to date on a thread of its own, until `ask` returns `Err`. `ask` returns
    /// `None` if the state cannot be known for now. `tell` is called with each state and whether the
    /// file has it.
    pub(crate) fn follow<E>(
        self,
        mut written: T,
        interval: Duration,
        mut ask: impl FnMut() -> Result<Option<T>, E> + Send + 'static,
        mut tell: impl FnMut(&T, Result<(), &io::Error>) + Send + 'static,
    ) -> Result<(), StartError> {
        let keep = move || {
            let mut failing = false;
            while let Ok(state) = ask() {
                if let Some(state) = state {
                    let outcome = match state == written {
                        true => Ok(()),
                        false => self.write(&state),
                    };
                    tell(&state, outcome.as_ref().copied());
                    match outcome {
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
    fn kept_state_is_read_again_and_a_damaged_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("host.pem");
        let file: KeptFile<BTreeSet<u32>> = KeptFile::beside(&key, ".numbers.json", "numbers");
        assert!(file.read().unwrap().is_empty());
        file.note(&BTreeSet::from([3, 5]));
        assert_eq!(file.read().unwrap(), BTreeSet::from([3, 5]));
        std::fs::write(folder.path().join("host.pem.numbers.json"), "{").unwrap();
        assert!(file.read().is_err());
        assert!(file.read_if_possible().is_empty());
    }
}
