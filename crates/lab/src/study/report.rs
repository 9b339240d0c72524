//! What a study leaves behind: CSV, JSON, pictures and one HTML page.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::{Study, StudyResult, Table};
use crate::LabError;

/// Writes everything to `folder`/`STUDY`-`BACKEND`/ and answers with the page's path.
pub fn write_report(result: &StudyResult, folder: &Path) -> Result<PathBuf, LabError> {
    let folder = folder.join(format!("{}-{}", result.study, result.backend.name()));
    let failed = || LabError::system(format!("write to {}", folder.display()));
    std::fs::create_dir_all(&folder).map_err(failed())?;
    for table in &result.tables {
        std::fs::write(folder.join(format!("{}.csv", table.name)), csv(table)).map_err(failed())?;
    }
    let json = serde_json::to_string_pretty(result).unwrap_or_default();
    std::fs::write(folder.join("result.json"), json).map_err(failed())?;
    for (name, chart) in &result.charts {
        chart.write(&folder.join(name))?;
    }
    let page = folder.join("index.html");
    std::fs::write(&page, html(result)).map_err(failed())?;
    Ok(page)
}

fn csv(table: &Table) -> String {
    // Cells are numbers and labels of this program: a comma in a label is the one thing to mind.
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells
            .iter()
            .map(|cell| if cell.contains(',') { format!("\"{cell}\"") } else { cell.clone() })
            .collect();
        cells.join(",") + "\n"
    };
    line(&table.columns) + &table.rows.iter().map(|row| line(row)).collect::<String>()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn html_row(cells: &[String], tag: &str) -> String {
    let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
    format!("<tr>{cells}</tr>\n")
}

fn html(result: &StudyResult) -> String {
    let study = Study::find(&result.study);
    let (title, source) = study.map_or(("", ""), |study| (study.title, study.source));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{name}</title>\n<style>\
         body{{font:16px/1.45 sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}}\
         table{{border-collapse:collapse;margin:1rem 0}}td,th{{border:1px solid #ccc;padding:.3rem .6rem;\
         text-align:left;vertical-align:top}}th{{background:#f2f2f2}}img{{max-width:100%}}pre{{background:#f6f6f6;\
         padding:.8rem;overflow:auto}}</style>\n<h1>{name}: {title}</h1>\n<p>{source}. Run by <code>whimbrel study \
         run {name} --backend {backend}</code>.</p>\n<h2>Ours beside the paper's</h2>\n<table>\n",
        name = result.study,
        title = escape(title),
        source = escape(source),
        backend = result.backend.name(),
    );
    let head = ["Quantity", "The paper", "Ours", "", "Explanation"].map(String::from);
    page.push_str(&html_row(&head, "th"));
    for row in &result.comparisons {
        let cells =
            [&row.quantity, &row.paper, &row.ours, &row.deviation, &row.explanation].map(String::clone);
        page.push_str(&html_row(&cells, "td"));
    }
    page.push_str("</table>\n");
    for (name, chart) in &result.charts {
        let _ = writeln!(page, "<p><img src=\"{name}.svg\" alt=\"{}\"></p>", escape(&chart.title));
    }
    for table in &result.tables {
        let _ = writeln!(page, "<h2>{0}</h2>\n<p><a href=\"{0}.csv\">CSV</a></p>\n<table>", table.name);
        page.push_str(&html_row(&table.columns, "th"));
        table.rows.iter().for_each(|row| page.push_str(&html_row(row, "td")));
        page.push_str("</table>\n");
    }
    let scenario = serde_json::to_string_pretty(&result.scenario).unwrap_or_default();
    let _ = writeln!(page, "<h2>Scenario</h2>\n<pre>{}</pre>\n</html>", escape(&scenario));
    page
}
