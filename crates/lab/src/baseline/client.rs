//! The receiving end: the real `curl`, or a built-in client where curl is not installed.

use std::io::{self, Read};
use std::net::{SocketAddrV4, TcpStream};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

use super::copy::BLOCK;
use super::server::read_head;
use crate::process::wait_readable;
use crate::{LabError, Namespace, TransferMeter, TransferObserver, TransferRecord};

/// Interval of reports to an observer while nothing arrives.
const IDLE_REPORT: Duration = Duration::from_millis(100);

/// The HTTP client of a fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HttpClient {
    /// `curl` if it is installed, else the built-in one.
    #[default]
    Any,
    /// `curl`, the program that people use.
    Curl,
    /// A few lines around the kernel's socket.
    BuiltIn,
    /// The same over Multipath TCP.
    Multipath,
}

pub(super) struct Fetched {
    pub(super) record: TransferRecord,
    pub(super) blake3: String,
    pub(super) client: String,
}

impl HttpClient {
    /// Fetches a file of `length` bytes.
    pub(super) fn fetch(
        self,
        host: &Namespace,
        server: SocketAddrV4,
        length: u64,
        deadline: Instant,
        observer: &mut dyn TransferObserver,
    ) -> Result<Fetched, LabError> {
        let mut receiver = Receiver::new(length, deadline, observer);
        let client = match self {
            HttpClient::BuiltIn => built_in(host, server, None, &mut receiver)?,
            HttpClient::Multipath => built_in(host, server, Some(Protocol::MPTCP), &mut receiver)?,
            HttpClient::Curl => curl(host, server, &mut receiver)?,
            HttpClient::Any => match curl(host, server, &mut receiver) {
                Err(LabError::MissingProgram { .. }) => {
                    tracing::info!(
                        "curl is not installed; the built-in HTTP client fetches instead"
                    );
                    built_in(host, server, None, &mut receiver)?
                }
                other => other?,
            },
        };
        let completed = receiver.meter.bytes() == length;
        Ok(Fetched {
            record: receiver.meter.finish(Instant::now(), completed),
            blake3: receiver.hasher.finalize().to_hex().to_string(),
            client: client.to_owned(),
        })
    }
}

fn curl(
    host: &Namespace,
    server: SocketAddrV4,
    receiver: &mut Receiver<'_>,
) -> Result<&'static str, LabError> {
    let mut command = Command::new("curl");
    // `-q` and `--noproxy` keep the user's own settings out of the measurement.
    command
        .args([
            "-q",
            "--noproxy",
            "*",
            "--silent",
            "--show-error",
            "--fail",
            "--no-buffer",
        ])
        .args(["--connect-timeout", "86400", "--output", "-"])
        .arg(format!("http://{server}/file"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    receiver.start();
    let mut process = host.spawn(command)?;
    if let Some(mut output) = process.take_stdout() {
        // A pipe holds 64 KiB by default; a user without the right to more keeps that.
        let _ = rustix::pipe::fcntl_setpipe_size(&output, BLOCK);
        receiver
            .receive(&mut output)
            .map_err(LabError::system("read from curl"))?;
    }
    // The record counts; the reason for curl's failure is logged.
    if receiver.short() && process.try_wait()?.is_some() {
        let mut said = String::new();
        if let Some(errors) = process.take_stderr() {
            let _ = errors.take(4096).read_to_string(&mut said);
        }
        tracing::warn!("curl ended early: {}", said.trim());
    }
    Ok("curl")
}

fn built_in(
    host: &Namespace,
    server: SocketAddrV4,
    protocol: Option<Protocol>,
    receiver: &mut Receiver<'_>,
) -> Result<&'static str, LabError> {
    receiver.start();
    let patience = receiver
        .deadline
        .saturating_duration_since(Instant::now())
        .max(Duration::from_millis(1));
    let connect = || -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, protocol)?;
        socket.connect_timeout(&server.into(), patience)?;
        Ok(socket.into())
    };
    let connected = host.enter(connect)?;
    // Any effect of the network on the transfer is a result, which the record holds.
    if let Err(error) = connected.and_then(|stream| get(stream, server, patience, receiver)) {
        tracing::warn!(%error, "the transfer broke");
    }
    Ok("built-in")
}

fn get(
    mut stream: TcpStream,
    server: SocketAddrV4,
    patience: Duration,
    receiver: &mut Receiver<'_>,
) -> io::Result<()> {
    use std::io::Write;
    stream.set_read_timeout(Some(patience))?;
    write!(
        stream,
        "GET /file HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n"
    )?;
    let head = read_head(&stream)?;
    if !head.starts_with(b"HTTP/1.1 200 ") {
        let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        return Err(io::Error::other(format!(
            "the server answered '{}'",
            String::from_utf8_lossy(line)
        )));
    }
    receiver.receive(&mut stream)
}

/// Receives, measures and hashes the bytes.
struct Receiver<'a> {
    meter: TransferMeter,
    hasher: blake3::Hasher,
    length: u64,
    deadline: Instant,
    observer: &'a mut dyn TransferObserver,
}

impl<'a> Receiver<'a> {
    fn new(length: u64, deadline: Instant, observer: &'a mut dyn TransferObserver) -> Receiver<'a> {
        let meter = TransferMeter::new(Instant::now());
        Receiver {
            meter,
            hasher: blake3::Hasher::new(),
            length,
            deadline,
            observer,
        }
    }

    /// Notes the request, which is made now.
    fn start(&mut self) {
        let now = Instant::now();
        self.meter = TransferMeter::new(now);
        self.observer.started(now);
    }

    fn short(&self) -> bool {
        self.meter.bytes() < self.length
    }

    /// Reads until the end of the stream, or until the deadline.
    fn receive(&mut self, stream: &mut (impl Read + AsFd)) -> io::Result<()> {
        let mut buffer = vec![0; BLOCK];
        while Instant::now() < self.deadline && self.observer.goes_on() {
            let wake = self.deadline.min(Instant::now() + IDLE_REPORT);
            if wait_readable(stream, wake)? {
                let count = match stream.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error),
                };
                self.hasher.update(&buffer[..count]);
                self.meter.arrived(Instant::now(), count as u64);
            }
            let elapsed = self.meter.elapsed(Instant::now());
            self.observer.progress(elapsed, self.meter.bytes());
        }
        Ok(())
    }
}
