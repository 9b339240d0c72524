//! Folders, with real processes on real sockets: all kinds of entries, versions that do not
//! mix, and a hostile server.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use crate::support::{self, Network, Running, noise};
use whimbrel_client::LocalClient;
use whimbrel_content::{ChunkSize, ChunkTree};
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{
    LocalEvent, LocalRequest, Publish, ReadChunk, TransferOptions,
};
use whimbrel_mobilityfirst::wire::{ContentKind, ControlCode};

/// Kind and permissions, time, bytes or target of everything below a folder.
type Contents = BTreeMap<PathBuf, (u32, (i64, i64), Vec<u8>)>;

fn contents(top: &Path) -> Contents {
    let mut found = Contents::new();
    let mut due = vec![top.to_owned()];
    while let Some(folder) = due.pop() {
        for item in fs::read_dir(&folder).unwrap() {
            let path = item.unwrap().path();
            let there = fs::symlink_metadata(&path).unwrap();
            let bytes = if there.is_dir() {
                due.push(path.clone());
                Vec::new()
            } else if there.is_symlink() {
                fs::read_link(&path).unwrap().as_os_str().as_bytes().into()
            } else {
                fs::read(&path).unwrap()
            };
            let time = (there.mtime(), there.mtime_nsec());
            let relative = path.strip_prefix(top).unwrap().to_owned();
            found.insert(relative, (there.mode(), time, bytes));
        }
    }
    found
}

fn same(expected: &Contents, found: &Contents) {
    assert_eq!(expected.len(), found.len());
    for (path, expected) in expected {
        assert!(found.get(path) == Some(expected), "{path:?}");
    }
}

/// The last line of a `get`, and its exit code.
fn ended(get: &mut Running) -> (serde_json::Value, i32) {
    let line = get.await_json(|line| line["event"] == "done" || line["event"] == "failed");
    (line, get.exit_code())
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn ten_thousand_small_files_and_all_else_that_is_in_a_folder_cross_two_routers() {
    let network = Network::start(None);
    let top = network.path("tree");
    for number in 0..10_000 {
        let path = top.join(format!("d{:02}/f{number:05}", number / 200));
        write(&path, format!("{number:0200}").as_bytes());
    }
    fs::create_dir_all(top.join("empty/within")).unwrap();
    symlink("../d00/f00001", top.join("empty/link")).unwrap();
    write(
        &top.join(OsStr::from_bytes(b"d01/latin-\xfc")),
        b"not UTF-8",
    );
    write(&top.join("large"), &noise(3_000_000, 5));
    for (path, mode) in [
        ("d00/f00000", 0o755),
        ("d00/f00003", 0o600),
        ("large", 0o444),
    ] {
        fs::set_permissions(top.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    for path in ["d00/f00001", "large", "empty/within"] {
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
        let file = fs::File::open(top.join(path)).unwrap();
        file.set_modified(time).unwrap();
    }
    let (serving, names) = network.serve(&[&top]);
    let served = contents(&top);
    // A change after publication does not show: one version is served.
    write(&top.join("d00/f00002"), b"a later version");
    let target = network.path("copy");
    let mut get = Running::start(&mut network.get(&names[0], &target));
    let (line, code) = ended(&mut get);
    assert_eq!(code, 0, "{line}");
    assert_eq!(line["fetched"]["files"], 10_002);
    same(&served, &contents(&target));
    drop(serving);
}

#[test]
fn a_new_version_takes_the_place_of_an_old_one_if_it_is_told_to() {
    let network = Network::start(None);
    let (old, new) = (network.path("old/tree"), network.path("new/tree"));
    for number in 0..300 {
        write(
            &old.join(format!("f{number}")),
            format!("old {number}").as_bytes(),
        );
        let version = if number % 3 == 0 { "new" } else { "old" };
        let bytes = format!("{version} {number}");
        write(&new.join(format!("f{number}")), bytes.as_bytes());
    }
    write(&old.join("gone"), b"gone");
    write(&new.join("added/deep"), b"added");
    let (_serving, names) = network.serve(&[&old, &new]);
    let target = network.path("copies");
    fs::create_dir(&target).unwrap();
    let get = |name: &str, target: &Path, update: bool| {
        let mut command = network.get(name, target);
        if update {
            command.arg("--update");
        }
        let (line, code) = ended(&mut Running::start(&mut command));
        assert_eq!(code, 0, "{line}");
        PathBuf::from(line["fetched"]["path"].as_str().unwrap())
    };
    let first = get(&names[0], &target, false);
    assert_eq!(first, target.join("tree"));
    let before = contents(&first);
    assert_eq!(get(&names[1], &target, false), target.join("tree-2"));
    same(&before, &contents(&first));
    same(&contents(&new), &contents(&target.join("tree-2")));
    assert_eq!(get(&names[1], &first, true), first);
    let mut after = contents(&first);
    assert!(after.remove(Path::new("gone")).is_some());
    same(&contents(&new), &after);
}

#[test]
fn serve_names_what_it_leaves_out_and_publishes_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().join(OsStr::from_bytes(b"tree-\xff"));
    write(&top.join("file"), b"file");
    symlink("/etc/passwd", top.join("out")).unwrap();
    symlink("file", top.join("in")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(top.join("socket")).unwrap();
    let serve = |json: Option<&str>| {
        let mut command = support::whimbrel();
        command.args(["serve", "--print-names", "--no-cache"]);
        support::finished(command.args(json).arg(&top))
    };
    let (code, out, err) = serve(None);
    assert_eq!((code, out.lines().count()), (0, 1), "{out}{err}");
    assert!(
        err.contains("out\": it is a link to \"/etc/passwd\""),
        "{err}"
    );
    assert!(err.contains("socket\": it is a socket"), "{err}");
    let (code, out, err) = serve(Some("--json"));
    assert_eq!(code, 0, "{err}");
    let line: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(line["shelved"]["files"], 1);
    assert_eq!(line["shelved"]["skipped"].as_array().unwrap().len(), 2);
}

/// Publishes any bytes as a folder or a file, as a hostile program can.
fn publish(
    socket: &Path,
    contents: Vec<(Vec<u8>, ContentKind)>,
) -> (Arc<AtomicBool>, JoinHandle<()>) {
    let mut client = LocalClient::connect(socket).unwrap();
    let tree = |bytes: &[u8]| ChunkTree::from_reader(bytes, ChunkSize::MIN, &mut |_| {}).unwrap();
    let contents: BTreeMap<Guid, (ChunkTree, Vec<u8>)> = contents
        .into_iter()
        .map(|(bytes, kind)| {
            let tree = tree(&bytes);
            let publish = Publish {
                content: tree.root(),
                content_len: bytes.len() as u64,
                kind,
                file_name: "tree".into(),
            };
            let publish = LocalRequest::Publish(publish, TransferOptions::default());
            client.send(&publish).unwrap();
            (tree.root(), (tree, bytes))
        })
        .collect();
    let mut registered = 0;
    while registered < contents.len() {
        if let Some(LocalEvent::Published { code, .. }) = client.receive(support::PATIENCE).unwrap()
        {
            registered += usize::from(code == ControlCode::Registered);
        }
    }
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let thread = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            let Some(LocalEvent::Read {
                read,
                content,
                index,
                chunk_log2,
            }) = client.receive(Duration::from_millis(50)).unwrap()
            else {
                continue;
            };
            let size = ChunkSize::from_code(chunk_log2).unwrap();
            let (tree, bytes) = &contents[&content];
            let range = size.range(index.into(), bytes.len() as u64).unwrap();
            let mut proof = Vec::new();
            tree.proof(index.into(), size).unwrap().encode(&mut proof);
            let data = bytes[range.start as usize..range.end as usize].to_vec();
            let chunk = Some(ReadChunk {
                proof: proof.into(),
                data: data.into(),
            });
            client
                .send(&LocalRequest::ReadDone { read, chunk })
                .unwrap();
        }
    });
    (stop, thread)
}

#[test]
fn a_hostile_server_writes_nothing_outside_the_output_and_each_refusal_is_named() {
    let network = Network::start(None);
    let pack = b"pwned".to_vec();
    let digest = *blake3::hash(&pack).as_bytes();
    let outside = network.path("outside");
    fs::create_dir(&outside).unwrap();
    let absolute = outside.join("x");
    let link = |target: &str| {
        let length = (target.len() as u16).to_be_bytes();
        [&length[..], target.as_bytes()].concat()
    };
    let file = [&[0; 8][..], &5u32.to_be_bytes(), &digest].concat();
    let lies = [&[0; 8][..], &5u32.to_be_bytes(), &[7; 32]].concat();
    let entries: [(u8, &[u8], u16, Vec<u8>); 9] = [
        (1, b"../escaped", 0o644, file.clone()),
        (1, absolute.as_os_str().as_bytes(), 0o644, file.clone()),
        (1, b"a/../../escaped", 0o644, file.clone()),
        (1, b"good", 0o644, file.clone()),
        (1, b"lies", 0o644, lies),
        (3, b"link", 0o777, link(outside.to_str().unwrap())),
        (3, b"safe", 0o777, link("good")),
        (1, b"safe/through", 0o644, file.clone()),
        (1, b"setuid", 0o4755, file),
    ];
    let mut listing = b"\x89WHBDIR\n\x02\0\0\0\x01".to_vec();
    listing.extend(digest);
    listing.extend(5u32.to_be_bytes());
    listing.extend((entries.len() as u32).to_be_bytes());
    for (kind, path, mode, rest) in &entries {
        listing.push(*kind);
        listing.extend((path.len() as u16).to_be_bytes());
        listing.extend(*path);
        listing.extend(mode.to_be_bytes());
        listing.extend([0; 12]);
        listing.extend(rest);
    }
    let name = support::name_of(&listing);
    let (stop, thread) = publish(
        &network.host_socket(1),
        vec![(pack, ContentKind::File), (listing, ContentKind::Folder)],
    );
    let target = network.path("copy");
    let mut get = Running::start(&mut network.get(&name, &target));
    let (line, code) = ended(&mut get);
    assert_eq!(code, 9, "{line}");
    let refused = line["fetched"]["refused"].as_array().unwrap();
    assert_eq!(refused.len(), 7, "{line}");
    let there: Vec<PathBuf> = contents(&target).into_keys().collect();
    assert_eq!(there, ["good", "safe"].map(PathBuf::from));
    assert_eq!(fs::read(target.join("good")).unwrap(), b"pwned");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert!(!network.path("escaped").exists());
    // The same for a user at a terminal.
    let second = network.path("second");
    let (code, out, err) = support::finished(
        support::whimbrel()
            .args(["get", &name, "--socket"])
            .arg(network.host_socket(0))
            .arg("-o")
            .arg(&second),
    );
    assert_eq!(code, 9, "{out}{err}");
    assert!(
        err.contains("refused \"../escaped\": its path contains"),
        "{err}"
    );
    assert!(
        err.contains("7 of the folder's entries were refused"),
        "{err}"
    );
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
}
