//! `ndn get`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use whimbrel_core::Time;
use whimbrel_core::units::{self, ByteSize, format_duration};
use whimbrel_io::Clock;
use whimbrel_ndn_packet::{NackReason, Name};
use whimbrel_node::ndn::client::seeded;
use whimbrel_node::output::Destination;
use whimbrel_node::wait::Wait;
use whimbrel_transport::exchange::{ExchangeFailure, nack_text};
use whimbrel_transport::fetch::SegmentFailure;
use whimbrel_transport::path::{PathStats, Paths};
use whimbrel_transport::{FetchError, FetchEvent, FetchStats, Fetcher, PathLeft, PathTag};

use super::fetch_options::FetchArguments;
use super::output::{Output, log_file};
use super::path_report::PathReport;
use super::patient::{Patient, PatientEvent, Silence};
use super::verify::VerifyArguments;
use super::{Loss, Reach, converse, in_millis, name};
use crate::command::get::{output_help, style};
use crate::command::waiting::ToldWait;
use crate::command::{Outcome, json_line, json_text, stop_flag};
use crate::exit::{Exit, Failure};
use crate::logging::{is_quiet, path_line, say_plainly};
use crate::progress;

#[derive(Args, Debug)]
pub(crate) struct Get {
    /// The name of the content, as /example/film; with a version, that version
    #[arg(value_parser = name)]
    name: Name,
    /// Output: a file, a folder, a device, or - for standard output
    #[arg(short, long, value_name = "PATH", default_value = "-", long_help = output_help(
        "Output: a file, a folder, a device, or - for standard output. The content's own name is the last \
         component of its NDN name."))]
    output: PathBuf,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    verify: VerifyArguments,
    #[command(flatten)]
    fetch: FetchArguments,
    /// Give up after this long without new data; without it, --retries decides how often each
    /// Interest is repeated, and without an answer at all the command waits
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    timeout: Option<Duration>,
    /// Give up once more than this has arrived: a producer may never end its content
    #[arg(long, value_name = "SIZE")]
    max_size: Option<ByteSize>,
    /// Write each change of the window to a file: seconds and segments
    #[arg(long, value_name = "FILE")]
    log_cwnd: Option<PathBuf>,
    /// Write each round trip to a file: segment, round trip, variation, smoothed, timeout, in
    /// milliseconds
    #[arg(long, value_name = "FILE")]
    log_rtt: Option<PathBuf>,
    /// Print progress and outcome as lines of JSON on standard output (on standard error if the
    /// content goes there)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Get) -> Outcome {
    let stop = stop_flag()?;
    let destination = Destination::open(&arguments.output, &stop)?;
    let paths = arguments
        .fetch
        .uses_paths()
        .then(|| PathReport::new(arguments.fetch.is_beside_name()));
    let mut report = Report::new(arguments.json, destination.is_stdout(), paths);
    match fetch(&arguments, destination, &stop, &mut report) {
        Ok(outcome) => Ok(outcome),
        Err(failure) => {
            report.end();
            report.failed(&failure);
            Err(failure)
        }
    }
}

fn fetch(
    arguments: &Get,
    destination: Destination,
    stop: &AtomicBool,
    report: &mut Report,
) -> Outcome {
    let mut output = Output::open(destination, &arguments.name)?;
    let mut logs = Logs::open(arguments)?;
    let fetching = &arguments.fetch;
    let verify = arguments.verify.prepare(
        &arguments.reach,
        &arguments.name,
        fetching.discovery(),
        fetching.lifetime(),
    )?;
    let mut options = fetching.options(verify)?;
    options.log_window = logs.window.is_some();
    options.log_rtt = logs.rtt.is_some();
    let forwarder = arguments.reach.uplink()?.to_string();
    let clock = Clock::start();
    let now = clock.now();
    let fetcher = Fetcher::new(arguments.name.clone(), options, seeded()?, now);
    let mut client = arguments
        .reach
        .client(clock, Patient::new(fetcher, arguments.timeout, now))?;
    // From here on the client handles signals; one may have arrived before.
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::new(Exit::Interrupted, "interrupted"));
    }
    let poster = client.poster();
    output.start(move || poster.post(|application, _| application.fetcher.set_paused(false)))?;
    let mut length = 0u64;
    let end = converse(&mut client, Loss::Waits, |application, _, event| {
        if output.has_failed() {
            return ControlFlow::Break(Ok(End::OutputFailed));
        }
        let event = match event {
            PatientEvent::Fetch(event) => event,
            PatientEvent::Waits(silence) => {
                let bytes = application.fetcher.stats().bytes;
                let wait = silence.map(|silence| match silence {
                    Silence::Unanswered => wait_for(&forwarder, bytes),
                    Silence::Nack(reason) => Wait::Nack {
                        from: forwarder.clone(),
                        reason: nack_text(reason),
                        gives_up_after_s: (reason == NackReason::NoRoute)
                            .then(|| arguments.fetch.no_route_timeout().as_secs()),
                    },
                });
                report.waits(wait.as_ref());
                return ControlFlow::Continue(());
            }
            PatientEvent::Exhausted => return ControlFlow::Break(Ok(End::Silence)),
        };
        match event {
            FetchEvent::Segment { content, .. } => {
                length = length.saturating_add(content.len() as u64);
                if let Some(most) = arguments.max_size.filter(|most| length > most.0) {
                    return ControlFlow::Break(Ok(End::TooLong(most)));
                }
                if output.take(&content) {
                    application.fetcher.set_paused(true);
                }
            }
            FetchEvent::Started { name } => report.started(name),
            FetchEvent::PathUsed { tag, .. } => report.path_used(&tag),
            FetchEvent::PathLeft { tag, stats, reason } => report.path_left(tag, stats, reason),
            FetchEvent::Window { at, size, .. } => logs.window(at, size),
            FetchEvent::Rtt { .. } => logs.rtt(&event),
            FetchEvent::Progress(stats) => {
                // Let a reader of the output see the bytes so far.
                output.flush();
                report.progress(&stats, application.fetcher.paths());
            }
            FetchEvent::Done(_) => return ControlFlow::Break(Ok(End::Whole)),
            FetchEvent::Failed { error, .. } => return ControlFlow::Break(Ok(End::Failed(error))),
        }
        ControlFlow::Continue(())
    })?;
    report.end();
    logs.finish()?;
    let fetcher = &client.application().fetcher;
    let no_route_timeout = arguments.fetch.no_route_timeout();
    conclude(
        end,
        output,
        &arguments.name,
        report,
        fetcher,
        no_route_timeout,
    )
}

fn conclude(
    end: Option<End>,
    output: Output,
    name: &Name,
    report: &mut Report,
    fetcher: &Fetcher,
    no_route_timeout: Duration,
) -> Outcome {
    let stats = &fetcher.stats();
    match end {
        Some(End::Whole) => {
            let path = output.finish()?;
            report.done(name, path.as_deref(), stats, fetcher.paths());
            Ok(Exit::Done)
        }
        // `finish` returns the reason.
        Some(End::OutputFailed) => output.finish().map(|_| Exit::Write),
        Some(End::Failed(error)) => Err(failure(&error, no_route_timeout)),
        Some(End::TooLong(most)) => Err(Failure::new(
            Exit::Other,
            format!("the content is longer than {most} (--max-size)"),
        )),
        Some(End::Silence) => Err(Failure::new(
            Exit::NoAnswer,
            format!(
                "no new data for as long as --timeout says; {} bytes had arrived before",
                stats.bytes
            ),
        )),
        None => Err(Failure::new(
            Exit::Interrupted,
            format!("interrupted after {} bytes", stats.bytes),
        )),
    }
}

/// Returns the wait of a fetch that has got so many bytes, by a forwarder.
fn wait_for(forwarder: &str, bytes: u64) -> Wait {
    match bytes {
        0 => Wait::NoAnswer {
            asked: vec![forwarder.to_owned()],
            for_s: 1,
        },
        _ => Wait::Stalled { for_s: 1 },
    }
}

/// How a fetch ended.
enum End {
    Whole,
    Failed(FetchError),
    /// `--timeout`.
    Silence,
    /// `--max-size`.
    TooLong(ByteSize),
    OutputFailed,
}

fn failure(error: &FetchError, no_route_timeout: Duration) -> Failure {
    let no_route = matches!(
        error,
        FetchError::Discovery {
            failure: ExchangeFailure::Nack(NackReason::NoRoute),
            ..
        } | FetchError::Segment {
            failure: SegmentFailure::Nack(NackReason::NoRoute),
            ..
        } | FetchError::NoFinalBlock {
            failure: SegmentFailure::Nack(NackReason::NoRoute),
            ..
        }
    );
    let exit = match error {
        FetchError::Discovery {
            failure: ExchangeFailure::Timeout { .. },
            ..
        } => Exit::NoAnswer,
        FetchError::Discovery {
            failure: ExchangeFailure::Nack(_),
            ..
        } => Exit::Nack,
        FetchError::Segment { failure, .. } | FetchError::NoFinalBlock { failure, .. } => {
            match failure {
                SegmentFailure::NoAnswer(_) => Exit::NoAnswer,
                SegmentFailure::Nack(_) => Exit::Nack,
                SegmentFailure::Refused(_) => Exit::NotVerified,
            }
        }
        FetchError::Refused { .. } => Exit::Nack,
        FetchError::Metadata { .. }
        | FetchError::OtherVersion { .. }
        | FetchError::FinalBlock { .. }
        | FetchError::UnevenSegments { .. } => Exit::Other,
    };
    if !no_route {
        return Failure::new(exit, error);
    }
    let waited = format_duration(no_route_timeout);
    let text = format!("{error}; tried for {waited} (--no-route-timeout)");
    Failure::new(exit, text)
}

/// `--log-cwnd` and `--log-rtt`, in the columns of `ndnget`.
struct Logs {
    window: Option<BufWriter<File>>,
    rtt: Option<BufWriter<File>>,
    /// The time of the first change of the window.
    began: Option<Time>,
    failed: Option<std::io::Error>,
}

impl Logs {
    fn open(arguments: &Get) -> Result<Logs, Failure> {
        let window = arguments
            .log_cwnd
            .as_deref()
            .map(|path| log_file(path, "time\tcwndsize"));
        let rtt = arguments
            .log_rtt
            .as_deref()
            .map(|path| log_file(path, "segment\trtt\trttvar\tsrtt\trto"));
        Ok(Logs {
            window: window.transpose()?,
            rtt: rtt.transpose()?,
            began: None,
            failed: None,
        })
    }

    fn window(&mut self, at: Time, size: f64) {
        let Some(file) = &mut self.window else { return };
        let began = *self.began.get_or_insert(at);
        let written = writeln!(file, "{}\t{size}", at.since(began).as_secs_f64());
        self.failed = self.failed.take().or(written.err());
    }

    fn rtt(&mut self, event: &FetchEvent) {
        let (
            Some(file),
            FetchEvent::Rtt {
                segment,
                rtt,
                smoothed,
                variation,
                timeout,
                ..
            },
        ) = (&mut self.rtt, event)
        else {
            return;
        };
        let [rtt, variation, smoothed, timeout] =
            [*rtt, *variation, *smoothed, *timeout].map(in_millis);
        let written = writeln!(file, "{segment}\t{rtt}\t{variation}\t{smoothed}\t{timeout}");
        self.failed = self.failed.take().or(written.err());
    }

    fn finish(self) -> Result<(), Failure> {
        let mut outcome = self.failed.map_or(Ok(()), Err);
        for mut file in [self.window, self.rtt].into_iter().flatten() {
            outcome = outcome.and(file.flush());
        }
        outcome.map_err(|error| {
            Failure::new(
                Exit::Write,
                format!("cannot write --log-cwnd or --log-rtt: {error}"),
            )
        })
    }
}

/// What the user, or a program, sees of a fetch.
struct Report {
    json: bool,
    to_stdout: bool,
    bar: ProgressBar,
    started: Instant,
    told_wait: ToldWait,
    /// Of a fetch that looks for paths.
    paths: Option<PathReport>,
}

impl Report {
    fn new(json: bool, to_stdout: bool, paths: Option<PathReport>) -> Report {
        let bar = progress::bar(!json, 10);
        bar.set_style(style(false));
        bar.set_prefix("get");
        bar.enable_steady_tick(Duration::from_millis(250));
        Report {
            json,
            to_stdout,
            bar,
            started: Instant::now(),
            told_wait: ToldWait::default(),
            paths,
        }
    }

    fn path_used(&self, tag: &PathTag) {
        tracing::info!(%tag, hops = tag.hops(), "path in use");
        if self.json {
            self.line(&json!({ "event": "path-used", "tag": tag.to_string(), "hops": tag.hops() }));
        }
    }

    fn path_left(&mut self, tag: PathTag, stats: PathStats, reason: PathLeft) {
        tracing::info!(%tag, reason = reason.name(), bytes = stats.bytes, "path left");
        if self.json {
            self.line(&json!({
                "event": "path-left", "tag": tag.to_string(), "reason": reason.name(),
                "bytes": stats.bytes, "lost": stats.lost,
            }));
        }
        if let Some(paths) = &mut self.paths {
            paths.left(tag, stats, reason);
        }
    }

    /// Returns the paths, if there is something to say of them.
    fn shown_paths<'a>(&'a self, paths: Option<&'a Paths>) -> Option<(&'a PathReport, &'a Paths)> {
        let (report, paths) = self.paths.as_ref().zip(paths)?;
        report.is_shown(paths).then_some((report, paths))
    }

    fn stats_in_json(&self, stats: &FetchStats, paths: Option<&Paths>) -> Value {
        let mut value = in_json(stats);
        if let Some((report, paths)) = self.shown_paths(paths) {
            value["paths"] = report.json(paths).into();
        }
        value
    }

    fn line(&self, value: &Value) {
        if self.to_stdout {
            say_plainly(&json_text(value).unwrap_or_default())
        } else {
            json_line(value)
        }
    }

    fn started(&self, name: Name) {
        if self.json {
            self.line(&json!({ "event": "started", "name": name.to_string() }));
        }
        tracing::info!(%name, "fetching");
        self.bar.set_message(name.to_string());
    }

    /// Says why nothing comes, or that something comes again.
    fn waits(&mut self, wait: Option<&Wait>) {
        let mut told = std::mem::take(&mut self.told_wait);
        let line = |value: &Value| self.line(value);
        let json: Option<&dyn Fn(&Value)> = if self.json { Some(&line) } else { None };
        self.bar.suspend(|| told.tell(wait, json, false));
        self.told_wait = told;
    }

    fn progress(&self, stats: &FetchStats, paths: Option<&Paths>) {
        if self.json {
            let stats = self.stats_in_json(stats, paths);
            self.line(&json!({ "event": "progress", "stats": stats }));
            return;
        }
        if let Some((report, paths)) = self.shown_paths(paths) {
            let table = report.table(paths, stats.elapsed);
            self.bar.set_message(format!("\n{}", table.trim_end()));
        }
        // The last segment may be shorter; assume the size of the others until it arrives.
        if let Some(total) = stats.total_segments
            && let Some(size) = stats.bytes.checked_div(stats.segments)
        {
            if self.bar.length().is_none() {
                self.bar.set_style(style(true));
            }
            self.bar
                .set_length(size.saturating_mul(total).max(stats.bytes));
        }
        self.bar.set_position(stats.bytes);
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn done(
        &mut self,
        name: &Name,
        path: Option<&std::path::Path>,
        stats: &FetchStats,
        paths: Option<&Paths>,
    ) {
        // What ends a wait may end the transfer before the next progress.
        self.waits(None);
        if self.json {
            let line = json!({
                "event": "done",
                "name": name.to_string(),
                "path": path.map(|path| path.display().to_string()),
                "seconds": self.started.elapsed().as_secs_f64(),
                "stats": self.stats_in_json(stats, paths),
            });
            return self.line(&line);
        }
        if !is_quiet() {
            say_plainly(&summary(name, path, stats));
            if let Some((report, paths)) = self.shown_paths(paths) {
                say_plainly(&report.table(paths, stats.elapsed));
            }
        }
    }

    fn failed(&self, failure: &Failure) {
        if self.json {
            self.line(
                &json!({ "event": "failed", "error": failure.to_string(), "exit": failure.exit.code() }),
            );
        }
    }
}

fn summary(name: &Name, path: Option<&std::path::Path>, stats: &FetchStats) -> String {
    let target = path.map_or(String::new(), |path| format!("{}: ", path_line(path)));
    let mut text = format!(
        "{target}{name}: {} bytes, {} segments, {:.3} s, {:.1} Mbit/s\n",
        stats.bytes,
        stats.segments,
        stats.elapsed.as_secs_f64(),
        stats.goodput() / 1e6
    );
    let lossless = stats.retransmissions == 0 && stats.nacks == 0 && stats.rejected == 0;
    text += &if lossless {
        String::from("  no retransmissions")
    } else {
        format!(
            "  {} retransmissions, {} timeouts, {} Nacks, {} refused",
            stats.retransmissions, stats.timeouts, stats.nacks, stats.rejected
        )
    };
    text += &format!(
        "; window {:.0} at the end, shrunk {} times by marks and {} times by losses{}\n",
        stats.window,
        stats.mark_decreases,
        stats.loss_decreases,
        match stats.undone_decreases {
            0 => String::new(),
            undone => format!(", {undone} of these undone"),
        }
    );
    if let Some((least, mean, most)) = stats.rtt {
        let [least, mean, most] = [least, mean, most].map(in_millis);
        text += &format!("  round trip min/mean/max = {least:.3}/{mean:.3}/{most:.3} ms\n");
    }
    text
}

fn in_json(stats: &FetchStats) -> Value {
    let rtt = stats.rtt.map(|(least, mean, most)| {
        json!({ "min": in_millis(least), "mean": in_millis(mean), "max": in_millis(most) })
    });
    json!({
        "seconds": stats.elapsed.as_secs_f64(),
        "bytes": stats.bytes,
        "segments": stats.segments,
        "total_segments": stats.total_segments,
        "bits_per_second": stats.goodput(),
        "interests": stats.interests,
        "retransmissions": stats.retransmissions,
        "skipped_retransmissions": stats.skipped_retransmissions,
        "timeouts": stats.timeouts,
        "nacks": stats.nacks,
        "marks": stats.marks,
        "mark_decreases": stats.mark_decreases,
        "loss_decreases": stats.loss_decreases,
        "undone_decreases": stats.undone_decreases,
        "duplicates": stats.duplicates,
        "rejected": stats.rejected,
        "window": stats.window,
        "rtt_ms": rtt,
    })
}
