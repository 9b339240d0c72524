//! Faults of a configuration: place, key, and what would be accepted.

use core::fmt;
use std::path::PathBuf;

/// The place of a fault.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// In a file.
    File {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in characters.
        column: usize,
    },
    /// On the command line, by this flag.
    Flag(&'static str),
    /// In a default, or in a configuration made in code.
    Unknown,
}

/// One fault: shown as `FILE:LINE:COLUMN: key: message`, or with the flag in place of the file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Fault {
    /// Where it was written.
    pub place: Place,
    /// The key, as `link[0].bind`; empty for the whole file.
    pub key: String,
    /// What is wrong, and what would be accepted.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File { path, line, column } => {
                write!(f, "{}:{line}:{column}: ", path.display())?;
            }
            Place::Flag(flag) => return write!(f, "{flag}: {}", self.message),
            Place::Unknown => {}
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// All faults that were found, in the order of the file; never empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Faults(Vec<Fault>);

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Faults {
        Faults(vec![fault])
    }
}

impl Faults {
    /// Returns `faults` in the order of the file, each once, or `None` if there are none.
    pub(super) fn of(mut faults: Vec<Fault>) -> Option<Faults> {
        faults.sort();
        faults.dedup();
        (!faults.is_empty()).then_some(Faults(faults))
    }

    /// Iterates over the faults in order.
    pub fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.0.iter()
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
