//! Telling why a command waits, where no progress bar does.

use serde_json::{Value, json};
use whimbrel_node::wait::Wait;

use crate::logging::note;

/// What was said last.
#[derive(Default)]
pub(crate) struct ToldWait {
    wait: Option<Wait>,
}

impl ToldWait {
    /// Returns what was said last.
    pub(crate) fn wait(&self) -> Option<&Wait> {
        self.wait.as_ref()
    }

    /// Prints the reason, if it is another than the last: as a line on standard error, or as an event
    /// by `json`. If `drawn`, a progress bar shows it instead of the line.
    pub(crate) fn tell(&mut self, wait: Option<&Wait>, json: Option<&dyn Fn(&Value)>, drawn: bool) {
        let wait = wait.filter(|wait| !wait.begins());
        let is_known = match (&self.wait, wait) {
            (Some(told), Some(wait)) => told.is_same_reason(wait),
            (told, wait) => told.is_none() && wait.is_none(),
        };
        if is_known {
            return;
        }
        self.wait = wait.cloned();
        if let Some(json) = json {
            let text = wait.map(Wait::to_string);
            json(&json!({ "event": "waiting", "wait": wait, "text": text }));
        } else if !drawn {
            match wait {
                Some(wait) => note(&format!("waiting: {wait}")),
                None => note("no longer waiting"),
            }
        }
    }
}
