//! Hosts of one site behind a thin link, as `docs/scenarios/site-cache.toml` has them, with a file of a
//! tenth of its length.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::path::Path;

use whimbrel_lab::scenario::run::Run;
use whimbrel_lab::scenario::{Overrides, Scenario, sim};

const TEXT: &str = include_str!("../../../docs/scenarios/site-cache.toml");
const LENGTH: f64 = 10e6;

fn run(site: &str) -> Run {
    let text = TEXT.replace("file = \"100 MB\"", "file = \"10 MB\"");
    let read = Scenario::parse(Path::new("site-cache.toml"), &text, Overrides::default());
    let read = read.unwrap_or_else(|faults| panic!("{faults}"));
    let is_it = |values: &[(String, String)]| values.iter().any(|(_, value)| value == site);
    let setting = read.settings.iter().find(|it| {
        let values: Vec<_> = it
            .values
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        is_it(&values)
    });
    let setting = setting.unwrap();
    sim::run(&setting.plan, setting.plan.seed).unwrap()
}

/// "Cache a copy to serve future requests" [MFTP §3.2.1].
#[test]
fn ten_hosts_behind_a_thin_link_take_little_longer_than_one() {
    let (one, ten) = (run("one-host"), run("cached"));
    let of = |run: &Run, name: &str| -> Vec<f64> {
        let values = run.values.iter();
        let named = values.filter(|(key, _)| key.starts_with("film.") && key.ends_with(name));
        named.map(|(_, value)| *value).collect()
    };
    assert_eq!(of(&one, ".files").iter().sum::<f64>(), 1.0);
    assert_eq!(of(&ten, ".files").iter().sum::<f64>(), 10.0);
    let crossed = |run: &Run| run.values["links.thin.forward"] / LENGTH;
    let last = |run: &Run| of(run, ".completion").into_iter().fold(0.0, f64::max);
    let times = last(&ten) / last(&one);
    println!(
        "{:.3} {:.3}, {times:.3} times",
        crossed(&one),
        crossed(&ten)
    );
    assert!(crossed(&ten) < 1.1, "{}", crossed(&ten));
    assert!(times < 1.1, "{times}");
}
