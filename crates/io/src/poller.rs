//! Waiting for many file descriptors, with deadlines to the nanosecond.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;

/// Bound of the ready descriptors handled per round. The kernel returns the others next time.
const EVENTS_PER_ROUND: usize = 128;

/// One ready descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) token: u64,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// An error or the end of the stream waits to be read.
    pub(crate) error: bool,
}

/// A level-triggered epoll set.
///
/// `epoll_wait` rounds up to milliseconds, far too coarse for pacing, and `epoll_pwait2` needs
/// Linux 5.11. On older kernels, a timed sleep is a `ppoll` on the set itself, followed by an
/// `epoll_pwait` that does not wait.
pub(crate) struct Poller {
    set: OwnedFd,
    events: Vec<epoll::Event>,
    /// Set if the kernel has no `epoll_pwait2` or a sandbox forbids it.
    is_coarse: bool,
    pub(crate) wait_calls: u64,
    pub(crate) control_calls: u64,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Poller> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let events = Vec::with_capacity(EVENTS_PER_ROUND);
        Ok(Poller {
            set,
            events,
            is_coarse: false,
            wait_calls: 0,
            control_calls: 0,
        })
    }

    /// Watches `source` for input and errors.
    pub(crate) fn add(&mut self, source: impl AsFd, token: u64) -> io::Result<()> {
        self.control_calls += 1;
        Ok(epoll::add(
            &self.set,
            source,
            epoll::EventData::new_u64(token),
            epoll::EventFlags::IN,
        )?)
    }

    /// Changes the watched conditions. Errors are always watched.
    pub(crate) fn set_interest(
        &mut self,
        source: impl AsFd,
        token: u64,
        readable: bool,
        writable: bool,
    ) {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, readable);
        flags.set(epoll::EventFlags::OUT, writable);
        self.control_calls += 1;
        if let Err(error) =
            epoll::modify(&self.set, source, epoll::EventData::new_u64(token), flags)
        {
            tracing::error!(%error, token, "cannot change the watched conditions");
        }
    }

    pub(crate) fn remove(&mut self, source: impl AsFd) {
        self.control_calls += 1;
        if let Err(error) = epoll::delete(&self.set, source) {
            tracing::error!(%error, "cannot stop watching a descriptor");
        }
    }

    /// Waits for at most `limit`, or for ever if that is `None`. Returns with nothing ready if a
    /// signal interrupts it.
    pub(crate) fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.events.clear();
        const AT_ONCE: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let at_once = match limit {
            None => None,
            Some(Duration::ZERO) => Some(&AT_ONCE),
            Some(limit) if !self.is_coarse => match self.wait_finely(limit) {
                Err(Errno::NOSYS | Errno::PERM) => {
                    self.is_coarse = true;
                    return self.wait(Some(limit));
                }
                outcome => return Ok(outcome?),
            },
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

    /// Waits in one system call, with a timeout in nanoseconds.
    fn wait_finely(&mut self, limit: Duration) -> Result<(), Errno> {
        self.wait_calls += 1;
        match fine::epoll_pwait2(&self.set, &mut self.events, limit) {
            Ok(()) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns true if something became ready within `limit`.
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

    /// Returns the `index`-th ready descriptor of the last wait.
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

impl AsFd for Poller {
    /// Readable while a descriptor of the set is ready.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

/// `epoll_pwait2`. `rustix` offers it only to programs that do not support older kernels.
mod fine {
    #![allow(
        unsafe_code,
        reason = "no crate at hand offers epoll_pwait2 with a fallback"
    )]

    use std::os::fd::{AsRawFd, OwnedFd};
    use std::time::Duration;

    use rustix::event::epoll;
    use rustix::io::Errno;

    /// `struct __kernel_timespec`.
    #[repr(C)]
    struct Timeout {
        seconds: i64,
        nanoseconds: i64,
    }

    /// Replaces the contents of `events` by ready descriptors, up to its capacity.
    pub(super) fn epoll_pwait2(
        set: &OwnedFd,
        events: &mut Vec<epoll::Event>,
        limit: Duration,
    ) -> Result<(), Errno> {
        const { assert!(size_of::<epoll::Event>() == size_of::<libc::epoll_event>()) };
        let timeout = Timeout {
            seconds: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: limit.subsec_nanos().into(),
        };
        events.clear();
        let room = libc::c_int::try_from(events.capacity()).unwrap_or(libc::c_int::MAX);
        // SAFETY: the kernel writes at most `room` events, each of the size and layout of `struct
        // epoll_event` (both crates declare the kernel's), to memory of that capacity; it reads the
        // timeout, and no signal mask is given.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                set.as_raw_fd(),
                events.as_mut_ptr(),
                room,
                &raw const timeout,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        match usize::try_from(count) {
            // SAFETY: the kernel has initialised the first `count` events, within the capacity.
            Ok(count) => unsafe { events.set_len(count.min(events.capacity())) },
            Err(_) => {
                let error = std::io::Error::last_os_error();
                return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn fine_and_coarse_waits_find_ready_descriptors() {
        for is_coarse in [false, true] {
            let mut poller = Poller {
                is_coarse,
                ..Poller::new().unwrap()
            };
            let (mut here, there) = UnixStream::pair().unwrap();
            poller.add(&there, 77).unwrap();
            poller.wait(Some(Duration::from_micros(300))).unwrap();
            assert!(poller.ready(0).is_none());
            here.write_all(b"x").unwrap();
            for limit in [Some(Duration::from_secs(20)), Some(Duration::ZERO), None] {
                poller.wait(limit).unwrap();
                let ready = poller.ready(0).unwrap();
                assert!(ready.token == 77 && ready.readable && !ready.writable && !ready.error);
                assert!(poller.ready(1).is_none());
            }
        }
    }
}
