//! Keeps records on disk without delaying the transfer while the disk syncs.

use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::JoinHandle;

use super::part::Snapshot;

/// Writes snapshots on a thread of its own, one batch at a time.
#[derive(Debug)]
pub(super) struct Keeper {
    work: Option<SyncSender<(Vec<Snapshot>, Sender<()>)>>,
    thread: Option<JoinHandle<()>>,
    busy: Option<Receiver<()>>,
}

impl Keeper {
    pub(super) fn start() -> Keeper {
        let (work, jobs) = sync_channel::<(Vec<Snapshot>, Sender<()>)>(1);
        let run = move || {
            for (snapshots, done) in jobs {
                for snapshot in snapshots {
                    if let Err(error) = snapshot.keep() {
                        tracing::warn!(%error, "cannot keep the record of the download");
                    }
                }
                let _ = done.send(());
            }
        };
        // Without a thread, records are kept when the transfer ends.
        let thread = std::thread::Builder::new()
            .name("keeper".into())
            .spawn(run)
            .ok();
        Keeper {
            work: Some(work),
            thread,
            busy: None,
        }
    }

    /// Asks the writer whether it is done; returns true while the last batch is being written.
    pub(super) fn poll_busy(&mut self) -> bool {
        let done = self
            .busy
            .as_ref()
            .is_none_or(|done| done.try_recv() != Err(TryRecvError::Empty));
        if done {
            self.busy = None;
        }
        !done
    }

    /// Writes a batch in the background. Must not be called while busy.
    pub(super) fn keep(&mut self, snapshots: Vec<Snapshot>) {
        let (done, busy) = channel();
        if let Some(work) = &self.work
            && work.try_send((snapshots, done)).is_ok()
        {
            self.busy = Some(busy);
        }
    }

    /// Waits until nothing is being written. Must precede every other change or removal of a
    /// record.
    pub(super) fn wait(&mut self) {
        if let Some(busy) = self.busy.take() {
            let _ = busy.recv();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
