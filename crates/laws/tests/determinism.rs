//! Protocol crates read no clock and cannot bypass the lint that bans it (laws 1 and 5 of
//! ARCHITECTURE.md).

use std::fs;
use std::path::{Path, PathBuf};

use whimbrel_laws::PROTOCOLS;

/// Methods that clippy.toml must ban.
const BANNED_METHODS: &[&str] = &[
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "std::thread::sleep",
    "std::thread::spawn",
    "rand::rng",
    "rand::random",
];
const BANNED_TYPES: &[&str] = &["std::collections::HashMap", "std::collections::HashSet"];

/// Words banned from the sources of protocols: disabled lints, and access to the outside that needs
/// no dependency.
const BANNED_WORDS: &[&str] = &[
    "clippy::disallowed",
    "clippy::all",
    "clippy::style",
    "UdpSocket",
    "TcpListener",
    "TcpStream",
    "UnixDatagram",
    "UnixListener",
    "UnixStream",
    "std::thread::Builder",
    "std::thread::scope",
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn toml_file(path: &Path) -> toml::Table {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.parse()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn source_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            source_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn clippy_still_bans_the_clock_threads_global_randomness_and_hash_order() {
    let clippy = toml_file(&workspace().join("clippy.toml"));
    let listed = |key: &str| -> Vec<String> {
        let entries = clippy
            .get(key)
            .and_then(toml::Value::as_array)
            .cloned()
            .unwrap_or_default();
        let path = |entry: &toml::Value| {
            entry
                .get("path")
                .unwrap_or(entry)
                .as_str()
                .map(str::to_owned)
        };
        entries.iter().filter_map(path).collect()
    };
    let (methods, types) = (listed("disallowed-methods"), listed("disallowed-types"));
    for method in BANNED_METHODS {
        assert!(
            methods.iter().any(|path| path == method),
            "clippy.toml no longer bans {method}"
        );
    }
    for kind in BANNED_TYPES {
        assert!(
            types.iter().any(|path| path == kind),
            "clippy.toml no longer bans {kind}"
        );
    }
}

#[test]
fn no_protocol_crate_has_a_way_around_the_ban() {
    let lints = toml_file(&workspace().join("Cargo.toml"))["workspace"]["lints"].to_string();
    assert!(
        !lints.contains("disallowed"),
        "the workspace's lints switch the ban off"
    );
    let mut faults = Vec::new();
    let mut files = Vec::new();
    for protocol in PROTOCOLS {
        let folder = workspace().join("crates").join(protocol);
        // Clippy uses the nearest of these files instead of the workspace's.
        for name in ["clippy.toml", ".clippy.toml"] {
            if folder.join(name).exists() {
                faults.push(format!("{protocol} has a {name} of its own"));
            }
        }
        let manifest = toml_file(&folder.join("Cargo.toml"));
        if manifest
            .get("lints")
            .and_then(|lints| lints.get("workspace"))
            != Some(&toml::Value::Boolean(true))
        {
            faults.push(format!("{protocol} does not take the workspace's lints"));
        }
        let before = files.len();
        source_files(&folder.join("src"), &mut files);
        assert!(files.len() > before, "{protocol} has no source");
    }
    for file in &files {
        let text =
            fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for word in BANNED_WORDS.iter().filter(|word| text.contains(**word)) {
            faults.push(format!("{} has {word}", file.display()));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
