//! A program running in a host of the lab, or on this machine itself.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::error::spawn_error;
use crate::{LabError, Namespace};

/// A program. Dropping it kills its process group and waits for it; the host that it runs in lives
/// until then.
#[derive(Debug)]
pub struct Process {
    program: String,
    child: Child,
    status: Option<ExitStatus>,
    /// `None` for this machine itself.
    namespace: Option<Namespace>,
}

impl Process {
    pub(crate) fn new(program: String, child: Child, namespace: Option<Namespace>) -> Process {
        Process {
            program,
            child,
            status: None,
            namespace,
        }
    }

    /// Starts a program on this machine itself, in a process group of its own, as
    /// [`Namespace::spawn`] does in a host.
    pub fn start(mut command: Command) -> Result<Process, LabError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.process_group(0).spawn();
        let child = child.map_err(|error| spawn_error(&program, error))?;
        Ok(Process::new(program, child, None))
    }

    /// Returns the process number as this process sees it; in a host the program itself sees
    /// another one.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the program's standard input, if it was started with a pipe there; once.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Returns the program's standard output, if it was started with a pipe there; once.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Returns the program's standard error, if it was started with a pipe there; once.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Returns its exit status, or `None` while it runs.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, LabError> {
        if self.status.is_none() {
            self.status = self.child.try_wait().map_err(self.failed("look after"))?;
        }
        Ok(self.status)
    }

    /// Waits until it ends.
    pub fn wait(&mut self) -> Result<ExitStatus, LabError> {
        match self.status {
            Some(status) => Ok(status),
            None => {
                let status = self.child.wait().map_err(self.failed("wait for"))?;
                self.status = Some(status);
                Ok(status)
            }
        }
    }

    /// Waits until it ends, for at most `patience`; `None` if it still runs.
    pub fn wait_for(&mut self, patience: Duration) -> Result<Option<ExitStatus>, LabError> {
        if self.try_wait()?.is_none() {
            let handle = pidfd_open(self.pid(), PidfdFlags::empty())
                .map_err(|error| self.failed("watch")(error.into()))?;
            wait_readable(&handle, Instant::now() + patience).map_err(self.failed("wait for"))?;
        }
        self.try_wait()
    }

    /// Sends a signal to its whole process group. Does nothing once it has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<(), LabError> {
        if self.try_wait()?.is_some() {
            return Ok(());
        }
        // The process is not reaped yet, so its number, which is also its group's, cannot be
        // another's.
        kill_process_group(self.pid(), signal).map_err(|error| self.failed("signal")(error.into()))
    }

    /// Kills it with SIGKILL, and waits for it.
    pub fn kill(&mut self) -> Result<ExitStatus, LabError> {
        self.signal(Signal::KILL)?;
        self.wait()
    }

    /// Asks it to end (SIGTERM), and kills it if it has not ended within `patience`.
    pub fn terminate(&mut self, patience: Duration) -> Result<ExitStatus, LabError> {
        self.signal(Signal::TERM)?;
        match self.wait_for(patience)? {
            Some(status) => Ok(status),
            None => self.kill(),
        }
    }

    /// Writes `input` (no more than a pipe holds), then collects all output until the program ends.
    pub(crate) fn finish_with_input(
        mut self,
        input: &[u8],
    ) -> io::Result<(ExitStatus, String, String)> {
        if let Some(mut stdin) = self.take_stdin() {
            // A program that does not read its input has closed the pipe; its status shows whether
            // that was right.
            match stdin.write_all(input) {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
                _ => {}
            }
        }
        let (stdout, stderr) = (self.take_stdout(), self.take_stderr());
        let stderr = std::thread::scope(|scope| {
            let errors = scope.spawn(|| read_all(stderr));
            let output = read_all(stdout);
            let errors = errors
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the reader panicked")));
            Ok::<_, io::Error>((output?, errors?))
        })?;
        let status = self.child.wait()?;
        self.status = Some(status);
        Ok((status, stderr.0, stderr.1))
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn failed(&self, action: &str) -> impl FnOnce(io::Error) -> LabError + use<> {
        LabError::system(match &self.namespace {
            Some(host) => format!("{action} '{}' in host '{}'", self.program, host.name()),
            None => format!("{action} '{}'", self.program),
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            tracing::warn!(program = self.program, %error, "cannot end a program of the lab");
        }
    }
}

fn read_all(stream: Option<impl Read>) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        stream.read_to_end(&mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Memory of the process `pid` by its field in /proc/PID/status (proc_pid_status(5)), such as
/// `VmRSS:`, in bytes.
pub fn memory_of(pid: u32, field: &str) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kibibytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    // A zombie has no memory.
    let ended = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it has no field {field}"),
        )
    };
    kibibytes.map(|kibibytes| kibibytes << 10).ok_or_else(ended)
}

/// Fields utime, stime, cutime and cstime after the command's name in /proc/PID/stat
/// (proc_pid_stat(5)).
const OWN: [usize; 2] = [11, 12];
const CHILDREN: [usize; 2] = [13, 14];

/// Processor time of the process `pid` so far, all its threads together.
pub fn cpu_of_process(pid: u32) -> io::Result<Duration> {
    cpu_of(&pid.to_string(), OWN)
}

/// Processor time of all children of this process that were waited for.
pub fn cpu_of_ended_children() -> io::Result<Duration> {
    cpu_of("self", CHILDREN)
}

/// Returns a time that the kernel tells in ticks.
pub fn from_ticks(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn cpu_of(process: &str, fields: [usize; 2]) -> io::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let unknown = || io::Error::new(io::ErrorKind::InvalidData, "its account has other fields");
    ticks(&stat, fields).map(from_ticks).ok_or_else(unknown)
}

fn ticks(stat: &str, fields: [usize; 2]) -> Option<u64> {
    // The command's name is in parentheses and may contain any characters, parentheses too.
    let numbers: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    fields
        .iter()
        .map(|field| numbers.get(*field)?.parse::<u64>().ok())
        .sum()
}

/// Resident memory of the process `pid`, in bytes.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64, LabError> {
    let action = format!("read the memory of process {pid}");
    memory_of(pid, "VmRSS:").map_err(LabError::system(action))
}

/// Waits until `file` is readable (or has ended), or until `deadline`. Returns false if the
/// deadline came first.
pub(crate) fn wait_readable(file: &impl AsFd, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or(Timespec {
            tv_sec: i64::MAX,
            tv_nsec: 0,
        });
        match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_moves_no_field() {
        let stat = "7 (a) (b) c) S 1 7 7 0 -1 4194560 10 20 0 0 30 40 50 60 20 0 1 0 99 0 0";
        assert_eq!(ticks(stat, OWN), Some(70));
        assert_eq!(ticks(stat, CHILDREN), Some(110));
        assert_eq!(ticks("7 (a) S 1", OWN), None);
        assert!(cpu_of_process(std::process::id()).is_ok() && cpu_of_ended_children().is_ok());
    }
}
