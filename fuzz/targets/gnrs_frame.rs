//! A frame and a record of the name service as anybody may send them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_gnrs::{GroupAdmission, Pointer, Record};
use whimbrel_gnrs::wire::Frame;

fuzz_target!(|data: &[u8]| {
    if let Ok(frame) = Frame::decode(data) {
        let mut written = Vec::new();
        frame.encode(&mut written);
    }
    if let Ok(admission) = GroupAdmission::from_bytes(data) {
        assert_eq!(admission.to_bytes(), data);
    }
    if let Ok(record) = Record::parse(data) {
        assert_eq!(record.as_bytes(), data);
        let _ = record.verify(1_767_225_600_000);
        let place = record.filed_under();
        if let Some(pointer) = record.as_pointer() {
            assert_eq!(place, Pointer::key_of(&record.signer(), &pointer.alias));
        }
        let _ = record.successor();
        if let Some(admission) = record.as_admission() {
            let _ = admission.admits(&record.holder(), 1_767_225_600_000);
            let _ = record.joins_as_group();
        }
    }
});
