//! Crates depend downwards only (law 4 of ARCHITECTURE.md), and no protocol crate depends on a
//! socket or a runtime (law 1).

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};
use whimbrel_laws::{LAYERS, PROTOCOLS};

/// Crates with sockets, event loops and runtimes, on which no protocol crate may depend directly.
const DOORS: &[&str] = &[
    "async-executor",
    "async-io",
    "async-std",
    "embassy-executor",
    "futures-executor",
    "glommio",
    "io-uring",
    "libc",
    "mio",
    "monoio",
    "nix",
    "pollster",
    "polling",
    "quinn",
    "quinn-udp",
    "rustix",
    "smol",
    "socket2",
    "tokio",
    "tokio-uring",
];

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata reads this workspace")
}

/// The short name of a crate of this workspace, `None` for a crate from elsewhere.
fn short_name(package: &str) -> Option<&str> {
    if package == "whimbrel" {
        Some("cli")
    } else {
        package.strip_prefix("whimbrel-")
    }
}

fn crates(metadata: &Metadata) -> BTreeMap<&str, &Package> {
    let packages = metadata.workspace_packages();
    packages
        .into_iter()
        .map(|package| {
            let name = short_name(&package.name).unwrap_or_else(|| {
                panic!(
                    "{} should be called whimbrel-{}",
                    package.name, package.name
                )
            });
            (name, package)
        })
        .collect()
}

#[test]
fn every_crate_has_a_row_in_the_table_and_every_row_a_crate() {
    let metadata = metadata();
    let crates: BTreeSet<&str> = crates(&metadata).into_keys().collect();
    let rows: BTreeSet<&str> = LAYERS.iter().map(|layer| layer.name).collect();
    let unknown: Vec<_> = crates.difference(&rows).collect();
    assert!(
        unknown.is_empty(),
        "{unknown:?} is in the workspace but in no row of LAYERS (crates/laws/src/lib.rs): add it there, \
         with the crates that it may use, and to the table of ARCHITECTURE.md"
    );
    let gone: Vec<_> = rows.difference(&crates).collect();
    assert!(
        gone.is_empty(),
        "{gone:?} is in LAYERS but not in the workspace: remove its row"
    );
}

#[test]
fn the_table_has_no_way_up() {
    for (row, layer) in LAYERS.iter().enumerate() {
        let above: BTreeSet<&str> = LAYERS[..row].iter().map(|layer| layer.name).collect();
        for used in layer.may_use.iter().chain(layer.tests_may_use) {
            assert!(
                above.contains(used),
                "{} may use {used}, whose row is not above its own",
                layer.name
            );
        }
    }
}

#[test]
fn crates_use_only_what_their_row_allows() {
    let metadata = metadata();
    let crates = crates(&metadata);
    let mut faults = Vec::new();
    for layer in LAYERS {
        for dependency in crates
            .get(layer.name)
            .into_iter()
            .flat_map(|package| &package.dependencies)
        {
            let Some(used) = short_name(&dependency.name) else {
                continue;
            };
            let in_tests = dependency.kind == DependencyKind::Development;
            let allowed =
                layer.may_use.contains(&used) || (in_tests && layer.tests_may_use.contains(&used));
            if !allowed {
                let whose = if in_tests { "tests of " } else { "" };
                faults.push(format!("{whose}{} must not use {used}", layer.name));
            }
        }
    }
    assert!(
        faults.is_empty(),
        "{faults:#?}\nThe table is LAYERS in crates/laws/src/lib.rs."
    );
}

#[test]
fn protocol_crates_have_no_door_to_sockets_or_runtimes() {
    let metadata = metadata();
    let crates = crates(&metadata);
    let mut faults = Vec::new();
    for protocol in PROTOCOLS {
        for dependency in crates
            .get(protocol)
            .into_iter()
            .flat_map(|package| &package.dependencies)
        {
            let in_tests = dependency.kind == DependencyKind::Development;
            if !in_tests && DOORS.contains(&dependency.name.as_str()) {
                faults.push(format!("{protocol} depends on {}", dependency.name));
            }
        }
    }
    assert!(
        faults.is_empty(),
        "a protocol is a state machine; drivers live in io: {faults:#?}"
    );
    assert!(
        PROTOCOLS.iter().all(|name| crates.contains_key(name)),
        "PROTOCOLS names a crate that is gone"
    );
}
