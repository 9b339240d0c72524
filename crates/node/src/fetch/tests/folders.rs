//! Folders: what survives, what is refused, and what happens to an older version.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::SystemTime;

use whimbrel_content::folder::MAX_PACKED_LEN;
use whimbrel_content::{Entry, Folder, Kind, Modified, Pack, RelativePath, Spot};
use whimbrel_mobilityfirst::wire::ContentKind;

use super::*;

impl Scene {
    pub(super) fn publish(&mut self, folder: &str) -> Guid {
        let path = self.folder.path().join(folder);
        self.shelf.add(&path, &mut |_, _| {}).unwrap().name
    }

    pub(super) fn source(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn set_time(path: &Path, seconds: u64, nanoseconds: u32) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

/// Path, kind and permissions, time, bytes or target.
pub(super) type Item = (PathBuf, u32, (i64, i64), Vec<u8>);

/// Returns everything below a folder.
pub(super) fn contents(top: &Path) -> Vec<Item> {
    let mut found = Vec::new();
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
            let relative = path.strip_prefix(top).unwrap().to_owned();
            let time = (there.mtime(), there.mtime_nsec());
            found.push((relative, there.mode(), time, bytes));
        }
    }
    found.sort();
    found
}

#[test]
fn small_files_travel_together_and_everything_else_of_a_folder_survives() {
    let mut scene = Scene::new();
    let top = scene.source("tree");
    for number in 0..3_000 {
        let folder = top.join(format!("d{}", number / 500));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("f{number}")), format!("{number:0200}")).unwrap();
    }
    fs::create_dir_all(top.join("empty/within")).unwrap();
    fs::write(top.join(OsStr::from_bytes(b"latin-\xfc")), b"not UTF-8").unwrap();
    fs::write(top.join("limit"), noise(MAX_PACKED_LEN as usize)).unwrap();
    fs::write(top.join("large"), noise(300_000)).unwrap();
    fs::write(top.join("private"), b"key").unwrap();
    fs::write(top.join("large-private"), noise(200_000)).unwrap();
    fs::write(top.join("read-only"), b"").unwrap();
    symlink("../large", top.join("empty/link")).unwrap();
    symlink("nowhere", top.join("dangling")).unwrap();
    for (path, mode) in [
        ("private", 0o600),
        ("large-private", 0o700),
        ("read-only", 0o444),
        ("large", 0o755),
        ("d0/f1", 0o755),
        ("d1", 0o555),
        ("empty/within", 0o700),
    ] {
        set_mode(&top.join(path), mode);
    }
    for (path, seconds) in [
        ("large", 1_000_000_000),
        ("d0/f1", 5),
        ("empty/within", 77),
        ("d2", 78),
    ] {
        set_time(&top.join(path), seconds, 123_456_789);
    }
    let name = scene.publish("tree");
    let (fetched, sent) = scene.get(name, to(&scene.out()), Manners::Good);
    let fetched = fetched.unwrap();
    assert_eq!((fetched.files, &fetched.refused), (3_006, &Vec::new()));
    // 3,006 files of about 1.2 MB in chunks of 64 KiB: list and packs.
    assert!(sent < 30, "{sent} chunks");
    let copy = scene.out().join("tree");
    let (expected, found) = (contents(&top), contents(&copy));
    assert_eq!(expected.len(), found.len());
    for (expected, found) in expected.iter().zip(&found) {
        let is_link = expected.1 & 0o170_000 == 0o120_000;
        assert!(
            expected.0 == found.0 && expected.3 == found.3,
            "{:?}",
            found.0
        );
        assert!(
            is_link || expected.1 == found.1,
            "{:?} {:o}",
            found.0,
            found.1
        );
        assert_eq!(expected.2, found.2, "{:?}", found.0);
    }
    assert!(hidden_files(&scene.out()).is_empty());
    // The second time only the list is fetched.
    let (again, sent) = scene.get(name, to(&scene.out()), Manners::Good);
    let again = again.unwrap();
    assert_eq!((again.received, again.path), (0, Some(copy.clone())));
    assert!(sent < 6, "{sent} chunks");
    set_mode(&copy.join("d1"), 0o755);
    set_mode(&top.join("d1"), 0o755);
}

#[test]
fn a_broken_off_folder_of_small_files_keeps_what_is_there() {
    let mut scene = Scene::new();
    for number in 0..100 {
        let bytes: Vec<u8> = noise(60_000)
            .iter()
            .map(|byte| byte ^ number as u8)
            .collect();
        let path = scene.source(&format!("tree/sub/{number}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let name = scene.publish("tree");
    let (broken, first) = scene.get(name, to(&scene.out()), Manners::LeavesAfter(75));
    assert!(broken.is_err());
    let sub = scene.out().join("tree/sub");
    let begun = fs::read_dir(&sub).unwrap().count();
    assert!(begun > 0 && begun < 100, "{begun}");
    // Left by a run that was killed in between.
    fs::write(sub.join(format!(".{name}.part")), "half").unwrap();
    // A file of the user's own is no reason to begin anew elsewhere.
    fs::write(sub.join("own"), "own").unwrap();
    let (fetched, second) = scene.get(name, to(&scene.out()), Manners::Good);
    let fetched = fetched.unwrap();
    assert_eq!(fetched.path, Some(scene.out().join("tree")));
    assert!(fetched.resumed >= begun as u64 * 60_000, "{fetched:?}");
    let chunks = 1 + (100 * 60_000) / 65_536 + 8;
    assert!(first + second <= chunks, "{first} + {second} chunks");
    for number in 0..100 {
        let path = format!("tree/sub/{number}");
        let expected = fs::read(scene.source(&path)).unwrap();
        assert!(
            fs::read(scene.out().join(path)).unwrap() == expected,
            "{number}"
        );
    }
    assert!(hidden_files(&sub).is_empty());
    assert!(hidden_files(&scene.out()).is_empty());
}

/// A file that has changed at its source holds no other one back, in this run nor in the next.
#[test]
fn what_the_source_no_longer_gives_is_named_and_the_rest_arrives() {
    let mut scene = Scene::new();
    for number in 0..20u8 {
        let bytes: Vec<u8> = noise(70_000).iter().map(|byte| byte ^ number).collect();
        scene.put(&format!("tree/f{number:02}"), &bytes);
    }
    let name = scene.publish("tree");
    let gone = Guid(*blake3::hash(&fs::read(scene.source("tree/f00")).unwrap()).as_bytes());
    scene.shelf.remove(&gone);
    let copy = scene.out().join("copy");
    let (missing, _) = scene.get(name, to(&copy), Manners::Good);
    let text = missing.unwrap_err().to_string();
    assert!(
        text.starts_with("1 of the folder's files, \"f00\" among them"),
        "{text}"
    );
    assert_eq!(fs::read_dir(&copy).unwrap().count(), 19);
    // A source that has gone altogether is not asked for each of its files.
    let others: Vec<Guid> = scene
        .shelf
        .published()
        .map(|offer| offer.content)
        .filter(|content| *content != name)
        .collect();
    others
        .iter()
        .for_each(|content| scene.shelf.remove(content));
    let (failed, _) = scene.get(name, to(&scene.source("other")), Manners::Good);
    assert!(
        matches!(failed, Err(FetchError::Failed { .. })),
        "{failed:?}"
    );
    // Once the source has it again, the same command completes it.
    scene.publish("tree");
    let (fetched, _) = scene.get(name, to(&copy), Manners::Good);
    assert_eq!(fetched.unwrap().resumed, 19 * 70_000);
    assert_eq!(contents(&copy).len(), 20);
}

/// "Sends and forgets" [MFTP §3.2.2]: of a folder's files, those that are whole are of use.
#[test]
fn a_file_that_is_not_sent_again_keeps_no_other_file_of_a_folder_back() {
    let mut scene = Scene::new();
    for number in 0..20u8 {
        let bytes: Vec<u8> = noise(70_000).iter().map(|byte| byte ^ number).collect();
        scene.put(&format!("tree/f{number:02}"), &bytes);
    }
    let name = scene.publish("tree");
    let lost = Guid(*blake3::hash(&fs::read(scene.source("tree/f00")).unwrap()).as_bytes());
    let copy = scene.out().join("copy");
    let (missing, _) = scene.get(name, to(&copy), Manners::Loses(lost, 1));
    let text = missing.unwrap_err().to_string();
    let begin = "1 of the folder's files, \"f00\" among them, are not whole: 4464 of 70000 bytes";
    assert!(text.starts_with(begin), "{text}");
    assert_eq!(fs::read_dir(&copy).unwrap().count(), 19);
    // The same command asks once more, for what is missing.
    let (fetched, _) = scene.get(name, to(&copy), Manners::Good);
    assert_eq!(fetched.unwrap().received, 4_464);
    assert_eq!(contents(&copy).len(), 20);
}

#[test]
fn of_a_folder_that_is_pushed_and_not_sent_again_the_whole_files_arrive() {
    let mut scene = Scene::new();
    scene.offers_bundles = true;
    for number in 0..4u8 {
        let bytes: Vec<u8> = noise(200_000).iter().map(|byte| byte ^ number).collect();
        scene.put(&format!("tree/f{number}"), &bytes);
    }
    let name = scene.publish("tree");
    let path = scene.source("tree");
    let bundle = scene.shelf.bundle(&name, &path, &mut |_, _| {}).unwrap();
    // Some 800,000 bytes in thirteen chunks, of which the fifth holds parts of the second file.
    let (fetched, _) = scene.get(bundle, to(&scene.out()), Manners::Loses(bundle, 5));
    let fetched = fetched.unwrap();
    assert_eq!(
        (fetched.files, fetched.refused.len()),
        (3, 1),
        "{fetched:?}"
    );
    assert!(
        fetched.refused[0].why.contains("not sent again"),
        "{fetched:?}"
    );
    assert_eq!(fs::read_dir(scene.out().join("tree")).unwrap().count(), 3);
    assert!(hidden_files(&scene.out()).is_empty());
    // Without the list nothing can be made of it, and nothing is left over.
    let other = scene.source("other");
    fs::create_dir_all(&other).unwrap();
    let (missing, _) = scene.get(bundle, to(&other), Manners::Loses(bundle, 0));
    assert!(
        matches!(missing, Err(FetchError::Incomplete(_))),
        "{missing:?}"
    );
    assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
}

#[test]
fn a_folder_beyond_the_limit_is_refused_before_anything_is_written() {
    let mut scene = Scene::new();
    for number in 0..10u8 {
        // Copies are fetched once, and stored ten times.
        scene.put(&format!("tree/sub/copy-{number}"), &[7; 60_000]);
    }
    let name = scene.publish("tree");
    let needed = 10 * 61_440 + 2 * 4096;
    scene.limit = Some(needed - 1);
    let (refused, sent) = scene.get(name, to(&scene.out()), Manners::Good);
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains(&format!("would take {needed} bytes on disk, for 12 files")),
        "{text}"
    );
    assert_eq!(sent, 1);
    assert!(!scene.out().join("tree").exists());
    scene.limit = Some(needed);
    let (fetched, _) = scene.get(name, to(&scene.out()), Manners::Good);
    assert_eq!(fetched.unwrap().files, 10);
}

/// 200 kB would become 130 MB.
#[test]
fn an_unbelievable_folder_is_refused_unless_the_user_allows_its_size() {
    let mut scene = Scene::new();
    let bytes = [7; 65_000];
    let pack = Pack {
        content: scene.shelf.put(&bytes, ContentKind::File, ""),
        length: 65_000,
    };
    let entries = (0..2_000).map(|number| Entry {
        kind: Kind::File {
            length: 65_000,
            content: pack.content,
            packed: Some(Spot { pack: 0, offset: 0 }),
        },
        ..file(&format!("{number}"), 0, pack.content)
    });
    let listing = Folder::new(vec![pack], entries.collect()).unwrap().encode();
    let name = scene.shelf.put(&listing, ContentKind::Folder, "bomb");
    scene.limit = None;
    let (refused, _) = scene.get(name, to(&scene.out()), Manners::Good);
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("allow that much with --max-size"), "{text}");
    assert!(!scene.out().join("bomb").exists());
    scene.limit = Some(1 << 28);
    let (fetched, _) = scene.get(name, to(&scene.out()), Manners::Good);
    assert_eq!(fetched.unwrap().files, 2_000);
}

#[test]
fn a_disk_that_is_too_small_for_a_folder_is_reported_before_the_transfer() {
    let mut scene = Scene::new();
    let content = scene.shelf.put(&noise(70_000), ContentKind::File, "");
    let entries = vec![
        file("small", 70_000, content),
        file("vast", 1 << 59, Guid([3; 32])),
    ];
    let listing = Folder::new(Vec::new(), entries).unwrap().encode();
    let name = scene.shelf.put(&listing, ContentKind::Folder, "tree");
    scene.limit = None;
    let (refused, sent) = scene.get(name, to(&scene.out()), Manners::Good);
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("no storage space for"), "{text}");
    assert_eq!(sent, 1, "the list alone");
}

#[test]
fn a_private_folder_stays_private_and_keeps_its_time() {
    let mut scene = Scene::new();
    scene.put("private/key", b"key");
    let top = scene.source("private");
    set_mode(&top, 0o700);
    set_time(&top, 1_234_567_890, 123_456_789);
    let attributes = |path: &Path| {
        let found = fs::metadata(path).unwrap();
        (found.mode() & 0o7777, found.mtime(), found.mtime_nsec())
    };
    let name = scene.publish("private");
    let expected = (0o700, 1_234_567_890, 123_456_789);
    let copy = scene.out().join("copy");
    // Broken off, it is private too.
    let (broken, _) = scene.get(name, to(&copy), Manners::LeavesAfter(1));
    assert!(broken.is_err());
    assert_eq!(attributes(&copy).0, 0o700);
    let hidden = hidden_files(&scene.out());
    let open = hidden.iter().filter(|path| attributes(path).0 & 0o077 != 0);
    assert_eq!(open.count(), 0, "{hidden:?}");
    scene.get(name, to(&copy), Manners::Good).0.unwrap();
    assert_eq!(attributes(&copy), expected);
    // A folder that is read-only can be received, too.
    set_mode(&top, 0o555);
    let name = scene.publish("private");
    scene.get(name, to(&scene.out()), Manners::Good).0.unwrap();
    assert_eq!(attributes(&scene.out().join("private")).0, 0o555);
    // A list without the record of its folder, as older releases make it.
    let entries = vec![file("empty", 0, Guid(*blake3::hash(b"").as_bytes()))];
    let listing = Folder::new(Vec::new(), entries).unwrap().encode();
    let name = scene.shelf.put(&listing, ContentKind::Folder, "older");
    scene.get(name, to(&scene.out()), Manners::Good).0.unwrap();
    assert_eq!(attributes(&scene.out().join("older")).0, 0o755);
}

/// Returns an entry of a list that is not in a pack.
pub(super) fn file(path: &str, length: u64, content: Guid) -> Entry {
    Entry {
        path: RelativePath::new(path.as_bytes().to_vec()).unwrap(),
        mode: 0o644,
        modified: Modified::default(),
        kind: Kind::File {
            length,
            content,
            packed: None,
        },
    }
}

/// The list says that a file is within the limit, and its bytes are more.
#[test]
fn a_file_that_is_longer_than_the_list_says_is_refused_alone() {
    let mut scene = Scene::new();
    let good = noise(100_000);
    let [large, small] =
        [&noise(300_000), &good].map(|bytes| scene.shelf.put(bytes, ContentKind::File, ""));
    let entries = vec![
        file("false", 150_000, large),
        file("false-too", 150_000, large),
        file("true", 100_000, small),
    ];
    let listing = Folder::new(Vec::new(), entries).unwrap().encode();
    let name = scene.shelf.put(&listing, ContentKind::Folder, "tree");
    scene.limit = Some(410_000);
    let (fetched, _) = scene.get(name, to(&scene.out()), Manners::Good);
    let fetched = fetched.unwrap();
    let refused: Vec<&str> = fetched.refused.iter().map(|it| &*it.path).collect();
    assert_eq!(refused, ["\"false\"", "\"false-too\""]);
    let why = "it is 300000 bytes long, the list says 150000";
    assert!(fetched.refused.iter().all(|it| it.why == why));
    assert_eq!(
        (fetched.length, fetched.received, fetched.files),
        (100_000, 100_000, 1)
    );
    assert_eq!(contents(&scene.out().join("tree")).len(), 1);
    assert_eq!(fs::read(scene.out().join("tree/true")).unwrap(), good);
    assert_eq!(hidden_files(&scene.out()), [] as [PathBuf; 0]);
}

/// The list gives files other lengths than their contents have, all of them within the limit.
#[test]
fn a_file_of_another_length_than_the_list_says_is_refused_alone() {
    let mut scene = Scene::new();
    let [content, larger] =
        [100_000, 9_000_000].map(|length| scene.shelf.put(&noise(length), ContentKind::File, ""));
    let empty = Guid(*blake3::hash(b"").as_bytes());
    let entries = vec![
        file("empty", 0, empty),
        file("huge", 1 << 39, empty),
        file("longer", 100_001, content),
        file("much-longer", 1, larger),
        file("shorter", 99_999, content),
        file("true", 100_000, content),
    ];
    let listing = Folder::new(Vec::new(), entries).unwrap().encode();
    let name = scene.shelf.put(&listing, ContentKind::Folder, "tree");
    let (fetched, _) = scene.get(name, to(&scene.out()), Manners::Good);
    let fetched = fetched.unwrap();
    let refused = fetched.refused.iter().map(|it| (&*it.path, &*it.why));
    assert_eq!(
        refused.collect::<Vec<_>>(),
        [
            ("\"huge\"", "it is 0 bytes long, the list says 549755813888"),
            (
                "\"longer\"",
                "it is 100000 bytes long, the list says 100001"
            ),
            (
                "\"shorter\"",
                "it is 100000 bytes long, the list says 99999"
            ),
            (
                "\"much-longer\"",
                "it is 9000000 bytes long, the list says 1"
            ),
        ]
    );
    assert_eq!((fetched.length, fetched.files), (100_000, 2));
    assert!(fetched.received < 2_000_000, "{}", fetched.received);
    let there: Vec<_> = contents(&scene.out().join("tree"));
    let there: Vec<_> = there.into_iter().map(|one| one.0).collect();
    assert_eq!(there, ["empty", "true"].map(PathBuf::from));
    assert_eq!(hidden_files(&scene.out()), [] as [PathBuf; 0]);
}

#[test]
fn a_file_to_update_a_folder_with_goes_into_it() {
    let mut scene = Scene::new();
    let name = scene.put("data.bin", b"data");
    scene.update = true;
    let (fetched, _) = scene.get(name, to(&scene.out()), Manners::Good);
    assert_eq!(fetched.unwrap().path, Some(scene.out().join("data.bin")));
}

/// Returns a listing as only a hostile server would publish it.
fn hostile(entries: &[(u8, &[u8], u16, Vec<u8>)], packs: &[Pack]) -> Vec<u8> {
    let mut bytes = b"\x89WHBDIR\n\x02".to_vec();
    bytes.extend((packs.len() as u32).to_be_bytes());
    for pack in packs {
        bytes.extend(pack.content.0);
        bytes.extend(pack.length.to_be_bytes());
    }
    bytes.extend((entries.len() as u32).to_be_bytes());
    for (kind, path, mode, rest) in entries {
        bytes.push(*kind);
        bytes.extend((path.len() as u16).to_be_bytes());
        bytes.extend(*path);
        bytes.extend(mode.to_be_bytes());
        bytes.extend([0; 12]);
        bytes.extend(rest);
    }
    bytes
}

#[test]
fn a_hostile_listing_writes_nothing_outside_and_the_rest_of_it_arrives() {
    let mut scene = Scene::new();
    let small = scene.shelf.put(b"pwned", ContentKind::File, "");
    let pack = Pack {
        content: small,
        length: 5,
    };
    let file = |content: Guid| {
        let mut rest = 0u32.to_be_bytes().to_vec();
        rest.extend(0u32.to_be_bytes());
        rest.extend(5u32.to_be_bytes());
        rest.extend(content.0);
        rest
    };
    let link = |target: &str| {
        let mut rest = (target.len() as u16).to_be_bytes().to_vec();
        rest.extend(target.as_bytes());
        rest
    };
    let outside = scene.source("outside");
    fs::create_dir(&outside).unwrap();
    let absolute = outside.join("x");
    let absolute = absolute.as_os_str().as_bytes();
    let entries = [
        (1, &b"../escaped"[..], 0o644, file(small)),
        (1, absolute, 0o644, file(small)),
        (1, b"a/../../escaped", 0o644, file(small)),
        (2, b"..", 0o777, Vec::new()),
        (1, b"good", 0o644, file(small)),
        (1, b"lies", 0o644, file(Guid([7; 32]))),
        (3, b"link", 0o777, link(outside.to_str().unwrap())),
        (1, b"link/through", 0o644, file(small)),
        (3, b"near", 0o777, link("good/../../../outside")),
        (3, b"safe", 0o777, link("link")),
        (1, b"safe/through", 0o644, file(small)),
        (1, b"setuid", 0o4755, file(small)),
    ];
    let name = scene
        .shelf
        .put(&hostile(&entries, &[pack]), ContentKind::Folder, "../evil");
    let (fetched, _) = scene.get(name, to(&scene.out()), Manners::Good);
    let fetched = fetched.unwrap();
    let top = scene.out().join("_.evil");
    assert_eq!(fetched.path.as_ref(), Some(&top));
    let mut refused: Vec<&str> = fetched.refused.iter().map(|one| &*one.path).collect();
    refused.sort_unstable();
    let quoted = format!(
        "{:?}",
        absolute
            .iter()
            .map(|byte| *byte as char)
            .collect::<String>()
    );
    let mut expected = vec![
        "\"../escaped\"",
        &quoted,
        "\"a/../../escaped\"",
        "\"..\"",
        "\"lies\"",
        "\"link\"",
        "\"near\"",
        "\"safe/through\"",
        "\"setuid\"",
    ];
    expected.sort_unstable();
    assert_eq!(refused, expected);
    // The link itself was refused: what lies below it is in a folder of that name.
    let there: Vec<_> = contents(&top).into_iter().map(|one| one.0).collect();
    assert_eq!(
        there,
        ["good", "link", "link/through", "safe"].map(PathBuf::from)
    );
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert!(!scene.source("escaped").exists() && !scene.out().join("escaped").exists());
}

/// A listing could make a part file and its record, if they were looked for where it writes.
#[test]
fn a_listing_cannot_vouch_for_bytes_that_were_never_verified() {
    let mut scene = Scene::new();
    let bytes = noise(200_000);
    let large = scene.put("large", &bytes);
    let mut assembly = Assembly::new(large, 1 << 40);
    for index in 0..4 {
        let get = Get {
            request: 0,
            content: large,
            options: TransferOptions::default().with_chunk_size(Some(ChunkSize::GROUP)),
            in_order: false,
            credit: 1,
            resume: Bytes::new(),
        };
        let chunk = chunk_of(&scene.shelf, &get, index);
        let (proof, _) = whimbrel_content::Proof::decode(&chunk.proof).unwrap();
        let offer = whimbrel_content::Offer {
            chunk_size: ChunkSize::GROUP,
            index: index.into(),
            claimed_len: 200_000,
            data: &chunk.data,
            proof: &proof,
        };
        let verified = assembly.check(&offer).unwrap();
        assembly.commit(verified);
    }
    let record = [
        b"{\"file_name\":\"\",\"is_folder\":false}\n",
        &*assembly.encode(),
    ]
    .concat();
    let zeros = vec![0; 50_000];
    let pack: Vec<u8> = [&record[..], &zeros].concat();
    let packed = scene.shelf.put(&pack, ContentKind::File, "");
    let entry = |path: &str, start: usize, end: usize| Entry {
        path: RelativePath::new(path).unwrap(),
        mode: 0o644,
        modified: Modified::default(),
        kind: Kind::File {
            length: (end - start) as u64,
            content: Guid(*blake3::hash(&pack[start..end]).as_bytes()),
            packed: Some(Spot {
                pack: 0,
                offset: start as u32,
            }),
        },
    };
    let wanted = Entry {
        kind: Kind::File {
            length: 200_000,
            content: large,
            packed: None,
        },
        ..entry("large", 0, 0)
    };
    let entries = vec![
        entry(&format!(".{large}.resume"), 0, record.len()),
        entry(&format!(".{large}.part"), record.len(), pack.len()),
        wanted,
    ];
    let pack = Pack {
        content: packed,
        length: pack.len() as u32,
    };
    let listing = Folder::new(vec![pack], entries).unwrap().encode();
    let name = scene.shelf.put(&listing, ContentKind::Folder, "tree");
    let (fetched, _) = scene.get(name, to(&scene.out()), Manners::Good);
    fetched.unwrap();
    assert!(fs::read(scene.out().join("tree/large")).unwrap() == bytes);
}

#[test]
fn a_folder_of_another_release_says_so() {
    let mut scene = Scene::new();
    let first = b"\x89WHBDIR\n\x01\0\0\0\0";
    let name = scene.shelf.put(first, ContentKind::Folder, "tree");
    let (refused, _) = scene.get(name, to(&scene.out()), Manners::Good);
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("same release"), "{text}");
}
