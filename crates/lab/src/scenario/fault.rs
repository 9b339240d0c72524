//! Faults of a scenario, with file, line and key.

use std::fmt;
use std::path::PathBuf;

use whimbrel_node::config::key_path::KeyPath;

use crate::LabError;
use crate::study::Backend;

pub(super) use whimbrel_core::suggest::hint;

/// One fault of a scenario file: shown as `FILE:LINE: key.path: message`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The scenario's file.
    pub file: PathBuf,
    /// Counted from 1; 0 for the whole file.
    pub line: usize,
    /// The key, as `links.wifi.loss`; empty for the whole file.
    pub key: String,
    /// The fault, and the likely correction.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Line 0 is the whole file: one that cannot be read has no lines.
        match self.line {
            0 => write!(f, "{}: ", self.file.display())?,
            line => write!(f, "{}:{line}: ", self.file.display())?,
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// Every fault that was found, in the order of the file; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Faults {
        Faults(vec![fault])
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// Collects faults, so that one reading of a file finds all of them.
#[derive(Debug, Default)]
pub(super) struct Found(Vec<Fault>);

impl Found {
    /// Keeps the fault, if there is one.
    pub(super) fn keep<T>(&mut self, result: Result<T, Fault>) -> Option<T> {
        result.map_err(|fault| self.0.push(fault)).ok()
    }

    /// Keeps the faults, if there are any.
    pub(super) fn keep_all<T>(&mut self, result: Result<T, Faults>) -> Option<T> {
        result.map_err(|faults| self.0.extend(faults.0)).ok()
    }

    pub(super) fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// Returns `value` if no fault was found. A fault that several keys inherit is reported once.
    pub(super) fn or<T>(mut self, value: Option<T>) -> Result<T, Faults> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => {
                self.0.sort_by_key(|fault| fault.line);
                self.0.dedup();
                Err(Faults(self.0))
            }
        }
    }
}

/// A feature that a back end lacks, and the key that asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) key: KeyPath,
    what: String,
}

impl Refusal {
    /// `what` follows "does not".
    pub(super) fn new(key: [&str; 3], what: String) -> Refusal {
        let key = KeyPath::from(key);
        Refusal { key, what }
    }

    /// Returns the refusal of a key of an event.
    pub(super) fn event(number: usize, key: &str, what: String) -> Refusal {
        let key = KeyPath::from(["events"]).index(number).key(key);
        Refusal { key, what }
    }

    /// Returns the refusal as the error of a plan, which has no file.
    pub(super) fn of(self, backend: Backend) -> LabError {
        LabError::not_played(backend, self.what)
    }

    /// Returns the message of the fault.
    pub(super) fn message(&self, backend: Backend) -> String {
        format!(
            "the back end '{}' does not {} yet",
            backend.name(),
            self.what
        )
    }
}
