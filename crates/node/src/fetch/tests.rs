//! Fetches from a host that the test simulates.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;

use bytes::Bytes;
use whimbrel_content::{Assembly, ChunkSize, ContentKey};
use whimbrel_mobilityfirst::local::{
    Get, LocalChunk, LocalEvent, LocalRequest, MissingParts, OfferId, greeting,
};
use whimbrel_mobilityfirst::wire::EXACT_SIZE;

mod encrypted;
mod folders;
mod updates;

use super::finishing::name_for;
use super::*;
use crate::output::Stream;
use crate::shelf::Shelf;
use whimbrel_client::LocalClient;

/// The behaviour of the simulated host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manners {
    /// Serves everything.
    Good,
    /// Closes the connection after this many chunks in all.
    LeavesAfter(usize),
    /// Sends a false byte in each chunk first, then the chunk.
    LiesFirst,
    /// Sends this chunk of this content never, and nothing again.
    Loses(Guid, u32),
}

fn read_frame(stream: &mut UnixStream) -> Option<Vec<u8>> {
    use std::io::Read;
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix).ok()?;
    let mut body = vec![0; u32::from_be_bytes(prefix) as usize];
    stream.read_exact(&mut body).ok()?;
    Some(body)
}

fn read_request(stream: &mut UnixStream) -> Option<LocalRequest> {
    let body = read_frame(stream)?;
    Some(LocalRequest::decode(&Bytes::from(body)).unwrap())
}

/// Reads a program's greeting, and answers it.
fn greet(stream: &mut UnixStream) -> Option<()> {
    let frame = read_frame(stream)?;
    assert_eq!(frame[..], greeting());
    let prefix = (greeting().len() as u32).to_be_bytes();
    stream.write_all(&[&prefix[..], &greeting()].concat()).ok()
}

fn write_event(stream: &mut UnixStream, event: &LocalEvent) -> Option<()> {
    let mut body = Vec::new();
    let tail = event.encode_head(&mut body);
    body.extend_from_slice(&tail);
    let frame = [&(body.len() as u32).to_be_bytes()[..], &body].concat();
    stream.write_all(&frame).ok()
}

fn chunk_of(shelf: &Shelf, get: &Get, index: u32) -> LocalChunk {
    let chunk_size = ChunkSize::from_code(get.options.chunk_log2 & !EXACT_SIZE).unwrap();
    let publish = shelf.publish(&get.content).unwrap();
    let read = shelf.read(get.content, index, chunk_size).unwrap();
    LocalChunk {
        request: get.request,
        index,
        chunk_log2: chunk_size.code(),
        content_len: publish.content_len,
        len_proven: true,
        kind: publish.kind,
        file_name: publish.file_name,
        proof: read.proof,
        verified: None,
        data: read.data,
    }
}

/// Serves requests from `shelf`. Returns the number of chunks sent.
fn play_host(mut stream: UnixStream, shelf: &Shelf, manners: Manners) -> usize {
    let mut sent = 0;
    if greet(&mut stream).is_none() {
        return sent;
    }
    while let Some(request) = read_request(&mut stream) {
        let get = match request {
            LocalRequest::Get(get) => get,
            LocalRequest::Accept(accept) => accept.get,
            _ => continue,
        };
        let known = shelf.publish(&get.content).is_some();
        if !known {
            let reason = FailReason::NoSuchName;
            write_event(
                &mut stream,
                &LocalEvent::Failed {
                    request: get.request,
                    reason,
                },
            );
            continue;
        }
        let mut assembly = if get.resume.is_empty() {
            Assembly::new(get.content, 1 << 40)
        } else {
            Assembly::decode(&get.resume).unwrap()
        };
        let chunk_size = ChunkSize::from_code(get.options.chunk_log2 & !EXACT_SIZE).unwrap();
        let length = chunk_of(shelf, &get, 0).content_len;
        for index in 0..chunk_size.count(length) as u32 {
            let range = chunk_size.range(index.into(), length).unwrap();
            if assembly.verified().contains(&range) && !range.is_empty() {
                continue;
            }
            if manners == Manners::Loses(get.content, index) {
                continue;
            }
            let chunk = chunk_of(shelf, &get, index);
            if manners == Manners::LiesFirst {
                let mut lie = chunk.clone();
                let mut data = lie.data.to_vec();
                data[0] ^= 1;
                lie.data = data.into();
                write_event(&mut stream, &LocalEvent::Chunk(lie));
            }
            if manners == Manners::LeavesAfter(sent) {
                return sent;
            }
            if write_event(&mut stream, &LocalEvent::Chunk(chunk)).is_none() {
                return sent;
            }
            sent += 1;
        }
        assembly.deliver_again();
        if let Manners::Loses(content, index) = manners
            && content == get.content
        {
            let gap = chunk_size.range(index.into(), length).unwrap();
            let missing = MissingParts {
                content_len: Some(length),
                bytes: gap.end - gap.start,
                ranges: vec![gap],
            };
            let request = get.request;
            write_event(&mut stream, &LocalEvent::Incomplete { request, missing });
        }
    }
    sent
}

struct Scene {
    folder: tempfile::TempDir,
    shelf: Shelf,
    update: bool,
    limit: Option<u64>,
    /// With which what is fetched was encrypted.
    key: Option<ContentKey>,
    /// Contents come by an offer, and are folders as one.
    offers_bundles: bool,
}

impl Scene {
    fn new() -> Scene {
        Scene {
            folder: tempfile::tempdir().unwrap(),
            shelf: Shelf::new(None),
            update: false,
            limit: Some(1 << 40),
            key: None,
            offers_bundles: false,
        }
    }

    fn put(&mut self, name: &str, bytes: &[u8]) -> Guid {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        self.shelf.add(&path, &mut |_, _| {}).unwrap().name
    }

    fn out(&self) -> PathBuf {
        let out = self.folder.path().join("out");
        fs::create_dir_all(&out).unwrap();
        out
    }

    fn get(
        &self,
        content: Guid,
        output: Destination,
        manners: Manners,
    ) -> (Result<Fetched, FetchError>, usize) {
        self.get_until(content, output, manners, &AtomicBool::new(false), None)
    }

    fn get_until(
        &self,
        content: Guid,
        output: Destination,
        manners: Manners,
        stop: &AtomicBool,
        timeout: Option<Duration>,
    ) -> (Result<Fetched, FetchError>, usize) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            let host = scope.spawn(|| play_host(theirs, &self.shelf, manners));
            let options = FetchOptions {
                content,
                key: self.key.clone(),
                output,
                transfer: TransferOptions::default().with_chunk_size(Some(ChunkSize::GROUP)),
                timeout,
                limit: self.limit,
                update: self.update,
                offered: self.offers_bundles.then_some(OfferId {
                    sender: Guid([5; 32]),
                    number: 1,
                }),
                unpacking: (self.offers_bundles).then_some(Unpacking { limit: self.limit }),
            };
            let mut attachment = Attachment::Once(Some(LocalClient::over(ours).unwrap()));
            let fetched = fetch(&mut attachment, options, stop, &mut |_| {});
            (fetched, host.join().unwrap())
        })
    }
}

fn to(path: &Path) -> Destination {
    Destination::open(path, &AtomicBool::new(false)).unwrap()
}

fn stream(pipe: &Pipe) -> Destination {
    Destination::Stream(Stream {
        writer: Box::new(pipe.clone()),
        path: None,
    })
}

fn noise(length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

fn hidden_files(folder: &Path) -> Vec<PathBuf> {
    let hidden = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'))
    };
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(hidden)
        .collect()
}

#[test]
fn a_file_arrives_whole_under_its_suggested_name_and_leaves_nothing_beside_it() {
    let mut scene = Scene::new();
    let bytes = noise(700_001);
    let name = scene.put("data.bin", &bytes);
    let (fetched, _) = scene.get(name, to(&scene.out()), Manners::Good);
    let fetched = fetched.unwrap();
    assert_eq!(fetched.path, Some(scene.out().join("data.bin")));
    assert_eq!(
        (fetched.length, fetched.received, fetched.resumed),
        (700_001, 700_001, 0)
    );
    assert_eq!(fs::read(fetched.path.unwrap()).unwrap(), bytes);
    assert!(hidden_files(&scene.out()).is_empty());
}

#[test]
fn what_has_come_before_the_host_left_is_not_fetched_again() {
    let mut scene = Scene::new();
    let bytes = noise(11 * 65_536 + 5);
    let name = scene.put("data.bin", &bytes);
    let target = scene.out().join("copy");
    let (broken, sent) = scene.get(name, to(&target), Manners::LeavesAfter(7));
    assert!(
        matches!(broken, Err(FetchError::Host(LocalError::Closed))),
        "{broken:?}"
    );
    assert_eq!(sent, 7);
    assert!(!target.exists());
    let (fetched, sent) = scene.get(name, to(&target), Manners::Good);
    let fetched = fetched.unwrap();
    assert_eq!(
        (sent, fetched.resumed, fetched.received),
        (5, 7 * 65_536, 4 * 65_536 + 5)
    );
    assert_eq!(fs::read(&target).unwrap(), bytes);
    assert!(hidden_files(&scene.out()).is_empty());
}

#[test]
fn a_host_that_lies_is_not_believed() {
    let mut scene = Scene::new();
    let bytes = noise(200_000);
    let name = scene.put("data.bin", &bytes);
    let target = scene.out().join("copy");
    scene.get(name, to(&target), Manners::LiesFirst).0.unwrap();
    assert_eq!(fs::read(&target).unwrap(), bytes);
}

#[test]
fn a_name_that_nobody_has_leaves_no_file() {
    let scene = Scene::new();
    let (failed, _) = scene.get_until(
        Guid([9; 32]),
        to(&scene.out()),
        Manners::Good,
        &AtomicBool::new(false),
        Some(Duration::from_millis(300)),
    );
    assert!(matches!(
        failed,
        Err(FetchError::Failed {
            reason: FailReason::NoSuchName,
            ..
        })
    ));
    assert_eq!(fs::read_dir(scene.out()).unwrap().count(), 0);
}

#[derive(Clone, Default)]
struct Pipe(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_pipe_gets_the_bytes_in_order_and_no_folder() {
    let mut scene = Scene::new();
    let bytes = noise(500_000);
    let name = scene.put("data.bin", &bytes);
    let pipe = Pipe::default();
    scene.get(name, stream(&pipe), Manners::Good).0.unwrap();
    assert_eq!(*pipe.0.lock().unwrap(), bytes);
    scene.put("photos/a", b"a");
    let folder = scene
        .shelf
        .add(&scene.folder.path().join("photos"), &mut |_, _| {})
        .unwrap()
        .name;
    let (refused, _) = scene.get(folder, stream(&pipe), Manners::Good);
    assert!(
        matches!(refused, Err(FetchError::FolderToStream)),
        "{refused:?}"
    );
    assert_eq!(*pipe.0.lock().unwrap(), bytes, "nothing of its list");
}

#[test]
fn a_folder_arrives_with_odd_names_copies_empty_files_and_programs() {
    let mut scene = Scene::new();
    let big = noise(300_000);
    let files: [(&str, &[u8]); 6] = [
        ("-rf", b"dash"),
        ("sub/new\nline and space", &big),
        ("sub/deeper/\u{fc}ber", &big),
        ("empty", b""),
        (".hidden", b"dot"),
        ("run.sh", b"#!/bin/sh\n"),
    ];
    for (name, bytes) in files {
        scene.put(&format!("photos/{name}"), bytes);
    }
    let source = scene.folder.path().join("photos");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(source.join("run.sh"), mode).unwrap();
    let name = scene.shelf.add(&source, &mut |_, _| {}).unwrap().name;
    let (fetched, _) = scene.get(name, to(&scene.out()), Manners::Good);
    let fetched = fetched.unwrap();
    let top = scene.out().join("photos");
    assert_eq!((fetched.path.as_ref(), fetched.files), (Some(&top), 6));
    for (name, bytes) in files {
        assert_eq!(fs::read(top.join(name)).unwrap(), bytes, "{name:?}");
    }
    let runs = |name: &str| {
        use std::os::unix::fs::PermissionsExt;
        fs::metadata(top.join(name)).unwrap().permissions().mode() & 0o100 != 0
    };
    assert!(runs("run.sh") && !runs("-rf"));
    assert_eq!(hidden_files(&scene.out()), [] as [PathBuf; 0]);
    // The second time everything is there: only the list is fetched.
    let (again, sent) = scene.get(name, to(&scene.out()), Manners::Good);
    let again = again.unwrap();
    assert_eq!(
        (sent, again.received, again.resumed, again.files),
        (1, 0, fetched.length, 6)
    );
}

#[test]
fn a_folder_goes_on_where_it_was_broken_off() {
    let mut scene = Scene::new();
    for index in 0..20u8 {
        let length = 100_000 + usize::from(index);
        scene.put(
            &format!("photos/{index}"),
            &noise(length).iter().map(|b| b ^ index).collect::<Vec<u8>>(),
        );
    }
    let source = scene.folder.path().join("photos");
    let name = scene.shelf.add(&source, &mut |_, _| {}).unwrap().name;
    let (broken, first) = scene.get(name, to(&scene.out()), Manners::LeavesAfter(15));
    assert!(broken.is_err());
    let (fetched, second) = scene.get(name, to(&scene.out()), Manners::Good);
    let fetched = fetched.unwrap();
    assert_eq!(fetched.files, 20);
    assert_eq!(
        first + second,
        1 + 20 * 2,
        "no chunk was fetched twice, the list neither"
    );
    assert!(fetched.resumed > 0);
    for index in 0..20 {
        let (a, b) = (
            source.join(index.to_string()),
            scene.out().join("photos").join(index.to_string()),
        );
        assert_eq!(fs::read(a).unwrap(), fs::read(b).unwrap());
    }
}

#[test]
fn asking_to_stop_keeps_what_has_come_and_patience_has_an_end() {
    let mut scene = Scene::new();
    let name = scene.put("data.bin", &noise(200_000));
    let target = scene.out().join("copy");
    let stop = AtomicBool::new(true);
    let output = || to(&target);
    let (stopped, _) = scene.get_until(name, output(), Manners::Good, &stop, None);
    assert!(
        matches!(stopped, Err(FetchError::Interrupted)),
        "{stopped:?}"
    );
    let (ours, theirs) = UnixStream::pair().unwrap();
    let options = FetchOptions {
        content: name,
        key: None,
        output: output(),
        transfer: TransferOptions::default().with_chunk_size(Some(ChunkSize::GROUP)),
        timeout: Some(Duration::from_millis(300)),
        limit: Some(1 << 40),
        update: false,
        offered: None,
        unpacking: None,
    };
    let mut silent = Attachment::Once(Some(LocalClient::over(ours).unwrap()));
    let late = fetch(&mut silent, options, &AtomicBool::new(false), &mut |_| {});
    assert!(matches!(late, Err(FetchError::TimedOut(_))), "{late:?}");
    drop(theirs);
}

/// The same command resumes in a folder that an earlier run has left unfinished; it puts the
/// fetched folder into one that is whole.
#[test]
fn a_named_folder_goes_on_where_it_was_broken_off() {
    let mut scene = Scene::new();
    for index in 0..6u8 {
        let bytes: Vec<u8> = noise(100_000).iter().map(|b| b ^ index).collect();
        scene.put(&format!("photos/{index}"), &bytes);
    }
    let source = scene.folder.path().join("photos");
    let name = scene.shelf.add(&source, &mut |_, _| {}).unwrap().name;
    let (copy, other) = (scene.out().join("copy"), scene.out().join("other"));
    let (broken, first) = scene.get(name, to(&copy), Manners::LeavesAfter(6));
    assert!(broken.is_err());
    assert!(copy.is_dir());
    // Another folder, which existed before, is not mistaken for it.
    fs::create_dir(&other).unwrap();
    let (fetched, _) = scene.get(name, to(&other), Manners::Good);
    assert_eq!(fetched.unwrap().path, Some(other.join("photos")));
    let (fetched, second) = scene.get(name, to(&copy), Manners::Good);
    assert_eq!(fetched.unwrap().path.as_ref(), Some(&copy));
    assert_eq!(first + second, 1 + 6 * 2, "no chunk was fetched twice");
    assert_eq!(fs::read_dir(&copy).unwrap().count(), 6);
    let (fetched, _) = scene.get(name, to(&copy), Manners::Good);
    assert_eq!(fetched.unwrap().path, Some(copy.join("photos")));
    assert!(hidden_files(&scene.out()).is_empty());
}

#[test]
fn a_folder_replaces_no_file_and_goes_through_no_link() {
    let mut scene = Scene::new();
    scene.put("photos/a", b"a");
    let source = scene.folder.path().join("photos");
    let name = scene.shelf.add(&source, &mut |_, _| {}).unwrap().name;
    let file = scene.out().join("file");
    fs::write(&file, "mine").unwrap();
    let (refused, _) = scene.get(name, to(&file), Manners::Good);
    assert!(
        matches!(&refused, Err(FetchError::InTheWay(path)) if *path == file),
        "{refused:?}"
    );
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), scene.out().join("photos")).unwrap();
    let (fetched, _) = scene.get(name, to(&scene.out()), Manners::Good);
    assert_eq!(fetched.unwrap().path, Some(scene.out().join("photos-2")));
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn a_stream_that_fails_names_the_device_and_what_failed() {
    let mut scene = Scene::new();
    let name = scene.put("data.bin", &noise(200_000));
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let output = Destination::Stream(Stream {
        writer: Box::new(Full),
        path: Some("/dev/full".into()),
    });
    let (failed, _) = scene.get(name, output, Manners::Good);
    let text = failed.unwrap_err().to_string();
    assert!(
        text.contains("/dev/full") && text.contains("storage"),
        "{text}"
    );
}

#[test]
fn a_content_without_a_usable_name_is_called_by_its_own() {
    let content = Guid([1; 32]);
    assert_eq!(name_for("report.pdf", content), "report.pdf");
    assert_eq!(name_for("", content), content.to_string());
}
