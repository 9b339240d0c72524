//! Who may call a node: what its configuration says, and what was decided at run time, which is
//! kept in a file beside its key.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use whimbrel_core::Guid;
use whimbrel_link::HopConfig;
use whimbrel_link::hop::{CallerLists, Keeping, Reception};

use crate::config::HopSection;
use crate::kept::KeptFile;
use crate::run::StartError;

/// How often a decision is looked for, to be kept: one of the last moment before a node is killed is
/// lost.
const INTERVAL: Duration = Duration::from_millis(500);

/// Shortest time between two lines about refused callers.
const TELL_INTERVAL: Duration = Duration::from_secs(10);

/// Refused callers that were logged, and when that was.
#[derive(Debug, Default)]
struct Told {
    names: BTreeSet<Guid>,
    at: Option<Instant>,
    /// Whether it was said that names are not listed for want of room.
    full: bool,
}

/// The file of the decisions, and where they are made.
#[derive(Clone, Debug)]
pub(crate) struct CallersFile {
    file: KeptFile<CallerLists>,
    configured: CallerLists,
    reception: Weak<Reception>,
}

impl CallersFile {
    /// Adds what earlier runs of the node with this key have decided, and keeps what is decided until
    /// it ends. Fails if that cannot be read: names that were denied would get in.
    pub(crate) fn apply(
        key: &Path,
        section: &HopSection,
        hop: &HopConfig,
    ) -> Result<CallersFile, StartError> {
        let kept = CallersFile {
            file: KeptFile::beside(key, ".callers.json", "which names may call"),
            configured: section.caller_lists(),
            reception: Arc::downgrade(&hop.reception),
        };
        let decided = kept.file.read().map_err(|source| StartError::Callers {
            path: kept.file.path().to_owned(),
            source,
        })?;
        let lists = joined(&kept.configured, &decided);
        (hop.reception).with_callers(|callers| {
            callers.lists = lists;
            callers.keeping = Keeping::Kept;
        });
        let asked = kept.clone();
        let mut told = Told::default();
        let ask = move || {
            asked.tell_refused(&mut told);
            asked.decided().map(Some).ok_or(())
        };
        let noted = kept.clone();
        let tell = move |state: &_, outcome: Result<(), &_>| noted.note_outcome(state, outcome);
        kept.file.clone().follow(decided, INTERVAL, ask, tell)?;
        Ok(kept)
    }

    /// What was decided beyond the configuration; `None` after the node's end.
    fn decided(&self) -> Option<CallerLists> {
        let reception = self.reception.upgrade()?;
        Some(reception.with_callers(|callers| beyond(&self.configured, &callers.lists)))
    }

    /// Notes whether the file has `state`, unless something else was decided meanwhile.
    fn note_outcome(&self, state: &CallerLists, outcome: Result<(), &io::Error>) {
        let Some(reception) = self.reception.upgrade() else {
            return;
        };
        reception.with_callers(|callers| {
            if beyond(&self.configured, &callers.lists) == *state {
                callers.keeping = match outcome {
                    Ok(()) => Keeping::Kept,
                    Err(error) => Keeping::Failed(error.to_string()),
                };
            }
        });
    }

    /// Logs names that were refused of late and not told before, in one line now and then: whoever
    /// calls under ever new names fills no log.
    fn tell_refused(&self, told: &mut Told) {
        let Some(reception) = self.reception.upgrade() else {
            return;
        };
        if told.at.is_some_and(|at| at.elapsed() < TELL_INTERVAL) {
            return;
        }
        let (refused, unlisted) =
            reception.with_callers(|callers| (callers.refused().to_vec(), callers.unlisted()));
        if unlisted > 0 && !core::mem::replace(&mut told.full, true) {
            tracing::warn!(
                "callers are not listed at their first use any more, because the list or their network's part of it is full; \
                 `peers` shows it, `allow` lists them"
            );
        }
        let mut new = (refused.iter()).filter(|caller| !told.names.contains(&caller.name));
        if let Some(caller) = new.next_back() {
            tracing::warn!(
                name = %caller.name, from = caller.from.map(tracing::field::display),
                others = new.count(),
                "a caller is refused, because its name is denied or not listed; `peers` shows all of them, `allow` lets one in"
            );
            told.at = Some(Instant::now());
        }
        told.names = refused.iter().map(|caller| caller.name).collect();
    }

    /// Keeps what was decided last.
    pub(crate) fn note(&self) {
        if let Some(decided) = self
            .decided()
            .filter(|decided| self.file.read().ok().as_ref() != Some(decided))
        {
            self.file.note(&decided);
        }
    }
}

/// What is in force: what was decided at run time wins over the configuration.
fn joined(configured: &CallerLists, decided: &CallerLists) -> CallerLists {
    let mut lists = configured.clone();
    for name in &decided.allowed {
        lists.decide(*name, true);
    }
    for name in &decided.denied {
        lists.decide(*name, false);
    }
    lists
}

/// What is in force and not in the configuration: a name that is taken out of the configuration is
/// not kept by the file.
fn beyond(configured: &CallerLists, lists: &CallerLists) -> CallerLists {
    CallerLists {
        allowed: &lists.allowed - &configured.allowed,
        denied: &lists.denied - &configured.denied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(allowed: &[u8], denied: &[u8]) -> CallerLists {
        let names = |of: &[u8]| of.iter().map(|byte| Guid([*byte; 32])).collect();
        CallerLists {
            allowed: names(allowed),
            denied: names(denied),
        }
    }

    #[test]
    fn decisions_win_over_the_configuration_and_only_they_are_kept() {
        let configured = lists(&[1, 2], &[3]);
        let in_force = joined(&configured, &lists(&[3, 4], &[1]));
        assert_eq!(in_force, lists(&[2, 3, 4], &[1]));
        let kept = beyond(&configured, &in_force);
        assert_eq!(kept, lists(&[3, 4], &[1]));
        // 2 is taken out of the configuration later.
        assert_eq!(joined(&lists(&[1], &[3]), &kept), lists(&[3, 4], &[1]));
    }
}
