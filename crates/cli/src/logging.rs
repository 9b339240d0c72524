//! Diagnostics on standard error; results go to standard output.
//!
//! All of it goes through [`whimbrel_node::diagnostics`], which never ends, stops or slows the program.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_subscriber::EnvFilter;
use whimbrel_node::diagnostics;

/// Set by `--quiet`.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Returns true if standard error is for errors only.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Returns true if progress is drawn on standard error: it is a terminal, and `--quiet` is not set.
pub(crate) fn shows_progress() -> bool {
    !is_quiet() && io::stderr().is_terminal()
}

/// Prints a remark on standard error, unless `--quiet`.
pub(crate) fn note(text: &str) {
    if !is_quiet() {
        say(text);
    }
}

/// Prints a text on standard error. Parts of it may come from others, such as a host name in a
/// ticket: a terminal would obey their control characters.
pub(crate) fn say(text: &str) {
    say_plainly(&format!("whimbrel: {}\n", printable(text)));
}

/// Prints a text on standard error as it is, such as a table or a line of JSON.
pub(crate) fn say_plainly(text: &str) {
    diagnostics::stderr().push(text.as_bytes().to_vec());
}

/// Waits until what was printed is written, unless nothing takes it. Call it before the process ends.
pub(crate) fn flush() {
    diagnostics::stderr().flush();
    diagnostics::stdout().flush();
}

/// Returns true if a terminal shows this character, or begins a line or a column.
pub(crate) fn is_printable(character: char) -> bool {
    !character.is_control() || matches!(character, '\n' | '\t')
}

/// Returns the text with its control characters escaped.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_printable)
}

/// Returns the text of one line, such as the path of a file, with its control characters escaped: a
/// script reads a line for each.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, |character| !character.is_control())
}

fn escaped(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(&is_kept) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match is_kept(character) {
            true => shown.push(character),
            false => shown.extend(character.escape_debug()),
        }
    }
    Cow::Owned(shown)
}

/// Returns a path for people, in one line.
pub(crate) fn path_line(path: &Path) -> String {
    one_line(&path.to_string_lossy()).into_owned()
}

/// The verbosity of diagnostics.
#[derive(clap::Args, Debug)]
pub(crate) struct Logging {
    /// Print more diagnostics on standard error; twice for more still
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
    /// Print only errors on standard error
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
}

/// Starts logging. `WHIMBREL_LOG` filters by module ("whimbrel_link=trace"); otherwise the flags
/// do. A daemon logs each change of its state without being asked to.
pub(crate) fn start(logging: &Logging, daemon: bool) {
    QUIET.store(logging.quiet, Ordering::Relaxed);
    let verbose = logging.verbose.saturating_add(daemon.into());
    let level = match (logging.quiet, verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, 2) => "debug",
        (false, _) => "trace",
    };
    let filter = EnvFilter::try_from_env("WHIMBREL_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| LogLine)
        // They would be printed past the queue, with a panic if that fails.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal())
        .init();
}

/// The writer of one line of the log, which arrives in one piece.
struct LogLine;

impl Write for LogLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        diagnostics::stderr().push(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_nothing_else() {
        let plain = "über\n\tnames: \u{540d}\u{524d}";
        assert_eq!(printable(plain), plain);
        let shown = "a\\u{1b}[31mb\\r\\u{9b}c\\u{7f}";
        assert_eq!(printable("a\u{1b}[31mb\r\u{9b}c\u{7f}"), shown);
    }
}
