//! A disk in memory, which outlives the crash of its node.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use whimbrel_core::disk::size_on_disk;
use whimbrel_core::{Disk, DiskAction, DiskEntry, DiskEvent, DiskKey, DiskStatus};

/// What is on the disk of a node. Its clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    limit: u64,
    content: Arc<Mutex<Content>>,
}

#[derive(Debug, Default)]
struct Content {
    entries: BTreeMap<DiskKey, (DiskEntry, Bytes)>,
    bytes: u64,
    written: u64,
    read: u64,
    refused: u64,
    damaged: u64,
    fault: Option<String>,
}

impl SimulatedDisk {
    /// Returns an empty disk of `limit` bytes.
    pub fn new(limit: u64) -> SimulatedDisk {
        SimulatedDisk {
            limit,
            content: Arc::default(),
        }
    }

    /// Returns the disk as a machine sees it that starts now. What an earlier one had submitted and not
    /// been told is on the disk up to the last whole batch.
    pub fn attach(&self) -> Box<dyn Disk> {
        let content = self.content();
        let found = content.entries.values().map(|(entry, _)| entry.clone());
        Box::new(Attached {
            found: found.collect(),
            disk: self.clone(),
            submitted: VecDeque::new(),
            events: VecDeque::new(),
        })
    }

    /// Returns the number of its entries.
    pub fn entries(&self) -> usize {
        self.content().entries.len()
    }

    /// From now on it fails, with this fault, or works again.
    pub fn set_fault(&self, fault: Option<&str>) {
        self.content().fault = fault.map(str::to_owned);
    }

    /// Damages the entry with this key.
    pub fn damage(&self, key: DiskKey) {
        if let Some((_, body)) = self.content().entries.get_mut(&key) {
            *body = Bytes::new();
        }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One start's view of a disk.
///
/// Actions are carried out when the machine next polls, so that a crash between the two loses what was
/// not synced.
#[derive(Debug)]
struct Attached {
    found: Vec<DiskEntry>,
    disk: SimulatedDisk,
    submitted: VecDeque<DiskAction>,
    events: VecDeque<DiskEvent>,
}

impl Content {
    fn carry_out(&mut self, action: DiskAction, limit: u64) -> Option<DiskEvent> {
        match action {
            DiskAction::Write {
                key,
                expires_ms,
                label,
                body,
            } => {
                let body = Bytes::from(body.concat());
                let length = body.len() as u64;
                if self.fault.is_some() || self.bytes + size_on_disk(length) > limit {
                    self.refused += 1;
                    return Some(DiskEvent::Refused(key));
                }
                let entry = DiskEntry {
                    key,
                    expires_ms,
                    label,
                    length,
                };
                self.bytes += size_on_disk(length);
                self.written += 1;
                self.entries.insert(key, (entry, body));
                Some(DiskEvent::Written(key))
            }
            DiskAction::Read(key) if self.fault.is_some() => Some(DiskEvent::Unreadable(key)),
            DiskAction::Read(key) => match self.entries.get(&key) {
                Some((entry, body)) if body.len() as u64 == entry.length => {
                    self.read += 1;
                    Some(DiskEvent::Read(key, body.clone()))
                }
                Some(_) => {
                    self.damaged += 1;
                    Some(DiskEvent::Lost(key))
                }
                None => Some(DiskEvent::Lost(key)),
            },
            DiskAction::Forget(key) => {
                if let Some((entry, _)) = self.entries.remove(&key) {
                    self.bytes -= size_on_disk(entry.length);
                }
                None
            }
        }
    }
}

impl Disk for Attached {
    fn take_found(&mut self) -> Vec<DiskEntry> {
        core::mem::take(&mut self.found)
    }

    fn submit(&mut self, action: DiskAction) {
        self.submitted.push_back(action);
    }

    fn poll(&mut self) -> Option<DiskEvent> {
        let mut content = self.disk.content();
        let (submitted, limit) = (&mut self.submitted, self.disk.limit);
        for action in submitted.drain(..) {
            self.events.extend(content.carry_out(action, limit));
        }
        drop(content);
        self.events.pop_front()
    }

    fn limit(&self) -> u64 {
        self.disk.limit
    }

    fn works(&self) -> bool {
        self.disk.content().fault.is_none()
    }

    fn status(&self) -> DiskStatus {
        let content = self.disk.content();
        DiskStatus {
            place: "memory".into(),
            entries: content.entries.len() as u64,
            bytes: content.bytes,
            limit: self.disk.limit,
            written: content.written,
            read: content.read,
            refused: content.refused,
            damaged: content.damaged,
            faults: u64::from(content.fault.is_some()),
            fault: content.fault.clone(),
        }
    }
}
