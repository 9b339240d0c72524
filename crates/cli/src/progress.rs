//! Progress of runs that take more than a second.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::logging::{note, shows_progress};

/// Where there is no terminal, a line comes at most so often.
const LINE_INTERVAL: Duration = Duration::from_secs(30);

/// A bar on a terminal, otherwise a line on standard error now and then.
pub(crate) struct Progress {
    bar: ProgressBar,
    title: String,
    // When the next line is due; `None` if none is wanted.
    line_at: Option<Instant>,
}

impl Progress {
    /// Of a run called `title`; nothing is shown if `quiet`.
    pub(crate) fn new(title: &str, quiet: bool) -> Progress {
        let is_drawn = !quiet && shows_progress();
        let target = match is_drawn {
            true => ProgressDrawTarget::stderr_with_hz(4),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let template = "{prefix} [{bar:30}] {pos} of {len}, {elapsed}, {eta} left: {wide_msg}";
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(title.to_owned());
        // The time shows that something goes on, however long one run takes.
        bar.enable_steady_tick(Duration::from_secs(1));
        Progress {
            bar,
            title: title.to_owned(),
            line_at: (!quiet && !is_drawn).then(|| Instant::now() + LINE_INTERVAL),
        }
    }

    /// So many parts of `all` are done, if it is known how many there are; `what` is done next.
    pub(crate) fn set(&mut self, done: u64, all: Option<u64>, what: &str) {
        if let Some(all) = all {
            self.bar.set_length(all);
        }
        self.bar.set_position(done);
        if !what.is_empty() {
            self.bar.set_message(what.to_owned());
        }
        let now = Instant::now();
        if self.line_at.is_some_and(|at| now >= at) {
            self.line_at = Some(now + LINE_INTERVAL);
            let of = all.map_or(String::new(), |all| format!(" of {all}"));
            note(&format!("{}: {done}{of} done", self.title));
        }
    }

    /// Removes the bar.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
