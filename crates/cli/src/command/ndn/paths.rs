//! `ndn paths`.

use std::fmt::Write;
use std::ops::ControlFlow;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use whimbrel_io::Clock;
use whimbrel_ndn_packet::Name;
use whimbrel_node::ndn::client::seeded;
use whimbrel_transport::{
    FoundPath, PathFinder, PathFinderEvent, PathFinderOptions, PathFinderStats, PathTag,
};

use super::{Loss, Reach, converse, millis, name};
use crate::command::{Outcome, json_line, out};
use crate::exit::Exit;

#[derive(Args, Debug)]
pub(crate) struct Paths {
    /// The name of content, or a prefix of it
    #[arg(value_parser = name)]
    name: Name,
    #[command(flatten)]
    reach: Reach,
    /// Stop after this many probes
    #[arg(short, long, value_name = "N", default_value = "50", value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Interval between probes, in milliseconds or with a unit; routers answer more than 100 a
    /// second without a path
    #[arg(short, long, value_name = "TIME", default_value = "100", value_parser = millis)]
    interval: Duration,
    /// How long to wait for an answer, in milliseconds or with a unit
    #[arg(short = 'o', long, value_name = "TIME", default_value = "1000", value_parser = millis)]
    timeout: Duration,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Paths) -> Outcome {
    let options = PathFinderOptions {
        interval: arguments.interval,
        timeout: arguments.timeout,
        count: Some(arguments.count),
        ..PathFinderOptions::new(arguments.name.clone())
    };
    let mut client = arguments
        .reach
        .client(Clock::start(), PathFinder::new(options, seeded()?))?;
    converse(&mut client, Loss::Ends, |_, _, event| match event {
        PathFinderEvent::Finished(_) => ControlFlow::Break(Ok(())),
        _ => ControlFlow::Continue(()),
    })?;
    let finder = client.application();
    let stats = *finder.stats();
    // The shortest first.
    let mut paths: Vec<(&PathTag, &FoundPath)> = finder.paths().iter().collect();
    paths.sort_by(|(_, a), (_, b)| {
        let least = |path: &FoundPath| path.rtt.min_ms().unwrap_or(f64::INFINITY);
        least(a).total_cmp(&least(b))
    });
    if arguments.json {
        paths
            .iter()
            .for_each(|(tag, path)| json_line(&line(tag, path)));
        json_line(&summary(&stats, paths.len()));
    } else {
        out(&table(&arguments.name, &paths, &stats));
    }
    Ok(match stats {
        _ if stats.received > 0 => Exit::Done,
        _ if stats.nacks > 0 => Exit::Nack,
        _ => Exit::NoAnswer,
    })
}

fn hexadecimal(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        let _ = write!(text, "{octet:02x}");
        text
    })
}

fn line(tag: &PathTag, path: &FoundPath) -> Value {
    let rtt = &path.rtt;
    json!({
        "event": "path", "tag": hexadecimal(tag.octets()), "hops": tag.hops(), "probes": path.probes,
        "ms": { "min": rtt.min_ms(), "mean": rtt.mean_ms(), "max": rtt.max_ms() },
    })
}

fn summary(stats: &PathFinderStats, paths: usize) -> Value {
    json!({
        "event": "summary", "paths": paths, "sent": stats.sent, "received": stats.received,
        "without_path": stats.untagged, "nacks": stats.nacks, "timeouts": stats.timeouts,
    })
}

fn table(name: &Name, paths: &[(&PathTag, &FoundPath)], stats: &PathFinderStats) -> String {
    let noun = if paths.len() == 1 { "path" } else { "paths" };
    let mut text = format!("{} {noun} to {name}\n", paths.len());
    if !paths.is_empty() {
        text += "hops  probes   min ms  mean ms  tag\n";
    }
    let millis = |value: Option<f64>| value.map_or(String::from("-"), |ms| format!("{ms:.3}"));
    for (tag, path) in paths {
        let (least, mean) = (millis(path.rtt.min_ms()), millis(path.rtt.mean_ms()));
        let _ = writeln!(
            text,
            "{:>4}  {:>6}  {least:>7}  {mean:>7}  {tag}",
            tag.hops(),
            path.probes
        );
    }
    let _ = writeln!(
        text,
        "{} probes sent, {} answered ({} without a path), {} nacked, {} lost",
        stats.sent, stats.received, stats.untagged, stats.nacks, stats.timeouts
    );
    text
}
