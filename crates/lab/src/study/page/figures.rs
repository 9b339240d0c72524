//! Figures in a page: SVG as part of it, in the page's colours.

use maud::{Markup, PreEscaped, html};

use super::super::{NamedChart, StudyResult};
use crate::LabError;
use crate::figure::{HeatMap, LineChart};

/// Returns each figure once for each back end, side by side.
pub(super) fn section(results: &[StudyResult]) -> Result<Markup, LabError> {
    let mut names: Vec<&str> = Vec::new();
    for named in results.iter().flat_map(|result| &result.charts) {
        if !names.contains(&named.name.as_str()) {
            names.push(&named.name);
        }
    }
    let mut groups = Vec::new();
    for name in names {
        let mut group = Vec::new();
        for result in results {
            if let Some(named) = result.charts.iter().find(|named| named.name == name) {
                group.push(figure(result, named)?);
            }
        }
        groups.push(group);
    }
    Ok(html! {
        section aria-labelledby="figures" {
            h2 #figures { "Figures" }
            @for group in groups { div.pair { @for figure in group { (figure) } } }
        }
    })
}

fn figure(result: &StudyResult, named: &NamedChart) -> Result<Markup, LabError> {
    let svg = named.chart.svg()?;
    let described = describe(&named.chart)
        .replace('&', "&amp;")
        .replace('"', "&quot;")
        .replace('<', "&lt;");
    // As an image with a description: a screen reader cannot read the drawing.
    let svg = svg.replacen(
        "<svg ",
        &format!("<svg role=\"img\" aria-label=\"{described}\" "),
        1,
    );
    let svg = match svg.split_once("?>") {
        Some((declaration, rest)) if declaration.trim_start().starts_with("<?xml") => {
            rest.to_owned()
        }
        _ => svg,
    };
    Ok(html! {
        figure {
            figcaption { strong { (result.backend.title()) } ": " (named.chart.title) }
            (PreEscaped(svg))
        }
    })
}

/// Returns a description of the figure in words: its axes, and the ends of each line.
fn describe(chart: &LineChart) -> String {
    let ends = chart.series.iter().filter_map(|series| {
        let (first, last) = (series.points.first()?, series.points.last()?);
        Some(format!(
            "{} from {:.2} at {:.2} to {:.2} at {:.2}",
            series.label, first.1, first.0, last.1, last.0
        ))
    });
    let heat = chart.heat.iter().map(HeatMap::describe);
    let ends = ends.chain(heat);
    format!(
        "{}; {} over {}; {}",
        chart.title,
        chart.y_label,
        chart.x_label,
        ends.collect::<Vec<_>>().join("; ")
    )
}
