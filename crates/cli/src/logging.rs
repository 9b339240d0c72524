//! Diagnostics on standard error; results go to standard output.

use std::sync::atomic::{AtomicBool, Ordering};

use tracing_subscriber::EnvFilter;

/// Set by `--quiet`.
static QUIET: AtomicBool = AtomicBool::new(false);

/// True if nothing but errors is wanted on standard error.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// True if progress is to be drawn on standard error: it is a terminal, and nobody asked for quiet.
pub(crate) fn shows_progress() -> bool {
    !is_quiet() && std::io::IsTerminal::is_terminal(&std::io::stderr())
}

/// A remark on standard error, unless `--quiet`.
pub(crate) fn note(text: &str) {
    if !is_quiet() {
        eprintln!("whimbrel: {text}");
    }
}

/// How much to say.
#[derive(clap::Args, Debug)]
pub(crate) struct Logging {
    /// Say more on standard error; twice for more still
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
    /// Say nothing on standard error but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
}

/// `WHIMBREL_LOG` chooses by module ("whimbrel_link=trace"); otherwise the flags do.
pub(crate) fn start(logging: &Logging) {
    QUIET.store(logging.quiet, Ordering::Relaxed);
    let level = match (logging.quiet, logging.verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, 2) => "debug",
        (false, _) => "trace",
    };
    let filter = EnvFilter::try_from_env("WHIMBREL_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let colour = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .init();
}
