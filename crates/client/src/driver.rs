//! A session behind a real socket, without a thread: one file descriptor is readable when there is something to do.
//!
//! The descriptor is an `epoll(7)` instance. It holds the socket, a timer that calls a host that has gone, and a
//! counter by which another thread wakes its waiter; so it stays the same when the host restarts.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use rustix::process::{Pid, getpid};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use whimbrel_core::Guid;

use crate::error::{LocalError, ProgramError};
use crate::frames::{EventFrames, RequestFrames};
use crate::session::{ProgramSession, PublishOptions};
use crate::socket::{broken, connect_socket};
use crate::source::ContentSource;

/// Interval at which a host that has gone is called.
const CALL_INTERVAL: Duration = Duration::from_millis(200);
/// Bytes of frames that wait for the socket; further requests stay in the session.
const MAX_WAITING: usize = 8 << 20;
/// Events that are handled at once, before the program has its turn.
const MAX_EVENTS: usize = 64;

/// How a program attaches to its host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttachOptions {
    /// How long a host may be away before transfers fail. The client tries to reconnect without limit.
    pub reconnect_for: Duration,
}

impl Default for AttachOptions {
    /// Returns a minute.
    fn default() -> AttachOptions {
        AttachOptions {
            reconnect_for: Duration::from_secs(60),
        }
    }
}

/// A connection to the host.
#[derive(Debug)]
struct HostLine {
    stream: UnixStream,
    events: EventFrames,
    requests: RequestFrames,
    /// True if the kernel tells when the socket takes more bytes.
    awaits_room: bool,
}

/// See the module's text. All methods that change something do as much as is possible without waiting.
#[derive(Debug)]
pub struct HostDriver {
    path: PathBuf,
    options: AttachOptions,
    session: ProgramSession,
    sources: BTreeMap<Guid, Arc<ContentSource>>,
    line: Option<HostLine>,
    gone_since: Option<Instant>,
    /// Why the host can never be used again by this connection.
    ended: Option<LocalError>,
    is_detached: bool,
    epoll: OwnedFd,
    timer: OwnedFd,
    waker: Arc<OwnedFd>,
    /// The process that has attached: a forked one shares the socket and must not use it.
    process: Pid,
}

impl HostDriver {
    /// Attaches to the host that listens on `path`.
    pub fn attach(path: &Path, options: AttachOptions) -> Result<HostDriver, LocalError> {
        let failed = |error: rustix::io::Errno| LocalError::Io(error.into());
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed)?;
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let waker = eventfd(0, flags).map_err(failed)?;
        for source in [&timer, &waker] {
            epoll::add(&epoll, source, EventData::new_u64(0), EventFlags::IN).map_err(failed)?;
        }
        let mut driver = HostDriver {
            path: path.to_owned(),
            options,
            session: ProgramSession::default(),
            sources: BTreeMap::new(),
            line: None,
            gone_since: None,
            ended: None,
            is_detached: false,
            epoll,
            timer,
            waker: Arc::new(waker),
            process: getpid(),
        };
        driver.connect()?;
        driver.flush();
        Ok(driver)
    }

    /// Returns what the program has asked for. [`HostDriver::flush`] passes new requests on.
    pub fn session(&mut self) -> &mut ProgramSession {
        &mut self.session
    }

    /// Returns the means by which another thread makes the descriptor readable.
    pub fn waker(&self) -> DriverWaker {
        DriverWaker(Arc::clone(&self.waker))
    }

    /// Fails if nothing can be asked any more.
    pub fn check(&self) -> Result<(), ProgramError> {
        if self.process != getpid() {
            return Err(ProgramError::Forked);
        }
        if self.is_detached {
            return Err(ProgramError::Detached);
        }
        match &self.ended {
            Some(error) => Err(error.again().into()),
            None => Ok(()),
        }
    }

    /// Publishes a content, which is read when somebody fetches it.
    pub fn publish(&mut self, source: Arc<ContentSource>, options: PublishOptions) -> Guid {
        let content = source.content();
        let PublishOptions { transfer, delegate } = options;
        self.session.publish(source.publish(), transfer, delegate);
        self.sources.insert(content, source);
        self.flush();
        content
    }

    /// Ends a publication.
    pub fn withdraw(&mut self, content: Guid) {
        self.session.withdraw(content);
        self.drop_sources();
        self.flush();
    }

    /// Sends a content. Returns the transfer's number.
    pub fn send(
        &mut self,
        destination: Guid,
        source: Arc<ContentSource>,
        options: crate::session::SendOptions,
    ) -> u32 {
        let publish = source.publish();
        self.sources.insert(publish.content, source);
        let number = self.session.send(destination, publish, options);
        self.flush();
        number
    }

    /// Ends a transfer.
    pub fn cancel(&mut self, number: u32) {
        self.session.cancel(number);
        self.drop_sources();
        self.flush();
    }

    /// Ends everything and closes the connection. What the network has taken is still delivered.
    pub fn detach(&mut self) {
        if self.is_detached || self.process != getpid() {
            return;
        }
        self.session.withdraw_all();
        self.session.fail_all(|| ProgramError::Detached);
        self.flush();
        self.is_detached = true;
        self.sources.clear();
        self.hang_up();
        self.set_timer(Duration::ZERO);
        self.waker().wake();
    }

    /// Forgets the bytes of contents that are neither published nor sent.
    fn drop_sources(&mut self) {
        let session = &self.session;
        self.sources
            .retain(|content, _| session.needs_bytes(content));
    }

    fn connect(&mut self) -> Result<(), LocalError> {
        let stream = connect_socket(&self.path)?;
        stream.set_nonblocking(true).map_err(LocalError::Io)?;
        let flags = EventFlags::IN | EventFlags::RDHUP;
        epoll::add(&self.epoll, &stream, EventData::new_u64(1), flags)
            .map_err(|error| LocalError::Io(error.into()))?;
        self.line = Some(HostLine {
            stream,
            events: EventFrames::default(),
            requests: RequestFrames::default(),
            awaits_room: false,
        });
        self.gone_since = None;
        self.set_timer(Duration::ZERO);
        self.session.handle_connected();
        Ok(())
    }

    fn hang_up(&mut self) {
        if let Some(line) = self.line.take() {
            // Closing it removes it from the set, unless a forked process holds it.
            let _ = epoll::delete(&self.epoll, &line.stream);
            self.session.handle_disconnected();
        }
    }

    /// Notes that the connection has failed: for a while, or for ever.
    fn lose(&mut self, error: LocalError) {
        self.hang_up();
        match error {
            LocalError::Closed | LocalError::Io(_) => {
                self.gone_since.get_or_insert_with(Instant::now);
                self.set_timer(CALL_INTERVAL);
            }
            error => {
                self.session.fail_all(|| error.again().into());
                self.ended = Some(error);
            }
        }
    }

    fn call_again(&mut self) {
        let Some(since) = self.gone_since else {
            return;
        };
        match self.connect() {
            Ok(()) => return,
            Err(LocalError::Nobody(_) | LocalError::Closed | LocalError::Io(_)) => {}
            Err(error) => return self.lose(error),
        }
        let patience = self.options.reconnect_for;
        if since.elapsed() >= patience {
            self.session.fail_all(|| ProgramError::HostGone(patience));
        }
    }

    /// Repeats every `interval`; zero disarms it.
    fn set_timer(&mut self, interval: Duration) {
        let time = Timespec {
            tv_sec: interval.as_secs() as i64,
            tv_nsec: interval.subsec_nanos().into(),
        };
        let value = Itimerspec {
            it_interval: time,
            it_value: time,
        };
        // The descriptor and the time are valid.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value);
    }

    /// Does all that can be done without waiting: call it when the descriptor is readable.
    pub fn process(&mut self) -> Result<(), ProgramError> {
        self.check()?;
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.waker, &mut count);
        if rustix::io::read(&self.timer, &mut count).is_ok() {
            self.call_again();
        }
        if let Err(error) = self.read_events() {
            self.lose(error);
        }
        self.read_chunks();
        self.flush();
        Ok(())
    }

    fn read_events(&mut self) -> Result<(), LocalError> {
        let Some(line) = &mut self.line else {
            return Ok(());
        };
        let mut left = MAX_EVENTS;
        while left > 0 {
            if let Some(event) = line.events.next_event()? {
                self.session.handle_event(event);
                left -= 1;
                continue;
            }
            match line.stream.read(line.events.room()) {
                Ok(0) => return Err(LocalError::Closed),
                Ok(count) => line.events.note_filled(count),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(broken(error)),
                },
            }
        }
        Ok(())
    }

    /// Answers the host's requests for chunks.
    fn read_chunks(&mut self) {
        while let Some(wanted) = self.session.poll_read() {
            let content = wanted.content;
            let source = self.sources.get(&content);
            match source.map(|source| source.read(wanted.index, wanted.chunk_size)) {
                Some(Ok(chunk)) => self.session.answer_read(wanted.read, Some(chunk)),
                Some(Err(fault)) => {
                    self.session.answer_read(wanted.read, None);
                    let text = fault.to_string();
                    self.session
                        .note_unreadable(content, || ProgramError::Unreadable(text.clone()));
                }
                None => self.session.answer_read(wanted.read, None),
            }
        }
    }

    /// Writes the session's requests as far as the socket takes them.
    pub fn flush(&mut self) {
        if self.process != getpid() {
            return;
        }
        if let Err(error) = self.write_requests() {
            self.lose(error);
        }
    }

    fn write_requests(&mut self) -> Result<(), LocalError> {
        let Some(line) = &mut self.line else {
            return Ok(());
        };
        let is_full = loop {
            while line.requests.waiting_bytes() < MAX_WAITING
                && let Some(request) = self.session.poll_request()
            {
                line.requests.push(&request);
            }
            let Some([head, tail]) = line.requests.next_bytes() else {
                break false;
            };
            let slices = [IoSlice::new(head), IoSlice::new(tail)];
            let mut nothing = SendAncillaryBuffer::default();
            // A program of another language may not ignore SIGPIPE.
            match sendmsg(&line.stream, &slices, &mut nothing, SendFlags::NOSIGNAL) {
                Ok(count) => line.requests.note_written(count),
                Err(rustix::io::Errno::AGAIN) => break true,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(broken(error.into())),
            }
        };
        if is_full != line.awaits_room {
            let mut flags = EventFlags::IN | EventFlags::RDHUP;
            flags.set(EventFlags::OUT, is_full);
            epoll::modify(&self.epoll, &line.stream, EventData::new_u64(1), flags)
                .map_err(|error| LocalError::Io(error.into()))?;
            line.awaits_room = is_full;
        }
        Ok(())
    }
}

impl AsFd for HostDriver {
    /// Returns the descriptor that is readable when [`HostDriver::process`] has something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Drop for HostDriver {
    fn drop(&mut self) {
        self.detach();
    }
}

/// Makes a driver's descriptor readable, so that its waiter looks again.
#[derive(Clone, Debug)]
pub struct DriverWaker(Arc<OwnedFd>);

impl DriverWaker {
    /// See [`DriverWaker`].
    pub fn wake(&self) {
        // A counter that is full is readable already.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// Waits until a driver's descriptor is readable, for at most `patience`. Returns false after that; a signal is an
/// error of the kind [`io::ErrorKind::Interrupted`].
pub fn poll_readable(driver: BorrowedFd<'_>, patience: Option<Duration>) -> io::Result<bool> {
    let mut ready = [PollFd::new(&driver, PollFlags::IN)];
    let timeout = patience.map(|time| Timespec {
        tv_sec: time.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: time.subsec_nanos().into(),
    });
    Ok(poll(&mut ready, timeout.as_ref())? > 0)
}
