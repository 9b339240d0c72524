//! A signal asks the loop to stop. This test has its own binary, because a signal reaches the whole
//! process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use signal_hook::consts::SIGTERM;
use support::script_loop;

#[test]
fn sigterm_ends_the_loop_instead_of_the_process() {
    let mut a = script_loop();
    a.stop_on_signals().unwrap();
    signal_hook::low_level::raise(SIGTERM).unwrap();
    a.run(|_, _, _| {}).unwrap();
}
