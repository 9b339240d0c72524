//! A folder of entries against a model, through kills and power cuts.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use bytes::Bytes;
use proptest::prelude::*;
use tempfile::TempDir;
use whimbrel_chunk_store::folder::Opened;
use whimbrel_chunk_store::{Batch, Folder, FolderLimits, OpenError, ReadFault, Write};
use whimbrel_core::DiskKey;
use whimbrel_core::disk::size_on_disk;

const LIMITS: FolderLimits = FolderLimits { bytes: 8 << 20 };

fn open(path: &Path) -> Opened {
    Folder::open(path, LIMITS).expect("the folder opens")
}

fn body(key: u64, length: usize) -> Bytes {
    let fill = (key as u8).wrapping_mul(31).wrapping_add(7);
    vec![fill; length].into()
}

fn write(key: u64, length: usize) -> Write {
    let whole = body(key, length);
    let cut = length / 3;
    Write {
        key: DiskKey(key),
        expires_ms: 1000 + key,
        label: format!("label {key}").into(),
        body: [whole.slice(..cut), whole.slice(cut..)],
    }
}

fn writes(entries: impl IntoIterator<Item = (u64, usize)>) -> Batch {
    let writes = entries.into_iter().map(|(key, length)| write(key, length));
    Batch {
        writes: writes.collect(),
        forgets: Vec::new(),
    }
}

fn forgets(keys: impl IntoIterator<Item = u64>) -> Batch {
    Batch {
        writes: Vec::new(),
        forgets: keys.into_iter().map(DiskKey).collect(),
    }
}

fn segments(path: &Path) -> Vec<std::path::PathBuf> {
    let files = fs::read_dir(path).expect("a folder");
    let paths = files.map(|file| file.expect("a file").path());
    let mut segments: Vec<_> = paths
        .filter(|path| path.to_string_lossy().contains("segment-"))
        .collect();
    segments.sort();
    segments
}

#[track_caller]
fn holds(opened: &Opened, model: &BTreeMap<u64, usize>) {
    let found: Vec<(u64, usize)> = opened
        .entries
        .iter()
        .map(|entry| (entry.key.0, entry.length as usize))
        .collect();
    let expected: Vec<(u64, usize)> = model.iter().map(|(key, len)| (*key, *len)).collect();
    assert_eq!(found, expected);
    for entry in &opened.entries {
        let read = opened.folder.read(entry.key).expect("an intact entry");
        assert_eq!(read, body(entry.key.0, entry.length as usize));
        assert_eq!(entry.expires_ms, 1000 + entry.key.0);
        assert_eq!(entry.label, format!("label {}", entry.key.0));
    }
}

/// How a batch ends.
#[derive(Clone, Debug)]
enum End {
    /// The next one follows.
    Next,
    /// The process is killed.
    Kill,
    /// Power is cut before the batch's transaction. The share of its bytes that is on the disk, in 256ths.
    PowerCut(u8),
}

fn steps() -> impl Strategy<Value = Vec<(Vec<usize>, usize, End)>> {
    let end = prop_oneof![
        2 => Just(End::Next),
        1 => Just(End::Kill),
        1 => any::<u8>().prop_map(End::PowerCut),
    ];
    let lengths = prop::collection::vec(0usize..40_000, 0..8);
    prop::collection::vec((lengths, 0usize..4, end), 1..10)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_folder_is_that_of_its_last_whole_batch(steps in steps()) {
        let room = TempDir::new().expect("a folder");
        let path = room.path().join("chunks");
        let mut folder = open(&path).folder;
        let mut model: BTreeMap<u64, usize> = BTreeMap::new();
        let mut next = 0;
        for (lengths, forgotten, end) in steps {
            let added: Vec<(u64, usize)> = (next..).zip(lengths).collect();
            next += added.len() as u64;
            if let End::PowerCut(kept) = end {
                drop(folder);
                let saved = room.path().join("saved");
                fs::copy(path.join("index"), &saved).expect("a copy");
                let before = segments(&path);
                open(&path).folder.apply(writes(added)).expect("a batch");
                fs::copy(&saved, path.join("index")).expect("a copy");
                for torn in segments(&path).iter().filter(|it| !before.contains(it)) {
                    let file = fs::OpenOptions::new().write(true).open(torn).expect("a file");
                    let length = file.metadata().expect("a file").len();
                    file.set_len(length * u64::from(kept) / 256).expect("a shorter file");
                }
            } else {
                let mut batch = writes(added.iter().copied());
                batch.forgets.extend(model.keys().take(forgotten).copied().map(DiskKey));
                model.retain(|key, _| !batch.forgets.contains(&DiskKey(*key)));
                model.extend(added);
                folder.apply(batch).expect("a batch");
                if matches!(end, End::Next) {
                    continue;
                }
                drop(folder);
            }
            let opened = open(&path);
            prop_assert_eq!(opened.damaged, 0);
            holds(&opened, &model);
            let sizes = model.values().map(|length| size_on_disk(*length as u64));
            prop_assert_eq!(opened.folder.bytes(), sizes.sum::<u64>());
            folder = opened.folder;
        }
    }
}

#[test]
fn forgotten_entries_give_their_space_back() {
    let room = TempDir::new().expect("a folder");
    let path = room.path().join("chunks");
    let mut opened = open(&path);
    let folder = &mut opened.folder;
    folder
        .apply(writes((0..16).map(|key| (key, 100_000))))
        .expect("a batch");
    folder.apply(forgets(1..16)).expect("a batch");
    assert_eq!(folder.bytes(), size_on_disk(100_000));
    let used = |path: &Path| -> u64 {
        let files = segments(path);
        let sizes = files.iter().map(|it| fs::metadata(it).expect("a file"));
        sizes.map(|it| it.blocks() * 512).sum()
    };
    assert!(used(&path) < 300_000, "{} bytes", used(&path));
    folder.apply(forgets([0])).expect("a batch");
    drop(opened);
    drop(open(&path));
    assert_eq!(segments(&path).len(), 0);
}

#[test]
fn a_folder_is_bounded() {
    let room = TempDir::new().expect("a folder");
    let mut opened = open(&room.path().join("chunks"));
    let folder = &mut opened.folder;
    let mut count = 0;
    while folder.has_room_for(1 << 20) {
        folder.apply(writes([(count, 1 << 20)])).expect("a batch");
        count += 1;
    }
    assert_eq!((count, folder.bytes()), (8, LIMITS.bytes));
    assert!(!folder.has_room_for(0));
}

#[test]
fn a_damaged_entry_is_reported_and_the_others_are_intact() {
    let room = TempDir::new().expect("a folder");
    let path = room.path().join("chunks");
    let mut opened = open(&path);
    let batch = writes((0..3).map(|key| (key, 9_000)));
    opened.folder.apply(batch).expect("a batch");
    drop(opened);
    let segment = &segments(&path)[0];
    let file = fs::OpenOptions::new().write(true).open(segment);
    let offset = size_on_disk(9_000) + 17;
    let file = file.expect("a segment");
    file.write_all_at(b"x", offset).expect("damage");
    // A file that has lost its end is seen at the start.
    file.set_len(2 * size_on_disk(9_000) + 5)
        .expect("a shorter file");
    let opened = open(&path);
    assert_eq!((opened.entries.len(), opened.damaged), (2, 1));
    assert!(opened.folder.read(DiskKey(0)).is_ok());
    let damaged = opened.folder.read(DiskKey(1));
    assert!(matches!(damaged, Err(ReadFault::Damaged)), "{damaged:?}");
    let gone = opened.folder.read(DiskKey(2));
    assert!(matches!(gone, Err(ReadFault::Unknown)), "{gone:?}");
}

#[test]
fn a_folder_is_used_by_one_process() {
    let room = TempDir::new().expect("a folder");
    let path = room.path().join("chunks");
    let _first = open(&path);
    let second = Folder::open(&path, LIMITS).expect_err("in use");
    assert!(matches!(second, OpenError::InUse { .. }), "{second}");
    assert!(
        second.to_string().contains("in use by another process"),
        "{second}"
    );
}

#[test]
fn a_folder_of_another_version_says_what_to_do() {
    let room = TempDir::new().expect("a folder");
    let path = room.path().join("chunks");
    drop(open(&path));
    let index = redb::Database::open(path.join("index")).expect("the index");
    let writing = index.begin_write().expect("a transaction");
    let meta = redb::TableDefinition::<&str, u64>::new("meta");
    let changed = writing
        .open_table(meta)
        .expect("a table")
        .insert("version", 9)
        .map(|_| ());
    changed.expect("another version");
    writing.commit().expect("a transaction");
    drop(index);
    let fault = Folder::open(&path, LIMITS).expect_err("another version");
    let text = fault.to_string();
    assert!(
        matches!(fault, OpenError::Version { found: 9, .. }),
        "{text}"
    );
    assert!(text.contains("name another folder"), "{text}");
}

#[test]
fn a_file_that_is_no_index_is_an_error_that_says_what_to_do() {
    let room = TempDir::new().expect("a folder");
    fs::write(room.path().join("index"), "a letter to my aunt").expect("a file");
    let text = Folder::open(room.path(), LIMITS)
        .expect_err("no index")
        .to_string();
    assert!(text.contains("move the folder away"), "{text}");
}
