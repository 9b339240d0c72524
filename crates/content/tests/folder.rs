//! Listings: each folder has one encoding, only that one decodes whole, and what could do harm is
//! refused alone.
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use proptest::prelude::*;
use whimbrel_content::folder::{MAX_PACK_LEN, check_target, ends_pack};
use whimbrel_content::{
    Entry, EntryError, Folder, FolderError, Kind, Modified, Pack, PathError, RelativePath, Spot,
    Top,
};
use whimbrel_core::Guid;

fn path(text: &str) -> RelativePath {
    RelativePath::new(text).unwrap()
}

fn entry(text: &str, kind: Kind) -> Entry {
    Entry {
        path: path(text),
        mode: 0o644,
        modified: Modified::default(),
        kind,
    }
}

fn file(text: &str, length: u64) -> Entry {
    let kind = Kind::File {
        length,
        content: Guid([length as u8; 32]),
        packed: None,
    };
    entry(text, kind)
}

fn packed(pack: u32, offset: u32, length: u64) -> Kind {
    Kind::File {
        length,
        content: Guid([1; 32]),
        packed: Some(Spot { pack, offset }),
    }
}

fn link(target: &str) -> Kind {
    Kind::Link {
        target: target.as_bytes().into(),
    }
}

const PACK: Pack = Pack {
    content: Guid([9; 32]),
    length: 1000,
};

#[test]
fn a_folder_lists_what_is_in_it_in_the_order_of_the_components() {
    let folder = Folder::new(
        vec![PACK],
        vec![
            file("b", 1),
            entry("a/c", packed(0, 0, 2)),
            file("a.txt", 3),
            entry("a", Kind::Folder),
            entry("a/b/d", link("../../b")),
        ],
    )
    .unwrap();
    let paths: Vec<_> = folder
        .entries()
        .iter()
        .map(|entry| entry.path.as_bytes())
        .collect();
    let expected: [&[u8]; 5] = [b"a", b"a/b/d", b"a/c", b"a.txt", b"b"];
    assert_eq!(paths, expected);
    assert_eq!((folder.total_len(), folder.files()), (6, 3));
    assert_eq!(folder.find(&path("a.txt")), Some(3));
    assert_eq!(folder.find(&path("a/b")), None);
    assert!(folder.has_below(&path("a/b")) && folder.has_below(&path("a")));
    assert!(!folder.has_below(&path("a/c")) && !folder.has_below(&path("z")));
}

#[test]
fn a_repeated_path_and_one_for_file_and_folder_are_refused() {
    let refused = |entries: Vec<Entry>| match Folder::new(Vec::new(), entries) {
        Err(FolderError::Entry { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        refused(vec![file("a", 1), file("a", 2)]),
        EntryError::OutOfOrder
    );
    assert_eq!(
        refused(vec![file("a/b/c", 1), file("a.x", 1), file("a", 2)]),
        EntryError::BelowNoFolder(path("a"))
    );
    assert_eq!(
        refused(vec![entry("a", link("b")), file("a/c", 2)]),
        EntryError::BelowNoFolder(path("a"))
    );
}

#[test]
fn lengths_that_no_content_can_have_are_refused() {
    let half = (1 << 59) + 1;
    let folder = Folder::new(Vec::new(), vec![file("a", half), file("b", half)]);
    assert_eq!(folder, Err(FolderError::TooLong));
    let long = Pack {
        length: MAX_PACK_LEN as u32 + 1,
        ..PACK
    };
    assert_eq!(
        Folder::new(vec![long], Vec::new()),
        Err(FolderError::PackTooLong(long.length))
    );
}

#[test]
fn a_link_that_could_lead_out_is_refused() {
    for (at, target) in [
        ("l", "/etc/passwd"),
        ("l", ".."),
        ("l", "../x"),
        ("a/b", "../../x"),
        ("a/b", "./.././../x"),
        // Behind a name: it could be a link that leads upwards.
        ("a/b", "c/../../x"),
        ("a/b", "c/.."),
        ("a/b", "/"),
    ] {
        let refused = check_target(&path(at), target.as_bytes());
        assert!(
            matches!(refused, Err(EntryError::UnsafeLink(_))),
            "{at} -> {target}"
        );
    }
    for (at, target) in [
        ("l", "x"),
        ("l", "."),
        ("l", "...//x/"),
        ("a/b", ".."),
        ("a/b/c", "../../x/y"),
        ("a/b", "\u{1b}\u{fc}"),
    ] {
        assert_eq!(check_target(&path(at), target.as_bytes()), Ok(()));
    }
    for target in [&b""[..], b"a\0", &[b'a'; 4096]] {
        assert_eq!(
            check_target(&path("l"), target),
            Err(EntryError::InvalidTarget)
        );
    }
}

/// A listing without packs, of hand-made entries: each (kind, path, mode, what follows the time).
fn listing(count: u32, entries: &[(u8, &[u8], u16, &[u8])]) -> Vec<u8> {
    let mut bytes = b"\x89WHBDIR\n\x02\0\0\0\0".to_vec();
    bytes.extend(count.to_be_bytes());
    for (kind, path, mode, rest) in entries {
        bytes.push(*kind);
        bytes.extend((path.len() as u16).to_be_bytes());
        bytes.extend(*path);
        bytes.extend(mode.to_be_bytes());
        bytes.extend(1_800_000_000_i64.to_be_bytes());
        bytes.extend(7u32.to_be_bytes());
        bytes.extend(*rest);
    }
    bytes
}

const FILE: &[u8] = &[1; 40];

#[test]
fn what_could_do_harm_is_refused_alone() {
    let outside = [&9u16.to_be_bytes()[..], b"../../etc"].concat();
    let inside = [&1u16.to_be_bytes()[..], b"z"].concat();
    let nowhere = [0; 4 + 4 + 4 + 32];
    let short: &[u8] = &[0; 40];
    let entries: [(u8, &[u8], u16, &[u8]); 14] = [
        (0, b"/etc/passwd", 0o644, short),
        (0, b"a/../../b", 0o644, short),
        (0, b"", 0o644, short),
        (0, b"a//b", 0o644, short),
        (0, b"a\0", 0o644, short),
        (0, b"good", 0o644, short),
        (0, b"fine", 0o644, short),
        (0, b"good", 0o644, short),
        (0, b"good/below", 0o644, short),
        (0, b"setuid", 0o4755, short),
        (1, b"t", 0o644, &nowhere),
        (3, b"u/link", 0o777, &outside),
        (3, b"v", 0o777, &inside),
        (0, b"v/through", 0o644, short),
    ];
    let bytes = listing(entries.len() as u32, &entries);
    let found = Folder::decode(&bytes).unwrap();
    let good: Vec<_> = found
        .folder
        .entries()
        .iter()
        .map(|entry| entry.path.as_bytes())
        .collect();
    assert_eq!(good, [&b"good"[..], b"v"]);
    let why: Vec<_> = found.refused.into_iter().map(|one| one.why).collect();
    let expected = [
        PathError::Absolute.into(),
        PathError::Parent.into(),
        PathError::Empty.into(),
        PathError::EmptyComponent.into(),
        PathError::Nul.into(),
        EntryError::OutOfOrder,
        EntryError::OutOfOrder,
        EntryError::BelowNoFolder(path("good")),
        EntryError::UnknownMode(0o4755),
        EntryError::NotInPack,
        EntryError::UnsafeLink((*b"../../etc").into()),
        EntryError::BelowNoFolder(path("v")),
    ];
    assert_eq!(why, expected);
}

#[test]
fn what_is_no_listing_is_refused_whole() {
    let refused = |bytes: &[u8]| Folder::decode(bytes).unwrap_err();
    let one: (u8, &[u8], u16, &[u8]) = (0, b"a", 0, FILE);
    assert_eq!(refused(&listing(2, &[one])), FolderError::Truncated);
    assert_eq!(refused(&listing(u32::MAX, &[])), FolderError::TooLarge);
    assert_eq!(refused(&listing(1 << 20, &[])), FolderError::Truncated);
    assert_eq!(refused(&listing(0, &[one])), FolderError::TrailingBytes(58));
    assert_eq!(
        refused(&listing(1, &[(4, b"a", 0, FILE)])),
        FolderError::UnknownKind(4)
    );
    assert_eq!(refused(b"hello"), FolderError::NotAFolder);
    assert_eq!(
        refused(b"\x89WHBDIR\n\x01\0\0\0\0"),
        FolderError::UnknownVersion(1)
    );
    let text = refused(b"\x89WHBDIR\n\x03").to_string();
    assert!(text.contains("same release"), "{text}");
    assert_eq!(Folder::decode(&listing(0, &[])), Ok(Default::default()));
}

/// After a change in the middle, the packs further on are the same again.
#[test]
fn packs_end_where_their_files_say_so() {
    let packs = |files: &[(Guid, u64)]| {
        let mut packs = vec![Vec::new()];
        let mut filled = 0;
        for (content, length) in files {
            if ends_pack(filled, content, *length) {
                packs.push(Vec::new());
                filled = 0;
            }
            filled += length;
            assert!(filled <= MAX_PACK_LEN);
            packs.last_mut().unwrap().push(*content);
        }
        packs
    };
    let mut files: Vec<(Guid, u64)> = (0u32..20_000)
        .map(|number| {
            let hash = blake3::hash(&number.to_be_bytes());
            (
                Guid(*hash.as_bytes()),
                200 + u64::from(hash.as_bytes()[1]) * 8,
            )
        })
        .collect();
    let before = packs(&files);
    files.remove(3_000);
    let after = packs(&files);
    let same = after.iter().filter(|pack| before.contains(pack)).count();
    assert!(before.len() >= 6, "{}", before.len());
    assert!(same + 4 >= before.len(), "{same} of {}", before.len());
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        (0u64..1 << 50, any::<[u8; 32]>()).prop_map(|(length, content)| Kind::File {
            length,
            content: Guid(content),
            packed: None,
        }),
        (0u32..900, 0u64..100).prop_map(|(offset, length)| packed(0, offset, length)),
        Just(Kind::Folder),
        "[a-c.]{1,3}(/[a-c]{1,2}){0,2}".prop_map(|target| link(&target)),
    ]
}

proptest! {
    #[test]
    fn a_folder_comes_back_from_its_listing_whatever_the_order_it_was_given_in(
        entries in prop::collection::btree_map(
            prop::collection::vec(prop::sample::select(b"abc/\xff".as_slice()), 1..7),
            (0u16..0o1000, any::<i64>(), 0u32..1_000_000_000, kinds()),
            0..20,
        ),
        rotation: usize, place: usize, bit in 0u8..8,
    ) {
        let entries: Vec<Entry> = entries.into_iter().filter_map(|(path, (mode, seconds, nanoseconds, kind))| {
            let path = RelativePath::new(path).ok()?;
            Some(Entry { path, mode, modified: Modified { seconds, nanoseconds }, kind })
        }).collect();
        let mut rotated = entries.clone();
        if !rotated.is_empty() {
            let middle = rotation % rotated.len();
            rotated.rotate_left(middle);
        }
        let folder = Folder::new(vec![PACK], entries);
        prop_assert_eq!(&folder, &Folder::new(vec![PACK], rotated));
        let Ok(folder) = folder else { return Ok(()) };
        let bytes = folder.encode();
        prop_assert_eq!(bytes.len(), folder.encoded_len());
        let back = Folder::decode(&bytes).unwrap();
        prop_assert_eq!(&back.folder, &folder);
        prop_assert_eq!(back.refused, []);

        let place = place % bytes.len();
        prop_assert!(Folder::decode(&bytes[..place]).is_err());
        let mut changed = bytes.clone();
        changed[place] ^= 1 << bit;
        if let Ok(other) = Folder::decode(&changed) {
            prop_assert!(other.folder != folder || !other.refused.is_empty());
        }
    }

    #[test]
    fn any_bytes_after_the_header_decode_to_what_encodes_to_them_or_are_refused(
        count in 0u32..4, rest in prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(b'a'), any::<u8>()], 0..160),
    ) {
        let mut bytes = listing(count, &[]);
        bytes.extend(&rest);
        if let Ok(found) = Folder::decode(&bytes)
            && found.refused.is_empty()
        {
            prop_assert_eq!(found.folder.encode(), bytes);
        }
        prop_assert!(Folder::decode(&rest).is_err());
    }

    /// What is left of a listing is a folder, whatever was refused.
    #[test]
    fn what_remains_of_any_entries_is_a_folder(
        paths in prop::collection::vec(("[ab/.]{1,4}", 0u8..4, 0u16..0o1002), 0..6),
    ) {
        let rest = |kind| match kind {
            0 => &[0; 40][..],
            1 => &[0; 44],
            2 => &[],
            _ => b"\0\x02..",
        };
        let entries: Vec<_> = paths.iter().map(|(path, kind, mode)| (*kind, path.as_bytes(), *mode, rest(*kind))).collect();
        let bytes = listing(entries.len() as u32, &entries);
        let found = Folder::decode(&bytes).unwrap();
        prop_assert_eq!(found.folder.entries().len() + found.refused.len(), paths.len());
        let again = Folder::new(Vec::new(), found.folder.entries().to_vec());
        prop_assert_eq!(again.as_ref(), Ok(&found.folder));
        if found.refused.is_empty() {
            prop_assert_eq!(found.folder.encode(), bytes);
        }
    }
}

const TOP: Top = Top {
    mode: 0o700,
    modified: Modified {
        seconds: -5,
        nanoseconds: 7,
    },
};

/// A receiver that does not know the record takes it for a pack in which no file lies.
#[test]
fn the_record_of_the_folder_itself_is_a_pack_without_bytes() {
    let plain = Folder::new(vec![PACK], vec![entry("a", packed(0, 0, 2))]).unwrap();
    let whole = plain.clone().with_top(TOP).unwrap();
    let (before, after) = (plain.encode(), whole.encode());
    assert_eq!(after.len(), whole.encoded_len());
    let record = b"\x89WHBTOP\n\x01\xc0\xff\xff\xff\xff\xff\xff\xff\xfb\0\0\0\x07";
    let record = [&record[..], &[0; 14]].concat();
    let packs = 13 + 36;
    assert_eq!(after[..12], before[..12]);
    assert_eq!((before[12], after[12]), (1, 2));
    assert_eq!(after[13..packs], before[13..packs]);
    assert_eq!(&after[packs..packs + 36], record);
    assert_eq!(after[packs + 36..], before[packs..]);
    let listing = Folder::decode(&after).unwrap();
    assert_eq!(
        (listing.folder.top(), listing.folder.packs()),
        (Some(&TOP), &[PACK][..])
    );
    assert_eq!(listing.folder, whole);
    // No file can lie in it.
    let inside = vec![entry("a", packed(1, 0, 0))];
    assert!(Folder::new(vec![PACK], inside).is_err());
}

#[test]
fn permissions_and_times_that_no_folder_can_have_are_refused() {
    let plain = Folder::default();
    let setgid = Top {
        mode: 0o2755,
        ..TOP
    };
    let refused = plain.clone().with_top(setgid);
    let why = EntryError::UnknownMode(0o2755);
    assert_eq!(refused, Err(FolderError::Top { why: why.clone() }));
    let mut listing = plain.clone().with_top(TOP).unwrap().encode();
    listing[13 + 8] = 0x0d;
    let decoded = Folder::decode(&listing).unwrap();
    assert_eq!(decoded.folder, plain);
    let refused: Vec<_> = decoded
        .refused
        .into_iter()
        .map(|one| (one.path, one.why))
        .collect();
    assert_eq!(
        refused,
        [(Box::from(*b"."), EntryError::UnknownMode(0o6700))]
    );
}

#[test]
fn the_room_of_a_folder_is_known_from_its_listing() {
    let small = |path: &str| entry(path, packed(0, 0, 900));
    let folder = Folder::new(
        vec![PACK, PACK],
        vec![
            entry("a", Kind::Folder),
            small("a/b/c/one"),
            small("a/b/c/two"),
            entry("a/b/link", link("c/one")),
            small("d/three"),
            file("large", 70_000),
            file("large-copy", 70_000),
            entry("z/z/z", Kind::Folder),
        ],
    )
    .unwrap();
    let size = folder.size();
    // Beside the entries: the folder itself, a/b, a/b/c, d, z and z/z.
    assert_eq!(size.entries, 8 + 6);
    assert_eq!(size.on_disk, (12 + 2 * 18) * 4096);
    assert_eq!(size.fetched, 1000 + 70_000);
    let empty = Folder::default().size();
    assert_eq!((empty.entries, empty.on_disk, empty.fetched), (1, 4096, 0));
}
