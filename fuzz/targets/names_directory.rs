//! A directory of names that somebody passes on as a file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_gnrs::directory::{Directory, SignedDirectory};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    if let Ok(signed) = SignedDirectory::parse(text) {
        let mut directory = Directory::default();
        assert!(directory.import(signed, None).is_ok());
    }
});
