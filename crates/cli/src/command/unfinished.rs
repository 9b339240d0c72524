//! `--resume`: a run that was interrupted is taken up.

use std::path::PathBuf;
use std::sync::Arc;

use whimbrel_lab::LabError;
use whimbrel_lab::journal::{BatchTerms, Journal};

use crate::exit::{Exit, Failure};
use crate::logging::note;

/// The finished runs of a batch that has no results yet, in a file beside the folder of the results.
pub(crate) struct Unfinished {
    /// The folder of the results.
    pub(crate) path: PathBuf,
    /// True to take up what is there.
    pub(crate) resume: bool,
}

impl Unfinished {
    pub(crate) fn open(&self, terms: &BatchTerms) -> Result<Arc<Journal>, Failure> {
        let mut name = self.path.clone().into_os_string();
        name.push(".unfinished.jsonl");
        let path = PathBuf::from(name);
        let journal = match self.resume {
            true => Journal::resume(&path, terms),
            false => Journal::begin(&path, terms),
        };
        let journal = journal.map_err(failure)?;
        if journal.finished() > 0 {
            note(&format!(
                "{} finished runs are not repeated",
                journal.finished()
            ));
        }
        Ok(Arc::new(journal))
    }
}

fn failure(error: LabError) -> Failure {
    let exit = match error {
        LabError::OtherTerms { .. } => Exit::Usage,
        _ => Exit::Write,
    };
    Failure::new(exit, error.to_string())
}
