//! The ceilings of CONTRIBUTING.md: numbers of the sources that may only fall.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use whimbrel_laws::source::{Census, Count, load};

/// Examples that a fault lists.
const EXAMPLES: usize = 12;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A row of the table: what is counted, its ceiling, and where it is to end.
struct Row {
    ceiling: usize,
    wanted: usize,
}

fn rows(page: &str) -> BTreeMap<String, Row> {
    let number = |cell: &str| cell.replace(',', "").parse::<usize>();
    page.lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
            let name = cells.next()?.to_owned();
            let ceiling = number(cells.next()?).ok()?;
            let wanted = number(cells.next()?).ok()?;
            Some((name, Row { ceiling, wanted }))
        })
        .collect()
}

/// What is wrong with a count under its ceiling.
fn fault(count: &Count, row: Option<&Row>) -> Option<String> {
    let Count {
        row: name, found, ..
    } = count;
    let Some(Row { ceiling, .. }) = row else {
        return Some(format!(
            "'{name}' has no row in the table: add it, with {found}"
        ));
    };
    if found > ceiling {
        let worst: Vec<_> = count.examples.iter().take(EXAMPLES).collect();
        return Some(format!(
            "{name}: {found}, at most {ceiling} are allowed. Divide or remove one; all of them: \
             cargo run -p whimbrel-laws --example census. The worst: {worst:#?}"
        ));
    }
    // Several branches lower a number at a time: a small one is exact, a large one is near.
    (found + found / 50 < *ceiling)
        .then(|| format!("{name}: {found}, its ceiling is {ceiling}. Lower it in CONTRIBUTING.md"))
}

#[test]
fn no_number_is_above_its_ceiling_and_no_ceiling_far_above_its_number() {
    let page = fs::read_to_string(workspace().join("CONTRIBUTING.md")).expect("CONTRIBUTING.md");
    let rows = rows(&page);
    let crates = load(&workspace()).unwrap_or_else(|error| panic!("{error}"));
    let counts = Census::take(&crates).counts();
    let faults: Vec<_> = (counts.iter())
        .filter_map(|count| fault(count, rows.get(count.row)))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    for (name, row) in &rows {
        assert!(
            counts.iter().any(|count| count.row == name),
            "nothing counts '{name}'"
        );
        assert!(
            row.wanted <= row.ceiling,
            "{name}: the ceiling is below what is wanted: lower that"
        );
    }
}

#[test]
fn a_number_above_its_ceiling_is_a_fault_and_so_is_a_ceiling_far_above_it() {
    let rows = rows(
        "| what | ceiling | wanted |\n|---|---|---|\n| circles | 3 | 0 |\n| lines | 1,000 | 900 |\n",
    );
    let judge = |row: &'static str, found| {
        let examples = vec!["one two".to_owned()];
        let count = Count {
            row,
            found,
            examples,
        };
        fault(&count, rows.get(row))
    };
    assert_eq!(judge("circles", 3), None);
    assert!(judge("circles", 4).is_some_and(|fault| fault.contains("one two")));
    assert!(judge("circles", 2).is_some_and(|fault| fault.contains("Lower it")));
    assert_eq!(judge("lines", 990), None);
    assert!(judge("lines", 970).is_some());
    assert!(judge("methods", 1).is_some_and(|fault| fault.contains("no row")));
}
