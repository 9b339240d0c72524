//! Readers can look up every citation in code and documents: keys are in `docs/sources.md`, and
//! private material is not named.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Words for material that only the authors have.
const PRIVATE: &[&str] = &[
    "research note",
    "research file",
    "DESIGN law",
    "DESIGN section",
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn texts(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            let made = ["target", "node_modules", "corpus", "artifacts"].contains(&name.as_ref());
            // Folders of git and of editors begin with a dot.
            if !made && (!name.starts_with('.') || name == ".ci") {
                texts(&path, found);
            }
        } else if [".rs", ".md", ".toml"]
            .iter()
            .any(|end| name.ends_with(end))
        {
            found.push(path);
        }
    }
}

/// The part in brackets before each section sign, as in `[MFTP §3.3]`.
fn keys_cited(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices(" §").filter_map(|(at, _)| {
        let before = &text[..at];
        let start = before.rfind('[')?;
        let key = &before[start + 1..];
        let plain = |c: char| c.is_ascii_alphanumeric() || "-/".contains(c);
        (!key.is_empty() && key.chars().all(plain)).then_some(key)
    })
}

/// True for the file name of a text outside of this repository: three digits, an underscore,
/// sixteen hexadecimal digits.
fn names_a_private_text(text: &str) -> bool {
    text.as_bytes().windows(20).any(|window| {
        let (number, rest) = window.split_at(3);
        number.iter().all(u8::is_ascii_digit)
            && rest[0] == b'_'
            && rest[1..17].iter().all(u8::is_ascii_hexdigit)
    })
}

#[test]
fn every_citation_can_be_opened() {
    let sources = fs::read_to_string(workspace().join("docs/sources.md")).expect("docs/sources.md");
    let known: BTreeSet<&str> = sources
        .lines()
        .filter_map(|line| line.strip_prefix("| [")?.split_once(']'))
        .map(|(key, _)| key)
        .collect();
    let mut files = Vec::new();
    texts(&workspace(), &mut files);
    let mut faults = Vec::new();
    let mut citations = 0;
    for file in files
        .iter()
        .filter(|file| !file.ends_with("laws/tests/sources.rs"))
    {
        let Ok(text) = fs::read_to_string(file) else {
            continue;
        };
        for key in keys_cited(&text) {
            citations += 1;
            if !known.contains(key) {
                faults.push(format!(
                    "{}: [{key}] is not in docs/sources.md",
                    file.display()
                ));
            }
        }
        for word in PRIVATE.iter().filter(|word| text.contains(**word)) {
            faults.push(format!(
                "{}: '{word}' is not available to readers",
                file.display()
            ));
        }
        if names_a_private_text(&text) {
            faults.push(format!(
                "{}: names a file that is not available to readers",
                file.display()
            ));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(
        citations > 50,
        "only {citations} citations: is the pattern right?"
    );
}

#[test]
fn the_pattern_finds_what_it_should() {
    let keys: Vec<&str> = keys_cited("as [MFTP §3.3] and ([TCP/ICN §5], but a[i] §2").collect();
    assert_eq!(keys, ["MFTP", "TCP/ICN"]);
    assert!(names_a_private_text("see 001_0123456789abcdef.txt"));
    assert!(!names_a_private_text("1001_0123 and 001_xyz"));
}
