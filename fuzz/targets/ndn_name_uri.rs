//! Names as text and as octets: what is read survives being written, in both forms.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_ndn_packet::{Name, NameRef};

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = core::str::from_utf8(data)
        && let Ok(name) = text.parse::<Name>()
    {
        check(&name);
    }
    if let Ok(name) = NameRef::from_value(data) {
        assert_eq!(name.value(), data);
        check(&name.to_name());
    }
});

fn check(name: &Name) {
    assert_eq!(name.to_string().parse().as_ref(), Ok(name));
    assert_eq!(
        name.as_ref().numbered().to_string().parse().as_ref(),
        Ok(name)
    );
    let count = name.len();
    for at in 0..=count {
        let (prefix, suffix) = (name.as_ref().prefix(at), name.as_ref().suffix(at));
        assert_eq!((prefix.len(), suffix.len()), (at, count - at));
        assert!(prefix <= name.as_ref() && prefix.is_prefix_of(name.as_ref()));
        assert_eq!(prefix.to_name().join(suffix), *name);
    }
    let _ = (
        name.as_ref().version(),
        name.as_ref().segment(),
        name.as_ref().metadata_of(),
    );
}
