//! Encrypted files and folders.

use super::*;

const SECRET: [u8; 32] = [3; 32];

/// Has an encrypted copy of what is at `path` on the shelf. Returns its name; the scene fetches with its key.
fn encrypt(scene: &mut Scene, path: &str, secret: &[u8; 32]) -> Guid {
    let path = scene.folder.path().join(path);
    let mut shelved = scene.shelf.add(&path, &mut |_, _| {}).unwrap();
    let encrypted = scene.shelf.encrypt(&mut shelved, secret, &mut |_, _| {});
    encrypted.unwrap();
    scene.key = shelved.key;
    shelved.name
}

fn write(scene: &Scene, path: &str, bytes: &[u8]) {
    let path = scene.folder.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn an_encrypted_file_is_read_with_its_key_and_resumes() {
    let mut scene = Scene::new();
    let bytes = noise(11 * 65_536 + 5);
    write(&scene, "film.mkv", &bytes);
    let name = encrypt(&mut scene, "film.mkv", &SECRET);
    assert_ne!(name.0, *blake3::hash(&bytes).as_bytes());
    let (broken, _) = scene.get(name, to(&scene.out()), Manners::LeavesAfter(7));
    assert!(broken.is_err());
    let (fetched, sent) = scene.get(name, to(&scene.out()), Manners::Good);
    let fetched = fetched.unwrap();
    assert_eq!((sent, fetched.resumed), (5, 7 * 65_536));
    assert_eq!(fetched.path, Some(scene.out().join("film.mkv")));
    assert_eq!(fs::read(scene.out().join("film.mkv")).unwrap(), bytes);
    assert!(hidden_files(&scene.out()).is_empty());
    let pipe = Pipe::default();
    scene.get(name, stream(&pipe), Manners::Good).0.unwrap();
    assert_eq!(*pipe.0.lock().unwrap(), bytes);
}

/// A run without the key does not continue one with it, whose part holds other bytes.
#[test]
fn without_the_key_there_is_noise_and_nothing_of_a_run_with_it() {
    let mut scene = Scene::new();
    let bytes = noise(5 * 65_536);
    write(&scene, "film.mkv", &bytes);
    let name = encrypt(&mut scene, "film.mkv", &SECRET);
    let target = scene.out().join("copy");
    assert!(
        scene
            .get(name, to(&target), Manners::LeavesAfter(3))
            .0
            .is_err()
    );
    let key = scene.key.take();
    let (fetched, sent) = scene.get(name, to(&target), Manners::Good);
    assert_eq!((sent, fetched.unwrap().resumed), (5, 0));
    let mut found = fs::read(&target).unwrap();
    assert_eq!(*blake3::hash(&found).as_bytes(), name.0);
    assert_ne!(found, bytes);
    key.unwrap().apply(0, &mut found);
    assert_eq!(found, bytes);
    // Nor does the name of the file cross the network.
    assert!(
        scene
            .shelf
            .published()
            .all(|it| !it.file_name.contains("film"))
    );
}

#[test]
fn of_an_encrypted_folder_only_encrypted_contents_are_on_offer() {
    let mut scene = Scene::new();
    let large = noise(300_000);
    for (path, bytes) in [
        ("tree/large", &large[..]),
        ("tree/again/large", &large[..]),
        ("tree/small", b"a few bytes"),
        ("tree/empty", b""),
    ] {
        write(&scene, path, bytes);
    }
    let plain = scene
        .shelf
        .add(&scene.folder.path().join("tree"), &mut |_, _| {})
        .unwrap();
    let names: Vec<Guid> = scene.shelf.published().map(|it| it.content).collect();
    let name = encrypt(&mut scene, "tree", &SECRET);
    assert!(
        names.contains(&plain.name) && names.len() == 3,
        "list, pack and file"
    );
    assert_eq!(scene.shelf.len(), 3);
    assert!(names.iter().all(|it| scene.shelf.publish(it).is_none()));
    let (broken, _) = scene.get(name, to(&scene.out()), Manners::LeavesAfter(4));
    assert!(broken.is_err());
    let (fetched, sent) = scene.get(name, to(&scene.out()), Manners::Good);
    let fetched = fetched.unwrap();
    assert_eq!((fetched.files, &fetched.refused), (4, &Vec::new()));
    // The large file once, in five chunks of 64 KiB; the pack; the list is here.
    assert!(sent < 6, "{sent}");
    for (path, bytes) in [
        ("large", &large[..]),
        ("again/large", &large[..]),
        ("small", b"a few bytes"),
        ("empty", b""),
    ] {
        assert_eq!(
            fs::read(scene.out().join("tree").join(path)).unwrap(),
            bytes,
            "{path}"
        );
    }
    assert!(hidden_files(&scene.out()).is_empty());
    // Of a newer version only what is new comes, though all of it has other names.
    write(&scene, "tree/new", &noise(200_000));
    let newer = encrypt(&mut scene, "tree", &SECRET);
    scene.update = true;
    let (fetched, sent) = scene.get(newer, to(&scene.out().join("tree")), Manners::Good);
    assert_eq!((fetched.unwrap().files, sent), (5, 5));
    assert_eq!(
        fs::read(scene.out().join("tree/new")).unwrap(),
        noise(200_000)
    );
}

#[test]
fn the_same_bytes_have_the_same_name_for_one_sender_alone() {
    let mut scene = Scene::new();
    write(&scene, "film.mkv", &noise(100_000));
    let first = (encrypt(&mut scene, "film.mkv", &SECRET), scene.key.clone());
    let again = (encrypt(&mut scene, "film.mkv", &SECRET), scene.key.clone());
    assert_eq!(first, again);
    let other = (encrypt(&mut scene, "film.mkv", &[4; 32]), scene.key.clone());
    assert!(other.0 != first.0 && other.1 != first.1);
    let renamed = scene.folder.path().join("other.mkv");
    fs::rename(scene.folder.path().join("film.mkv"), renamed).unwrap();
    assert_ne!(encrypt(&mut scene, "other.mkv", &SECRET), first.0);
}

/// A sender with a key of its own choice can write any bytes behind it.
#[test]
fn a_folder_whose_names_do_not_fit_its_list_is_refused() {
    let mut scene = Scene::new();
    write(&scene, "tree/large", &noise(300_000));
    let name = encrypt(&mut scene, "tree", &SECRET);
    scene.key = Some(ContentKey::new([9; 16]));
    let (refused, _) = scene.get(name, to(&scene.out()), Manners::Good);
    assert!(matches!(refused, Err(FetchError::BadBundle)), "{refused:?}");
}
