//! Access to a running loop from other threads: control plane only, never per packet.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use whimbrel_core::{Machine, Time};

use crate::{EventLoop, IoError};

/// Bound of the waiting tasks; further ones are refused.
const MAX_WAITING: usize = 65_536;

type MachineWork<M> = dyn FnOnce(&mut M, Time) + Send;
type LoopWork<M> = dyn FnOnce(&mut EventLoop<M>) + Send;

/// Work for the loop's thread.
pub(crate) enum Task<M: Machine> {
    Machine(Box<MachineWork<M>>),
    EventLoop(Box<LoopWork<M>>),
}

/// State shared by a loop and its handles.
pub(crate) struct Mailbox<M: Machine> {
    wake: OwnedFd,
    tasks: Mutex<Vec<Task<M>>>,
    stop: AtomicBool,
    ended: AtomicBool,
}

impl<M: Machine> Mailbox<M> {
    pub(crate) fn new() -> std::io::Result<Arc<Mailbox<M>>> {
        Ok(Arc::new(Mailbox {
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            tasks: Mutex::default(),
            stop: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }))
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<Task<M>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all posted tasks in order and resets the wake-up.
    pub(crate) fn take(&self) -> Vec<Task<M>> {
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

    fn wake(&self) {
        // Only a full counter refuses the write, and then the loop is awake already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl<M: Machine> AsFd for Mailbox<M> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// A handle to a running [`EventLoop`] for any thread: posts work and stops the loop.
pub struct LoopHandle<M: Machine>(pub(crate) Arc<Mailbox<M>>);

impl<M: Machine> Clone for LoopHandle<M> {
    fn clone(&self) -> Self {
        LoopHandle(Arc::clone(&self.0))
    }
}

impl<M: Machine> fmt::Debug for LoopHandle<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopHandle")
            .field("stop_wanted", &self.0.stop_wanted())
            .finish_non_exhaustive()
    }
}

impl<M: Machine> LoopHandle<M> {
    /// Runs `task` on the loop's thread with the machine and the current time, then drains the
    /// machine. Tasks run in the order of their posting.
    pub fn post(&self, task: impl FnOnce(&mut M, Time) + Send + 'static) -> Result<(), IoError> {
        self.push(Task::Machine(Box::new(task)))
    }

    /// Runs `task` on the loop's thread with the loop itself, to add and remove transports or to
    /// take a snapshot.
    pub fn post_to_loop(
        &self,
        task: impl FnOnce(&mut EventLoop<M>) + Send + 'static,
    ) -> Result<(), IoError> {
        self.push(Task::EventLoop(Box::new(task)))
    }

    /// Asks the loop to stop: [`EventLoop::run`] writes unsent output for a bounded time and
    /// returns.
    pub fn stop(&self) {
        self.0.stop();
    }

    fn push(&self, task: Task<M>) -> Result<(), IoError> {
        let mut tasks = self.0.tasks();
        if self.0.ended.load(Ordering::Acquire) {
            return Err(IoError::LoopEnded);
        }
        if tasks.len() >= MAX_WAITING {
            return Err(IoError::LoopBusy {
                waiting: tasks.len(),
            });
        }
        tasks.push(task);
        drop(tasks);
        self.0.wake();
        Ok(())
    }
}
