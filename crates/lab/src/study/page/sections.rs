//! The text and tables of a study's page.

use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::super::{
    Backend, Comparison, Point, ReadingResult, Statement, Study, StudyResult, Table, Verdict,
};
use super::{agreement, of, run_command};
use crate::LabError;

/// Returns the statements that differ from the paper, with the reason, and those that agree.
pub(super) fn verdict(study: &Study, results: &[StudyResult]) -> Result<Markup, LabError> {
    let paper = study.paper()?;
    let mut agreed = Vec::new();
    let mut differing = Vec::new();
    for statement in &paper.statement {
        let rows = results.iter().flat_map(|result| &result.comparisons);
        let rows: Vec<&Comparison> = rows.filter(|row| row.id == statement.id).collect();
        let saw = rows.iter().filter(|row| row.verdict == Verdict::Agrees);
        match (saw.count(), rows.len()) {
            (_, 0) => {}
            (saw, all) if saw == all => agreed.push(statement),
            (saw, all) => differing.push((statement, saw, all)),
        }
    }
    Ok(html! {
        p {
            "Statements of the paper that our measurements agree with: "
            @for (index, result) in results.iter().enumerate() {
                @if index > 0 { ", " }
                strong { (agreement(&result.comparisons)) } " (" (result.backend.title().to_lowercase()) ")"
                @for reading in result.readings.iter().filter(|reading| reading.shown) {
                    ", " (agreement(&reading.comparisons)) " as read under \"" (reading.name) "\" (" a href="#readings" { "below" } ")"
                }
            }
            "."
        }
        ul.verdicts {
            @for (statement, saw, all) in &differing {
                li {
                    span class="verdict no" { (statement.quantity) }
                    @if *saw > 0 { span.quiet { " (" (saw) " of " (all) " agree)" } }
                    @for (index, (of, text)) in explanation(statement).into_iter().enumerate() {
                        @if index == 0 { ": " } @else { " " }
                        @if let Some(of) = of { (of) ": " } (text)
                    }
                }
            }
            @for statement in &agreed {
                li { span class="verdict yes" { (statement.quantity) } }
            }
        }
    })
}

/// Returns other readings of the paper: the assumption of each, and the number of statements that
/// agree under it.
pub(super) fn readings(results: &[StudyResult]) -> Markup {
    html! {
        @for result in results.iter().filter(|result| !result.readings.is_empty()) {
            section aria-labelledby="readings" {
                h2 #readings { "Other readings of the paper" }
                p {
                    "The numbers above are for the literal text of the paper, with which "
                    strong { (agreement(&result.comparisons)) } " statements agree. Each reading below changes what its row states and "
                    "nothing else."
                }
                table.cards role="table" {
                    thead role="rowgroup" {
                        tr role="row" {
                            @for column in ["Reading", "Assumption", "Evidence", "Statements that agree"] {
                                th scope="col" role="columnheader" { (column) }
                            }
                        }
                    }
                    tbody role="rowgroup" {
                        @for reading in &result.readings {
                            tr role="row" {
                                th scope="row" role="rowheader" { (reading.name) }
                                td role="cell" data-label="Assumption" { (reading.title) }
                                td role="cell" data-label="Evidence" { (reading.evidence) }
                                td role="cell" data-label="Statements that agree" { (agreement(&reading.comparisons)) }
                            }
                        }
                    }
                }
                @for reading in result.readings.iter().filter(|reading| reading.shown) { (left(reading)) }
            }
        }
    }
}

/// Returns the remaining differences under a reading.
fn left(reading: &ReadingResult) -> Markup {
    let differing = reading.comparisons.iter();
    let differing: Vec<&Comparison> = differing
        .filter(|row| row.verdict == Verdict::Differs)
        .collect();
    html! {
        @if !differing.is_empty() {
            p { "Remaining differences under the reading \"" (reading.name) "\":" }
            ul.verdicts {
                @for row in differing {
                    li {
                        span class="verdict no" { (row.quantity) }
                        @if !row.case.is_empty() { span.quiet { " (" (row.case) ")" } }
                        @if row.points.is_empty() { ": " (row.ours) }
                        @if !row.explanation.is_empty() { ": " (row.explanation) }
                    }
                }
            }
        }
    }
}

/// Returns the paper's numbers and ours, a row for each setting.
pub(super) fn beside(results: &[StudyResult]) -> Markup {
    html! {
        @for result in results {
            @for rows in of_numbers(result) { (beside_table(result, &rows)) }
        }
    }
}

/// Returns comparisons of numbers, grouped by statement.
fn of_numbers(result: &StudyResult) -> Vec<Vec<&Comparison>> {
    let mut groups: Vec<Vec<&Comparison>> = Vec::new();
    for row in result
        .comparisons
        .iter()
        .filter(|row| !row.points.is_empty())
    {
        match groups.iter_mut().find(|group| group[0].id == row.id) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

fn beside_table(result: &StudyResult, rows: &[&Comparison]) -> Markup {
    let mut settings: Vec<&str> = Vec::new();
    for point in rows.iter().flat_map(|row| &row.points) {
        if !settings.contains(&point.at.as_str()) {
            settings.push(&point.at);
        }
    }
    let caption = format!("{}: {}", result.backend.title(), rows[0].quantity);
    let shown: Vec<&ReadingResult> = result.readings.iter().filter(|r| r.shown).collect();
    // For each row, the literal text, then its shown readings.
    let groups: Vec<Vec<&Comparison>> = rows
        .iter()
        .map(|row| {
            let read = shown.iter().filter_map(|reading| {
                let mut known = reading.comparisons.iter();
                known.find(|known| known.id == row.id && known.case == row.case)
            });
            std::iter::once(*row).chain(read).collect()
        })
        .collect();
    let names: Vec<&str> = shown.iter().map(|reading| reading.name.as_str()).collect();
    html! {
        div.wide tabindex="0" role="region" aria-label=(caption) {
            table {
                caption { (caption) }
                thead {
                    tr {
                        th rowspan="2" scope="col" { "setting" }
                        @for group in &groups {
                            th colspan=(1 + 2 * group.len()) scope="colgroup" {
                                (group[0].case)
                                @for (index, row) in group.iter().enumerate() {
                                    " " @if index > 0 { span.quiet { (names[index - 1]) ": " } }
                                    (badge(row.verdict))
                                }
                            }
                        }
                    }
                    tr {
                        @for group in &groups {
                            th scope="col" { "paper" }
                            @for index in 0..group.len() {
                                th scope="col" { @if index == 0 { "ours" } @else { (names[index - 1]) } }
                                th scope="col" { "difference" }
                            }
                        }
                    }
                }
                tbody {
                    @for setting in settings {
                        tr {
                            th scope="row" { (setting) }
                            @for group in &groups { (beside_cells(group, setting)) }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the paper's number at a setting, and each of ours with its difference.
fn beside_cells(group: &[&Comparison], setting: &str) -> Markup {
    let at = |row: &Comparison| row.points.iter().find(|point| point.at == setting).cloned();
    let points: Vec<Option<Point>> = group.iter().map(|row| at(row)).collect();
    let paper = points.iter().flatten().next();
    html! {
        td {
            @match paper {
                Some(Point { paper: Some(paper), digits, .. }) => (format!("{paper:.digits$}")),
                Some(_) => "-",
                None => {},
            }
        }
        @for point in &points {
            @match point {
                Some(Point { paper, ours, digits, .. }) => {
                    td { (format!("{ours:.digits$}")) }
                    td { (paper.map_or(String::from("-"), |paper| format!("{:+.digits$}", ours - paper))) }
                },
                None => { td {} td {} },
            }
        }
    }
}

fn badge(verdict: Verdict) -> Markup {
    html! {
        span class=(if verdict == Verdict::Agrees { "verdict yes" } else { "verdict no" }) { (verdict.name()) }
    }
}

/// Returns every statement of the paper beside the findings of each back end.
pub(super) fn comparison(study: &Study, results: &[StudyResult]) -> Result<Markup, LabError> {
    let paper = study.paper()?;
    Ok(html! {
        section aria-labelledby="comparison" {
            h2 #comparison { "Comparison with the paper" }
            table.cards role="table" {
                thead role="rowgroup" {
                    tr role="row" {
                        th scope="col" role="columnheader" { "Quantity" }
                        th scope="col" role="columnheader" { "The paper" }
                        @for backend in study.backends {
                            th scope="col" role="columnheader" { (backend.title()) }
                        }
                        th scope="col" role="columnheader" { "Reasons for differences" }
                    }
                }
                tbody role="rowgroup" {
                    @for statement in &paper.statement { (statement_row(study, statement, results)) }
                }
            }
        }
    })
}

fn statement_row(study: &Study, statement: &Statement, results: &[StudyResult]) -> Markup {
    html! {
        tr role="row" {
            th scope="row" role="rowheader" { (statement.judged()) }
            td role="cell" data-label="The paper" { (statement.says) }
            @for backend in study.backends {
                td role="cell" data-label=(backend.title()) {
                    @match of(results, *backend) {
                        Some(result) => (found(result, &statement.id)),
                        None => span.quiet { "not run yet: " code { (run_command(study.name, *backend)) } },
                    }
                }
            }
            td role="cell" data-label="Reasons for differences" {
                @for part in explanation(statement) { p { @if let Some(of) = part.0 { strong { (of) ": " } } (part.1) } }
            }
        }
    }
}

fn explanation(statement: &Statement) -> Vec<(Option<&'static str>, &str)> {
    let parts = [
        (None, statement.note.as_str()),
        (Some(Backend::Sim.title()), statement.note_sim.as_str()),
        (Some(Backend::Netns.title()), statement.note_netns.as_str()),
    ];
    parts
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .collect()
}

fn found(result: &StudyResult, id: &str) -> Markup {
    let rows: Vec<&Comparison> = result
        .comparisons
        .iter()
        .filter(|row| row.id == id)
        .collect();
    html! {
        @if rows.is_empty() { span.quiet { "not measured" } }
        @for row in rows {
            p {
                @if !row.case.is_empty() { span.quiet { (row.case) ": " } }
                // Numbers have a table of their own.
                @if row.points.is_empty() { (row.ours) " " }
                (badge(row.verdict))
            }
        }
    }
}

/// Returns where a link of a study's README leads from its page.
fn page_of(link: &str) -> Option<String> {
    let study = link
        .strip_prefix("../")
        .and_then(|link| link.strip_suffix("/README.md"));
    match study {
        Some(study) => Some(format!("{study}.html")),
        None => link.contains("://").then(|| link.to_owned()),
    }
}

/// Returns the study's README, with the assumptions where the paper is silent.
pub(super) fn assumptions(study: &Study) -> Markup {
    // Its first heading is the page's; the others go one level below the page's sections. Of its links, those
    // to other studies lead to their pages, and those to documents nowhere: the page stands alone.
    let (mut in_title, mut leads_nowhere) = (false, false);
    let events = Parser::new_ext(study.readme, Options::ENABLE_TABLES);
    let events = events.filter_map(|event| match event {
        Event::Start(Tag::Heading {
            level: HeadingLevel::H1,
            ..
        }) => {
            in_title = true;
            None
        }
        Event::End(TagEnd::Heading(HeadingLevel::H1)) => {
            in_title = false;
            None
        }
        _ if in_title => None,
        Event::Start(Tag::Heading {
            level: _,
            id,
            classes,
            attrs,
        }) => Some(Event::Start(Tag::Heading {
            level: HeadingLevel::H3,
            id,
            classes,
            attrs,
        })),
        Event::End(TagEnd::Heading(_)) => Some(Event::End(TagEnd::Heading(HeadingLevel::H3))),
        Event::Start(Tag::Link {
            link_type,
            dest_url,
            title,
            id,
        }) => {
            let dest_url = page_of(&dest_url);
            leads_nowhere = dest_url.is_none();
            let link = dest_url.map(|dest_url| Tag::Link {
                link_type,
                dest_url: dest_url.into(),
                title,
                id,
            });
            link.map(Event::Start)
        }
        Event::End(TagEnd::Link) if leads_nowhere => None,
        other => Some(other),
    });
    let mut text = String::new();
    pulldown_cmark::html::push_html(&mut text, events);
    // Wide tables scroll, as the page's own do.
    let text = text
        .replace("<table>", "<div class=\"wide\" tabindex=\"0\"><table>")
        .replace("</table>", "</table></div>");
    html! {
        section aria-labelledby="assumptions" {
            h2 #assumptions { "The study and its assumptions" }
            (PreEscaped(text))
        }
    }
}

pub(super) fn repeat(results: &[StudyResult]) -> Markup {
    html! {
        section aria-labelledby="repeat" {
            h2 #repeat { "Repeat it" }
            @for result in results {
                p {
                    strong { (result.backend.title()) } ", whimbrel " (result.version)
                    @if let Some(machine) = &result.machine { ", on " (machine) }
                    ":"
                }
                pre tabindex="0" { code { (result.command) } }
            }
            @if results.iter().any(|result| result.has_transfers) {
                p { "Each transfer over time is in flent's format, so that flent can draw and compare them:" }
                pre tabindex="0" {
                    code {
                        @for result in results {
                            "flent -p download -o goodput.png " (result.study) "/" (result.backend.name()) "/flent/*.flent.gz\n"
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn numbers(results: &[StudyResult]) -> Markup {
    html! {
        section aria-labelledby="numbers" {
            h2 #numbers { "Numbers" }
            @for result in results {
                @for table in &result.tables { (numbers_table(result, table)) }
            }
        }
    }
}

fn numbers_table(result: &StudyResult, table: &Table) -> Markup {
    /// Bound of the rows that are shown without unfolding.
    const SHORT: usize = 16;
    let caption = format!("{}: {}", result.backend.title(), table.title);
    let file = format!(
        "{}/{}/{}.csv",
        result.study,
        result.backend.name(),
        table.name
    );
    let content = html! {
        div.wide tabindex="0" role="region" aria-label=(caption) {
            table {
                caption { (caption) " (" a href=(file) { "CSV" } ")" }
                thead { tr { @for column in &table.columns { th scope="col" { (column) } } } }
                tbody { @for row in &table.rows { tr { @for cell in row { td { (cell) } } } } }
            }
        }
    };
    html! {
        @if table.rows.len() > SHORT {
            details { summary { (caption) ", " (table.rows.len()) " rows" } (content) }
        } @else { (content) }
    }
}

pub(super) fn scenario(results: &[StudyResult]) -> Markup {
    let same = results
        .windows(2)
        .all(|pair| pair[0].scenario == pair[1].scenario);
    let shown = if same {
        &results[..results.len().min(1)]
    } else {
        results
    };
    html! {
        section aria-labelledby="scenario" {
            h2 #scenario { "Scenario" }
            @for result in shown {
                @if !same { p { strong { (result.backend.title()) } ":" } }
                pre tabindex="0" { code { (result.scenario) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::STUDIES;

    #[test]
    fn tables_of_a_readme_are_tables_and_its_links_lead_to_pages() {
        let mut tables = 0;
        for study in &STUDIES {
            let page = assumptions(study).into_string();
            let lines = study.readme.lines();
            let rules = lines.filter(|line| line.starts_with("|--")).count();
            assert_eq!(page.matches("<table>").count(), rules, "{}", study.name);
            assert!(!page.contains("href=\"../"), "{}", study.name);
            tables += rules;
        }
        assert!(tables > 5, "{tables}");
        let page = assumptions(Study::find("tcpicn-grid").unwrap()).into_string();
        assert!(page.contains("href=\"tcpicn-sim.html\""));
    }
}
