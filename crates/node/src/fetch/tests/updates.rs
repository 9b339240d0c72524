//! Updates: a new version of a folder takes the place of an older one, all of it or nothing.

use std::os::unix::fs::symlink;

use whimbrel_content::{Entry, Folder, RelativePath};
use whimbrel_mobilityfirst::wire::ContentKind;

use super::folders::{contents, file};
use super::*;

/// An older version exists: two versions are never mixed, unless the user says which replaces
/// which, and then only at the end.
#[test]
fn a_new_version_stands_beside_the_old_one_or_takes_its_place_when_it_is_whole() {
    let mut scene = Scene::new();
    let write = |scene: &Scene, path: &str, bytes: &[u8]| {
        let path = scene.source(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    write(&scene, "old/tree/same", b"same");
    write(&scene, "old/tree/changed", b"old");
    write(&scene, "old/tree/gone", b"gone");
    write(&scene, "old/tree/large", &noise(200_000));
    write(&scene, "old/tree/was-folder/x", b"x");
    write(&scene, "old/tree/was-file", b"y");
    for (path, bytes) in [
        ("same", &b"same"[..]),
        ("changed", b"new"),
        ("added/deep", b"added"),
    ] {
        write(&scene, &format!("new/tree/{path}"), bytes);
    }
    write(&scene, "new/tree/large", &noise(300_000));
    write(&scene, "new/tree/was-folder", b"file");
    symlink("same", scene.source("new/tree/link")).unwrap();
    symlink("added", scene.source("new/tree/was-file")).unwrap();
    let (old, new) = (scene.publish("old/tree"), scene.publish("new/tree"));
    let copy = scene.out().join("tree");
    scene.get(old, to(&scene.out()), Manners::Good).0.unwrap();
    let before = contents(&copy);
    let (fetched, _) = scene.get(new, to(&scene.out()), Manners::Good);
    assert_eq!(fetched.unwrap().path, Some(scene.out().join("tree-2")));
    assert!(contents(&copy) == before);
    let beside = contents(&scene.out().join("tree-2"));
    assert!(beside == contents(&scene.source("new/tree")));

    scene.update = true;
    // Broken off: nothing of the old version has changed.
    let (broken, _) = scene.get(new, to(&copy), Manners::LeavesAfter(4));
    assert!(broken.is_err());
    assert!(contents(&copy) == before);
    // A folder with entries is not replaced by a file, and then nothing is.
    let (blocked, _) = scene.get(new, to(&copy), Manners::Good);
    let text = blocked.unwrap_err().to_string();
    assert!(
        text.starts_with("the older version stays as it is: \"was-folder\": it is a folder"),
        "{text}"
    );
    assert!(contents(&copy) == before);
    fs::remove_file(copy.join("was-folder/x")).unwrap();
    let (fetched, sent) = scene.get(new, to(&copy), Manners::Good);
    let fetched = fetched.unwrap();
    assert_eq!(
        (fetched.path.as_ref(), &fetched.refused),
        (Some(&copy), &Vec::new())
    );
    assert!(sent <= 1, "{sent} chunks again");
    assert_eq!(fs::read(copy.join("was-folder")).unwrap(), b"file");
    for path in ["same", "changed", "added/deep", "large"] {
        let there = fs::read(copy.join(path)).unwrap();
        assert_eq!(
            there,
            fs::read(scene.source("new/tree").join(path)).unwrap()
        );
    }
    assert_eq!(fs::read_link(copy.join("link")).unwrap(), Path::new("same"));
    assert_eq!(
        fs::read_link(copy.join("was-file")).unwrap(),
        Path::new("added")
    );
    assert_eq!(fs::read(copy.join("gone")).unwrap(), b"gone");
    assert!(hidden_files(&scene.out()).is_empty());
    assert!(hidden_files(&copy).is_empty());
}

/// The older version has a file where the new one has a folder, and the other way round.
#[test]
fn an_update_makes_way_for_entries_of_another_kind() {
    let mut scene = Scene::new();
    for (path, bytes) in [
        ("old/tree/now-folder", "f"),
        ("old/tree/sub/now-deep", "g"),
        ("old/tree/kept", "k"),
    ] {
        scene.put(path, bytes.as_bytes());
    }
    fs::create_dir_all(scene.source("old/tree/now-file")).unwrap();
    fs::create_dir_all(scene.source("old/tree/now-link")).unwrap();
    symlink("kept", scene.source("old/tree/now-dir")).unwrap();
    for path in ["now-folder/a", "sub/now-deep/b/c", "now-file", "kept"] {
        scene.put(&format!("new/tree/{path}"), path.as_bytes());
    }
    fs::create_dir_all(scene.source("new/tree/now-dir")).unwrap();
    symlink("kept", scene.source("new/tree/now-link")).unwrap();
    let (old, new) = (scene.publish("old/tree"), scene.publish("new/tree"));
    let copy = scene.out().join("tree");
    scene.get(old, to(&scene.out()), Manners::Good).0.unwrap();
    scene.update = true;
    let (fetched, _) = scene.get(new, to(&copy), Manners::Good);
    assert_eq!(fetched.unwrap().refused, []);
    let paths = |top: &Path| {
        let found = contents(top).into_iter();
        found
            .map(|(path, mode, _, bytes)| (path, mode, bytes))
            .collect::<Vec<_>>()
    };
    assert_eq!(paths(&copy), paths(&scene.source("new/tree")));
    assert!(hidden_files(&scene.out()).is_empty() && hidden_files(&copy).is_empty());
}

#[test]
fn an_entry_that_is_refused_keeps_the_older_version_whole() {
    let mut scene = Scene::new();
    scene.put("tree/a", b"old a");
    scene.put("tree/b", b"old b");
    let old = scene.publish("tree");
    let copy = scene.out().join("tree");
    scene.get(old, to(&scene.out()), Manners::Good).0.unwrap();
    let before = contents(&copy);
    let content = scene.shelf.put(&noise(70_000), ContentKind::File, "");
    let lie = file("b", 70_001, content);
    let listing = |entries| Folder::new(Vec::new(), entries).unwrap().encode();
    let bytes = listing(vec![file("a", 70_000, content), lie.clone()]);
    let new = scene.shelf.put(&bytes, ContentKind::Folder, "tree");
    scene.update = true;
    let (blocked, _) = scene.get(new, to(&copy), Manners::Good);
    let text = blocked.unwrap_err().to_string();
    assert!(
        text.contains("stays as it is: \"b\": it is 70000 bytes long"),
        "{text}"
    );
    assert!(contents(&copy) == before);
    // Where the older version has nothing, nothing is mixed.
    let path = RelativePath::new("c").unwrap();
    let bytes = listing(vec![file("a", 70_000, content), Entry { path, ..lie }]);
    let new = scene.shelf.put(&bytes, ContentKind::Folder, "tree");
    let (fetched, _) = scene.get(new, to(&copy), Manners::Good);
    assert_eq!(fetched.unwrap().refused.len(), 1);
    assert_eq!(fs::read(copy.join("a")).unwrap(), noise(70_000));
}

/// Links that are on the receiver's disk already are not followed either.
#[test]
fn an_update_replaces_a_link_by_a_folder_and_does_not_follow_it() {
    let mut scene = Scene::new();
    for path in ["tree/sub/small", "tree/sub/large", "tree/other"] {
        let path = scene.source(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let length = if path.ends_with("large") { 100_000 } else { 10 };
        fs::write(path, noise(length)).unwrap();
    }
    let name = scene.publish("tree");
    let outside = scene.source("outside");
    fs::create_dir(&outside).unwrap();
    let copy = scene.out().join("tree");
    fs::create_dir(&copy).unwrap();
    symlink(&outside, copy.join("sub")).unwrap();
    scene.update = true;
    let (fetched, _) = scene.get(name, to(&copy), Manners::Good);
    assert_eq!(fetched.unwrap().refused, []);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert!(fs::symlink_metadata(copy.join("sub")).unwrap().is_dir());
    assert_eq!(fs::read(copy.join("sub/large")).unwrap(), noise(100_000));
}

/// A run that was killed has exchanged some entries, and put one aside.
#[test]
fn an_update_that_was_killed_half_way_is_completed_by_the_same_command() {
    let mut scene = Scene::new();
    for name in ["a", "b", "dir/x", "way"] {
        scene.put(&format!("old/tree/{name}"), name.as_bytes());
    }
    for name in ["a", "b", "dir", "way/deep"] {
        scene.put(
            &format!("new/tree/{name}"),
            format!("new {name}").as_bytes(),
        );
    }
    let (old, new) = (scene.publish("old/tree"), scene.publish("new/tree"));
    let copy = scene.out().join("tree");
    scene.get(old, to(&scene.out()), Manners::Good).0.unwrap();
    let before = contents(&copy);
    scene.update = true;
    let (blocked, _) = scene.get(new, to(&copy), Manners::Good);
    assert!(matches!(blocked, Err(FetchError::NotUpdated { .. })));
    assert!(contents(&copy) == before, "what was done is undone");
    let staging = scene.out().join(format!(".{new}.new"));
    fs::rename(copy.join("a"), copy.join("old-a")).unwrap();
    fs::rename(staging.join("a"), copy.join("a")).unwrap();
    fs::rename(copy.join("old-a"), staging.join("a")).unwrap();
    fs::rename(copy.join("way"), staging.join(format!(".{new}.part.1"))).unwrap();
    fs::remove_file(copy.join("dir/x")).unwrap();
    let (fetched, sent) = scene.get(new, to(&copy), Manners::Good);
    assert_eq!(fetched.unwrap().refused, []);
    assert!(sent <= 1, "{sent} chunks again");
    for name in ["a", "b", "dir", "way/deep"] {
        assert_eq!(
            fs::read_to_string(copy.join(name)).unwrap(),
            format!("new {name}")
        );
    }
    assert!(hidden_files(&scene.out()).is_empty() && hidden_files(&copy).is_empty());
}
