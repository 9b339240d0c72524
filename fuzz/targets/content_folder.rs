//! A folder's manifest as anybody may have published it.
#![no_main]

use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use whimbrel_content::Folder;

fuzz_target!(|data: &[u8]| {
    check(data);
    // The same bytes behind a header that is right, so that the entries are what is tried.
    let (count, entries) = data.split_first().unwrap_or((&0, &[]));
    let header = [b"\x89WHBDIR\n\x01\0\0\0".as_slice(), &[*count]].concat();
    check(&[&header, entries].concat());
});

fn check(manifest: &[u8]) {
    let Ok(folder) = Folder::decode(manifest) else {
        return;
    };
    assert_eq!(folder.encode(), manifest, "two encodings of one folder");
    assert_eq!(Folder::new(folder.entries().to_vec()).as_ref(), Ok(&folder));
    folder.total_len();
    for entry in folder.entries() {
        let path: &Path = entry.path.as_ref();
        assert!(
            path.components()
                .all(|part| matches!(part, Component::Normal(_))),
            "{path:?}"
        );
        assert_eq!(folder.get(&entry.path), Some(entry));
    }
}
