//! Programs that a lab or a bench starts, follows and ends: the one place where a child process
//! gets its log and where its lines are read.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::{LabError, Namespace, Process};

/// Time limit of a program's start. A file of gigabytes is hashed in that time, and a
/// busy machine is slow.
pub const START_PATIENCE: Duration = Duration::from_secs(60);

/// Returns true if a shell would find a program.
pub fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&paths);
    match program.contains('/') {
        true => Path::new(program).exists(),
        false => places.any(|place| place.join(program).exists()),
    }
}

/// Starts programs on one host, with their logs in one folder.
#[derive(Clone, Copy, Debug)]
pub struct Supervisor<'a> {
    folder: &'a Path,
    host: Option<&'a Namespace>,
}

/// A running program. Dropping it kills its process group and waits for it.
#[derive(Debug)]
pub struct Program {
    name: String,
    process: Process,
    /// `None` where standard output goes to the log.
    lines: Option<Receiver<Line>>,
    log: PathBuf,
}

/// A line of a program's standard output.
#[derive(Clone, Debug)]
pub struct Line {
    /// The time at which it was read.
    pub at: Instant,
    /// The text, without its line end.
    pub text: String,
}

impl<'a> Supervisor<'a> {
    /// Returns a supervisor of programs on this machine itself. Logs are files in `folder`.
    pub fn new(folder: &'a Path) -> Supervisor<'a> {
        Supervisor { folder, host: None }
    }

    /// Returns a supervisor of programs in a host of the lab.
    pub fn on(self, host: &'a Namespace) -> Supervisor<'a> {
        Supervisor {
            host: Some(host),
            ..self
        }
    }

    /// Starts a program whose whole output is appended to `NAME.log`.
    pub fn daemon(&self, name: &str, mut command: Command) -> Result<Program, LabError> {
        let (log, file) = self.log(name)?;
        let errors = file.try_clone().map_err(opening(&log))?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        Ok(Program {
            name: name.to_owned(),
            process: self.spawn(command)?,
            lines: None,
            log,
        })
    }

    /// Starts a program whose standard output is read line by line; its standard error is appended
    /// to `NAME.log`.
    pub fn speaker(&self, name: &str, mut command: Command) -> Result<Program, LabError> {
        let (log, file) = self.log(name)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(file);
        let mut process = self.spawn(command)?;
        let lines = process.take_stdout().map(read_lines).transpose()?;
        Ok(Program {
            name: name.to_owned(),
            process,
            lines,
            log,
        })
    }

    fn spawn(&self, command: Command) -> Result<Process, LabError> {
        match self.host {
            Some(host) => host.spawn(command),
            None => Process::start(command),
        }
    }

    /// Opens the log. Appending keeps the output of a program that was killed and started again.
    fn log(&self, name: &str) -> Result<(PathBuf, File), LabError> {
        let file_name: String = name
            .chars()
            .map(|char| if char.is_whitespace() { '-' } else { char })
            .collect();
        let path = self.folder.join(format!("{file_name}.log"));
        let mut options = std::fs::OpenOptions::new();
        let file = options.create(true).append(true).open(&path);
        Ok((path.clone(), file.map_err(opening(&path))?))
    }
}

impl Program {
    /// Returns its name, which is also its log's.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the process, for signals and waits.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Returns the process number as this process sees it.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the next line within `patience`, or `None` if there was none. Fails if the program
    /// has closed its output.
    pub fn line(&self, patience: Duration) -> Result<Option<Line>, LabError> {
        let ended = || self.fault("ended early");
        let lines = self.lines.as_ref().ok_or_else(ended)?;
        match lines.recv_timeout(patience) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(ended()),
        }
    }

    /// Iterates over the lines until the program closes its output, or until `deadline`.
    pub fn lines_until(&self, deadline: Instant) -> impl Iterator<Item = Line> + '_ {
        std::iter::from_fn(move || {
            let left = deadline.saturating_duration_since(Instant::now());
            self.lines.as_ref()?.recv_timeout(left).ok()
        })
    }

    /// Returns `find`'s value of the first line that has one, within `patience`; `wanted` describes
    /// that line in the error.
    pub fn find_line<T>(
        &self,
        patience: Duration,
        wanted: &str,
        mut find: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, LabError> {
        let deadline = Instant::now() + patience;
        while let Some(line) = self.line(deadline.saturating_duration_since(Instant::now()))? {
            if let Some(found) = find(&line.text) {
                return Ok(found);
            }
        }
        let seconds = patience.as_secs();
        Err(self.fault(&format!("did not say {wanted} within {seconds} s")))
    }

    /// Returns the first line that holds `word`, within `patience`.
    pub fn await_word(&self, word: &str, patience: Duration) -> Result<String, LabError> {
        self.find_line(patience, &format!("\"{word}\""), |line| {
            line.contains(word).then(|| line.to_owned())
        })
    }

    /// Returns the first line that holds `word`, within [`START_PATIENCE`].
    pub fn ready(&self, word: &str) -> Result<String, LabError> {
        self.await_word(word, START_PATIENCE)
    }

    /// Returns an error that names the program and quotes the end of its log.
    pub fn fault(&self, what: &str) -> LabError {
        LabError::Program {
            name: self.name.clone(),
            what: what.to_owned(),
            said: last_words(&self.log),
        }
    }
}

fn opening(log: &Path) -> impl FnOnce(std::io::Error) -> LabError + use<> {
    LabError::system(format!("open the log {}", log.display()))
}

/// Reads on until the program ends, so that it never waits for its reader, whatever happens to the
/// lines.
fn read_lines(output: ChildStdout) -> Result<Receiver<Line>, LabError> {
    let (sender, lines) = channel();
    let read = move || {
        for text in BufReader::new(output).lines().map_while(Result::ok) {
            let at = Instant::now();
            // The receiver is gone once the program's handle is dropped.
            let _ = sender.send(Line { at, text });
        }
    };
    std::thread::Builder::new()
        .name("program's lines".to_owned())
        .spawn(read)
        .map_err(LabError::system("start a thread"))?;
    Ok(lines)
}

/// Returns the end of a log.
pub fn last_words(log: &Path) -> String {
    const MAX_BYTES: usize = 600;
    let text = std::fs::read(log).unwrap_or_default();
    let start = text.len().saturating_sub(MAX_BYTES);
    String::from_utf8_lossy(&text[start..]).trim().to_owned()
}
