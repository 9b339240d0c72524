use std::fs;

use super::*;

const SOURCES: &[(&str, &str)] = &[
    (
        "lib.rs",
        "mod one;\nmod other;\nmod room;\n#[cfg(test)]\nmod tests;\npub use one::One;\n",
    ),
    (
        "one.rs",
        "use crate::other::Other;\n\
         pub struct One { a: String, other: Option<Box<Other>> }\n\
         pub struct Counters { a: u64, b: u64, c: u64 }\n\
         pub enum Answer { Yes }\n\
         impl One {\n  pub fn first(&self) {}\n  fn is_late(&mut self) -> bool { true }\n  \
         fn is_early(&self) -> bool { true }\n}\n",
    ),
    (
        "other.rs",
        "pub struct Other;\npub struct Answer;\n\
         impl super::One {\n  fn third(&self, (a, b): (u8, u8)) {}\n}\n\
         fn longest() {\n\n\n\n\n}\nfn make() { RouterConfig { a: 1 }; }\n\
         #[cfg(test)]\nmod tests {\n  fn with((a, b): (u8, u8)) {}\n}\n",
    ),
    (
        "room/mod.rs",
        "mod part;\nuse part::Part;\npub struct Room { part: Part }\n",
    ),
    (
        "room/part.rs",
        "use super::Room;\npub struct Part { room: Option<Box<Room>> }\n",
    ),
    ("tests.rs", "fn with((a, b): (u8, u8)) {}\n"),
    ("forgotten.rs", "fn with((a, b): (u8, u8)) {}\n"),
];

fn counts() -> Vec<Count> {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in SOURCES {
        let path = folder.path().join("crates/small/src").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let rates = folder.path().join("crates/link/src/hop");
    fs::create_dir_all(&rates).unwrap();
    fs::write(
        rates.join("../lib.rs"),
        "mod hop { mod pacing; mod frames; }\n",
    )
    .unwrap();
    fs::write(
        rates.join("pacing.rs"),
        "const GAIN: u8 = 2;\nconst _: () = ();\n",
    )
    .unwrap();
    fs::write(rates.join("frames.rs"), "const MAGIC: u8 = 2;\n").unwrap();
    Census::take(&load(folder.path()).unwrap()).counts()
}

fn found(row: &str) -> Count {
    let counts = counts();
    let rows: Vec<_> = counts.iter().map(|count| count.row).collect();
    let at = rows.iter().position(|known| *known == row);
    let at = at.unwrap_or_else(|| panic!("no {row} in {rows:?}"));
    counts.into_iter().nth(at).unwrap()
}

#[test]
fn methods_count_for_their_type_wherever_they_are_written() {
    let count = found("methods of the largest type");
    assert_eq!(count.found, 4);
    assert_eq!(count.examples, ["4 crates/small/src/one.rs One"]);
}

#[test]
fn fields_of_counters_do_not_count() {
    let count = found("fields of the largest struct");
    assert_eq!(count.found, 2);
    assert_eq!(count.examples[0], "2 crates/small/src/one.rs One");
}

#[test]
fn two_files_that_use_each_other_are_a_circle_and_a_module_with_its_part_is_none() {
    let count = found("circles of files");
    assert_eq!(
        count.examples,
        ["2 crates/small/src/one.rs crates/small/src/other.rs"]
    );
    assert_eq!(found("files in the largest circle").found, 2);
}

#[test]
fn tuples_and_acting_predicates_of_tests_do_not_count() {
    assert_eq!(
        found("functions with a tuple parameter").examples,
        ["crates/small/src/other.rs third"]
    );
    assert_eq!(
        found("predicates that act").examples,
        ["crates/small/src/one.rs is_late"]
    );
}

#[test]
fn constants_count_where_the_rate_is_controlled() {
    let count = found("constants of a hop's congestion control");
    assert_eq!(count.examples, ["1 crates/link/src/hop/pacing.rs"]);
}

#[test]
fn names_composers_and_lines_are_found() {
    assert_eq!(
        found("type names used more than once").examples,
        ["2 Answer"]
    );
    assert_eq!(
        found("files that compose a node").examples,
        ["crates/small/src/other.rs"]
    );
    assert_eq!(
        found("lines of the longest function").examples[0],
        "6 crates/small/src/other.rs longest"
    );
    assert_eq!(found("lines of the longest file").found, 16);
    let lines = found("lines of crates/*/src without tests");
    assert_eq!(lines.examples, ["30 small", "4 link"]);
}
