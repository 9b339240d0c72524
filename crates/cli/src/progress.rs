//! Progress of runs that take more than a second.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use whimbrel_node::diagnostics;

use crate::logging::{note, shows_progress};

/// Where there is no terminal, a line comes at most so often.
const LINE_INTERVAL: Duration = Duration::from_secs(30);

/// The terminal's size where the system does not know it.
const SIZE: [u16; 2] = [80, 24];

/// Returns a bar without a length that is drawn at most `hz` times a second, or never.
pub(crate) fn bar(is_shown: bool, hz: u8) -> ProgressBar {
    ProgressBar::with_draw_target(None, draw_target(is_shown, hz))
}

/// Returns a sign that something goes on, with a prefix and a message.
pub(crate) fn spinner(quiet: bool) -> ProgressBar {
    let spinner = bar(!quiet, 4);
    let style = ProgressStyle::with_template("{spinner} {elapsed} {prefix}: {wide_msg}");
    spinner.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    spinner.enable_steady_tick(Duration::from_millis(250));
    spinner
}

/// Returns what bars are drawn on: standard error if it is a terminal, unless `--quiet`.
pub(crate) fn draw_target(is_shown: bool, hz: u8) -> ProgressDrawTarget {
    match is_shown && shows_progress() {
        true => ProgressDrawTarget::term_like_with_hz(Box::<Screen>::default(), hz),
        false => ProgressDrawTarget::hidden(),
    }
}

/// The terminal on standard error, drawn through the queue of diagnostics: one that is stopped
/// (Ctrl-S) must not stop what the bar is about.
#[derive(Debug, Default)]
struct Screen(Mutex<Vec<u8>>);

impl Screen {
    fn frame(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self, text: &str) -> io::Result<()> {
        self.frame().extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// Returns columns and rows.
    fn size() -> [u16; 2] {
        let size = rustix::termios::tcgetwinsize(io::stderr());
        let size = size.map_or(SIZE, |size| [size.ws_col, size.ws_row]);
        if size.contains(&0) { SIZE } else { size }
    }

    fn move_cursor(&self, by: usize, direction: char) -> io::Result<()> {
        match by {
            0 => Ok(()),
            by => self.draw(&format!("\x1b[{by}{direction}")),
        }
    }
}

impl TermLike for Screen {
    fn width(&self) -> u16 {
        Screen::size()[0]
    }

    fn height(&self) -> u16 {
        Screen::size()[1]
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'D')
    }

    fn write_line(&self, line: &str) -> io::Result<()> {
        self.draw(line)?;
        self.draw("\n")
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.draw(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.draw("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        diagnostics::stderr().push_frame(core::mem::take(&mut *self.frame()));
        Ok(())
    }
}

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
        let bar = bar(is_drawn, 4);
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
