//! A folder behind the seam of machines.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use whimbrel_chunk_store::{DiskFolder, FolderLimits};
use whimbrel_core::{Disk, DiskAction, DiskEvent, DiskKey};

struct Trial {
    disk: DiskFolder,
    woken: Receiver<()>,
}

impl Trial {
    fn open(path: &Path, bytes: u64) -> Trial {
        let (wake, woken) = channel();
        let limits = FolderLimits { bytes };
        let disk = DiskFolder::open(path, limits, move || {
            let _ = wake.send(());
        });
        let disk = disk.expect("the folder opens");
        Trial { disk, woken }
    }

    fn write(&mut self, key: u64, length: usize) {
        self.disk.submit(DiskAction::Write {
            key: DiskKey(key),
            expires_ms: 5,
            label: Bytes::from_static(b"label"),
            body: [vec![key as u8; length].into(), Bytes::new()],
        });
    }

    /// Returns the next outcome, which must come within a minute.
    fn outcome(&mut self) -> DiskEvent {
        loop {
            if let Some(event) = self.disk.poll() {
                return event;
            }
            let woken = self.woken.recv_timeout(Duration::from_secs(60));
            woken.expect("an outcome");
        }
    }

    fn outcomes(&mut self, count: usize) -> Vec<DiskEvent> {
        let mut outcomes: Vec<_> = (0..count).map(|_| self.outcome()).collect();
        outcomes.sort_by_key(|event| format!("{event:?}"));
        outcomes
    }
}

#[test]
fn what_is_written_is_read_and_found_after_a_restart() {
    let room = TempDir::new().expect("a folder");
    let path = room.path().join("chunks");
    let mut trial = Trial::open(&path, 1 << 20);
    assert!(trial.disk.take_found().is_empty());
    (1..=3).for_each(|key| trial.write(key, 1000));
    let written = (1..=3).map(|key| DiskEvent::Written(DiskKey(key)));
    assert_eq!(trial.outcomes(3), written.collect::<Vec<_>>());
    trial.disk.submit(DiskAction::Read(DiskKey(2)));
    let read = DiskEvent::Read(DiskKey(2), vec![2; 1000].into());
    assert_eq!(trial.outcome(), read);
    trial.disk.submit(DiskAction::Forget(DiskKey(1)));
    trial.disk.submit(DiskAction::Read(DiskKey(9)));
    assert_eq!(trial.outcome(), DiskEvent::Lost(DiskKey(9)));
    drop(trial);
    let mut trial = Trial::open(&path, 1 << 20);
    let found = trial.disk.take_found();
    let keys: Vec<u64> = found.iter().map(|entry| entry.key.0).collect();
    assert_eq!(keys, [2, 3]);
    assert_eq!(
        (found[0].expires_ms, &found[0].label[..]),
        (5, &b"label"[..])
    );
    let status = trial.disk.status();
    assert_eq!(
        (status.entries, status.bytes, status.limit),
        (2, 8192, 1 << 20)
    );
}

#[test]
fn a_full_folder_refuses_and_takes_again_once_something_is_forgotten() {
    let room = TempDir::new().expect("a folder");
    let mut trial = Trial::open(&room.path().join("chunks"), 16 << 10);
    (0..4).for_each(|key| trial.write(key, 4096));
    trial.write(4, 1);
    let outcomes = trial.outcomes(5);
    assert_eq!(outcomes[0], DiskEvent::Refused(DiskKey(4)));
    assert_eq!(trial.disk.status().refused, 1);
    trial.disk.submit(DiskAction::Forget(DiskKey(0)));
    trial.write(5, 4096);
    assert_eq!(trial.outcome(), DiskEvent::Written(DiskKey(5)));
}

#[test]
fn an_entry_that_is_forgotten_before_it_is_written_takes_no_room() {
    let room = TempDir::new().expect("a folder");
    let mut trial = Trial::open(&room.path().join("chunks"), 1 << 20);
    for key in 0..50 {
        trial.write(key, 100_000);
        trial.disk.submit(DiskAction::Forget(DiskKey(key)));
    }
    trial.write(99, 1);
    while trial.outcome() != DiskEvent::Written(DiskKey(99)) {}
    drop(trial);
    let mut trial = Trial::open(&room.path().join("chunks"), 1 << 20);
    assert_eq!(trial.disk.take_found().len(), 1);
}

/// The folder's place is taken by a file, as if its disk were gone, then it is back.
#[test]
fn a_disk_that_fails_refuses_until_it_works_again() {
    let room = TempDir::new().expect("a folder");
    let (path, away) = (room.path().join("chunks"), room.path().join("away"));
    let mut trial = Trial::open(&path, 1 << 20);
    fs::rename(&path, &away).expect("moved");
    fs::write(&path, "").expect("a file");
    trial.write(1, 1000);
    assert_eq!(trial.outcome(), DiskEvent::Refused(DiskKey(1)));
    let status = trial.disk.status();
    assert!(
        status
            .fault
            .is_some_and(|fault| fault.contains("cannot write"))
    );
    assert!(!trial.disk.works());
    trial.disk.submit(DiskAction::Read(DiskKey(1)));
    assert_eq!(trial.outcome(), DiskEvent::Unreadable(DiskKey(1)));
    fs::remove_file(&path).expect("removed");
    fs::rename(&away, &path).expect("moved back");
    let mut key = 2;
    loop {
        trial.write(key, 1000);
        if trial.outcome() == DiskEvent::Written(DiskKey(key)) {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(20));
        key += 1;
    }
    assert!(trial.disk.works());
    assert_eq!(trial.disk.status().fault, None);
}
