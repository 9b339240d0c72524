//! One host of the lab: an unnamed network namespace together with a process namespace.
//!
//! Nothing of a namespace has a name in the file system. The network namespace lives as long as
//! this process holds its descriptor; the processes in it live as long as the process namespace's
//! first process, which reads a pipe whose other end only this process holds. So however this
//! process ends, also by `kill -9`, the kernel removes processes, interfaces and routes.
//!
//! `/proc/sys/net` and `/proc/thread-self/net` show the namespace of the thread that opens them, so
//! the lab needs no mounts. `/sys/class/net` shows that of whoever mounted it: programs in the lab
//! see the machine's own interfaces there, and should ask netlink (as `ip` does) instead.

use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::error::spawn_error;
use crate::privileges::advice;
use crate::{LabError, PingReport, Process};

/// A host: its own interfaces, routes, sockets, sysctls and processes. Clones are the same host.
#[derive(Clone, Debug)]
pub struct Namespace {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: String,
    network: OwnedFd,
    // Where processes are started: a thread that has both namespaces and lives as long as they do.
    starter: Mutex<Option<Sender<StartRequest>>>,
    starter_thread: Option<JoinHandle<()>>,
    first_process: Mutex<Child>,
}

struct StartRequest {
    command: Command,
    answer: Sender<io::Result<Child>>,
}

impl Namespace {
    /// Creates a host with its loopback interface up. `name` is for messages and thread names.
    ///
    /// IPv6 is off, so that no router solicitation draws from the randomness of an emulated link;
    /// reverse-path filtering is off, so that packets may return another way; TCP forgets what it
    /// learnt from earlier connections, so that runs do not influence each other.
    pub fn new(name: &str) -> Result<Namespace, LabError> {
        let (requests, inbox) = channel();
        let (ready, created) = channel();
        let starter_thread = std::thread::Builder::new()
            .name(format!("host-{name}"))
            .spawn(move || serve_starts(&ready, &inbox))
            .map_err(LabError::system("start a thread"))?;
        let (network, first_process) = created.recv().map_err(|_| LabError::System {
            action: "create a network namespace".to_owned(),
            source: io::Error::other("the thread that does so ended"),
        })??;
        let namespace = Namespace {
            inner: Arc::new(Inner {
                name: name.to_owned(),
                network,
                starter: Mutex::new(Some(requests)),
                starter_thread: Some(starter_thread),
                first_process: Mutex::new(first_process),
            }),
        };
        namespace.run("ip", &["link", "set", "lo", "up"])?;
        namespace.prepare_sysctls()?;
        Ok(namespace)
    }

    fn prepare_sysctls(&self) -> Result<(), LabError> {
        for scope in ["all", "default"] {
            self.set_sysctl(&format!("net.ipv4.conf.{scope}.rp_filter"), "0")?;
            // A kernel without IPv6 has no such setting, and nothing to switch off.
            if self
                .sysctl(&format!("net.ipv6.conf.{scope}.disable_ipv6"))
                .is_ok()
            {
                self.set_sysctl(&format!("net.ipv6.conf.{scope}.disable_ipv6"), "1")?;
            }
        }
        self.set_sysctl("net.ipv4.tcp_no_metrics_save", "1")
    }

    /// Returns the name given at construction.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns a path under which another program (such as `ip link ... netns PATH`) can find the
    /// network namespace while this process lives.
    pub fn path(&self) -> String {
        format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.inner.network.as_raw_fd()
        )
    }

    /// Starts a program in the host, in a process group of its own: a Ctrl-C at the terminal
    /// reaches the lab, not the program. It and all its descendants end with the host, whatever
    /// they do.
    pub fn spawn(&self, mut command: Command) -> Result<Process, LabError> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.process_group(0);
        let (answer, answered) = channel();
        let starter = self
            .inner
            .starter
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let gone = || LabError::System {
            action: format!("start '{program}' in host '{}'", self.inner.name),
            source: io::Error::other("the host has been shut down"),
        };
        starter
            .as_ref()
            .ok_or_else(gone)?
            .send(StartRequest { command, answer })
            .map_err(|_| gone())?;
        let child = answered
            .recv()
            .map_err(|_| gone())?
            .map_err(|error| spawn_error(&program, error))?;
        Ok(Process::new(program, child, Some(self.clone())))
    }

    /// Runs a program to its end and returns its standard output; anything but success is an error
    /// with what it wrote to its standard error.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String, LabError> {
        self.run_with_input(program, arguments, "")
    }

    /// As [`Namespace::run`], with `input` as its standard input (at most a pipe's 64 KiB).
    pub fn run_with_input(
        &self,
        program: &str,
        arguments: &[&str],
        input: &str,
    ) -> Result<String, LabError> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let process = self.spawn(command)?;
        let (status, stdout, stderr) = process
            .finish_with_input(input.as_bytes())
            .map_err(LabError::system(format!("talk to '{program}'")))?;
        if !status.success() {
            return Err(LabError::CommandFailed {
                command: format!("{program} {}", arguments.join(" ")),
                host: self.inner.name.clone(),
                status,
                stderr: format!("{} {}", stderr.trim(), input.trim())
                    .trim()
                    .to_owned(),
            });
        }
        Ok(stdout)
    }

    /// Runs `work` on a thread inside the host and returns its result: sockets and TUN devices that
    /// it opens belong to the host wherever they are used later.
    pub fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> Result<R, LabError> {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| move_into(self.inner.network.as_fd()).map(|()| work()));
            match inside.join() {
                Ok(result) => result.map_err(LabError::system(format!(
                    "enter host '{}'",
                    self.inner.name
                ))),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Starts a thread that stays inside the host. The network namespace lives at least as long as
    /// it.
    pub fn spawn_thread<R: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<JoinHandle<R>, LabError> {
        // A thread begins in the namespace of the thread that starts it.
        self.enter(|| {
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(work)
        })?
        .map_err(LabError::system("start a thread"))
    }

    /// Reads a kernel setting of this host by its dotted name, such as `net.ipv4.tcp_rmem`.
    pub fn sysctl(&self, name: &str) -> Result<String, LabError> {
        let path = sysctl_path(name);
        self.enter(|| std::fs::read_to_string(path))?
            .map(|text| text.trim().to_owned())
            .map_err(LabError::system(format!(
                "read the setting {name} in host '{}'",
                self.inner.name
            )))
    }

    /// Changes a kernel setting of this host (not of the machine).
    pub fn set_sysctl(&self, name: &str, value: &str) -> Result<(), LabError> {
        let path = sysctl_path(name);
        self.enter(|| {
            let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
            file.write_all(value.as_bytes())
        })?
        .map_err(LabError::system(format!(
            "set {name} to '{value}' in host '{}'",
            self.inner.name
        )))
    }

    /// Sends `count` ICMP echo requests from this host, each `interval` after the one before, and
    /// waits for each answer for at most `patience`.
    pub fn ping(
        &self,
        target: Ipv4Addr,
        count: u16,
        interval: Duration,
        patience: Duration,
    ) -> Result<PingReport, LabError> {
        self.enter(|| crate::probe::ping(target, count, interval, patience))?
            .map_err(LabError::system(format!(
                "ping {target} from host '{}'",
                self.inner.name
            )))
    }

    /// Kills every process in the host at once. No further one can be started.
    pub fn shut_down(&self) {
        self.inner.shut_down();
    }
}

impl Inner {
    fn shut_down(&self) {
        drop(
            self.starter
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        // The first process ends when it reads the end of this pipe, and the kernel kills all
        // others with it.
        drop(
            self.first_process
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .stdin
                .take(),
        );
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shut_down();
        if let Some(thread) = self.starter_thread.take() {
            let _ = thread.join();
        }
        // Returns once every process of the host has been reaped. Each `Process` keeps its host
        // alive until it has reaped its own, so this never waits for one that nobody will reap.
        let first = self
            .first_process
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = first.wait() {
            tracing::warn!(host = self.name, %error, "cannot wait for the host's processes to end");
        }
    }
}

/// Moves the calling thread, and no other, into a network namespace.
fn move_into(network: BorrowedFd<'_>) -> io::Result<()> {
    Ok(move_into_link_name_space(
        network,
        Some(LinkNameSpaceType::Network),
    )?)
}

fn sysctl_path(name: &str) -> String {
    format!("/proc/sys/{}", name.replace('.', "/"))
}

/// Body of the thread that owns the two namespaces: creates them, then starts processes in them.
fn serve_starts(
    ready: &Sender<Result<(OwnedFd, Child), LabError>>,
    inbox: &Receiver<StartRequest>,
) {
    let created = create();
    let usable = created.is_ok();
    let _ = ready.send(created);
    while usable && let Ok(mut request) = inbox.recv() {
        let _ = request.answer.send(request.command.spawn());
    }
}

fn create() -> Result<(OwnedFd, Child), LabError> {
    // SAFETY: without UnshareFlags::FILES the thread keeps the descriptor table that it shares with
    // all others.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET | UnshareFlags::NEWPID) }.map_err(|error| {
        let source = io::Error::from(error);
        LabError::NotPermitted {
            advice: advice(&source),
            source,
        }
    })?;
    let network = std::fs::File::open("/proc/thread-self/ns/net")
        .map_err(LabError::system("open the new network namespace"))?;
    // Whatever is started first becomes the first process of the namespace; `cat` lives until its
    // input ends.
    let first = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| spawn_error("cat", error))?;
    Ok((network.into(), first))
}
