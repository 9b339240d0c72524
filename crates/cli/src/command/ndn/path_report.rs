//! The paths of `ndn get --paths`: for people, and as JSON.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};
use whimbrel_transport::congestion::LawPhase;
use whimbrel_transport::path::{PathStats, PathTag, Paths};
use whimbrel_transport::{Path, PathLeft};

use super::in_millis;

/// Maximum of paths kept that were left; the oldest are forgotten.
const MAX_LEFT: usize = 64;

/// The paths of a fetch as it goes on.
#[derive(Debug)]
pub(super) struct PathReport {
    /// Nothing is said while there is but the path by name.
    beside_name: bool,
    left: Vec<(PathTag, PathStats, PathLeft)>,
    /// How many more were left.
    forgotten: usize,
}

impl PathReport {
    pub(super) const fn new(beside_name: bool) -> PathReport {
        PathReport {
            beside_name,
            left: Vec::new(),
            forgotten: 0,
        }
    }

    /// Returns true if there is, or was, more than the path by name, or if more was asked for.
    pub(super) fn is_shown(&self, paths: &Paths) -> bool {
        !self.beside_name || !self.left.is_empty() || paths.iter().any(Path::is_tagged)
    }

    pub(super) fn left(&mut self, tag: PathTag, stats: PathStats, reason: PathLeft) {
        if self.left.len() >= MAX_LEFT {
            self.left.remove(0);
            self.forgotten += 1;
        }
        self.left.push((tag, stats, reason));
    }

    /// Returns a row for each path in use, and for each that was left.
    pub(super) fn json(&self, paths: &Paths) -> Vec<Value> {
        let in_use = paths.iter().filter(|path| is_shown(path)).map(row);
        let left = self.left.iter().map(|(tag, stats, reason)| {
            json!({
                "use": reason.name(), "tag": tag.to_string(), "hops": tag.hops(),
                "bytes": stats.bytes, "segments": stats.delivered, "interests": stats.sent, "lost": stats.lost,
            })
        });
        in_use.chain(left).collect()
    }

    /// Returns a table for people; `elapsed` is the time of the fetch.
    pub(super) fn table(&self, paths: &Paths, elapsed: Duration) -> String {
        let used = paths.iter().filter(|path| is_shown(path));
        let names = used.map(name_of);
        let names = names.chain(self.left.iter().map(|(tag, ..)| tag.to_string()));
        let width = names.map(|name| name.len()).max().unwrap_or(0);
        let mut text = format!(
            "  {:<width$}  hops     Mbit/s  segments  lost  window  round trip ms\n",
            "path"
        );
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let mut line = |name: &str, hops: String, stats: &PathStats, rest: String| {
            let rate = stats.bytes as f64 * 8e-6 / seconds;
            let (segments, lost) = (stats.delivered, stats.lost);
            let _ = writeln!(
                text,
                "  {name:<width$}  {hops:>4}  {rate:>9.3}  {segments:>8}  {lost:>4}  {rest}"
            );
        };
        for path in paths.iter().filter(|path| is_shown(path)) {
            let tag = path.tag();
            let hops = tag
                .as_ref()
                .map_or(String::from("-"), |tag| tag.hops().to_string());
            let rtt = path
                .rtt()
                .smoothed()
                .map_or(String::from("-"), |rtt| format!("{:.3}", in_millis(rtt)));
            let rest = format!("{:>6.0}  {rtt:>13}", path.window());
            line(&name_of(path), hops, path.stats(), rest);
        }
        for (tag, stats, reason) in &self.left {
            let rest = String::from(reason.name());
            line(&tag.to_string(), tag.hops().to_string(), stats, rest);
        }
        if self.forgotten > 0 {
            let _ = writeln!(text, "  and {} more that were left", self.forgotten);
        }
        text
    }
}

/// A path that was left has a row of its own.
fn is_shown(path: &Path) -> bool {
    path.stats().sent > 0 && !(path.is_resting() && path.is_tagged())
}

fn name_of(path: &Path) -> String {
    if path.is_probing() {
        return String::from("probes");
    }
    let tag = path.tag();
    tag.map_or(String::from("by name"), |tag| tag.to_string())
}

fn row(path: &Path) -> Value {
    let (tag, stats) = (path.tag(), path.stats());
    let kind = match () {
        () if path.is_probing() => "probes",
        () if tag.is_none() => "by-name",
        () if path.is_failing() => "failing",
        () => "path",
    };
    let phase = match path.state().phase {
        LawPhase::Fixed => "fixed",
        LawPhase::SlowStart => "slow-start",
        LawPhase::Avoidance => "avoidance",
        LawPhase::Recovery => "recovery",
    };
    json!({
        "use": kind, "tag": tag.as_ref().map(ToString::to_string), "hops": tag.as_ref().map(PathTag::hops),
        "bytes": stats.bytes, "segments": stats.delivered, "interests": stats.sent, "lost": stats.lost,
        "window": path.window(), "in_flight": path.in_flight(), "phase": phase,
        "rtt_ms": path.rtt().smoothed().map(in_millis),
    })
}
