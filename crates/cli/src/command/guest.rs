//! A program that starts when a daemon is ready, and that the daemon ends with.

use std::ffi::OsString;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::exit::{Exit, Failure};

/// What a program has to end after SIGTERM, before SIGKILL.
const PATIENCE: Duration = Duration::from_secs(5);

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
            .map_err(|error| Failure::new(Exit::Other, format!("cannot run `{name}`: {error}")))?;
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
            false => Err(Failure::new(
                Exit::Other,
                format!("`{}` ended with {status}", self.name),
            )),
        }
    }
}
