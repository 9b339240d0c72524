//! Names by their first digits: of what the host daemon's programs serve, and of unfinished downloads.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::os::unix::fs::DirEntryExt;
use std::path::Path;

use crate::support::{Network, await_that, finished, name_of, noise, whimbrel};

fn get(socket: &Path, name: &str, target: &Path) -> (i32, String, String) {
    let mut get = whimbrel();
    get.args(["get", name, "--timeout", "100 s", "--socket"]);
    finished(get.arg(socket).arg("-o").arg(target))
}

/// Two short contents whose names begin with the same four digits.
fn namesakes() -> [String; 2] {
    let mut seen = std::collections::BTreeMap::new();
    for number in 0.. {
        let text = format!("content {number}");
        let start = name_of(text.as_bytes())[..4].to_owned();
        if let Some(other) = seen.insert(start, text.clone()) {
            return [other, text];
        }
    }
    unreachable!("there are 65,536 beginnings")
}

#[test]
fn the_first_digits_of_a_name_suffice_where_it_is_known() {
    let network = Network::start(None);
    let (here, there) = (network.host_socket(1), network.host_socket(0));
    let texts = namesakes();
    let names = texts.each_ref().map(|text| name_of(text.as_bytes()));
    let paths = ["one", "two"].map(|name| network.path(name));
    for (path, text) in paths.iter().zip(&texts) {
        fs::write(path, text).unwrap();
    }
    let _serving = network.serve(&[&paths[0], &paths[1]]);
    let target = network.path("got");
    let differ = (4..64)
        .find(|at| names[0][..*at] != names[1][..*at])
        .unwrap();
    let enough = names[1][..differ].to_uppercase();
    let (code, out, err) = get(&here, &enough, &target);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(fs::read_to_string(&target).unwrap(), texts[1]);
    assert!(err.contains(&names[1]), "{err}");
    // Two begin so: they are listed.
    let (code, _, err) = get(&here, &names[0][..4], &target);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains(&names[0]) && err.contains(&names[1]), "{err}");
    // Too short to be meant, and known to nobody here.
    let (code, _, err) = get(&here, &names[0][..3], &target);
    assert_eq!(code, 2, "{err}");
    let (code, _, err) = get(&there, &enough, &target);
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("host daemon"), "{err}");
    let (code, _, err) = get(&network.path("none"), &enough, &target);
    assert_eq!(code, 5, "{err}");
}

#[test]
fn an_unfinished_download_goes_on_by_its_first_digits() {
    // Slow enough that the first run is ended in its midst.
    let network = Network::start(Some("10 Mbit/s"));
    let bytes = noise(6 << 20, 81);
    let (source, target) = (network.path("film"), network.path("got"));
    fs::write(&source, &bytes).unwrap();
    let (_serving, names) = network.serve(&[&source]);
    let mut first = network.get_until(&names[0], &target, bytes.len(), 0.1);
    // What has arrived counts once the record of it is on disk, which replaces the first one.
    let record = || {
        let files = fs::read_dir(target.parent().unwrap()).unwrap().flatten();
        let mut records = files.filter(|file| file.path().extension() == Some("resume".as_ref()));
        records.next().map(|file| file.ino())
    };
    await_that("a first record", || record().is_some());
    let begun = record();
    await_that("a record of what has arrived", || {
        record().is_some_and(|now| Some(now) != begun) && begun.is_some()
    });
    first.kill();
    assert!(!target.exists());
    let router = format!("127.0.0.1:{}", network.ports[1]);
    let mut again = whimbrel();
    again.args(["get", &names[0][..6], "--json", "--timeout", "100 s"]);
    again.args(["--router", &router, "-o"]);
    let (code, out, err) = finished(again.arg(&target));
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(fs::read(&target).unwrap(), bytes);
    let done = out.lines().last().unwrap();
    let done: serde_json::Value = serde_json::from_str(done).unwrap();
    assert!(done["fetched"]["resumed"].as_u64() > Some(0), "{done}");
    // Done with, it is known no more.
    let mut after = whimbrel();
    after.args(["get", &names[0][..6], "--router", &router, "-o"]);
    let (code, _, err) = finished(after.arg(&target));
    assert_eq!(code, 3, "{err}");
}
