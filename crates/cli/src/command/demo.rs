//! `demo`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use whimbrel_core::units::{self, Rate, Span};
use whimbrel_lab::demo::{self, DemoObserver, DemoOptions, DemoReport, DemoRun, Side};
use whimbrel_lab::{CongestionControl, LabError, scratch};
use whimbrel_node::exact_json;

use super::{Outcome, json_line, out};
use crate::exit::{Exit, Failure};
use crate::logging::note;
use crate::progress::draw_target;

#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// The file to fetch; by default a generated one of 40 MB, or 80 MB with two links
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Last links of the client: with 2, a WiFi-like and an LTE-like one are used together, and compared with the
    /// kernel's Multipath TCP
    #[arg(long, value_name = "1|2", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    links: u8,
    /// Round trip added between the two routers; with two links, between the server and the router
    #[arg(long, value_name = "DURATION", default_value = "50 ms", value_parser = Span::with_unit)]
    rtt: Span,
    /// Packet loss on the last hop, each way; by default 1 %, with two links none
    #[arg(long, value_name = "PERCENT", value_parser = units::parse_probability)]
    loss: Option<f64>,
    /// Duration of the one outage of the last hop, with two links of the WiFi-like one; 0 s for no
    /// outage
    #[arg(long, value_name = "DURATION", default_value = "10 s", value_parser = Span::with_unit)]
    outage: Span,
    /// Start of the outage, counted from the request
    #[arg(long, value_name = "DURATION", default_value = "5 s", value_parser = Span::with_unit)]
    outage_after: Span,
    /// Rate of the last hop, with two links of each
    #[arg(long, value_name = "RATE", default_value = "25 Mbit/s")]
    rate: Rate,
    /// Seed of all randomness in the emulated links
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Congestion controls of the kernel's TCP, run in parallel; by default cubic, and bbr if the
    /// kernel has it
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = ["cubic", "bbr", "reno"])]
    tcp: Vec<String>,
    /// Abort a transfer after this long; TCP alone would often take minutes
    #[arg(long, value_name = "DURATION", default_value = "60 s", value_parser = Span::with_unit)]
    patience: Span,
    /// Folder for the figure and the measurements
    #[arg(short, long, value_name = "DIR", default_value = "whimbrel-demo")]
    output: PathBuf,
    /// Print the measurements as JSON instead of a table
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Demo) -> Outcome {
    // Before any thread starts: without root the lab moves this process to a user namespace of its
    // own.
    whimbrel_lab::ensure_privileges().map_err(failure)?;
    let links = usize::from(arguments.links);
    let options = DemoOptions {
        file: arguments.file,
        links,
        rtt: arguments.rtt.0,
        loss: arguments
            .loss
            .unwrap_or(if links == 1 { 0.01 } else { 0.0 }),
        outage: arguments.outage.0,
        outage_after: arguments.outage_after.0,
        rate: arguments.rate.0,
        seed: arguments.seed,
        congestions: congestions(&arguments.tcp),
        patience: arguments.patience.0,
    };
    let cannot_write = |error| {
        Failure::new(
            Exit::Write,
            format!("cannot write to {}: {error}", arguments.output.display()),
        )
    };
    std::fs::create_dir_all(&arguments.output).map_err(cannot_write)?;
    let folder = scratch::folder("whimbrel-demo-").map_err(failure)?;
    let program = std::env::current_exe()?;
    let bars = Bars::new(arguments.json, &options);
    let ran = demo::run(&options, &program, folder.path(), &bars);
    bars.end();
    let report = match ran {
        Ok(report) => report,
        Err(error) => {
            // Keep the daemons' logs, which give the reason.
            let kept = folder.keep();
            return Err(Failure::new(
                Exit::Other,
                format!("{error} (kept: {})", kept.display()),
            ));
        }
    };
    let stem = arguments.output.join("goodput");
    report.draw(&stem).map_err(failure)?;
    let figures = arguments.output.join("report.json");
    let text = exact_json::pretty(&report).unwrap_or_default();
    std::fs::write(&figures, text).map_err(cannot_write)?;
    if arguments.json {
        json_line(&report);
    } else {
        out(&table(&report, &stem));
    }
    // TCP may be aborted, but its bytes must be right; Whimbrel must finish.
    let is_right = |run: &DemoRun| run.intact || !run.record.completed;
    let right = report.whimbrel.intact && report.tcp.iter().all(is_right);
    Ok(if right { Exit::Done } else { Exit::Other })
}

/// Returns what the user asks for, each once, or else what the kernel has.
fn congestions(wanted: &[String]) -> Vec<CongestionControl> {
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let has_bbr = known.is_ok_and(|known| known.split_whitespace().any(|it| it == "bbr"));
    if wanted.is_empty() && !has_bbr {
        note("this kernel has no BBR (sudo modprobe tcp_bbr): the demo compares with CUBIC alone");
    }
    let is_meant = |it: &CongestionControl| match it {
        CongestionControl::Bbr if wanted.is_empty() => has_bbr,
        CongestionControl::Reno if wanted.is_empty() => false,
        CongestionControl::Cubic if wanted.is_empty() => true,
        named => wanted.iter().any(|name| name == named.name()),
    };
    let all = [
        CongestionControl::Cubic,
        CongestionControl::Bbr,
        CongestionControl::Reno,
    ];
    all.into_iter().filter(is_meant).collect()
}

fn failure(error: LabError) -> Failure {
    Failure::new(Exit::Other, error.to_string())
}

/// A live progress bar for each side on a terminal, none elsewhere.
struct Bars {
    all: MultiProgress,
    preparing: ProgressBar,
    sides: Vec<(Side, ProgressBar)>,
}

impl Bars {
    fn new(quiet: bool, options: &DemoOptions) -> Bars {
        let all = MultiProgress::with_draw_target(draw_target(!quiet, 10));
        let preparing = all.add(ProgressBar::new_spinner());
        preparing.enable_steady_tick(Duration::from_millis(120));
        let template = "{prefix:<20} {percent:>3} % [{bar:36}] {bytes} of {total_bytes}, {elapsed}, {eta} left";
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = |side: Side| {
            all.add(
                ProgressBar::new(options.made_len())
                    .with_style(style.clone())
                    .with_prefix(options.name_of(side)),
            )
        };
        let rivals = options.congestions.iter().map(|it| Side::Tcp(*it));
        let sides = core::iter::once(Side::Whimbrel).chain(rivals);
        let sides = sides.map(|side| (side, bar(side))).collect();
        Bars {
            all,
            preparing,
            sides,
        }
    }

    fn end(&self) {
        self.preparing.finish_and_clear();
        for (_, bar) in &self.sides {
            bar.finish_and_clear();
        }
        // A failure affects only the display.
        let _ = self.all.clear();
    }
}

impl DemoObserver for Bars {
    fn progress(&self, side: Side, bytes: u64, len: u64) {
        self.preparing.finish_and_clear();
        let Some((_, bar)) = self.sides.iter().find(|(of, _)| *of == side) else {
            return;
        };
        bar.set_length(len);
        bar.set_position(bytes);
        if bytes == len {
            bar.finish();
        }
    }

    fn preparing(&self, what: &str) {
        self.preparing.set_message(what.to_owned());
    }
}

fn table(report: &DemoReport, stem: &Path) -> String {
    let options = &report.options;
    let mut text = format!("{:.0} MB over ", report.file_len as f64 / 1e6);
    let (rate, rtt) = (options.rate as f64 / 1e6, options.rtt.as_secs_f64() * 1e3);
    let (loss, out) = (options.loss * 100.0, options.outage.as_secs_f64());
    text += &match options.links {
        1 => {
            format!("{rate:.0} Mbit/s: RTT {rtt:.0} ms, loss {loss:.1} % on the last hop, which is")
        }
        _ => format!(
            "two links of {rate:.0} Mbit/s: RTT {:.0} ms by wifi, {:.0} ms by lte, loss {loss:.1} %; wifi is",
            rtt + 2.0,
            rtt + 40.0
        ),
    };
    text += &format!(
        " out for {out:.0} s after {:.0} s\n\n",
        options.outage_after.as_secs_f64()
    );
    let mut row = |what: &str, cell: &dyn Fn(&DemoRun) -> String| {
        text.push_str(&format!("{what:<20}{:>14}", cell(&report.whimbrel)));
        for run in &report.tcp {
            text.push_str(&format!("{:>22}", cell(run)));
        }
        text.push('\n');
    };
    row("", &|run| options.name_of(run.side));
    row("time", &|run| format!("{:.1} s", run.record.finished));
    row("goodput", &|run| {
        format!("{:.2} Mbit/s", run.record.goodput() / 1e6)
    });
    row("longest stall", &|run| {
        format!("{:.2} s", run.record.longest_stall)
    });
    row("retransmitted", &|run| {
        run.record
            .retransmitted_segments
            .map_or("-".into(), |count| format!("{count} packets"))
    });
    for (index, link) in report.whimbrel.links.iter().enumerate() {
        row(&format!("bytes on {}", link.link), &|run| {
            let both = run
                .links
                .get(index)
                .map(|link| link.forward.transmitted_bytes + link.backward.transmitted_bytes);
            both.map_or("-".into(), |bytes| format!("{:.2} MB", bytes as f64 / 1e6))
        });
    }
    row("arrived intact", &|run| {
        let share = run.record.bytes as f64 * 100.0 / (report.file_len as f64).max(1.0);
        match (run.record.completed, run.intact) {
            (false, _) => format!("aborted at {share:.0} %"),
            (true, intact) => if intact { "yes" } else { "NO" }.into(),
        }
    });
    text.push('\n');
    for run in &report.tcp {
        let rival = options.name_of(run.side);
        text += &match report.speedup(run) {
            Some(times) if run.record.completed => {
                format!("Whimbrel was {times:.1} times as fast as the {rival}.\n")
            }
            Some(times) => {
                format!("Whimbrel was at least {times:.1} times as fast as the {rival}.\n")
            }
            None => continue,
        };
    }
    if !report.whimbrel.record.completed {
        text += "Whimbrel did not finish in time.\n";
    }
    text.push_str(&format!(
        "{}\n{}\n",
        stem.with_extension("svg").display(),
        stem.with_extension("png").display(),
    ));
    text
}
