//! A client of a name server that measures: it keeps requests under way, or sends them at a rate, and notes
//! when what was answered.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};

use whimbrel_core::{
    Deadline, Guid, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Time, Transmit,
};
use whimbrel_gnrs::Record;
use whimbrel_gnrs::wire::{Code, Frame, Message, PADDED_LOOKUP};
use whimbrel_io::{Clock, EventLoop, IoError, LoopHandle, UdpConfig};

use crate::LabError;

/// Time after which a request is sent again: a server with more to do than it can is only late.
const RETRY: Duration = Duration::from_secs(2);
/// Transmissions of a request: then it counts as unanswered.
const TRIES: u32 = 5;
/// Interval of deadlines.
const TICK: Duration = Duration::from_millis(1);
/// Lease of a watch, s.
const LEASE: u32 = 300;
/// Length of a lookup without padding: header, name, index, checksum.
const LOOKUP: usize = 20 + 32 + 2 + 4;

/// The requests of a client.
pub(super) enum Work {
    LookUp(Vec<Guid>),
    Update(Vec<Record>),
    /// Then waits for pushes.
    Watch(Vec<Guid>),
}

impl Work {
    fn len(&self) -> usize {
        match self {
            Work::LookUp(names) | Work::Watch(names) => names.len(),
            Work::Update(records) => records.len(),
        }
    }

    fn message(&self, number: usize) -> Option<Message<'_>> {
        Some(match self {
            Work::LookUp(names) => Message::Lookup {
                guid: names[number],
                first: 0,
                padding: 0,
            },
            Work::Update(records) => Message::Insert {
                record: Record::parse(records[number].as_bytes()).ok()?,
            },
            Work::Watch(names) => Message::Watch {
                guid: names[number],
                lease_secs: LEASE,
            },
        })
    }
}

/// An answered request.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnsweredRequest {
    /// Its number among all.
    pub(super) number: usize,
    pub(super) sent: Time,
    pub(super) at: Time,
    pub(super) code: Code,
    /// The version of an answer to a lookup; 0 without one.
    pub(super) version: u64,
}

/// What a client has measured.
#[derive(Debug, Default)]
pub(super) struct Noted {
    pub(super) answered: Vec<AnsweredRequest>,
    pub(super) unanswered: usize,
    /// Versions that were pushed, as they came.
    pub(super) pushed: Vec<(u64, Time)>,
}

impl Noted {
    /// Seconds from the first request to the last answer.
    pub(super) fn seconds(&self) -> f64 {
        let first = self.answered.iter().map(|it| it.sent).min();
        let last = self.answered.iter().map(|it| it.at).max();
        match (first, last) {
            (Some(first), Some(last)) => last.since(first).as_secs_f64(),
            _ => f64::NAN,
        }
    }

    pub(super) fn done(&self) -> usize {
        let done = self.answered.iter().filter(|it| it.code == Code::Ok);
        done.count()
    }

    /// Milliseconds of every answer, sorted.
    pub(super) fn latencies(&self) -> Vec<f32> {
        let each = self.answered.iter();
        let each = each.map(|it| it.at.since(it.sent).as_secs_f32() * 1e3);
        let mut all: Vec<f32> = each.collect();
        all.sort_by(f32::total_cmp);
        all
    }
}

struct PendingRequest {
    number: usize,
    sent: Time,
    tries: u32,
}

/// Everything is done, or all names are watched.
pub(super) struct Done;

/// The client.
pub(super) struct LoadClient {
    work: Work,
    window: usize,
    /// Requests a second; without it, limited by the window only.
    rate: Option<f64>,
    port: Option<PortId>,
    cookie: u64,
    asked_cookie: Option<Time>,
    begun: Option<Time>,
    next: usize,
    id: u64,
    /// In the order of transmission.
    pending: BTreeMap<u64, PendingRequest>,
    /// Ids of transmissions that were repeated: their answers count too.
    late: BTreeMap<u64, usize>,
    /// By number: true once it is answered.
    is_answered: Vec<bool>,
    first_sent: Vec<Time>,
    again: VecDeque<PendingRequest>,
    acknowledgements: VecDeque<Vec<u8>>,
    is_done: bool,
    is_told: bool,
    now: Time,
    noted: Noted,
}

impl LoadClient {
    pub(super) fn new(work: Work, window: usize, rate: Option<f64>) -> LoadClient {
        let count = work.len();
        LoadClient {
            is_done: count == 0,
            work,
            window,
            rate,
            port: None,
            cookie: 0,
            asked_cookie: None,
            begun: None,
            next: 0,
            id: 1,
            pending: BTreeMap::new(),
            late: BTreeMap::new(),
            is_answered: vec![false; count],
            first_sent: vec![Time::ZERO; count],
            again: VecDeque::new(),
            acknowledgements: VecDeque::new(),
            is_told: false,
            now: Time::ZERO,
            noted: Noted::default(),
        }
    }

    /// Returns the next request, unless it has to wait.
    fn take(&mut self, now: Time) -> Option<PendingRequest> {
        if self.pending.len() >= self.window {
            return None;
        }
        while let Some(again) = self.again.pop_front() {
            if !self.is_answered[again.number] {
                return Some(again);
            }
        }
        let begun = *self.begun.get_or_insert(now);
        let due = self.rate.map_or(usize::MAX, |rate| {
            (now.since(begun).as_secs_f64() * rate) as usize + 1
        });
        if self.next >= self.work.len().min(due) {
            return None;
        }
        self.first_sent[self.next] = now;
        self.next += 1;
        Some(PendingRequest {
            number: self.next - 1,
            sent: now,
            tries: 0,
        })
    }

    fn take_frame(&mut self, now: Time, bytes: &[u8]) {
        let Ok(frame) = Frame::decode(bytes) else {
            return;
        };
        self.cookie = frame.cookie;
        if let Message::Push { guid, records } = frame.message {
            for record in records.iter() {
                self.noted.pushed.push((record.version(), now));
            }
            let mut bytes = Vec::new();
            Frame::request(frame.id, self.cookie, Message::PushAck { guid }).encode(&mut bytes);
            self.acknowledgements.push_back(bytes);
            return;
        }
        let pending = self.pending.remove(&frame.id);
        let number = match &pending {
            Some(pending) => Some(pending.number),
            None => self.late.remove(&frame.id),
        };
        let Some(number) = number else {
            return;
        };
        if frame.code == Code::NeedCookie {
            self.again.extend(pending);
            return;
        }
        if std::mem::replace(&mut self.is_answered[number], true) {
            return;
        }
        let version = match frame.message {
            Message::LookupAnswer { page, .. } => page.records.iter().next().map(|it| it.version()),
            _ => None,
        };
        self.noted.answered.push(AnsweredRequest {
            number,
            sent: self.first_sent[number],
            at: now,
            code: frame.code,
            version: version.unwrap_or(0),
        });
        self.look_whether_done();
    }

    fn look_whether_done(&mut self) {
        self.is_done =
            self.next == self.work.len() && self.pending.is_empty() && self.again.is_empty();
    }

    /// Returns what has been measured, and leaves nothing.
    fn take_noted(&mut self) -> Noted {
        let unanswered = self.is_answered.iter().filter(|it| !**it).count();
        Noted {
            unanswered,
            ..std::mem::take(&mut self.noted)
        }
    }

    /// Returns a question that is answered with a cookie, until there is one.
    fn question(&mut self, now: Time, buffer: &mut Vec<u8>) -> Option<usize> {
        if self.asked_cookie.is_some_and(|at| now < at + RETRY) {
            return None;
        }
        self.asked_cookie = Some(now);
        let before = buffer.len();
        let message = Message::Lookup {
            guid: Guid([7; 32]),
            first: 0,
            padding: PADDED_LOOKUP - LOOKUP,
        };
        Frame::request(0, 0, message).encode(buffer);
        Some(buffer.len() - before)
    }
}

impl Machine for LoadClient {
    type Event = Done;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        self.now = now;
        if let PortEvent::Up(_) = event {
            self.port = Some(port);
        }
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, _: PortId, frames: &[&[u8]]) {
        self.now = now;
        frames.iter().for_each(|frame| self.take_frame(now, frame));
    }

    fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        while let Some(oldest) = self.pending.first_entry() {
            if now < oldest.get().sent + RETRY {
                break;
            }
            let (id, silent) = oldest.remove_entry();
            self.late.insert(id, silent.number);
            if silent.tries < TRIES {
                self.again.push_back(silent);
            }
        }
        self.look_whether_done();
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let port = self.port?;
        let transmit = |size, segment_size| Transmit {
            port,
            size,
            segment_size,
        };
        if self.cookie == 0 {
            return self.question(now, buffer).map(|size| transmit(size, None));
        }
        if let Some(bytes) = self.acknowledgements.pop_front() {
            buffer.extend_from_slice(&bytes);
            return Some(transmit(bytes.len(), None));
        }
        let start = buffer.len();
        let (mut count, mut segment) = (0, 0);
        while count < max_segments
            && let Some(mut pending) = self.take(now)
        {
            let before = buffer.len();
            let Some(message) = self.work.message(pending.number) else {
                continue;
            };
            Frame::request(self.id, self.cookie, message).encode(buffer);
            let size = buffer.len() - before;
            if count > 0 && size != segment {
                // Records of another length go on their own.
                buffer.truncate(before);
                self.again.push_front(pending);
                break;
            }
            (pending.sent, pending.tries) = (now, pending.tries + 1);
            self.pending.insert(self.id, pending);
            self.id += 1;
            (count, segment) = (count + 1, size);
        }
        (count > 0).then(|| transmit(buffer.len() - start, (count > 1).then_some(segment)))
    }

    fn poll_event(&mut self) -> Option<Done> {
        (self.is_done && !std::mem::replace(&mut self.is_told, true)).then_some(Done)
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let is_idle = self.is_done && self.is_told;
        (!is_idle).then(|| Deadline::new(self.now + TICK, "gnrs-scale: a request is due"))
    }
}

fn failed(fault: IoError) -> LabError {
    LabError::system("measure a name server")(std::io::Error::other(fault))
}

fn event_loop(
    clock: Clock,
    server: SocketAddr,
    client: LoadClient,
) -> Result<EventLoop<LoadClient>, LabError> {
    let mut event_loop = EventLoop::new(clock, client).map_err(failed)?;
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = UdpConfig::new("load", here).neighbour("name server", server);
    event_loop.sockets().add_udp(socket).map_err(failed)?;
    Ok(event_loop)
}

/// Runs a client until all its requests are answered or given up.
pub(super) fn run(clock: Clock, server: SocketAddr, client: LoadClient) -> Result<Noted, LabError> {
    let mut event_loop = event_loop(clock, server, client)?;
    let handle = event_loop.handle();
    event_loop.run(|_, _, Done| handle.stop()).map_err(failed)?;
    Ok(event_loop.machine_mut().take_noted())
}

/// A client that watches names, on a thread of its own.
pub(super) struct PushWatcher {
    handle: LoopHandle<LoadClient>,
    thread: std::thread::JoinHandle<Result<Noted, LabError>>,
}

impl PushWatcher {
    /// Returns once all names are watched.
    pub(super) fn start(
        clock: Clock,
        server: SocketAddr,
        names: Vec<Guid>,
    ) -> Result<PushWatcher, LabError> {
        let (sender, watching) = std::sync::mpsc::channel();
        let watch = move || {
            let mut event_loop =
                event_loop(clock, server, LoadClient::new(Work::Watch(names), 64, None))?;
            let handle = event_loop.handle();
            event_loop
                .run(|_, _, Done| drop(sender.send(handle.clone())))
                .map_err(failed)?;
            Ok(event_loop.machine_mut().take_noted())
        };
        let thread = std::thread::Builder::new()
            .name("watcher".to_owned())
            .spawn(watch)
            .map_err(LabError::system("start a thread"))?;
        match watching.recv() {
            Ok(handle) => Ok(PushWatcher { handle, thread }),
            Err(_) => Err(joined(thread).err().unwrap_or_else(|| {
                LabError::system("watch names")(std::io::ErrorKind::BrokenPipe.into())
            })),
        }
    }

    /// Ends it. Returns what it has heard.
    pub(super) fn end(self) -> Result<Noted, LabError> {
        self.handle.stop();
        joined(self.thread)
    }
}

fn joined(thread: std::thread::JoinHandle<Result<Noted, LabError>>) -> Result<Noted, LabError> {
    let panicked = || LabError::system("run a client")(std::io::Error::other("it panicked"));
    thread.join().unwrap_or_else(|_| Err(panicked()))
}
