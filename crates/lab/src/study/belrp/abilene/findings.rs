//! What the runs on the Abilene network say about the paper's figures and tables.

use whimbrel_sim::link::Loss;

use super::super::super::{Comparison, StudyInput, StudyResult, Table};
use super::super::Variant;
use super::super::goals;
use super::super::matrix::{Matrix, Quantity, Tolerance, detection};
use super::super::network::{LinkEnd, Look, Outcome, path, run};
use super::super::statistics::{Moments, Z95};
use super::Section;
use crate::LabError;
use crate::scenario::link::Recovery;
use crate::scenario::load::Kind;
use crate::scenario::{Plan, Scenario};

const RETRIEVAL: Quantity<'_> = Quantity {
    id: "retrieval-mean",
    title: "mean data retrieval time, % of the ideal",
    digits: 1,
    of: &|run| run.percent().mean(),
};
const TRAFFIC: Quantity<'_> = Quantity {
    id: "traffic",
    title: "octets on all wires, MB",
    digits: 2,
    of: &|run| run.wire_bytes() as f64 / 1e6,
};
const RECOVERED: Quantity<'_> = Quantity {
    id: "recovered",
    title: "Interests and Data recovered by links, % of those lost",
    digits: 3,
    of: &Outcome::recovered_percent,
};

/// The two directions of the observed link: from its first end, and from its second.
struct Observed {
    forth: usize,
    back: usize,
    /// Interests and Data that the first end sends if nothing is lost.
    frames: f64,
}

impl Observed {
    fn of(section: &Section, plan: &Plan) -> Result<Observed, String> {
        let number = |name: &str| {
            let known = plan.network.node(name);
            known.ok_or_else(|| format!("study.observed: there is no node '{name}'"))
        };
        let (near, far) = (number(&section.observed.0)?, number(&section.observed.1)?);
        let (link, _) = plan
            .network
            .at(near)
            .find(|(_, peer)| *peer == far)
            .ok_or("study.observed: no link joins the two nodes")?;
        let turned = usize::from(plan.network.links[link].ends.0 != near);
        // An exchange crosses each of its links once in each direction: as an Interest and as a
        // Data.
        let mut frames = 0;
        for load in &plan.loads {
            let path = path(plan, load);
            let crosses = path
                .windows(2)
                .any(|hop| hop == [near, far] || hop == [far, near]);
            if let (true, Kind::Requests(requests)) = (crosses, &load.kind) {
                frames += requests.count;
            }
        }
        Ok(Observed {
            forth: 2 * link + turned,
            back: 2 * link + 1 - turned,
            frames: frames as f64,
        })
    }

    fn forth<'a>(&self, run: &'a Outcome) -> Option<&'a LinkEnd> {
        run.ends.get(self.forth)
    }

    fn back<'a>(&self, run: &'a Outcome) -> Option<&'a LinkEnd> {
        run.ends.get(self.back)
    }
}

pub(super) fn result(
    input: &StudyInput<'_>,
    section: &Section,
    scenario: &Scenario,
    matrix: &Matrix,
) -> Result<StudyResult, LabError> {
    let plan = &scenario.settings[0].plan;
    let observed = Observed::of(section, plan).map_err(|reason| input.bad(reason))?;
    let (near, far) = (&section.observed.0, &section.observed.1);
    let of_link = |end: Option<&LinkEnd>, value: fn(&LinkEnd) -> f64| end.map_or(f64::NAN, value);
    let retransmitted = |run: &Outcome| {
        100.0 * of_link(observed.forth(run), |end| end.link.retransmissions as f64)
            / observed.frames
    };
    let spurious = |run: &Outcome| {
        of_link(observed.forth(run), |end| {
            100.0 * end.link.spurious as f64 / end.link.retransmissions as f64
        })
    };
    let found =
        |end: Option<&LinkEnd>| end.map_or(f64::NAN, |end| detection(std::iter::once(&end.link)));
    let detection_near = |run: &Outcome| found(observed.forth(run));
    let detection_far = |run: &Outcome| found(observed.back(run));
    let queued = |run: &Outcome| {
        let end = observed.forth(run)?;
        end.link
            .detection_from_queue
            .mean()
            .map(|delay| delay.as_secs_f64() * 1e3)
    };
    let detection_queued = |run: &Outcome| queued(run).unwrap_or(f64::NAN);
    let buffer =
        |run: &Outcome| of_link(observed.forth(run), |end| end.link.buffer_high_water as f64);
    let title = |what: &str, end: &str| format!("{what}, {end}");
    let titles = [
        title("frames sent again by the link, % of those to be sent", near),
        title("spurious ones of these, %", near),
        title(
            "from a frame's transmission to the detection of its loss, ms",
            near,
        ),
        title(
            "from a frame's transmission to the detection of its loss, ms",
            far,
        ),
        title("the same counted from when the frame was queued, ms", near),
        title("most packets in the buffer of the sender", near),
    ];
    let quantity = |id: &'static str, title: usize, digits: usize| (id, title, digits);
    let [a, b, c, d, e, f] = [
        quantity("link-retransmissions", 0, 2),
        quantity("link-spurious", 1, 2),
        quantity("detection-near", 2, 2),
        quantity("detection-far", 3, 2),
        quantity("detection-queued", 4, 2),
        quantity("buffer", 5, 1),
    ];
    let make = |(id, at, digits): (&'static str, usize, usize), of| Quantity {
        id,
        title: &titles[at],
        digits,
        of,
    };
    let retransmitted = make(a, &retransmitted as &dyn Fn(&Outcome) -> f64);
    let spurious = make(b, &spurious);
    let detection_near = make(c, &detection_near);
    let detection_far = make(d, &detection_far);
    let detection_queued = make(e, &detection_queued);
    let buffer = make(f, &buffer);

    let mut comparisons = numbers(
        input,
        matrix,
        &[
            (
                "retrieval",
                &RETRIEVAL,
                Tolerance {
                    share: 0.03,
                    absolute: 0.0,
                },
            ),
            (
                "traffic",
                &TRAFFIC,
                Tolerance {
                    share: 0.01,
                    absolute: 0.0,
                },
            ),
            (
                "link-retransmissions",
                &retransmitted,
                Tolerance {
                    share: 0.05,
                    absolute: 0.0,
                },
            ),
            (
                "detection",
                &detection_near,
                Tolerance {
                    share: 0.05,
                    absolute: 0.0,
                },
            ),
            (
                "detection-far",
                &detection_far,
                Tolerance {
                    share: 0.05,
                    absolute: 0.0,
                },
            ),
            (
                "buffer",
                &buffer,
                Tolerance {
                    share: 0.10,
                    absolute: 0.0,
                },
            ),
        ],
    );
    comparisons.extend(words(input, matrix, &spurious));
    let ideal = ideal_buffer(plan, &observed)?;
    let ours = format!("{ideal} packets");
    comparisons.push(input.compare("buffer-ideal", "", ours, (23.0..=29.0).contains(&ideal)));
    comparisons.extend(goals::verdicts(input, matrix));

    let recovers = Variant::recovers;
    let tables = vec![
        retrieval_table(input, matrix),
        matrix.table(input, &TRAFFIC, |_| true),
        matrix.table(input, &retransmitted, recovers),
        matrix.table(input, &spurious, recovers),
        matrix.table(input, &detection_near, recovers),
        matrix.table(input, &detection_far, recovers),
        matrix.table(input, &detection_queued, recovers),
        matrix.table(input, &RECOVERED, recovers),
        matrix.table(input, &buffer, recovers),
        matrix.link_table(),
        matrix.hashes(),
    ];
    let floor = |quantity: &Quantity<'_>| (0.0, matrix.floor(quantity.of, recovers));
    let charts = vec![
        matrix.chart(
            "Fig. 4 (a): retransmissions of the link",
            &retransmitted,
            (0.0, 0.0),
            recovers,
        ),
        matrix.chart(
            "Fig. 4 (b): spurious ones of these",
            &spurious,
            (0.0, 0.0),
            recovers,
        ),
        matrix.chart(
            &format!("Fig. 5 (a): detection of losses, {far}"),
            &detection_far,
            floor(&detection_far),
            recovers,
        ),
        matrix.chart(
            &format!("Fig. 5 (b): detection of losses, {near}"),
            &detection_near,
            floor(&detection_near),
            recovers,
        ),
        matrix.chart(
            "Fig. 6 (b): losses recovered",
            &RECOVERED,
            floor(&RECOVERED),
            recovers,
        ),
        matrix.chart(
            "Fig. 7: traffic of the whole network",
            &TRAFFIC,
            (0.0, matrix.floor(TRAFFIC.of, |_| true)),
            |v| v != Variant::NoneUncached,
        ),
        matrix.chart(
            "Table V: buffer of the sender",
            &buffer,
            (0.0, 0.0),
            recovers,
        ),
        matrix.chart(
            "Table IV: data retrieval time",
            &RETRIEVAL,
            (0.0, 100.0),
            |_| true,
        ),
    ];
    input.result(
        scenario.text.clone(),
        comparisons,
        tables,
        charts,
        Vec::new(),
    )
}

fn numbers(
    input: &StudyInput<'_>,
    matrix: &Matrix,
    checks: &[(&str, &Quantity<'_>, Tolerance)],
) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    for (statement, quantity, tolerance) in checks {
        for variant in &matrix.variants {
            comparisons.extend(matrix.agreement(input, statement, quantity, *variant, *tolerance));
        }
    }
    comparisons
}

/// What the paper says without numbers.
fn words(input: &StudyInput<'_>, matrix: &Matrix, spurious: &Quantity<'_>) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    for variant in [Variant::Paper3, Variant::Paper2, Variant::Paper1] {
        if !matrix.variants.contains(&variant) {
            continue;
        }
        let line = |of: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
            (0..matrix.steps.len())
                .map(|step| matrix.spread(step, variant, of).mean)
                .collect()
        };
        let said = |values: &[f64], digits: usize| {
            let parts = values.iter().zip(&matrix.steps);
            let parts = parts.map(|(value, step)| format!("{}: {value:.digits$}", step.label));
            parts.collect::<Vec<_>>().join("; ")
        };
        let values = line(spurious.of);
        let few = values.iter().all(|percent| *percent < 1.0);
        comparisons.push(input.compare("link-spurious", variant.title(), said(&values, 2), few));
        if variant != Variant::Paper1 {
            let values = line(RECOVERED.of);
            let nearly_all = values.iter().all(|percent| *percent > 99.5);
            comparisons.push(input.compare(
                "recovered",
                variant.title(),
                said(&values, 3),
                nearly_all,
            ));
        }
    }
    comparisons
}

/// Table IV: the mean of all exchanges of all runs, and 1.645 standard deviations of single
/// exchanges. The paper does not say what its interval is; one of single exchanges is the only one
/// that can be as wide as its values.
fn retrieval_table(input: &StudyInput<'_>, matrix: &Matrix) -> Table {
    let columns = [
        matrix.axis.as_str(),
        "recovery on links",
        "paper: mean",
        "ours: mean",
        "difference",
        "of the paper's",
        "paper: ±",
        "ours: ±",
    ];
    let rows = matrix
        .each(|_| true)
        .into_iter()
        .map(|(index, step, variant)| {
            let runs = matrix.cell(index, variant).iter();
            let all = runs.fold(Moments::default(), |all, run| all.join(run.percent()));
            let published = |id: &str| input.published(id, variant.key(), step.x);
            let shown = |value: Option<f64>, digits: usize| {
                value.map_or(String::from("-"), |value| format!("{value:.digits$}"))
            };
            let paper = published(RETRIEVAL.id);
            vec![
                step.label.clone(),
                variant.title().to_owned(),
                shown(paper, 0),
                format!("{:.1}", all.mean()),
                shown(paper.map(|paper| all.mean() - paper), 1),
                paper.map_or(String::from("-"), |paper| {
                    format!("{:+.1} %", 100.0 * (all.mean() / paper - 1.0))
                }),
                shown(published("retrieval-half"), 0),
                format!("{:.1}", Z95 * all.deviation()),
            ]
        });
    Table {
        name: String::from("retrieval-times"),
        title: format!(
            "Data retrieval time, % of the ideal value; paper: {}",
            input.published_in(RETRIEVAL.id)
        ),
        columns: columns.map(String::from).into(),
        rows: rows.collect(),
    }
}

/// "we perform the same simulation with loss probability equal to 0 and with the consumer sending
/// Interests with a constant rate. The buffer utilization in this scenario is 26 packets".
fn ideal_buffer(plan: &Plan, observed: &Observed) -> Result<f64, LabError> {
    let mut steady = plan.clone();
    for link in &mut steady.network.links {
        link.recovery = Recovery::Paper3;
        link.forward.loss = Loss::None;
        link.backward.loss = Loss::None;
    }
    for load in &mut steady.loads {
        if let Kind::Requests(requests) = &mut load.kind {
            requests.random = false;
        }
    }
    let look = Look {
        seed: plan.seed,
        hashed: false,
        delays_kept: false,
    };
    let outcome = run(&steady, look)?;
    Ok(observed
        .forth(&outcome)
        .map_or(f64::NAN, |end| end.link.buffer_high_water as f64))
}
