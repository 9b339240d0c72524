//! The runs on the Abilene network compared with the paper's figures and tables.

use whimbrel_sim::link::Loss;

use super::super::super::statistics::{Moments, Z95};
use super::super::super::{Comparison, NamedChart, StudyInput, StudyResult, Table};
use super::super::Variant;
use super::super::goals;
use super::super::matrix::{Matrix, Quantity, detection};
use super::super::network::{LinkEnd, Look, Outcome, path, run};
use super::super::reading::Runs;
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
#[derive(Clone, Copy)]
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

    /// Returns a value of the first end's sender; `NaN` of a run without that link.
    fn near(&self, run: &Outcome, value: impl Fn(&LinkEnd) -> f64) -> f64 {
        run.ends.get(self.forth).map_or(f64::NAN, value)
    }
}

/// A quantity of the observed link.
struct LinkQuantity {
    id: &'static str,
    title: String,
    digits: usize,
    of: Box<dyn Fn(&Outcome) -> f64>,
}

impl LinkQuantity {
    fn get(&self) -> Quantity<'_> {
        Quantity {
            id: self.id,
            title: &self.title,
            digits: self.digits,
            of: &*self.of,
        }
    }
}

/// The quantities of the observed link: Figs. 4 and 5, Table V.
struct LinkQuantities {
    retransmitted: LinkQuantity,
    spurious: LinkQuantity,
    detection_near: LinkQuantity,
    detection_far: LinkQuantity,
    detection_queued: LinkQuantity,
    buffer: LinkQuantity,
}

impl LinkQuantities {
    fn of(observed: Observed, section: &Section) -> LinkQuantities {
        let (near, far) = (&section.observed.0, &section.observed.1);
        let quantity =
            |id, what: &str, end: &str, digits, of: fn(&Observed, &Outcome) -> f64| LinkQuantity {
                id,
                title: format!("{what}, {end}"),
                digits,
                of: Box::new(move |run| of(&observed, run)),
            };
        let detected = "from a frame's transmission to the detection of its loss, ms";
        LinkQuantities {
            retransmitted: quantity(
                "link-retransmissions",
                "frames sent again by the link, % of those to be sent",
                near,
                2,
                |observed, run| {
                    100.0 * observed.near(run, |end| end.link.retransmissions as f64)
                        / observed.frames
                },
            ),
            spurious: quantity(
                "link-spurious",
                "spurious ones of these, %",
                near,
                2,
                |observed, run| {
                    observed.near(run, |end| {
                        100.0 * end.link.spurious as f64 / end.link.retransmissions as f64
                    })
                },
            ),
            detection_near: quantity("detection-near", detected, near, 2, |observed, run| {
                observed.near(run, |end| detection(std::iter::once(&end.link)))
            }),
            detection_far: quantity("detection-far", detected, far, 2, |observed, run| {
                let end = run.ends.get(observed.back);
                end.map_or(f64::NAN, |end| detection(std::iter::once(&end.link)))
            }),
            detection_queued: quantity(
                "detection-queued",
                "the same counted from when the frame was queued, ms",
                near,
                2,
                |observed, run| {
                    observed.near(run, |end| {
                        let mean = end.link.detection_from_queue.mean();
                        mean.map_or(f64::NAN, |delay| delay.as_secs_f64() * 1e3)
                    })
                },
            ),
            buffer: quantity(
                "buffer",
                "most packets in the buffer of the sender",
                near,
                1,
                |observed, run| observed.near(run, |end| end.link.buffer_high_water as f64),
            ),
        }
    }
}

pub(super) fn result(
    input: &StudyInput<'_>,
    section: &Section,
    scenario: &Scenario,
    runs: &Runs<'_>,
) -> Result<StudyResult, LabError> {
    let plan = &scenario.settings[0].plan;
    let observed = Observed::of(section, plan).map_err(|reason| input.bad(reason))?;
    let link = LinkQuantities::of(observed, section);
    let ideal = ideal_buffer(plan, observed)?;
    let (mut tables, mut charts, mut readings) = (
        tables(input, &runs.text, &link),
        charts(input, section, &runs.text, &link),
        Vec::new(),
    );
    for (reading, matrix) in &runs.readings {
        let comparisons = comparisons(input, matrix, &link, ideal)?;
        readings.push(reading.result(input, comparisons));
        if reading.shown {
            tables.extend(reading.tables(self::tables(input, matrix, &link)));
            charts.extend(reading.charts(self::charts(input, section, matrix, &link)));
        }
    }
    let comparisons = comparisons(input, &runs.text, &link, ideal)?;
    let text = scenario.text.clone();
    let result = input.result(text, comparisons, tables, charts, Vec::new())?;
    Ok(StudyResult { readings, ..result })
}

/// `ideal` is the buffer's use without losses and with a constant rate, in packets.
fn comparisons(
    input: &StudyInput<'_>,
    matrix: &Matrix,
    link: &LinkQuantities,
    ideal: f64,
) -> Result<Vec<Comparison>, LabError> {
    let mut comparisons = matrix.agreements(
        input,
        &[
            ("retrieval", &RETRIEVAL),
            ("traffic", &TRAFFIC),
            ("link-retransmissions", &link.retransmitted.get()),
            ("detection", &link.detection_near.get()),
            ("detection-far", &link.detection_far.get()),
            ("buffer", &link.buffer.get()),
        ],
    )?;
    comparisons.extend(words(input, matrix, &link.spurious.get())?);
    let agrees = input.range("buffer-ideal")?.admits(ideal);
    comparisons.push(input.compare("buffer-ideal", "", format!("{ideal} packets"), agrees));
    comparisons.extend(goals::verdicts(input, matrix));
    Ok(comparisons)
}

fn tables(input: &StudyInput<'_>, matrix: &Matrix, link: &LinkQuantities) -> Vec<Table> {
    let of_link = |quantity: &LinkQuantity| matrix.table(input, &quantity.get(), Variant::recovers);
    vec![
        retrieval_table(input, matrix),
        matrix.table(input, &TRAFFIC, |_| true),
        of_link(&link.retransmitted),
        of_link(&link.spurious),
        of_link(&link.detection_near),
        of_link(&link.detection_far),
        of_link(&link.detection_queued),
        matrix.table(input, &RECOVERED, Variant::recovers),
        of_link(&link.buffer),
        matrix.link_table(),
        matrix.hashes(),
    ]
}

fn charts(
    input: &StudyInput<'_>,
    section: &Section,
    matrix: &Matrix,
    link: &LinkQuantities,
) -> Vec<NamedChart> {
    let (near, far) = (&section.observed.0, &section.observed.1);
    let from_zero = |title: &str, quantity: &LinkQuantity| {
        matrix.chart(input, title, &quantity.get(), (0.0, 0.0), Variant::recovers)
    };
    let from_floor = |title: &str, quantity: &Quantity<'_>| {
        let floor = (0.0, matrix.floor(quantity.of, Variant::recovers));
        matrix.chart(input, title, quantity, floor, Variant::recovers)
    };
    vec![
        from_zero(
            "Fig. 4 (a): retransmissions of the link",
            &link.retransmitted,
        ),
        from_zero("Fig. 4 (b): spurious ones of these", &link.spurious),
        from_floor(
            &format!("Fig. 5 (a): detection of losses, {far}"),
            &link.detection_far.get(),
        ),
        from_floor(
            &format!("Fig. 5 (b): detection of losses, {near}"),
            &link.detection_near.get(),
        ),
        from_floor("Fig. 6 (b): losses recovered", &RECOVERED),
        matrix.chart(
            input,
            "Fig. 7: traffic of the whole network",
            &TRAFFIC,
            (0.0, matrix.floor(TRAFFIC.of, |_| true)),
            |variant| variant != Variant::NoneUncached,
        ),
        from_zero("Table V: buffer of the sender", &link.buffer),
        matrix.chart(
            input,
            "Table IV: data retrieval time",
            &RETRIEVAL,
            (0.0, 100.0),
            |_| true,
        ),
    ]
}

/// Returns the paper's statements without numbers.
fn words(
    input: &StudyInput<'_>,
    matrix: &Matrix,
    spurious: &Quantity<'_>,
) -> Result<Vec<Comparison>, LabError> {
    let (few, nearly_all) = (input.range("link-spurious")?, input.range("recovered")?);
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
        let few = values.iter().all(|percent| few.admits(*percent));
        comparisons.push(input.compare("link-spurious", variant.title(), said(&values, 2), few));
        if variant != Variant::Paper1 {
            let values = line(RECOVERED.of);
            let nearly_all = values.iter().all(|percent| nearly_all.admits(*percent));
            comparisons.push(input.compare(
                "recovered",
                variant.title(),
                said(&values, 3),
                nearly_all,
            ));
        }
    }
    Ok(comparisons)
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
fn ideal_buffer(plan: &Plan, observed: Observed) -> Result<f64, LabError> {
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
    Ok(observed.near(&outcome, |end| end.link.buffer_high_water as f64))
}
