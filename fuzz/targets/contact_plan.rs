#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_core::Guid;
use whimbrel_routing::ContactPlan;

// Any text is a plan or refused with its line, and the ways over a plan are found.
fuzz_target!(|data: &[u8]| {
    const NOW: u64 = 1_800_000_000_000;
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    if let Ok(plan) = ContactPlan::parse(text, NOW) {
        for now in [NOW, plan.next_change(NOW).unwrap_or(NOW)] {
            for (to, way) in plan.earliest(&Guid([1; 32]), now) {
                assert!(way.leaves >= now && way.arrives >= way.leaves && to != Guid([1; 32]));
            }
        }
    }
});
