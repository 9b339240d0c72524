//! What a command returns, what it prints, and the flag that stops it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use whimbrel_client::LocalError;
use whimbrel_node::{diagnostics, exact_json};

use crate::exit::{self, Exit, Failure};
use crate::logging;

/// The result of a command.
pub(crate) type Outcome = Result<Exit, Failure>;

/// Returns a flag that the first Ctrl-C or SIGTERM sets; the second one ends the process.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    exit::note_signals()?;
    let flag = Arc::new(AtomicBool::new(false));
    for signal in exit::STOPPING {
        signal_hook::flag::register_conditional_shutdown(
            signal,
            exit::BY_SIGNAL + signal,
            Arc::clone(&flag),
        )?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// Prints one line of JSON on standard output.
pub(crate) fn json_line(value: &impl serde::Serialize) {
    if let Some(line) = json_text(value) {
        out(&line);
    }
}

/// Returns a line of JSON for programs.
pub(crate) fn json_text(value: &impl serde::Serialize) -> Option<String> {
    exact_json::line(value).ok().map(|text| text + "\n")
}

/// Prints one line of JSON about the work of a server, as [`tell`].
pub(crate) fn tell_json(value: &impl serde::Serialize) {
    if let Some(line) = json_text(value) {
        tell(&line);
    }
}

/// Prints text about the work of a server on standard output. The server continues if nobody takes
/// it; the lines that are lost are counted in its `/metrics`.
pub(crate) fn tell(text: &str) {
    diagnostics::stdout().push(text.as_bytes().to_vec());
}

/// Prints a result on standard output. Without it a command is useless: it ends, with a message
/// unless the reader has closed standard output, as `head` does.
pub(crate) fn out(text: &str) {
    if let Err(error) = diagnostics::write_result(text.as_bytes()) {
        let failure = Failure::unwritten_result(&error);
        failure.tell();
        logging::flush();
        std::process::exit(failure.exit.code().into());
    }
}

/// Why a daemon tells nothing of itself.
pub(crate) enum Silence {
    Cannot(LocalError),
    /// It takes too long.
    Mute,
}

impl From<LocalError> for Silence {
    fn from(error: LocalError) -> Silence {
        Silence::Cannot(error)
    }
}
