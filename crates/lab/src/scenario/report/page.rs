//! A scenario's page.

use maud::{Markup, PreEscaped, html};

use super::super::Scenario;
use super::super::batch::Batch;
use super::super::judge::Judged;
use super::charts::Charts;
use super::table::Row;
use super::topology::Picture;
use crate::LabError;
use crate::figure::number;
use crate::study::{Verdict, page::document};

/// Returns the page as HTML without external resources.
pub(super) fn page(
    scenario: &Scenario,
    batch: &Batch,
    statements: &[Judged],
    summary: &[Row],
    picture: &Picture<'_>,
    charts: &Charts,
    command: &str,
) -> Result<String, LabError> {
    let drawn: Vec<(&str, String)> = charts
        .drawn
        .iter()
        .map(|(_, chart)| Ok((chart.title.as_str(), chart.svg()?)))
        .collect::<Result<_, LabError>>()?;
    let topology = picture.svg()?;
    let body = html! {
        header {
            h1 { (scenario.title) }
            @if !scenario.about.is_empty() { p.lead { (scenario.about) } }
            p.quiet {
                (batch.backend.title()) ", " (count(scenario.settings.len(), "setting")) ", "
                (count(scenario.runs as usize, "run")) " of each"
            }
        }
        @if !statements.is_empty() { (beside(statements)) }
        section aria-labelledby="network" {
            h2 #network { "The network" }
            figure { (PreEscaped(topology)) }
            p.quiet { "Blue: hosts. Orange: routers. Green: NDN routers. Pink: name servers. Grey: TCP hosts." }
        }
        @if !drawn.is_empty() {
            section aria-labelledby="figures" {
                h2 #figures { "Figures" }
                div.pair {
                    @for (title, svg) in &drawn {
                        figure { figcaption { (title) } (PreEscaped(svg)) }
                    }
                }
                @if charts.left_out > 0 {
                    p.quiet { (charts.left_out) " more are not drawn; all numbers are below." }
                }
            }
        }
        (numbers(scenario, summary))
        section aria-labelledby="again" {
            h2 #again { "To run it again" }
            pre { code { (command) } }
            details { summary { "The scenario" } pre { code { (scenario.text) } } }
        }
    };
    Ok(document(&scenario.title, &body).into_string())
}

fn count(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Returns the verdict, then a row for each statement.
fn beside(statements: &[Judged]) -> Markup {
    let agreed = statements
        .iter()
        .filter(|judged| judged.verdict == Verdict::Agrees)
        .count();
    html! {
        section aria-labelledby="statements" {
            h2 #statements { "Beside the paper" }
            p { strong { (agreed) " of " (statements.len()) } " statements agree within their tolerance." }
            table {
                thead { tr {
                    th { "Statement" } th { "Source" } th { "Paper" } th { "Ours" } th { "Difference" }
                    th { "Verdict" } th { "Why" }
                } }
                tbody {
                    @for judged in statements {
                        tr {
                            th scope="row" { (judged.says) }
                            td { (judged.source) }
                            td { (number(judged.paper)) " " (judged.unit) }
                            td { @match judged.ours {
                                Some(ours) => { (number(ours)) " " (judged.unit) }
                                None => "not measured",
                            } }
                            td { @if let Some(ours) = judged.ours {
                                (number(ours - judged.paper))
                            } }
                            td.verdict.yes[judged.verdict == Verdict::Agrees].no[judged.verdict == Verdict::Differs] {
                                (judged.verdict.name())
                            }
                            td { (judged.note) }
                        }
                    }
                }
            }
        }
    }
}

fn numbers(scenario: &Scenario, summary: &[Row]) -> Markup {
    let swept = scenario
        .settings
        .first()
        .map(|setting| setting.values.as_slice());
    html! {
        section aria-labelledby="numbers" {
            h2 #numbers { "Numbers" }
            div.wide {
                table {
                    thead { tr {
                        @for (key, _) in swept.unwrap_or_default() { th { (key) } }
                        th { "Metric" } th { "Unit" } th { "Runs" } th { "Mean" } th { "Least" } th { "Most" }
                    } }
                    tbody {
                        @for row in summary {
                            tr {
                                @for value in &row.values { td { (value) } }
                                td { (row.metric) } td { (row.unit) } td { (row.runs) }
                                td { (number(row.mean)) } td { (number(row.min)) } td { (number(row.max)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
