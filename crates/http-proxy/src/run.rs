//! Either side, with its own runtime.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use whimbrel_client::{Attachment, LocalError};
use whimbrel_core::Guid;

use crate::client::ClientOptions;
use crate::host::HostLine;
use crate::plane::{Accepted, PlaneOptions, StreamPlane};
use crate::server::ServerOptions;
use crate::{CHANNEL, client, server};

/// Interval at which the stop flag is checked.
const LOOK: Duration = Duration::from_millis(50);
/// Maximum number of streams of one side.
const MAX_STREAMS: usize = 4096;
/// Maximum number of open files of a side: a socket for each stream, and some.
const MAX_FILES: u64 = MAX_STREAMS as u64 + 256;

/// The error with which a side ends.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The host cannot be used.
    #[error(transparent)]
    Host(#[from] LocalError),
    /// The address for programs cannot be used.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// Another error of the system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Options of both sides.
#[derive(Debug)]
pub struct Common<'a> {
    /// The way to the host.
    pub attachment: Attachment,
    /// A stream ends after this silence of its peer.
    pub patience: Duration,
    /// Random bytes, new at each start.
    pub secret: [u8; 32],
    /// Set to end it.
    pub stop: &'a AtomicBool,
}

/// Runs a client side until it is stopped. `observe` is told the host's name and the address that programs use.
pub fn run_client(
    common: Common<'_>,
    listen: SocketAddr,
    options: ClientOptions,
    observe: impl FnOnce(Guid, SocketAddr),
) -> Result<(), ProxyError> {
    run(common, false, async move |name, plane, _accepted| {
        let listener = TcpListener::bind(listen);
        let listener = listener
            .await
            .map_err(|error| ProxyError::Listen(listen, error))?;
        observe(name, listener.local_addr()?);
        Err(client::serve(listener, plane, options).await.into())
    })
}

/// Runs a server side until it is stopped. `observe` is told the host's name, by which clients find it.
pub fn run_server(
    common: Common<'_>,
    options: ServerOptions,
    observe: impl FnOnce(Guid),
) -> Result<(), ProxyError> {
    run(common, true, async move |name, plane, accepted| {
        observe(name);
        server::serve(accepted, plane, options).await;
        Ok(())
    })
}

/// Raises the limit of open files to what connections and streams need, as far as the system permits; the usual limit
/// is 1,024.
fn open_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(MAX_FILES, |most| most.min(MAX_FILES));
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            ..limit
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::debug!(%error, "the limit of open files stays");
        }
    }
}

fn run(
    common: Common<'_>,
    accepts: bool,
    side: impl AsyncFnOnce(Guid, StreamPlane, Accepted) -> Result<(), ProxyError>,
) -> Result<(), ProxyError> {
    let mut attachment = common.attachment;
    open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(async {
        let mut line = HostLine::attach(&mut attachment)?;
        let stopped = async {
            while !common.stop.load(Ordering::Relaxed) {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::pin!(stopped);
        let name = tokio::select! {
            name = line.name() => name?,
            () = &mut stopped => return Ok(()),
        };
        let options = PlaneOptions {
            channel: CHANNEL,
            accepts,
            max_streams: MAX_STREAMS,
            patience: common.patience,
            secret: common.secret,
        };
        let (plane, accepted, driver) = StreamPlane::new(attachment, line, options);
        let driver = tokio::spawn(driver);
        tokio::select! {
            error = driver => Err(error.map_or(LocalError::Closed, |error| error).into()),
            outcome = side(name, plane, accepted) => outcome,
            () = &mut stopped => Ok(()),
        }
    });
    // Connections that are open do not hold it up.
    runtime.shutdown_background();
    outcome
}
