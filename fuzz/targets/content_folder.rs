//! A folder's listing as anybody may have published it.
#![no_main]

use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use whimbrel_content::encryption::{decode_list, encode_list};
use whimbrel_content::folder::check_target;
use whimbrel_content::{Folder, Kind};

fuzz_target!(|data: &[u8]| {
    check(data);
    // The same bytes behind a header that is right, so that the entries are what is tried.
    let (count, entries) = data.split_first().unwrap_or((&0, &[]));
    let pack = [7; 36 - 4];
    let header = [
        b"\x89WHBDIR\n\x02\0\0\0\x01".as_slice(),
        &pack,
        b"\0\0\x10\0\0\0\0",
        &[*count],
    ]
    .concat();
    check(&[&header, entries].concat());
});

fn check(bytes: &[u8]) {
    if let Some((list, names)) = decode_list(bytes) {
        assert_eq!(
            encode_list(list, &names),
            bytes,
            "two encodings of an encrypted folder's list"
        );
    }
    let Ok(listing) = Folder::decode(bytes) else {
        return;
    };
    let folder = &listing.folder;
    if listing.refused.is_empty() {
        assert_eq!(folder.encode(), bytes, "two encodings of one folder");
    }
    let again = Folder::new(folder.packs().to_vec(), folder.entries().to_vec());
    assert_eq!(again.as_ref(), Ok(folder));
    folder.total_len();
    for (index, entry) in folder.entries().iter().enumerate() {
        let path: &Path = entry.path.as_ref();
        assert!(
            path.components()
                .all(|part| matches!(part, Component::Normal(_))),
            "{path:?}"
        );
        assert_eq!(folder.find(&entry.path), Some(index));
        match &entry.kind {
            Kind::Link { target } => assert_eq!(check_target(&entry.path, target), Ok(())),
            Kind::File {
                packed: Some(spot),
                length,
                ..
            } => {
                let pack = folder.packs()[spot.pack as usize];
                assert!(u64::from(spot.offset) + length <= pack.length.into());
            }
            _ => {}
        }
    }
    for refused in &listing.refused {
        let _ = refused.why.to_string();
    }
}
