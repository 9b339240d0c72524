//! Exit codes: part of the interface, so that scripts can tell why a command failed.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use whimbrel_client::place::FolderError;
use whimbrel_client::{LocalError, ProgramError};
use whimbrel_io::IoError;
use whimbrel_mobilityfirst::local::FailReason;
use whimbrel_node::config::ConfigError;
use whimbrel_node::fetch::FetchError;
use whimbrel_node::inbox::InboxError;
use whimbrel_node::keys::KeyError;
use whimbrel_node::output::OutputError;
use whimbrel_node::run::StartError;

/// Signals that stop a command.
pub(crate) const STOPPING: [i32; 2] = [SIGINT, SIGTERM];
/// The offset that a shell adds to the number of the signal that ended a program.
pub(crate) const BY_SIGNAL: i32 = 128;
/// The last signal received.
static CAME: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Records stop signals from now on. Call it before waiting for one, because a recorded signal no
/// longer ends the process by itself.
pub(crate) fn note_signals() -> io::Result<()> {
    let came = CAME.get_or_init(Arc::default);
    for signal in STOPPING {
        signal_hook::flag::register_usize(signal, Arc::clone(came), signal as usize)?;
    }
    Ok(())
}

/// Help text of every command that exits with one of them.
pub(crate) const HELP: &str = "Exit codes:\n  \
    0    done\n  \
    1    any other failure\n  \
    2    wrong arguments or configuration\n  \
    3    the name was not announced by the end of --timeout\n  \
    4    announced, but not served\n  \
    5    no host or router daemon listens on the socket\n  \
    6    the disk is full, or the output cannot be written\n  \
    7    no new data within --timeout\n  \
    8    an address, socket, key or folder is in use by another program\n  \
    9    done, except for entries of a folder that were refused\n  \
    10   the code is wrong or used up, or no sender has its number\n  \
    11   the receiver refused it\n  \
    12   parts are missing and will not be sent again (--reliability dont-care)\n  \
    130  interrupted (143: by SIGTERM)";

/// Help text of `whimbrel ndn`'s commands. 0 to 4 are those of `ndnpeek`.
pub(crate) const NDN_HELP: &str = "Exit codes:\n  \
    0    done\n  \
    1    any other failure\n  \
    2    wrong arguments\n  \
    3    no answer, or none in time\n  \
    4    a Nack, or a refusal\n  \
    5    no forwarder responds\n  \
    6    the output cannot be written\n  \
    7    the signature of the Data does not verify\n  \
    130  interrupted (143: by SIGTERM)";

/// Help text of `face`, `route`, `strategy`, `cs` and `status`. 0 to 7 are those of `nfdc`.
pub(crate) const MANAGEMENT_HELP: &str = "Exit codes:\n  \
    0    done\n  \
    1    any other failure\n  \
    2    wrong arguments\n  \
    3    the face does not exist\n  \
    4    a host name in a FaceUri cannot be resolved\n  \
    5    several faces match\n  \
    6    the route does not exist\n  \
    7    the strategy does not exist\n  \
    8    no forwarder responds";

/// Why the process ends. Several reasons share a number because some commands have numbers of their
/// own that users know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// Success.
    Done,
    /// A failure without a code of its own.
    Other,
    /// Wrong arguments or configuration. clap uses the same.
    Usage,
    /// The name service has no record of the name.
    NoSuchName,
    /// Announced, but not served.
    NotServed,
    /// No daemon responds.
    NoDaemon,
    /// The disk is full, or the output cannot be written.
    Write,
    /// The `--timeout` has passed.
    TimedOut,
    /// The address or socket is in use.
    InUse,
    /// Done, but for entries of a folder.
    Incomplete,
    /// `bench`: something could not be measured.
    NotMeasured,
    /// A spoken code is wrong, or used up.
    WrongCode,
    /// The receiver has refused what was pushed.
    Refused,
    /// Parts are missing, and are not sent again.
    PartsMissing,
    /// `bench --strict`: a target was missed.
    Missed,
    /// Ctrl-C or SIGTERM, as a shell reports them.
    Interrupted,
    /// `ndn`: no answer.
    NoAnswer,
    /// `ndn`: a Nack.
    Nack,
    /// `ndn`: a signature is not accepted.
    NotVerified,
    /// Management: the face does not exist.
    NoFace,
    /// Management: a FaceUri has no canonical form.
    NotCanonical,
    /// Management: several faces match.
    Ambiguous,
    /// Management: the route does not exist.
    NoRoute,
    /// Management: the strategy does not exist.
    NoStrategy,
    /// Management: no forwarder responds.
    NoForwarder,
    /// `-- PROGRAM`: the program ended so, with the number that a shell gives it.
    OfProgram(u8),
}

impl Exit {
    /// Returns the number that the process ends with.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Other => 1,
            Exit::Usage => 2,
            Exit::NoSuchName | Exit::NoAnswer | Exit::NoFace => 3,
            Exit::NotServed | Exit::Nack | Exit::NotCanonical => 4,
            Exit::NoDaemon | Exit::Ambiguous => 5,
            Exit::Write | Exit::NoRoute => 6,
            Exit::TimedOut | Exit::NotVerified | Exit::NoStrategy => 7,
            Exit::InUse | Exit::NoForwarder => 8,
            Exit::Incomplete | Exit::NotMeasured => 9,
            Exit::Missed | Exit::WrongCode => 10,
            Exit::Refused => 11,
            Exit::PartsMissing => 12,
            Exit::OfProgram(code) => code,
            Exit::Interrupted => {
                let came = CAME.get().map_or(0, |came| came.load(Ordering::Relaxed));
                if came == SIGTERM as usize { 143 } else { 130 }
            }
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// A message and its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Display) -> Failure {
        Failure {
            exit,
            message: message.to_string(),
        }
    }

    /// Standard output cannot be written. A reader that has closed it needs no message.
    pub(crate) fn unwritten_result(error: &io::Error) -> Failure {
        let message = match error.kind() {
            io::ErrorKind::BrokenPipe => String::new(),
            _ => format!("cannot write to standard output: {error}"),
        };
        Failure::new(Exit::Write, message)
    }

    /// Returns true if the reason is plain without words.
    pub(crate) fn is_silent(&self) -> bool {
        self.message.is_empty()
    }

    pub(crate) fn tell(&self) {
        if !self.is_silent() {
            crate::logging::say(&self.message);
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::new(Exit::Other, error)
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Failure {
        let exit = match error {
            KeyError::Read { .. }
            | KeyError::Format { .. }
            | KeyError::Exists(_)
            | KeyError::Foreign(_) => Exit::Usage,
            KeyError::Write { .. } => Exit::Write,
            KeyError::InUse(_) => Exit::InUse,
            KeyError::Random(_) => Exit::Other,
        };
        Failure::new(exit, error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::new(Exit::Usage, error)
    }
}

impl From<IoError> for Failure {
    fn from(error: IoError) -> Failure {
        let exit = match error {
            IoError::AddressInUse { .. }
            | IoError::CarrierInUse { .. }
            | IoError::SocketPathInUse { .. } => Exit::InUse,
            IoError::AddressNotHere { .. }
            | IoError::AddressNotPermitted { .. }
            | IoError::EthernetNotPermitted { .. }
            | IoError::IpNotPermitted { .. }
            | IoError::DuplicateNeighbour { .. }
            | IoError::FamilyMismatch { .. }
            | IoError::SocketPathTaken { .. }
            | IoError::SocketPathNotPermitted { .. } => Exit::Usage,
            IoError::NobodyListens { .. } => Exit::NoDaemon,
            _ => Exit::Other,
        };
        Failure::new(exit, error)
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Failure {
        match error {
            StartError::NothingToDo | StartError::NoRouter | StartError::NameServer(_) => {
                Failure::new(Exit::Usage, error)
            }
            StartError::Key(error) => error.into(),
            StartError::Socket(error) => error.into(),
            StartError::NameStore {
                source: whimbrel_gnrs::StoreError::InUse,
                ..
            } => Failure::new(Exit::InUse, error),
            StartError::Folder(FolderError::Foreign(_)) => Failure::new(Exit::Usage, error),
            StartError::Folder(FolderError::Make { .. }) => Failure::new(Exit::Write, error),
            StartError::Metrics { ref source, .. } => {
                let exit = match source.kind() {
                    std::io::ErrorKind::AddrInUse => Exit::InUse,
                    std::io::ErrorKind::AddrNotAvailable | std::io::ErrorKind::PermissionDenied => {
                        Exit::Usage
                    }
                    _ => Exit::Other,
                };
                Failure::new(exit, error)
            }
            StartError::NameStore { .. }
            | StartError::ChunkStore(_)
            | StartError::Callers { .. }
            | StartError::KnownPeers { .. }
            | StartError::System { .. } => Failure::new(Exit::Other, error),
        }
    }
}

impl From<LocalError> for Failure {
    fn from(error: LocalError) -> Failure {
        let exit = match error {
            LocalError::Nobody(_)
            | LocalError::NotPermitted(_)
            | LocalError::Foreign(_)
            | LocalError::Closed => Exit::NoDaemon,
            LocalError::Protocol(_) | LocalError::Version(_) | LocalError::Io(_) => Exit::Other,
        };
        Failure::new(exit, error)
    }
}

impl From<ProgramError> for Failure {
    fn from(error: ProgramError) -> Failure {
        match error {
            ProgramError::Host(error) => error.into(),
            error => Failure::new(Exit::Other, error),
        }
    }
}

impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Failure {
        if let FetchError::Stream { path: None, source } = &error {
            return Failure::unwritten_result(source);
        }
        let exit = match &error {
            FetchError::Failed { reason, .. } | FetchError::FilesMissing { reason, .. } => {
                match reason {
                    FailReason::NoSuchName | FailReason::NoNameService => Exit::NoSuchName,
                    FailReason::NotServed => Exit::NotServed,
                    _ => Exit::Other,
                }
            }
            FetchError::BadFolder(_)
            | FetchError::BadBundle
            | FetchError::TooLong { .. }
            | FetchError::FolderTooLarge { .. }
            | FetchError::Unbelievable { .. } => Exit::Other,
            FetchError::NotUpdated { .. } => Exit::Write,
            FetchError::FolderToStream => Exit::Usage,
            FetchError::InUse(_) => Exit::InUse,
            FetchError::InTheWay(_) | FetchError::Disk { .. } | FetchError::Stream { .. } => {
                Exit::Write
            }
            FetchError::Host(_) => Exit::NoDaemon,
            FetchError::TimedOut(_) => Exit::TimedOut,
            FetchError::Incomplete(_)
            | FetchError::FilesIncomplete { .. }
            | FetchError::NotSentAgain => Exit::PartsMissing,
            FetchError::PartsTaken(_) | FetchError::PartRemoved(_) => Exit::Write,
            FetchError::Output(error) => output_exit(error),
            FetchError::Interrupted => Exit::Interrupted,
        };
        Failure::new(exit, error)
    }
}

impl From<InboxError> for Failure {
    fn from(error: InboxError) -> Failure {
        let exit = match &error {
            InboxError::Host(_) => Exit::NoDaemon,
            InboxError::InUse(_) => Exit::InUse,
            InboxError::Folder { .. } => Exit::Write,
        };
        Failure::new(exit, error)
    }
}

impl From<OutputError> for Failure {
    fn from(error: OutputError) -> Failure {
        Failure::new(output_exit(&error), error)
    }
}

fn output_exit(error: &OutputError) -> Exit {
    match error {
        OutputError::Interrupted => Exit::Interrupted,
        _ => Exit::Write,
    }
}
