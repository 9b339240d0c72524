//! The result of a call to come, and what all calls of a program share.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rustix::process::{Pid, getpid};

use crate::driver::HostDriver;
use crate::error::ProgramError;

/// Longest time for which nobody looks at a driver that has been made readable by mistake.
const LOOK: Duration = Duration::from_secs(1);

/// What the calls of a program have in common.
pub(crate) struct DriverShare {
    driver: Mutex<HostDriver>,
    changed: Condvar,
    /// Tasks that await something.
    tasks: Mutex<Vec<Waker>>,
    /// The process that has attached. In a forked one the lock may be held by a thread that it does not have.
    process: Pid,
}

impl DriverShare {
    /// Shares a driver among the calls of this process.
    pub(crate) fn new(driver: HostDriver) -> DriverShare {
        DriverShare {
            driver: Mutex::new(driver),
            changed: Condvar::new(),
            tasks: Mutex::new(Vec::new()),
            process: getpid(),
        }
    }

    /// Returns the driver; `None` in a forked process.
    pub(crate) fn lock(&self) -> Option<MutexGuard<'_, HostDriver>> {
        let is_own = self.process == getpid();
        is_own.then(|| self.driver.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the driver for a new request, if the host can be asked.
    pub(crate) fn enter(&self) -> Result<MutexGuard<'_, HostDriver>, ProgramError> {
        let driver = self.lock().ok_or(ProgramError::Forked)?;
        driver.check()?;
        Ok(driver)
    }

    /// Lets the driver do what it can. Returns false if it can do nothing any more.
    pub(crate) fn process(&self) -> bool {
        let outcome = self.lock().map(|mut driver| driver.process());
        self.notify();
        outcome.is_some_and(|outcome| outcome.is_ok())
    }

    pub(crate) fn notify(&self) {
        self.changed.notify_all();
        let tasks =
            core::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            task.wake();
        }
    }

    fn await_change(&self, task: &Waker) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if !tasks.iter().any(|waiting| waiting.will_wake(task)) {
            tasks.push(task.clone());
        }
    }

    /// Starts a call. Its step returns the result once there is one.
    pub(crate) fn call<T>(
        self: &Arc<Self>,
        step: impl FnMut(&mut HostDriver) -> Result<Option<T>, ProgramError> + Send + 'static,
    ) -> Call<T> {
        Call {
            share: Arc::clone(self),
            step: Box::new(step),
        }
    }
}

impl fmt::Debug for DriverShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverShare").finish_non_exhaustive()
    }
}

/// What makes progress under a [`Call`].
type Step<T> = dyn FnMut(&mut HostDriver) -> Result<Option<T>, ProgramError> + Send;

/// The future result of a call. A thread can wait for it, or a task await it. Dropping it cancels the transfer that
/// it stands for, if any.
#[must_use = "a call has no result before it is waited for or awaited"]
pub struct Call<T> {
    share: Arc<DriverShare>,
    step: Box<Step<T>>,
}

impl<T> Call<T> {
    /// Blocks this thread until there is a result.
    pub fn wait(self) -> Result<T, ProgramError> {
        self.wait_until(None)
    }

    /// Blocks this thread until there is a result, for at most `patience`; then fails.
    pub fn wait_for(self, patience: Duration) -> Result<T, ProgramError> {
        match Instant::now().checked_add(patience) {
            Some(until) => self.wait_until(Some((until, patience))),
            None => self.wait_until(None),
        }
    }

    fn wait_until(mut self, until: Option<(Instant, Duration)>) -> Result<T, ProgramError> {
        loop {
            let mut pause = LOOK;
            if let Some((until, patience)) = until {
                pause = pause.min(until.saturating_duration_since(Instant::now()));
                if pause.is_zero() {
                    return Err(ProgramError::TimedOut(patience));
                }
            }
            if let Some(result) = self.wait_a_while(pause)? {
                return Ok(result);
            }
        }
    }

    /// Blocks this thread until there is a result, for at most `pause`. Returns `None` after that; the call
    /// continues.
    pub fn wait_a_while(&mut self, pause: Duration) -> Result<Option<T>, ProgramError> {
        let share = Arc::clone(&self.share);
        let mut driver = share.lock().ok_or(ProgramError::Forked)?;
        let until = Instant::now() + pause;
        loop {
            if let Some(result) = (self.step)(&mut driver)? {
                driver.flush();
                return Ok(Some(result));
            }
            driver.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let woken = share.changed.wait_timeout(driver, left);
            driver = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<T> Future for Call<T> {
    type Output = Result<T, ProgramError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let share = Arc::clone(&self.share);
        let Some(mut driver) = share.lock() else {
            return Poll::Ready(Err(ProgramError::Forked));
        };
        match (self.step)(&mut driver) {
            Ok(Some(result)) => {
                driver.flush();
                Poll::Ready(Ok(result))
            }
            Ok(None) => match driver.check() {
                Ok(()) => {
                    // The lock is held, so that no change is missed.
                    share.await_change(context.waker());
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(error)),
            },
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}
