//! A connection to the host (`docs/protocols/local.md`): requests out, events in.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use whimbrel_client::frames::{EventFrames, RequestFrames};
use whimbrel_client::{Attachment, LocalClient, LocalError, RequestWay, connect_socket};
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest};

/// Requests and events that wait on their way.
const WAITING: usize = 256;
/// Bytes of requests that are written at once.
const BATCH: usize = 1 << 20;
/// Interval at which the end of a connection to a host in this process is noticed while no event comes.
const LOOK: Duration = Duration::from_secs(1);

/// Both ends of a connection.
#[derive(Debug)]
pub struct HostLine {
    /// Requests to the host.
    pub requests: mpsc::Sender<LocalRequest>,
    /// Its events. The last one is an error.
    pub events: mpsc::Receiver<Result<LocalEvent, LocalError>>,
}

impl HostLine {
    /// Attaches to a host. Call it in a runtime.
    pub fn attach(attachment: &mut Attachment) -> Result<HostLine, LocalError> {
        let (requests, wanted) = mpsc::channel(WAITING);
        let (sender, events) = mpsc::channel(WAITING);
        match attachment {
            Attachment::Socket(path) => {
                let stream = connect_socket(path)?;
                stream.set_nonblocking(true).map_err(LocalError::Io)?;
                let stream = UnixStream::from_std(stream).map_err(LocalError::Io)?;
                tokio::spawn(carry(stream, wanted, sender));
            }
            Attachment::Once(client) => {
                let client = client.take().ok_or(LocalError::Closed)?;
                let mut way = client.second().ok_or(LocalError::Closed)?;
                std::thread::Builder::new()
                    .name("requests".into())
                    .spawn(move || carry_requests(&mut *way, wanted))
                    .map_err(LocalError::Io)?;
                std::thread::Builder::new()
                    .name("events".into())
                    .spawn(move || carry_events(client, &sender))
                    .map_err(LocalError::Io)?;
            }
        }
        Ok(HostLine { requests, events })
    }

    /// Asks the host for its name, before anything else.
    pub async fn name(&mut self) -> Result<Guid, LocalError> {
        let question = LocalRequest::Status { request: 0 };
        let sent = self.requests.send(question).await;
        sent.map_err(|_| LocalError::Closed)?;
        loop {
            let event = self
                .events
                .recv()
                .await
                .unwrap_or(Err(LocalError::Closed))?;
            if let LocalEvent::Status { json, .. } = event {
                let report: HostNameReport = serde_json::from_str(&json)
                    .map_err(|fault| LocalError::Protocol(fault.to_string()))?;
                return Ok(report.guid);
            }
        }
    }
}

/// What of a host's report is read here.
#[derive(serde::Deserialize)]
struct HostNameReport {
    guid: Guid,
}

/// Carries frames until either side ends.
async fn carry(
    stream: UnixStream,
    wanted: mpsc::Receiver<LocalRequest>,
    events: mpsc::Sender<Result<LocalEvent, LocalError>>,
) {
    let (from_host, to_host) = stream.into_split();
    let writer = tokio::spawn(write(to_host, wanted));
    let error = read(from_host, &events).await;
    writer.abort();
    let _ = events.send(Err(error)).await;
}

async fn read(
    mut stream: tokio::net::unix::OwnedReadHalf,
    events: &mpsc::Sender<Result<LocalEvent, LocalError>>,
) -> LocalError {
    let mut frames = EventFrames::default();
    loop {
        match frames.next_event() {
            Ok(Some(event)) => {
                if events.send(Ok(event)).await.is_err() {
                    return LocalError::Closed;
                }
            }
            Ok(None) => match stream.read(frames.room()).await {
                Ok(0) => return LocalError::Closed,
                Ok(count) => frames.note_filled(count),
                Err(error) => return LocalError::Io(error),
            },
            Err(error) => return error,
        }
    }
}

async fn write(
    mut stream: tokio::net::unix::OwnedWriteHalf,
    mut wanted: mpsc::Receiver<LocalRequest>,
) {
    let mut frames = RequestFrames::default();
    loop {
        while let Some([head, tail]) = frames.next_bytes() {
            let part = if head.is_empty() { tail } else { head };
            match stream.write(part).await {
                Ok(count) if count > 0 => frames.note_written(count),
                _ => return,
            }
        }
        let Some(request) = wanted.recv().await else {
            return;
        };
        frames.push(&request);
        while frames.waiting_bytes() < BATCH
            && let Ok(request) = wanted.try_recv()
        {
            frames.push(&request);
        }
    }
}

/// Carries requests to a host in this process, until either side ends.
fn carry_requests(way: &mut dyn RequestWay, mut wanted: mpsc::Receiver<LocalRequest>) {
    while let Some(request) = wanted.blocking_recv() {
        let mut requests = vec![request];
        while requests.len() < WAITING
            && let Ok(request) = wanted.try_recv()
        {
            requests.push(request);
        }
        if way.send_all(requests).is_err() {
            return;
        }
    }
}

/// Carries events of a host in this process, until either side ends.
fn carry_events(mut client: LocalClient, events: &mpsc::Sender<Result<LocalEvent, LocalError>>) {
    while !events.is_closed() {
        match client.receive(LOOK) {
            Ok(None) => {}
            Ok(Some(event)) => {
                if events.blocking_send(Ok(event)).is_err() {
                    return;
                }
            }
            Err(error) => {
                let _ = events.blocking_send(Err(error));
                return;
            }
        }
    }
}
