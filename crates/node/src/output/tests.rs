//! Existing outputs, and their treatment.

use std::io::Read;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::sync::atomic::Ordering;

use super::*;

fn open(path: &Path) -> Result<Destination, OutputError> {
    Destination::open(path, &AtomicBool::new(false))
}

fn target(path: &Path) -> Target {
    match open(path) {
        Ok(Destination::Named(target)) => target,
        Ok(_) => panic!("{path:?} is no file"),
        Err(error) => panic!("{error}"),
    }
}

fn refusal(path: &Path) -> OutputError {
    open(path).err().unwrap()
}

fn make_fifo(path: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

/// Writes `bytes` as a fetch does, and gives them their name.
fn put(place: &Place, bytes: &[u8]) -> Result<PathBuf, OutputError> {
    let mut temporary = place.temporary()?;
    temporary.write_all(bytes).unwrap();
    place
        .publish(temporary.as_file(), temporary.path())
        .map(|published| published.path)
}

#[test]
fn a_suggested_name_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let wanted = folder.path().join("a.txt");
    fs::write(&wanted, "mine").unwrap();
    for number in [2, 3] {
        let to = put(&Place::Beside(wanted.clone()), b"new").unwrap();
        assert_eq!(to, folder.path().join(format!("a-{number}.txt")));
    }
    assert_eq!(fs::read_to_string(&wanted).unwrap(), "mine");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn a_link_stays_and_what_it_leads_to_is_replaced_with_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o751)).unwrap();
    symlink("file", &link).unwrap();
    let place = Place::Replacing(target(&link));
    assert_eq!(put(&place, b"new").unwrap(), link);
    assert!(link.is_symlink());
    assert_eq!(fs::read(&file).unwrap(), b"new");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o751);
}

/// `user::rw- user:65534:rw- group::r-- mask::rw- other::---`, as the kernel keeps it (`acl(5)`).
fn access_control_list() -> Vec<u8> {
    let entry = |tag: u16, permissions: u16, id: u32| {
        let head = [tag.to_le_bytes(), permissions.to_le_bytes()].concat();
        [head, id.to_le_bytes().to_vec()].concat()
    };
    let nobody_in_particular = u32::MAX;
    [
        2u32.to_le_bytes().to_vec(),
        entry(0x01, 6, nobody_in_particular),
        entry(0x02, 6, 65_534),
        entry(0x04, 4, nobody_in_particular),
        entry(0x10, 6, nobody_in_particular),
        entry(0x20, 0, nobody_in_particular),
    ]
    .concat()
}

/// The group's bits of such a file are the most that any entry allows: without the list, the group
/// would get more than it had.
#[test]
fn a_replaced_file_keeps_its_access_control_list() {
    use rustix::fs::{XattrFlags, lgetxattr, setxattr};
    let (folder, name) = (tempfile::tempdir().unwrap(), "system.posix_acl_access");
    let file = folder.path().join("file");
    fs::write(&file, "old").unwrap();
    let list = access_control_list();
    if setxattr(&file, name, &list, XattrFlags::empty()).is_err() {
        return eprintln!("SKIPPED: this file system has no access control lists");
    }
    put(&Place::Replacing(target(&file)), b"new").unwrap();
    let mut found = vec![0; 1024];
    let length = lgetxattr(&file, name, &mut found[..]).unwrap();
    assert_eq!(found[..length], list);
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o660);
}

#[test]
fn what_replaces_a_private_file_is_private_on_its_way() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let temporary = Place::Replacing(target(&file)).temporary().unwrap();
    let mode = temporary.as_file().metadata().unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_became_something_else_during_the_fetch_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let place = Place::Replacing(target(&path));
    make_fifo(&path);
    let refused = put(&place, b"new");
    assert!(
        matches!(refused, Err(OutputError::NoLongerAFile(_))),
        "{refused:?}"
    );
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_fifo_is_opened_when_somebody_reads_it_and_gets_all_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    make_fifo(&path);
    let bytes: Vec<u8> = (0..300_000u32).map(|at| at as u8).collect();
    let read = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut read = Vec::new();
            let mut fifo = fs::File::open(&path).unwrap();
            fifo.read_to_end(&mut read).unwrap();
            read
        });
        let Ok(Destination::Stream(mut stream)) = open(&path) else {
            panic!("a FIFO is a stream");
        };
        assert_eq!(stream.path.as_ref(), Some(&path));
        // More than the kernel buffers: a writer that does not wait would fail here.
        stream.writer.write_all(&bytes).unwrap();
        drop(stream);
        reader.join().unwrap()
    });
    assert!(read == bytes);
}

#[test]
fn a_fifo_that_nobody_reads_is_left_when_told_to_stop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    make_fifo(&path);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| Destination::open(&path, &stop).err());
        stop.store(true, Ordering::Relaxed);
        let end = waiting.join().unwrap();
        assert!(matches!(end, Some(OutputError::Interrupted)), "{end:?}");
    });
}

#[test]
fn sockets_loops_and_missing_folders_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let _listener = UnixListener::bind(path("socket")).unwrap();
    assert!(matches!(refusal(&path("socket")), OutputError::Socket(_)));
    symlink("loop", path("loop")).unwrap();
    assert!(matches!(refusal(&path("loop")), OutputError::System { .. }));
    for name in ["missing/file", "dangling"] {
        symlink("missing/file", path("dangling")).ok();
        let refused = refusal(&path(name));
        assert!(matches!(refused, OutputError::NoFolder { .. }), "{name}");
    }
    assert!(matches!(refusal(Path::new("")), OutputError::System { .. }));
}

#[test]
fn a_strangers_link_in_a_shared_folder_is_not_followed() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: only root can make a stranger's link");
    }
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    symlink(folder.path().join("file"), &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(65_534), Some(65_534)).unwrap();
    assert_eq!(target(&link).path(), folder.path().join("file"));
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    // Where the kernel applies the rule itself, its refusal comes first.
    let refused = refusal(&link);
    assert!(
        matches!(
            refused,
            OutputError::StrangersLink(_) | OutputError::System { .. }
        ),
        "{refused}"
    );
}

#[test]
fn a_slash_at_the_end_makes_a_folder_that_lasts_only_with_something_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("new");
    let mut slashed = new.clone().into_os_string();
    slashed.push("/");
    for keeps in [false, true] {
        let Ok(Destination::Within(within)) = open(Path::new(&slashed)) else {
            panic!("it is a folder");
        };
        assert!(!new.exists());
        let made = within.make().unwrap();
        assert!(new.is_dir());
        if keeps {
            fs::write(new.join("file"), "").unwrap();
        }
        drop(made);
        assert_eq!(new.exists(), keeps);
    }
}

#[test]
fn suggested_names_are_made_safe() {
    let cases = [
        ("report.pdf", Some("report.pdf")),
        (".bashrc", Some("_bashrc")),
        ("..", Some("_.")),
        ("a\u{1b}[2Jb\n", Some("a[2Jb")),
        ("../../etc/passwd", Some("_...etcpasswd")),
        ("", None),
        ("\n/", None),
    ];
    for (suggested, safe) in cases {
        assert_eq!(safe_name(suggested).as_deref(), safe, "{suggested:?}");
    }
    assert_eq!(safe_name(&"x".repeat(256)), None);
}
