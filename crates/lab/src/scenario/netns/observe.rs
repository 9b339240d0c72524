//! Observers of a run, and its results beyond metrics.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::scenario::run::Run;
use crate::{LinkReport, TransferObserver};

/// Follows a run, from as many threads as there are fetches.
pub trait Observer: Sync {
    /// Returns the file that a load of one file serves; by default one is made.
    fn file(&self, load: usize) -> Option<&Path> {
        let _ = load;
        None
    }

    /// Called when all is served; time counts from `origin`. `socket` returns the path at which a
    /// MobilityFirst daemon listens for programs, by the number of its node.
    fn begins(&self, origin: Instant, socket: &dyn Fn(usize) -> PathBuf) {
        let _ = (origin, socket);
    }

    /// Returns how often the observer gets the counters of the links; `None` for never.
    fn links_every(&self) -> Option<Duration> {
        None
    }

    /// Called with the counters of the emulated links, in the order of the plan, `elapsed` since
    /// the origin.
    fn links(&self, elapsed: Duration, links: &[LinkReport]) {
        let _ = (elapsed, links);
    }

    /// Called when `bytes` of a file of a load have arrived.
    fn progress(&self, load: usize, bytes: u64) {
        let _ = (load, bytes);
    }
}

/// Ignores everything.
impl Observer for () {}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Its metrics.
    pub run: Run,
    /// Counters of the emulated links, in the order of the plan.
    pub links: Vec<LinkReport>,
}

/// One fetch of a load.
pub(super) struct Fetch<'a> {
    pub(super) observer: &'a dyn Observer,
    pub(super) load: usize,
    /// Set when a transfer of a load without end must end.
    pub(super) over: Option<&'a AtomicBool>,
}

impl TransferObserver for Fetch<'_> {
    fn progress(&mut self, _elapsed: Duration, bytes: u64) {
        self.observer.progress(self.load, bytes);
    }

    fn goes_on(&self) -> bool {
        !self.over.is_some_and(|over| over.load(Ordering::Relaxed))
    }
}
