//! A program in the process of its host. Requests and events pass as values: nothing is encoded, and
//! no chunk is copied.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use whimbrel_client::{HostWay, LocalError, RequestWay, WRITE_PATIENCE};
use whimbrel_io::{IoError, LoopHandle};
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest};

use crate::{NameStore, Node};

/// Bound of the bytes of events that wait for the program; its host keeps further ones, as it does
/// while a socket is full. The host goes on when half of it is free.
const MAX_WAITING: usize = 4 << 20;
/// Bytes counted for an event without a chunk.
const EVENT_BYTES: usize = 256;
/// Pause between two attempts to pass a request to a busy host.
const TRY_AGAIN: Duration = Duration::from_millis(1);

/// Events on their way from a host's thread to its program.
#[derive(Debug, Default)]
pub(crate) struct Events {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<LocalEvent>,
    bytes: usize,
    // True if the host was told to keep further events.
    is_full: bool,
    // True if the host has ended.
    is_closed: bool,
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event. Returns false if the host must keep further ones until the program has taken
    /// some.
    pub(crate) fn push(&self, event: LocalEvent) -> bool {
        let mut waiting = self.lock();
        waiting.bytes += size_of(&event);
        waiting.events.push_back(event);
        waiting.is_full = waiting.bytes >= MAX_WAITING;
        let takes_more = !waiting.is_full;
        drop(waiting);
        self.arrived.notify_one();
        takes_more
    }

    /// Notes that the host has ended; its earlier events can still be taken.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.arrived.notify_one();
    }

    /// Returns the next event, and whether the host may go on with events that it had to keep.
    fn pop(&self, patience: Duration) -> Result<Option<(LocalEvent, bool)>, LocalError> {
        let until = Instant::now() + patience;
        let mut waiting = self.lock();
        loop {
            if let Some(event) = waiting.events.pop_front() {
                waiting.bytes -= size_of(&event);
                let is_open_again = waiting.is_full && waiting.bytes <= MAX_WAITING / 2;
                waiting.is_full &= !is_open_again;
                return Ok(Some((event, is_open_again)));
            }
            if waiting.is_closed {
                return Err(LocalError::Closed);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let woken = self.arrived.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn size_of(event: &LocalEvent) -> usize {
    EVENT_BYTES
        + match event {
            LocalEvent::Chunk(chunk) => chunk.data.len() + chunk.proof.len(),
            LocalEvent::Message { payload, .. } => payload.len(),
            LocalEvent::Status { json, .. } => json.len(),
            _ => 0,
        }
}

/// The program's end.
#[derive(Debug)]
pub(crate) struct InnerClient {
    requests: InnerRequests,
    events: Arc<Events>,
}

/// The way of requests to a host in this process.
#[derive(Clone)]
struct InnerRequests {
    host: LoopHandle<Node<NameStore>>,
    /// The program's number at its host.
    app: u32,
    /// Starts the host.
    begin: mpsc::Sender<()>,
}

impl InnerClient {
    /// Returns a client of the host on this loop, which pushes the events of program `app` to
    /// `events`. `begin` is told once a request waits for the host.
    pub(crate) fn new(
        host: LoopHandle<Node<NameStore>>,
        app: u32,
        events: Arc<Events>,
        begin: mpsc::Sender<()>,
    ) -> InnerClient {
        InnerClient {
            requests: InnerRequests { host, app, begin },
            events,
        }
    }
}

impl RequestWay for InnerRequests {
    /// Passes requests to the host. Waits while the host is too busy.
    fn send_all(&mut self, requests: Vec<LocalRequest>) -> Result<(), LocalError> {
        let (app, until) = (self.app, Instant::now() + WRITE_PATIENCE);
        loop {
            let requests = requests.clone();
            let posted = self.host.post(move |node, now| {
                if let Some(host) = node.host() {
                    for request in requests {
                        host.request(now, app, request);
                    }
                }
            });
            match posted {
                Ok(()) => {
                    // A running host no longer listens for it.
                    let _ = self.begin.send(());
                    return Ok(());
                }
                Err(IoError::LoopBusy { .. }) if Instant::now() < until => {
                    std::thread::sleep(TRY_AGAIN);
                }
                Err(IoError::LoopEnded) => return Err(LocalError::Closed),
                Err(error) => return Err(LocalError::Io(std::io::Error::other(error))),
            }
        }
    }
}

impl RequestWay for InnerClient {
    fn send_all(&mut self, requests: Vec<LocalRequest>) -> Result<(), LocalError> {
        self.requests.send_all(requests)
    }
}

impl HostWay for InnerClient {
    fn second(&self) -> Option<Box<dyn RequestWay>> {
        Some(Box::new(self.requests.clone()))
    }

    fn receive(&mut self, patience: Duration) -> Result<Option<LocalEvent>, LocalError> {
        let Some((event, is_open_again)) = self.events.pop(patience)? else {
            return Ok(None);
        };
        if is_open_again {
            let app = self.requests.app;
            // A host that has ended has no more events.
            let _ = self.requests.host.post(move |node, _| {
                if let Some(host) = node.host() {
                    host.set_blocked(app, false);
                }
            });
        }
        Ok(Some(event))
    }
}

impl Drop for InnerClient {
    fn drop(&mut self) {
        let app = self.requests.app;
        // A host that has ended has forgotten it already.
        let _ = self.requests.host.post(move |node, _| {
            if let Some(host) = node.host() {
                host.leave(app);
            }
        });
    }
}

impl fmt::Debug for InnerRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InnerRequests").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(bytes: usize) -> LocalEvent {
        LocalEvent::Message {
            channel: 0,
            from: whimbrel_core::Guid([0; 32]),
            payload: vec![0; bytes].into(),
        }
    }

    #[test]
    fn a_host_is_told_when_to_keep_events_and_when_to_give_them_on() {
        let events = Events::default();
        let mut pushed = 1;
        while events.push(event(1 << 20)) {
            pushed += 1;
        }
        assert_eq!(pushed, 4);
        let patience = Duration::from_secs(10);
        let told: Vec<bool> = (0..pushed)
            .map(|_| events.pop(patience).unwrap().unwrap().1)
            .collect();
        assert_eq!(told.iter().filter(|told| **told).count(), 1);
        assert!(!told[0] && !told[3]);
        assert_eq!(events.pop(Duration::ZERO).unwrap(), None);
    }

    #[test]
    fn what_a_host_said_before_it_ended_can_be_had() {
        let events = Events::default();
        events.push(event(5));
        events.close();
        let patience = Duration::from_secs(10);
        assert_eq!(events.pop(patience).unwrap(), Some((event(5), false)));
        assert!(matches!(events.pop(patience), Err(LocalError::Closed)));
    }

    #[test]
    fn who_waits_is_woken_by_an_event_and_by_the_end() {
        let events = Arc::new(Events::default());
        let reader = {
            let events = events.clone();
            std::thread::spawn(move || {
                let patience = Duration::from_secs(100);
                let first = events.pop(patience).unwrap();
                (first, events.pop(patience).is_err())
            })
        };
        events.push(event(5));
        events.close();
        assert_eq!(reader.join().unwrap(), (Some((event(5), false)), true));
    }
}
