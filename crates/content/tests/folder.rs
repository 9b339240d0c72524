//! Manifests: each folder has one encoding, and only that one decodes.
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use proptest::prelude::*;
use whimbrel_content::{Entry, Folder, FolderError, PathError, RelativePath};
use whimbrel_core::Guid;

fn path(text: &str) -> RelativePath {
    RelativePath::new(text).unwrap()
}

fn entry(text: &str, length: u64) -> Entry {
    Entry {
        path: path(text),
        length,
        content: Guid([length as u8; 32]),
        executable: length % 2 == 1,
    }
}

#[test]
fn a_folder_lists_its_files_in_the_order_of_their_components() {
    let folder = Folder::new(vec![
        entry("b", 1),
        entry("a/c", 2),
        entry("a.txt", 3),
        entry("a/b/d", 4),
    ])
    .unwrap();
    let paths: Vec<_> = folder
        .entries()
        .iter()
        .map(|entry| entry.path.as_str())
        .collect();
    assert_eq!(paths, ["a/b/d", "a/c", "a.txt", "b"]);
    assert_eq!(folder.total_len(), 10);
    assert_eq!(
        folder.get(&path("a.txt")).map(|entry| entry.length),
        Some(3)
    );
    assert_eq!(folder.get(&path("a")), None);
}

#[test]
fn a_path_twice_or_as_file_and_folder_is_refused() {
    assert_eq!(
        Folder::new(vec![entry("a", 1), entry("a", 2)]),
        Err(FolderError::DuplicatePath(path("a")))
    );
    assert_eq!(
        Folder::new(vec![entry("a/b/c", 1), entry("a.x", 1), entry("a", 2)]),
        Err(FolderError::FileAndFolder(path("a"), path("a/b/c")))
    );
}

#[test]
fn lengths_that_no_content_can_have_are_refused() {
    assert_eq!(
        Folder::new(vec![entry("a", u64::MAX), entry("b", u64::MAX)]),
        Err(FolderError::TooLong)
    );
    assert_eq!(
        Folder::new(vec![entry("a", (1 << 60) + 1)]),
        Err(FolderError::TooLong)
    );
}

/// A manifest of hand-made entries, each (path, flags).
fn manifest(count: u32, entries: &[(&[u8], u8)]) -> Vec<u8> {
    let mut bytes = b"\x89WHBDIR\n\x01".to_vec();
    bytes.extend(count.to_be_bytes());
    for (path, flags) in entries {
        bytes.extend((path.len() as u16).to_be_bytes());
        bytes.extend(*path);
        bytes.push(*flags);
        bytes.extend(5u64.to_be_bytes());
        bytes.extend([1; 32]);
    }
    bytes
}

#[test]
fn hostile_manifests_are_refused_with_their_reason() {
    let refused = |bytes: &[u8]| Folder::decode(bytes).unwrap_err();
    let one = |path: &[u8]| refused(&manifest(1, &[(path, 0)]));
    assert_eq!(one(b"/a"), PathError::Absolute("/a".into()).into());
    assert_eq!(one(b"a/../b"), PathError::Parent("a/../b".into()).into());
    assert_eq!(one(b"a\0"), PathError::Nul("a\0".into()).into());
    assert_eq!(
        one(b"a//b"),
        PathError::EmptyComponent("a//b".into()).into()
    );
    assert_eq!(one(b""), PathError::Empty.into());
    assert_eq!(one(b"\xff"), PathError::NotUtf8.into());
    assert_eq!(one(&[b'a'; 4096]), PathError::TooLong(4096).into());
    assert_eq!(
        refused(&manifest(1, &[(b"a", 2)])),
        FolderError::UnknownFlags(2)
    );
    assert_eq!(
        refused(&manifest(2, &[(b"b", 0), (b"a", 0)])),
        FolderError::OutOfOrder(path("a"))
    );
    assert_eq!(
        refused(&manifest(2, &[(b"a", 0), (b"a", 1)])),
        FolderError::DuplicatePath(path("a"))
    );
    assert_eq!(
        refused(&manifest(2, &[(b"a", 0), (b"a/b", 0)])),
        FolderError::FileAndFolder(path("a"), path("a/b"))
    );
    assert_eq!(refused(&manifest(2, &[(b"a", 0)])), FolderError::Truncated);
    assert_eq!(refused(&manifest(u32::MAX, &[])), FolderError::TooLarge);
    assert_eq!(refused(&manifest(1 << 20, &[])), FolderError::Truncated);
    assert_eq!(
        refused(&manifest(0, &[(b"a", 0)])),
        FolderError::TrailingBytes(44)
    );
    assert_eq!(refused(b"hello"), FolderError::NotAFolder);
    assert_eq!(
        refused(b"\x89WHBDIR\n\x02\0\0\0\0"),
        FolderError::UnknownVersion(2)
    );
    assert_eq!(Folder::decode(&manifest(0, &[])), Ok(Folder::default()));
}

proptest! {
    #[test]
    fn a_folder_comes_back_from_its_manifest_whatever_the_order_it_was_given_in(
        files in prop::collection::btree_map("[a-c.é ]{1,3}(/[a-c]{1,2}){0,2}", (0u64..1 << 50, any::<[u8; 32]>(), any::<bool>()), 0..20),
        rotation: usize, place: usize, bit in 0u8..8,
    ) {
        let entries: Vec<Entry> = files.into_iter().filter_map(|(path, (length, content, executable))| {
            let path = RelativePath::new(path).ok()?;
            Some(Entry { path, length, content: Guid(content), executable })
        }).collect();
        let mut rotated = entries.clone();
        if !rotated.is_empty() {
            let middle = rotation % rotated.len();
            rotated.rotate_left(middle);
        }
        let folder = Folder::new(entries);
        prop_assert_eq!(&folder, &Folder::new(rotated));
        let Ok(folder) = folder else { return Ok(()) };
        let manifest = folder.encode();
        prop_assert_eq!(manifest.len(), folder.encoded_len());
        prop_assert!(Folder::begins_like_manifest(&manifest));
        prop_assert_eq!(Folder::decode(&manifest), Ok(folder.clone()));

        let place = place % manifest.len();
        prop_assert!(Folder::decode(&manifest[..place]).is_err());
        let mut changed = manifest.clone();
        changed[place] ^= 1 << bit;
        prop_assert_ne!(Folder::decode(&changed), Ok(folder));
    }

    #[test]
    fn any_bytes_after_the_header_decode_to_what_encodes_to_them_or_are_refused(
        count in 0u32..4, rest in prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(b'a'), any::<u8>()], 0..160),
    ) {
        let mut bytes = manifest(count, &[]);
        bytes.extend(&rest);
        if let Ok(folder) = Folder::decode(&bytes) {
            prop_assert_eq!(folder.encode(), bytes);
        }
        prop_assert!(Folder::decode(&rest).is_err());
    }

    #[test]
    fn random_entries_decode_to_what_encodes_to_them_or_are_refused(
        paths in prop::collection::vec("[ab/.]{1,4}", 0..4), flags in 0u8..3,
    ) {
        let entries: Vec<(&[u8], u8)> = paths.iter().map(|path| (path.as_bytes(), flags)).collect();
        let bytes = manifest(entries.len() as u32, &entries);
        if let Ok(folder) = Folder::decode(&bytes) {
            prop_assert_eq!(folder.encode(), bytes);
            prop_assert_eq!(folder.entries().len(), paths.len());
        }
    }
}
