//! Tasks for a running loop from other threads: control plane only, never per packet.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use crate::IoError;

/// Bound of the waiting tasks; further ones are refused.
const MAX_WAITING: usize = 65_536;

/// State shared by a loop and its handles; `T` is a task.
pub(crate) struct Mailbox<T> {
    wake: OwnedFd,
    tasks: Mutex<Vec<T>>,
    stop: AtomicBool,
    ended: AtomicBool,
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> std::io::Result<Arc<Mailbox<T>>> {
        Ok(Arc::new(Mailbox {
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            tasks: Mutex::default(),
            stop: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }))
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<T>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all posted tasks in order and resets the wake-up.
    pub(crate) fn take(&self) -> Vec<T> {
        let mut count = [0; 8];
        // Nothing to read means that the wake-up had another cause.
        let _ = rustix::io::read(&self.wake, &mut count);
        std::mem::take(&mut *self.tasks())
    }

    pub(crate) fn stop_wanted(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Lets the loop run again after a stop.
    pub(crate) fn clear_stop(&self) {
        self.stop.store(false, Ordering::Release);
    }

    /// Makes further posts fail. Waiting tasks are dropped without being run.
    pub(crate) fn end(&self) {
        let mut tasks = self.tasks();
        self.ended.store(true, Ordering::Release);
        tasks.clear();
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn push(&self, task: T) -> Result<(), IoError> {
        let mut tasks = self.tasks();
        if self.ended.load(Ordering::Acquire) {
            return Err(IoError::LoopEnded);
        }
        if tasks.len() >= MAX_WAITING {
            return Err(IoError::LoopBusy {
                waiting: tasks.len(),
            });
        }
        tasks.push(task);
        drop(tasks);
        self.wake();
        Ok(())
    }

    fn wake(&self) {
        // Only a full counter refuses the write, and then the loop is awake already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl<T> AsFd for Mailbox<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
