//! Fig. 11: load times of pages, through MFTP's proxies and over HTTP's versions.
//!
//! The scenario sweeps `loss` ("0 %", ...) and `by`: mftp, mftp-all, and http1-cubic and so on.

use super::result::mean;
use super::trial::{distinct, run_swept};
use super::{Comparison, NamedChart, Progress, StudyInput, StudyResult, Table};
use crate::LabError;
use crate::figure::{LineChart, Series};
use crate::scenario::Scenario;
use crate::scenario::load::Kind;
use crate::scenario::run::Run;
use crate::supervisor::is_installed;
use crate::web::WebPage;

/// MFTP with a browser's six requests at a time.
const MFTP: &str = "mftp";
/// MFTP with every object requested as soon as it is known.
const ALL: &str = "mftp-all";
/// The same as `mftp`, with the paper's hops: the neighbour's window alone bounds what is sent.
const UNPACED: &str = "mftp-unpaced";
/// Chromium in place of the emulator, on the two ways that it can go here.
const CHROMIUM: [(&str, &str); 2] = [
    ("chromium-mftp", "Chromium, MFTP"),
    ("chromium-http1-cubic", "Chromium, HTTP/1.1, CUBIC"),
];
/// The paper's rival.
const TCP: &str = "http1-cubic";
/// Of the pages with the least data, this share is "small".
const SMALL: usize = 4;
/// The most lines in a picture.
const LINES: usize = 6;

/// All runs of a setting: the load times of each page in seconds, by page.
struct PageCell<'a> {
    loss: &'a str,
    by: &'a str,
    pages: Vec<Vec<f64>>,
}

fn least(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(times: &[f64]) -> f64 {
    times.iter().copied().fold(0.0, f64::max)
}

impl PageCell<'_> {
    fn page(&self, number: usize) -> f64 {
        mean(self.pages[number].iter().copied())
    }

    /// Returns the mean load time of these pages.
    fn of(&self, pages: &[usize]) -> f64 {
        mean(pages.iter().map(|number| self.page(*number)))
    }

    /// Returns the slowest of each page's runs by its fastest.
    fn ratios(&self) -> Vec<f64> {
        let ratio = |times: &Vec<f64>| most(times) / least(times);
        let mut ratios: Vec<f64> = self.pages.iter().map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    }
}

/// Returns the load times of each page; a page that was not whole within the limit takes for ever.
fn times(runs: &[Run], pages: usize) -> Vec<Vec<f64>> {
    let of = |number: usize| {
        let records = runs.iter().map(move |run| run.transfers.get(number));
        records.map(|it| match it {
            Some(it) if it.record.completed => it.record.finished,
            _ => f64::INFINITY,
        })
    };
    (0..pages).map(|number| of(number).collect()).collect()
}

/// Returns the pages of the scenario's load.
fn drawn(scenario: &Scenario, input: &StudyInput<'_>) -> Result<Vec<WebPage>, LabError> {
    let plan = scenario.settings.first().map(|setting| &setting.plan);
    match plan
        .and_then(|plan| plan.loads.first())
        .map(|load| &load.kind)
    {
        Some(Kind::Web(web)) => {
            let pages = 0..usize::from(web.pages);
            Ok(pages.map(|number| web.page(number)).collect())
        }
        _ => Err(input.bad(String::from("its first load has no pages: `web`"))),
    }
}

fn is_chromium(by: &str) -> bool {
    CHROMIUM.iter().any(|(name, _)| *name == by)
}

fn title(by: &str) -> String {
    match by {
        MFTP => return String::from("MFTP, 6 at a time"),
        ALL => return String::from("MFTP, all at once"),
        UNPACED => return String::from("MFTP, unpaced, 6 at a time"),
        _ => {}
    }
    if let Some((_, title)) = CHROMIUM.iter().find(|(name, _)| *name == by) {
        return (*title).to_owned();
    }
    let (http, law) = by.split_once('-').unwrap_or((by, ""));
    format!(
        "{}, {}",
        http.replace("http1", "HTTP/1.1").replace("http", "HTTP/"),
        law.to_uppercase()
    )
}

pub(super) fn run(input: &StudyInput<'_>, progress: Progress<'_>) -> Result<StudyResult, LabError> {
    let mut scenario = input.scenario()?;
    let has_chromium = is_installed("chromium");
    if !has_chromium {
        let settings = &mut scenario.settings;
        settings.retain(|setting| !setting.value("by").is_some_and(is_chromium));
    }
    let pages = drawn(&scenario, input)?;
    let expected = "loss (0 %, 1 %) and by (mftp, mftp-all, http1-cubic, ...)";
    let name = |[loss, by]: [&str; 2]| format!("{}, loss {loss}", title(by));
    let keys = ["loss", "by"];
    let swept = run_swept(input, &scenario, progress, keys, expected, name)?;
    let cells = swept.iter().map(|([loss, by], runs)| PageCell {
        loss,
        by,
        pages: times(runs, pages.len()),
    });
    let (browsers, cells): (Vec<_>, Vec<_>) = cells.partition(|cell| is_chromium(cell.by));
    // By their data, the smallest first.
    let mut order: Vec<usize> = (0..pages.len()).collect();
    order.sort_by_key(|number| pages[*number].octets());
    let small = &order[..pages.len().div_ceil(SMALL)];
    let losses = distinct(cells.iter().map(|cell| cell.loss));
    let (mut comparisons, mut charts) = (Vec::new(), Vec::new());
    let mut tables = vec![summary(&cells, small)];
    tables.push(by_chromium(&browsers, &pages, has_chromium));
    for loss in losses {
        let own: Vec<&PageCell<'_>> = cells.iter().filter(|cell| cell.loss == loss).collect();
        comparisons.extend(compared(input, loss, &own, small)?);
        tables.push(by_page(loss, &own, &pages));
        charts.push(chart(loss, &own));
    }
    input.result(
        scenario.text.clone(),
        comparisons,
        tables,
        charts,
        Vec::new(),
    )
}

fn compared(
    input: &StudyInput<'_>,
    loss: &str,
    cells: &[&PageCell<'_>],
    small: &[usize],
) -> Result<Vec<Comparison>, LabError> {
    let find = |by: &str| cells.iter().find(|cell| cell.by == by);
    let is_clean = loss == "0 %";
    let case = format!("loss {loss}");
    let mut found = Vec::new();
    let mut add = |id: &str, stated, ours, rest: &[(&str, f64, usize)]| -> Result<(), LabError> {
        let agrees = input.range(id)?.admits(ours);
        let all: Vec<_> = std::iter::once((stated, ours, 2))
            .chain(rest.iter().copied())
            .collect();
        found.push(input.compare_numbers(id, &case, agrees, 1, &all));
        Ok(())
    };
    if let (Some(ours), Some(tcp)) = (find(MFTP), find(TCP)) {
        let all = 0..ours.pages.len();
        let lower = all
            .clone()
            .filter(|number| ours.page(*number) < tcp.page(*number));
        let share = 100.0 * lower.count() as f64 / all.len() as f64;
        add("lower", "share, %", share, &[])?;
        if is_clean {
            let (fast, slow) = (ours.of(small), tcp.of(small));
            let seconds = [("MFTP, s", fast, 3), ("TCP, s", slow, 3)];
            add("small", "above, %", 100.0 * (slow / fast - 1.0), &seconds)?;
        } else {
            for (id, cell) in [("variability", ours), ("variability-tcp", tcp)] {
                let ratios = cell.ratios();
                let median = ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN);
                let largest = ratios.last().copied().unwrap_or(f64::NAN);
                add(
                    id,
                    "largest",
                    largest,
                    &[("median of the pages", median, 2)],
                )?;
            }
        }
    }
    let pages: Vec<usize> = (0..cells.first().map_or(0, |cell| cell.pages.len())).collect();
    let quic = cells.iter().filter(|cell| cell.by.starts_with("http3"));
    let quic: Vec<f64> = quic.map(|cell| cell.of(&pages)).collect();
    if let (Some(ours), false) = (find(ALL), quic.is_empty()) {
        let (ours, quic) = (ours.of(&pages), least(&quic));
        let seconds = [("MFTP, s", ours, 3), ("HTTP/3, s", quic, 3)];
        add("http3", "ratio", ours / quic, &seconds)?;
    }
    Ok(found)
}

/// Returns the table of means.
fn summary(cells: &[PageCell<'_>], small: &[usize]) -> Table {
    let row = |cell: &PageCell<'_>| {
        let all: Vec<usize> = (0..cell.pages.len()).collect();
        let rival = cells.iter().find(|it| (it.loss, it.by) == (cell.loss, TCP));
        let share = rival.map_or(f64::NAN, |rival| cell.of(&all) / rival.of(&all));
        let ratios = cell.ratios();
        let at = |index: usize| ratios.get(index).copied().unwrap_or(f64::NAN);
        [
            cell.loss.to_owned(),
            title(cell.by),
            format!("{:.3}", cell.of(&all)),
            format!("{share:.2}"),
            format!("{:.3}", cell.of(small)),
            format!("{:.2}", at(ratios.len() / 2)),
            format!("{:.2}", at(ratios.len().saturating_sub(1))),
        ]
    };
    let columns = [
        "loss",
        "by",
        "load time of all pages, s",
        "by HTTP/1.1 with CUBIC",
        "of the small ones, s",
        "slowest run by fastest, median",
        "the same, largest",
    ];
    let title = "Mean load times; the slowest of a page's runs by its fastest";
    Table::new("load-times", title, columns, cells.iter().map(row))
}

/// Returns a page's row: what it is, and the mean, fastest and slowest run of each cell.
fn page_row(number: usize, page: &WebPage, cells: &[&PageCell<'_>]) -> Vec<String> {
    let times = cells.iter().map(|cell| {
        let times = &cell.pages[number];
        format!(
            "{:.3} ({:.3} to {:.3})",
            cell.page(number),
            least(times),
            most(times)
        )
    });
    let head = [
        (number + 1).to_string(),
        page.objects.len().to_string(),
        format!("{:.0}", page.octets() as f64 / 1e3),
    ];
    head.into_iter().chain(times).collect()
}

/// Returns the table of Chromium's load events: the pages that it loads.
fn by_chromium(cells: &[PageCell<'_>], pages: &[WebPage], has_chromium: bool) -> Table {
    let loaded = |cell: &PageCell<'_>| {
        let whole = cell
            .pages
            .iter()
            .take_while(|it| it.iter().any(|time| time.is_finite()));
        whole.count()
    };
    let count = cells.iter().map(loaded).max().unwrap_or(0);
    let cells: Vec<&PageCell<'_>> = cells.iter().collect();
    let row = |number: usize| page_row(number, &pages[number], &cells);
    let all: Vec<usize> = (0..count).collect();
    let means = cells.iter().map(|cell| format!("{:.3}", cell.of(&all)));
    let means = ["mean", "", ""].map(String::from).into_iter().chain(means);
    let columns = ["page", "objects", "kB"].map(String::from);
    let names = cells
        .iter()
        .map(|cell| format!("{}, loss {}", title(cell.by), cell.loss));
    let title = match has_chromium {
        true => "Chromium: mean time of its load event in seconds (fastest to slowest run)",
        false => "Chromium's load events: not measured, this machine has no chromium",
    };
    let mut rows: Vec<Vec<String>> = (0..count).map(row).collect();
    if count > 0 {
        rows.push(means.collect());
    }
    Table {
        name: String::from("chromium"),
        title: title.to_owned(),
        columns: columns.into_iter().chain(names).collect(),
        rows,
    }
}

/// Returns the table of the pages at one loss.
fn by_page(loss: &str, cells: &[&PageCell<'_>], pages: &[WebPage]) -> Table {
    let columns = ["page", "objects", "kB"].map(String::from);
    let columns = columns
        .into_iter()
        .chain(cells.iter().map(|cell| title(cell.by)));
    Table {
        name: format!("pages-loss-{}", short(loss)),
        title: format!("Loss {loss}: mean load time in seconds (fastest to slowest run)"),
        columns: columns.collect(),
        rows: (0..pages.len())
            .map(|number| page_row(number, &pages[number], cells))
            .collect(),
    }
}

/// Returns Fig. 11 at one loss: mean, fastest and slowest run of each page.
fn chart(loss: &str, cells: &[&PageCell<'_>]) -> NamedChart {
    let lines = cells.iter().filter(|cell| !cell.by.ends_with("-bbr"));
    let series = lines.take(LINES).map(|cell| Series {
        label: title(cell.by),
        points: (0..cell.pages.len())
            .map(|number| ((number + 1) as f64, cell.page(number)))
            .collect(),
        bars: cell.pages.iter().map(|it| (least(it), most(it))).collect(),
        ..Series::default()
    });
    NamedChart {
        name: format!("fig11-loss-{}", short(loss)),
        chart: LineChart {
            title: format!("Load times at 50 ms, loss {loss}: mean, fastest and slowest run"),
            x_label: String::from("page"),
            y_label: String::from("load time, s"),
            series: series.collect(),
            ..LineChart::default()
        },
    }
}

fn short(loss: &str) -> String {
    loss.replace(" %", "").replace('.', "-")
}
