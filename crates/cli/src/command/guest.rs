//! A program that starts when a daemon is ready, and that the daemon ends with.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::exit::{BY_SIGNAL, Exit, Failure};

/// What a program has to end after SIGTERM, before SIGKILL.
const PATIENCE: Duration = Duration::from_secs(5);

/// The exit codes of a shell for a program that does not exist, and for one that does not start.
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;

/// A running program. It is in this process's group, so a terminal is the program's too, as an
/// interactive one needs.
pub(super) struct Guest {
    name: String,
    child: Child,
    ended: Receiver<()>,
}

impl Guest {
    /// Starts a program; `on_end` is called on another thread when it has ended.
    pub(super) fn start(
        command: &[OsString],
        on_end: impl FnOnce() + Send + 'static,
    ) -> Result<Guest, Failure> {
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| Failure::new(Exit::Usage, "no command after `--`"))?;
        let name = program.display().to_string();
        let child = Command::new(program)
            .args(arguments)
            .spawn()
            .map_err(|error| {
                let code = match error.kind() {
                    ErrorKind::NotFound => NOT_FOUND,
                    _ => NOT_RUNNABLE,
                };
                Failure::new(
                    Exit::OfProgram(code),
                    format!("cannot run `{name}`: {error}"),
                )
            })?;
        let (sender, ended) = mpsc::channel();
        let pid = Pid::from_child(&child);
        std::thread::spawn(move || {
            // It stays a zombie, whose number is not given to another process, until `finish`.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(pid), options) {}
            let _ = sender.send(());
            on_end();
        });
        Ok(Guest { name, child, ended })
    }

    /// Ends it, if it still runs. Returns a failure if it was not successful by itself.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        if self.child.try_wait()?.is_none() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            if self.ended.recv_timeout(PATIENCE).is_err() {
                self.child.kill()?;
            }
            self.child.wait()?;
            return Ok(());
        }
        let status: ExitStatus = self.child.wait()?;
        match status.success() {
            true => Ok(()),
            false => {
                let by_signal = || Some(BY_SIGNAL + status.signal()?);
                let code = status.code().or_else(by_signal);
                let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
                Err(Failure::new(
                    Exit::OfProgram(code),
                    format!("`{}` ended with {status}", self.name),
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the exit code with which a command line ends by itself.
    fn code_of(command: &[&str]) -> u8 {
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        let (sender, ended) = mpsc::channel();
        let ended_with =
            Guest::start(&command, move || sender.send(()).unwrap()).and_then(|guest| {
                ended.recv().unwrap();
                guest.finish()
            });
        ended_with.map_or_else(|failure| failure.exit.code(), |()| 0)
    }

    #[test]
    fn the_program_s_exit_code_is_the_command_s() {
        assert_eq!(code_of(&["true"]), 0);
        assert_eq!(code_of(&["sh", "-c", "exit 7"]), 7);
        assert_eq!(code_of(&["sh", "-c", "kill -9 $$"]), 137);
        assert_eq!(code_of(&["/no/such/program"]), 127);
        assert_eq!(code_of(&["/dev/null"]), 126);
    }
}
