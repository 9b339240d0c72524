//! The Debian package holds what its own parts name.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

const DOCUMENTS: &str = "usr/share/doc/whimbrel";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The package's description for cargo-deb.
fn package() -> Table {
    let mut manifest: Table = text("crates/cli/Cargo.toml").parse().unwrap();
    let mut at = manifest.remove("package").unwrap();
    for key in ["metadata", "deb"] {
        at = at.as_table_mut().unwrap().remove(key).unwrap();
    }
    at.try_into().unwrap()
}

fn strings(list: &Value) -> Vec<&str> {
    let items = list.as_array().unwrap().iter();
    items.map(|item| item.as_str().unwrap()).collect()
}

/// Returns all files below a folder, as paths relative to it.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = PathBuf::from(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files_below(&entry.path()).iter().map(|it| name.join(it))),
            false => found.push(name),
        }
    }
    found
}

/// Returns where the documents of this repository are in the package: whole folders, and single files.
fn documents() -> BTreeSet<PathBuf> {
    let package = package();
    let mut all = BTreeSet::new();
    for asset in package["assets"].as_array().unwrap() {
        let [from, to, _] = strings(asset).try_into().unwrap();
        let Some(to) = to.strip_prefix(DOCUMENTS) else {
            continue;
        };
        let from = from.strip_prefix("../../").unwrap();
        let to = Path::new(to.trim_matches('/'));
        match from.strip_suffix("/**/*") {
            Some(folder) => {
                let files = files_below(&root().join(folder));
                all.extend(files.iter().map(|file| to.join(file)));
            }
            None => {
                assert!(root().join(from).is_file(), "{from}");
                all.insert(to.join(Path::new(from).file_name().unwrap()));
            }
        }
    }
    all
}

/// Returns the local targets of the links of a page.
fn links(page: &str) -> Vec<String> {
    let after = page.split("](").skip(1);
    let targets = after.filter_map(|rest| rest.split([')', '#']).next());
    let local = targets.filter(|target| !target.is_empty() && !target.contains(':'));
    local.map(str::to_owned).collect()
}

#[test]
fn every_document_that_the_packaged_readme_links_to_is_packaged() {
    let documents = documents();
    assert!(documents.contains(Path::new("README.md")));
    for target in links(&text("README.md")) {
        let is_there = documents.iter().any(|path| path.starts_with(&target));
        assert!(is_there, "README.md links to {target}");
    }
}

#[test]
fn every_configuration_of_a_unit_is_written_and_every_unit_is_installed() {
    let (package, script) = (package(), text("scripts/package"));
    let kept = strings(&package["conf-files"]);
    let units = package["systemd-units"].as_array().unwrap().iter();
    let units: BTreeSet<&str> = units
        .map(|unit| unit["unit-name"].as_str().unwrap())
        .collect();
    let mut present = BTreeSet::new();
    for file in files_below(&root().join("packaging/systemd")) {
        let unit = text(&format!("packaging/systemd/{}", file.display()));
        for word in unit.split(char::is_whitespace) {
            if word.starts_with("/etc/whimbrel/") && word.ends_with(".toml") {
                assert!(kept.contains(&word), "{}: {word}", file.display());
            }
        }
        assert!(!unit.contains("RestartPreventExitStatus"), "{unit}");
        assert!(unit.contains("StartLimitIntervalSec=0"), "{unit}");
        present.insert(file.file_stem().unwrap().to_str().unwrap().to_owned());
    }
    assert!(units.iter().copied().eq(present.iter().map(String::as_str)));
    for path in kept {
        let name = Path::new(path).file_stem().unwrap().to_str().unwrap();
        assert!(root().join(format!("docs/config/{name}.toml")).is_file());
        let is_written = script
            .split([' ', '/', '.', ';', '\n'])
            .any(|it| it == name);
        assert!(is_written, "scripts/package does not write {path}");
    }
}
