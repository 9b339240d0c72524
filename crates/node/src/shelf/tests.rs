//! Files and folders on the shelf, and the chunks that are read from them.

use super::*;
use whimbrel_content::{Assembly, Folder, Offer, Proof};

fn ignore(_: &Path, _: u64) {}

fn fetched(shelf: &Shelf, content: Guid, length: u64, size: ChunkSize) -> Vec<u8> {
    let mut assembly = Assembly::new(content, 1 << 40);
    let mut bytes = Vec::new();
    for index in 0..size.count(length) {
        let chunk = shelf.read(content, index as u32, size).unwrap();
        let (proof, rest) = Proof::decode(&chunk.proof).unwrap();
        assert!(rest.is_empty());
        let (data, proof) = (&chunk.data[..], &proof);
        let offer = Offer {
            chunk_size: size,
            index,
            claimed_len: length,
            data,
            proof,
        };
        let verified = assembly.check(&offer).unwrap();
        assembly.commit(verified);
        bytes.extend_from_slice(&chunk.data);
    }
    assert!(assembly.is_complete());
    bytes
}

#[test]
fn every_chunk_of_every_size_is_proven() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.bin");
    let bytes: Vec<u8> = (0..5_000_000u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    fs::write(&path, &bytes).unwrap();
    let mut shelf = Shelf::new(None);
    let shelved = shelf.add(&path, &mut ignore).unwrap();
    assert_eq!(shelved.name.0, *blake3::hash(&bytes).as_bytes());
    for size in ChunkSize::all() {
        assert_eq!(fetched(&shelf, shelved.name, shelved.length, size), bytes);
    }
    let past_the_end = shelf.read(shelved.name, 77, ChunkSize::GROUP);
    assert!(matches!(
        past_the_end,
        Err(ReadError::Source(ContentSourceError::NoSuchChunk { .. }))
    ));
}

#[test]
fn a_second_start_reads_the_hashes_instead_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.bin");
    fs::write(&path, vec![7; 6_000_000]).unwrap();
    let cache = folder.path().join("cache");
    let hashed = || {
        let mut bytes = 0;
        let shelved = Shelf::new(Some(cache.clone()))
            .add(&path, &mut |_, done| bytes = done)
            .unwrap();
        (shelved.name, bytes)
    };
    let (name, bytes) = hashed();
    assert_eq!(bytes, 6_000_000);
    assert_eq!(hashed(), (name, 0));
    fs::write(&path, vec![8; 6_000_000]).unwrap();
    let (changed, bytes) = hashed();
    assert_eq!(bytes, 6_000_000);
    assert_ne!(changed, name);
    // A damaged cache is ignored.
    for entry in fs::read_dir(&cache).unwrap() {
        fs::write(entry.unwrap().path(), b"damaged").unwrap();
    }
    assert_eq!(hashed(), (changed, 6_000_000));
}

#[test]
fn a_file_that_changed_is_no_longer_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.bin");
    fs::write(&path, b"before").unwrap();
    let mut shelf = Shelf::new(None);
    let name = shelf.add(&path, &mut ignore).unwrap().name;
    assert_eq!(
        &shelf.read(name, 0, ChunkSize::DEFAULT).unwrap().data[..],
        b"before"
    );
    fs::write(&path, b"after!").unwrap();
    assert!(matches!(
        shelf.read(name, 0, ChunkSize::DEFAULT),
        Err(ReadError::Source(ContentSourceError::Changed(_)))
    ));
    fs::remove_file(&path).unwrap();
    assert!(matches!(
        shelf.read(name, 0, ChunkSize::DEFAULT),
        Err(ReadError::Source(ContentSourceError::NotThere { .. }))
    ));
    shelf.remove(&name);
    assert!(matches!(
        shelf.read(name, 0, ChunkSize::DEFAULT),
        Err(ReadError::Unknown(_))
    ));
}

#[test]
fn a_folder_is_a_list_packs_and_larger_files_and_what_cannot_be_had_is_left_out_alone() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().join("photos");
    fs::create_dir_all(top.join("2026/empty")).unwrap();
    fs::write(top.join("2026/a b\n.jpg"), b"one").unwrap();
    fs::write(top.join("twin"), b"one").unwrap();
    fs::write(top.join("-rf"), b"").unwrap();
    fs::write(top.join("large"), vec![5; 1 << 16]).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", top.join("out")).unwrap();
    std::os::unix::fs::symlink("../twin", top.join("2026/link")).unwrap();
    mknodat(CWD, top.join("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let mut shelf = Shelf::new(None);
    let shelved = shelf.add(&top, &mut ignore).unwrap();
    assert_eq!((shelved.files, shelved.length), (4, 6 + (1 << 16)));
    let mut skipped: Vec<_> = shelved
        .skipped
        .iter()
        .map(|skipped| skipped.path.strip_prefix(&top).unwrap().to_str().unwrap())
        .collect();
    skipped.sort_unstable();
    assert_eq!(skipped, ["fifo", "out"]);
    let listing = shelf
        .read(shelved.name, 0, ChunkSize::DEFAULT)
        .unwrap()
        .data;
    let listed = Folder::decode(&listing).unwrap();
    assert_eq!(listed.refused, []);
    let listed = listed.folder;
    let paths: Vec<&[u8]> = listed
        .entries()
        .iter()
        .map(|entry| entry.path.as_bytes())
        .collect();
    let expected: [&[u8]; 7] = [
        b"-rf",
        b"2026",
        b"2026/a b\n.jpg",
        b"2026/empty",
        b"2026/link",
        b"large",
        b"twin",
    ];
    assert_eq!(paths, expected);
    // The list, the large file, and the pack of the two different small ones.
    assert_eq!((shelf.len(), shelf.published().count()), (3, 3));
    assert_eq!(listed.packs()[0].length, 3);
}

/// Packed files are served as they were published; beyond the memory for packs, they are served
/// only while they are unchanged.
#[test]
fn a_pack_is_never_half_old_and_half_new() {
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().join("small");
    fs::create_dir(&top).unwrap();
    for number in 0..20u8 {
        fs::write(top.join(number.to_string()), vec![number; 60_000]).unwrap();
    }
    let pack_of = |shelf: &mut Shelf| {
        let name = shelf.add(&top, &mut ignore).unwrap().name;
        let listing = shelf.read(name, 0, ChunkSize::DEFAULT).unwrap().data;
        Folder::decode(&listing).unwrap().folder.packs()[0]
    };
    let mut held = Shelf::new(None);
    let mut read = Shelf::new(None);
    read.held = usize::MAX / 2;
    let pack = pack_of(&mut held);
    assert_eq!(pack_of(&mut read), pack);
    let whole = fetched(&held, pack.content, pack.length.into(), ChunkSize::MIN);
    assert_eq!(
        fetched(&read, pack.content, pack.length.into(), ChunkSize::MIN),
        whole
    );
    fs::write(top.join("1"), vec![99; 60_000]).unwrap();
    assert_eq!(
        fetched(&held, pack.content, pack.length.into(), ChunkSize::MIN),
        whole
    );
    let changed = read.read(pack.content, 0, ChunkSize::DEFAULT);
    assert!(
        matches!(&changed, Err(ReadError::Source(ContentSourceError::Changed(path))) if *path == top.canonicalize().unwrap().join("1"))
    );
}

/// The names that are suggested for contents of this name.
fn suggested(shelf: &Shelf, content: Guid) -> String {
    shelf.publish(&content).unwrap().file_name
}

#[test]
fn a_file_keeps_its_name_whatever_else_has_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (small, length) in [("small", 100), ("large", 100_000)] {
        // Alone in a folder, a small file is all of a pack.
        let alone = at(&format!("in-{small}"));
        fs::create_dir(&alone).unwrap();
        fs::write(alone.join("other"), vec![length as u8; length]).unwrap();
        fs::copy(alone.join("other"), at(small)).unwrap();
        for order in [[&at(small), &alone], [&alone, &at(small)]] {
            let mut shelf = Shelf::new(None);
            let named = order.map(|path| shelf.add(path, &mut ignore).unwrap());
            let file = named.iter().find(|one| one.path == at(small)).unwrap();
            assert_eq!(suggested(&shelf, file.name), small, "{order:?}");
        }
    }
    // Of two names that the user gives to the same bytes, the first one stays.
    fs::copy(at("small"), at("twin")).unwrap();
    let mut shelf = Shelf::new(None);
    let first = shelf.add(&at("twin"), &mut ignore).unwrap().name;
    assert_eq!(shelf.add(&at("small"), &mut ignore).unwrap().name, first);
    assert_eq!(suggested(&shelf, first), "twin");
}

#[test]
fn the_suggested_name_is_the_one_that_the_user_wrote() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &[u8]| folder.path().join(OsStr::from_bytes(name));
    fs::write(at(b"blob"), "film").unwrap();
    fs::create_dir(at(b"data")).unwrap();
    std::os::unix::fs::symlink("blob", at(b"film.mkv")).unwrap();
    std::os::unix::fs::symlink("data", at(b"photos")).unwrap();
    fs::write(at(b"caf\xe9.txt"), "menu").unwrap();
    let long = "x".repeat(255);
    fs::write(at(long.as_bytes()), "long").unwrap();
    let name_of = |path: PathBuf| {
        let mut shelf = Shelf::new(None);
        let name = shelf.add(&path, &mut ignore).unwrap().name;
        suggested(&shelf, name)
    };
    assert_eq!(name_of(at(b"film.mkv")), "film.mkv");
    assert_eq!(name_of(at(b"photos")), "photos");
    assert_eq!(name_of(at(b"data/../data/.")), "data");
    assert_eq!(
        name_of(at(b"photos/..")),
        suggested_name(folder.path(), folder.path())
    );
    assert_eq!(name_of(at(b"caf\xe9.txt")), "caf\u{fffd}.txt");
    assert_eq!(name_of(at(long.as_bytes())), long);
}

#[test]
fn what_is_no_file_and_what_is_not_there_is_refused() {
    let mut shelf = Shelf::new(None);
    assert!(matches!(
        shelf.add(Path::new("/dev/null"), &mut ignore),
        Err(ShelfError::NoFile(_))
    ));
    let missing = shelf.add(Path::new("/dev/nothing-of-this-name"), &mut ignore);
    assert!(matches!(missing, Err(ShelfError::Read { .. })));
}
