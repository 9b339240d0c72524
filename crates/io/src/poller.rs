//! Waiting for many file descriptors, with deadlines to the nanosecond.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;

/// At most so many ready descriptors are handled per round; the kernel hands out the others next time.
const EVENTS_PER_ROUND: usize = 128;

/// One ready descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) token: u64,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// An error or the peer's end waits to be read.
    pub(crate) error: bool,
}

/// A level-triggered epoll set.
///
/// `epoll_wait` rounds up to milliseconds, far too coarse for pacing, and `epoll_pwait2` needs Linux 5.11. So a
/// timed sleep is a `ppoll` on the set itself, followed by an `epoll_pwait` that does not wait; a round that
/// need not sleep, or may sleep for ever, costs the one call.
pub(crate) struct Poller {
    set: OwnedFd,
    events: Vec<epoll::Event>,
    pub(crate) wait_calls: u64,
    pub(crate) control_calls: u64,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Poller> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Poller { set, events: Vec::with_capacity(EVENTS_PER_ROUND), wait_calls: 0, control_calls: 0 })
    }

    /// Watches `source` for input and errors.
    pub(crate) fn add(&mut self, source: impl AsFd, token: u64) -> io::Result<()> {
        self.control_calls += 1;
        Ok(epoll::add(&self.set, source, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
    }

    /// Changes what is watched besides errors.
    pub(crate) fn set_interest(&mut self, source: impl AsFd, token: u64, readable: bool, writable: bool) {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, readable);
        flags.set(epoll::EventFlags::OUT, writable);
        self.control_calls += 1;
        if let Err(error) = epoll::modify(&self.set, source, epoll::EventData::new_u64(token), flags) {
            tracing::error!(%error, token, "cannot change what is waited for");
        }
    }

    pub(crate) fn remove(&mut self, source: impl AsFd) {
        self.control_calls += 1;
        if let Err(error) = epoll::delete(&self.set, source) {
            tracing::error!(%error, "cannot stop waiting for a descriptor");
        }
    }

    /// Waits for at most `limit`, for ever if `None`. An interrupted wait finds nothing ready.
    pub(crate) fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.events.clear();
        const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let at_once = match limit {
            None => None,
            Some(Duration::ZERO) => Some(&AT_ONCE),
            Some(limit) => {
                if !self.sleep(limit)? {
                    return Ok(());
                }
                Some(&AT_ONCE)
            }
        };
        self.wait_calls += 1;
        match epoll::wait(&self.set, spare_capacity(&mut self.events), at_once) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// True if something became ready within `limit`.
    fn sleep(&mut self, limit: Duration) -> io::Result<bool> {
        let timeout = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        self.wait_calls += 1;
        match rustix::event::poll(&mut [PollFd::new(&self.set, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The `index`-th ready descriptor of the last wait.
    pub(crate) fn ready(&self, index: usize) -> Option<Ready> {
        let event = self.events.get(index)?;
        let flags = event.flags;
        let error = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        Some(Ready {
            token: event.data.u64(),
            readable: flags.contains(epoll::EventFlags::IN),
            writable: flags.contains(epoll::EventFlags::OUT),
            error,
        })
    }
}
