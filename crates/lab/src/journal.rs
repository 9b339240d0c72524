//! What a batch of runs has finished, in a file, so that an interrupted batch is taken up where it
//! stopped.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::LabError;

/// The finished runs of a batch.
///
/// The file has a line of JSON for the terms of the batch (program, scenario, seed) and one for each
/// finished run. A line that a crash cut short counts as a run that did not finish.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Mutex<File>,
    finished: BTreeMap<RunPlace, Value>,
    batches: AtomicUsize,
}

/// What a batch runs; two batches with equal terms have equal results, up to chance in real time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchTerms {
    /// The text of the scenario.
    pub scenario: String,
    /// The name of the back end.
    pub backend: String,
    /// The seed and the number of runs, where they replace the scenario's.
    pub seed: Option<u64>,
    /// The number of runs, where it replaces the scenario's.
    pub runs: Option<u32>,
    /// The program: its version, and the length and the age of its file.
    pub program: String,
}

/// A run's place: which batch of the program, and which of its jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct RunPlace {
    pub(crate) batch: usize,
    pub(crate) job: usize,
}

#[derive(Serialize, Deserialize)]
struct JournalLine<T> {
    #[serde(flatten)]
    place: RunPlace,
    title: String,
    found: T,
}

impl BatchTerms {
    /// Returns the terms of a batch that this program runs.
    pub fn new(scenario: &str, backend: &str, seed: Option<u64>, runs: Option<u32>) -> BatchTerms {
        let file = std::env::current_exe().and_then(fs::metadata);
        let file = file.map(|file| (file.len(), file.modified().ok()));
        BatchTerms {
            scenario: scenario.to_owned(),
            backend: backend.to_owned(),
            seed,
            runs,
            program: format!("{} {:?}", env!("CARGO_PKG_VERSION"), file.ok()),
        }
    }
}

impl Journal {
    /// Begins a journal; one of an earlier batch is replaced.
    pub fn begin(path: &Path, terms: &BatchTerms) -> Result<Journal, LabError> {
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(failed("create the folder of", path))?;
        let file = File::create(path).map_err(failed("write", path))?;
        let journal = Journal::new(path, file, BTreeMap::new());
        journal.write(terms)?;
        Ok(journal)
    }

    /// Takes a batch up: the runs that its journal has are not repeated. Begins one if there is no
    /// journal; refuses one of a batch on other terms.
    pub fn resume(path: &Path, terms: &BatchTerms) -> Result<Journal, LabError> {
        let text = match fs::read(path) {
            Ok(octets) => String::from_utf8_lossy(&octets).into_owned(),
            Err(fault) if fault.kind() == ErrorKind::NotFound => {
                return Journal::begin(path, terms);
            }
            Err(fault) => return Err(failed("read", path)(fault)),
        };
        let mut lines = text.lines();
        let begun = lines
            .next()
            .and_then(|line| serde_json::from_str(line).ok());
        if begun.as_ref() != Some(terms) {
            return Err(LabError::OtherTerms {
                journal: path.to_owned(),
            });
        }
        let finished = lines
            .filter_map(|line| serde_json::from_str::<JournalLine<Value>>(line).ok())
            .map(|line| (line.place, line.found))
            .collect();
        let file = OpenOptions::new().append(true).open(path);
        let mut file = file.map_err(failed("write", path))?;
        if !text.ends_with('\n') {
            file.write_all(b"\n").map_err(failed("write", path))?;
        }
        Ok(Journal::new(path, file, finished))
    }

    fn new(path: &Path, file: File, finished: BTreeMap<RunPlace, Value>) -> Journal {
        Journal {
            path: path.to_owned(),
            file: Mutex::new(file),
            finished,
            batches: AtomicUsize::new(0),
        }
    }

    /// Returns the number of runs that are not repeated.
    pub fn finished(&self) -> usize {
        self.finished.len()
    }

    /// Removes the file: the results are written.
    pub fn remove(&self) -> Result<(), LabError> {
        fs::remove_file(&self.path).map_err(failed("remove", &self.path))
    }

    /// Returns the number of the next batch of this program.
    pub(crate) fn next_batch(&self) -> usize {
        self.batches.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the result of a run that is not repeated.
    pub(crate) fn find<F: DeserializeOwned>(&self, place: RunPlace) -> Option<F> {
        let found = self.finished.get(&place)?;
        F::deserialize(found).ok()
    }

    /// Keeps the result of a run.
    pub(crate) fn keep<F: Serialize>(
        &self,
        place: RunPlace,
        title: &str,
        found: &F,
    ) -> Result<(), LabError> {
        self.write(&JournalLine {
            place,
            title: title.to_owned(),
            found,
        })
    }

    fn write(&self, line: &impl Serialize) -> Result<(), LabError> {
        let mut text =
            serde_json::to_vec(line).map_err(|fault| failed("write", &self.path)(fault.into()))?;
        text.push(b'\n');
        // A thread that panicked here has written a whole line or a part, which does not count.
        let mut file = self.file.lock().unwrap_or_else(|lock| lock.into_inner());
        file.write_all(&text).map_err(failed("write", &self.path))
    }
}

fn failed(action: &str, path: &Path) -> impl FnOnce(std::io::Error) -> LabError {
    LabError::system(format!("{action} {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::run_kept;

    fn terms() -> BatchTerms {
        BatchTerms::new("title = 'a'", "sim", Some(1), None)
    }

    fn run(
        journal: &Journal,
        jobs: &[u64],
        fails_up_to: u64,
    ) -> (Result<Vec<u64>, LabError>, Vec<u64>) {
        let ran = Mutex::new(Vec::new());
        let one = |job: &u64| {
            ran.lock().unwrap().push(*job);
            match *job <= fails_up_to {
                true => Err(LabError::system("run")(std::io::Error::other("it fails"))),
                false => Ok(job * 10),
            }
        };
        let found = run_kept(jobs, 1, |_| "", one, Some(journal), &mut |_, _, _| ());
        (found, ran.into_inner().unwrap())
    }

    #[test]
    fn a_batch_that_was_interrupted_repeats_no_finished_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results/runs.jsonl");
        let (failed, ran) = run(&Journal::begin(&path, &terms()).unwrap(), &[1, 2, 3, 4], 2);
        assert!(failed.is_err());
        assert_eq!(ran[..3], [4, 3, 2], "the last job begins first");
        // A crash cuts the last line short.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"batch\":0,\"job\":0,\"ti").unwrap();

        let journal = Journal::resume(&path, &terms()).unwrap();
        assert_eq!(journal.finished(), 2);
        let (found, ran) = run(&journal, &[1, 2, 3, 4], 0);
        assert_eq!((found.unwrap(), ran), (vec![10, 20, 30, 40], vec![2, 1]));

        let journal = Journal::resume(&path, &terms()).unwrap();
        let (found, ran) = run(&journal, &[1, 2, 3, 4], 0);
        assert_eq!((found.unwrap(), ran), (vec![10, 20, 30, 40], vec![]));
        // A second batch of the same program has runs of its own.
        let (found, ran) = run(&journal, &[5], 0);
        assert_eq!((found.unwrap(), ran), (vec![50], vec![5]));
        journal.remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_batch_on_other_terms_is_not_taken_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        Journal::begin(&path, &terms()).unwrap();
        let other = BatchTerms {
            seed: Some(2),
            ..terms()
        };
        let refused = Journal::resume(&path, &other).unwrap_err().to_string();
        assert!(refused.contains("without --resume"), "{refused}");
        fs::write(&path, [0xff, 0]).unwrap();
        assert!(Journal::resume(&path, &terms()).is_err());
    }
}
