//! Test programs: each links everything anew, so a crate has one, and no file is left out of it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use cargo_metadata::{MetadataCommand, TargetKind};

/// Beside the one of all modules: a test of signals or namespaces that needs a process of its own.
const MOST_OF_A_CRATE: usize = 3;

/// Names of the files in a folder of tests that hold tests: `a.rs` and `b/mod.rs`.
fn files(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let named = entries.filter(|path| {
        path.extension().is_some_and(|it| it == "rs") || path.join("mod.rs").exists()
    });
    let names = named.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned());
    names.filter(|name| name != "main").collect()
}

#[test]
fn every_file_of_tests_belongs_to_the_program_of_its_crate() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    let mut left_out = Vec::new();
    let mut judged = 0;
    for package in metadata.workspace_packages() {
        let programs: Vec<_> = package
            .targets
            .iter()
            .filter(|target| target.kind.contains(&TargetKind::Test))
            .collect();
        if programs.len() > MOST_OF_A_CRATE {
            left_out.push(format!(
                "{}: {} test programs",
                package.name,
                programs.len()
            ));
        }
        let Some(all) = programs.iter().find(|target| target.name == "all") else {
            continue;
        };
        let text = fs::read_to_string(&all.src_path).unwrap();
        let folder = all.src_path.parent().unwrap();
        for name in files(folder.as_std_path()) {
            judged += 1;
            let own_program = programs.iter().any(|target| target.name == name);
            if !own_program && !text.contains(&format!("mod {name};")) {
                left_out.push(format!("{folder}/{name} is not in {}", all.src_path));
            }
        }
    }
    assert!(judged > 150, "{judged} files");
    assert!(left_out.is_empty(), "{}", left_out.join("\n"));
}
