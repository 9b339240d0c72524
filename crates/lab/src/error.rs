//! Errors of building and using a lab.

use std::io;
use std::path::Path;
use std::process::ExitStatus;

use crate::study::Backend;

/// An error of the lab. Its text gives advice where there is any.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// This process may create neither network namespaces nor a user namespace to create them in.
    #[error("this process may not create network namespaces ({source}); {advice}")]
    NotPermitted {
        /// The kernel's answer.
        source: io::Error,
        /// Advice.
        advice: String,
    },
    /// A user namespace can only be entered while the process has one thread.
    #[error(
        "the lab needs a user namespace, which a process can only enter while it has one thread, \
         but it has {threads}: call ensure_privileges before any thread is started, or run as root"
    )]
    AlreadyThreaded {
        /// Threads of the process now.
        threads: usize,
    },
    /// Results could replace files of somebody else.
    #[error(
        "{} has files, and not the results of an earlier run: name an empty or a new folder by -o",
        folder.display()
    )]
    NotResults {
        /// The folder.
        folder: std::path::PathBuf,
    },
    /// An interrupted batch had another program, scenario, seed or number of runs.
    #[error(
        "{} is of another program, scenario, seed or number of runs: run without --resume to begin anew",
        journal.display()
    )]
    OtherTerms {
        /// The file with its finished runs.
        journal: std::path::PathBuf,
    },
    /// The TUN device that an emulated link is made of is missing or closed to this user.
    #[error("emulated links need /dev/net/tun ({source}); {advice}")]
    NoTun {
        /// The kernel's answer.
        source: io::Error,
        /// Advice.
        advice: &'static str,
    },
    /// A program that the lab calls is not installed.
    #[error("the program '{program}' is not installed; it comes with the package '{package}'")]
    MissingProgram {
        /// The command.
        program: String,
        /// The Debian package that has it; the program's own name where it is not one that the lab
        /// knows.
        package: String,
    },
    /// A program that the lab called failed.
    #[error("'{command}' failed in host '{host}' ({status}): {stderr}")]
    CommandFailed {
        /// The command line.
        command: String,
        /// The namespace that it ran in.
        host: String,
        /// Its exit status.
        status: ExitStatus,
        /// Its standard error.
        stderr: String,
    },
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    System {
        /// The failed action.
        action: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The topology has no such host.
    #[error("the topology has no host '{0}'")]
    UnknownHost(String),
    /// The topology has no such link, or the link does not touch the host asked about.
    #[error("the topology has no link '{0}'{1}")]
    UnknownLink(String, String),
    /// The topology contradicts itself.
    #[error("the topology cannot be built: {0}")]
    BadTopology(String),
    /// One of Whimbrel's own programs failed.
    #[error("'{name}' {what}; logs are in {logs}")]
    Daemon {
        /// The program and its host.
        name: String,
        /// Its failure.
        what: String,
        /// The folder of its log.
        logs: String,
    },
    /// A program failed.
    #[error("the program '{name}' {what}; it said: {said}")]
    Program {
        /// Its name, which is also its log's.
        name: String,
        /// Its failure.
        what: String,
        /// The end of its log.
        said: String,
    },
    /// The simulated network reported that a transfer is impossible.
    #[error("the simulated transfer failed: {0}")]
    Simulated(String),
    /// A scenario with faults.
    #[error("{0}")]
    Scenario(#[from] crate::scenario::Faults),
    /// A scenario asks for a feature that the back end lacks.
    #[error("the back end '{backend}' does not {what} yet")]
    NotPlayed {
        /// The back end.
        backend: &'static str,
        /// The missing feature.
        what: String,
    },
    /// A study's files lack something that the study's code needs.
    #[error("study {study}: {reason}")]
    BadScenario {
        /// The study.
        study: String,
        /// The file, the place, and the cause.
        reason: String,
    },
    /// A study that has no code for a back end.
    #[error(
        "the study {study} does not run on the back end '{backend}'; `--backend {other}` runs it"
    )]
    NotOnBackend {
        /// The study.
        study: &'static str,
        /// The back end.
        backend: &'static str,
        /// One that runs it.
        other: &'static str,
    },
    /// A transfer of a study ended without its file.
    #[error("{transfer}: {reason}")]
    TransferFailed {
        /// The transfer.
        transfer: String,
        /// The cause.
        reason: String,
    },
    /// A study's result cannot be read back.
    #[error("{path} is not a study result of this version ({reason}); run the study again")]
    BadResult {
        /// The file.
        path: String,
        /// The cause.
        reason: String,
    },
    /// A picture could not be drawn or written.
    #[error("cannot write the picture {path}: {reason}")]
    Figure {
        /// The file.
        path: String,
        /// The drawing library's error.
        reason: String,
    },
    /// The thread that emulates the links has ended.
    #[error("the link emulator has stopped: {0}")]
    EmulatorStopped(String),
}

impl LabError {
    pub(crate) fn daemon(name: &str, what: &str, logs: &Path) -> LabError {
        LabError::Daemon {
            name: name.to_owned(),
            what: what.to_owned(),
            logs: logs.display().to_string(),
        }
    }

    pub(crate) fn not_played(backend: Backend, what: String) -> LabError {
        LabError::NotPlayed {
            backend: backend.name(),
            what,
        }
    }

    pub(crate) fn figure(path: &str, reason: &str) -> LabError {
        LabError::Figure {
            path: path.to_owned(),
            reason: reason.to_owned(),
        }
    }

    /// A thread that attacks has panicked.
    pub(crate) fn attacker() -> LabError {
        LabError::system("attack")(io::Error::other("its thread has panicked"))
    }

    pub(crate) fn system(action: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
        let action = action.into();
        move |source| LabError::System { action, source }
    }
}

/// Returns the error of a program that could not be started; distinguishes a missing program.
pub(crate) fn spawn_error(program: &str, source: io::Error) -> LabError {
    if source.kind() != io::ErrorKind::NotFound {
        return LabError::System {
            action: format!("start '{program}'"),
            source,
        };
    }
    let package = match program {
        "ip" | "tc" => "iproute2",
        "cat" => "coreutils",
        "node" => "nodejs",
        "uftp" | "uftpd" => "uftp",
        "udp-sender" | "udp-receiver" => "udpcast",
        crate::scenario::netns::rivals::NORM => {
            "libnorm-dev, for which `scripts/setup --multicast` builds it"
        }
        other => other,
    };
    LabError::MissingProgram {
        program: program.to_owned(),
        package: package.to_owned(),
    }
}
