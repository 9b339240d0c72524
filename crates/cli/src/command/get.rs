//! `get`.

use std::io::{BufRead, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use whimbrel_core::units::{ByteSize, Span};
use whimbrel_mobilityfirst::local::{FailReason, TransferOptions};
use whimbrel_node::config::{LinkSection, NamedRemote};
use whimbrel_node::fetch::{FetchError, FetchOptions, Fetched, Progress, fetch};
use whimbrel_node::output::{self, Destination};
use whimbrel_node::pointers::FoundPointer;
use whimbrel_node::wait::Wait;

use super::access::{no_host, reach};
use super::pointers::NameServers;
use super::transfer::TransferArguments;
use super::waiting::ToldWait;
use super::wanted::{Asking, Found, Wanted};
use super::{Outcome, directory, json_line, json_text, out, stop_flag};
use crate::arguments::HostAccess;
use crate::exit::{Exit, Failure};
use crate::logging::{note, path_line, say, say_plainly, shows_progress};
use crate::progress;

/// Shortest interval between two progress lines of JSON.
const JSON_INTERVAL: Duration = Duration::from_millis(100);
/// The same while nothing arrives.
const JSON_QUIET: Duration = Duration::from_secs(10);
/// Longest line that is typed: more than a ticket.
const MAX_TYPED: u64 = 4096;
/// Entries of a folder that are told one by one when they are refused.
const MAX_WARNINGS: usize = 50;

#[derive(Args, Debug)]
pub(crate) struct Get {
    /// The name: 64 hexadecimal digits, as `whimbrel serve` prints them, or the first of them (4 at
    /// least) of one that the host daemon or an unfinished download here has; or its alias; or OWNER/ALIAS, a pointer that its owner has published; or a ticket, which
    /// also holds the addresses to ask; or a code, as the sender said it; or - to type it, so that other
    /// users of this machine do not see it among its processes
    #[arg(value_name = "NAME|OWNER/ALIAS|TICKET|CODE", required = true)]
    name: Vec<String>,
    /// Output: a file, a folder, a device, or - for standard output; by default the current folder,
    /// under the name that the source suggests
    #[arg(short, long, value_name = "PATH", default_value = ".", hide_default_value = true,
        long_help = output_help(
        "Output: a file, a folder, a device, or - for standard output; by default the current folder. \
         The content's own name is the one that the source suggests. If PATH does not exist, a folder is stored as \
         PATH."))]
    output: PathBuf,
    /// Ask this host directly (`whimbrel serve --listen`): no router or name service is needed.
    /// With NAME, only the host of that name is accepted
    #[arg(long, value_name = "[NAME@]HOST:PORT", conflicts_with_all = ["socket", "router"], value_parser = directory::remote)]
    from: Option<NamedRemote>,
    #[command(flatten)]
    access: HostAccess,
    /// Give up after this long without new data, as "30 s"; by default it waits for ever, or 30 s for the
    /// sender of a code
    #[arg(long, value_name = "DURATION", value_parser = Span::with_unit)]
    timeout: Option<Span>,
    /// Update PATH, an older version of this folder, once the new version is complete. Files that the new
    /// version lacks stay
    #[arg(long)]
    update: bool,
    /// Wait for newer versions of OWNER/ALIAS, and update PATH with each, until Ctrl-C
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    name_servers: NameServers,
    #[command(flatten)]
    transfer: TransferArguments,
    /// Refuse a file that is longer, or a folder that would take more on disk. By default a folder is
    /// refused only if it takes over 64 MiB and more than a hundred times what is fetched for it
    #[arg(long, value_name = "SIZE")]
    max_size: Option<ByteSize>,
    /// Print progress and outcome as lines of JSON on standard output (on standard error with -o -)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Get) -> Outcome {
    if arguments.follow && arguments.output == Path::new(".") {
        let text = "--follow replaces one version by the next: `-o PATH` says what it replaces";
        return Err(Failure::new(Exit::Usage, text));
    }
    // Words that are set apart by spaces are arguments of their own.
    let wanted: Wanted = match &arguments.name[..] {
        [one] if one == "-" => typed()?.parse()?,
        words => words.join(" ").parse()?,
    };
    let transfer = arguments.transfer.options()?;
    let stop = stop_flag()?;
    loop {
        let (exit, found) = fetch_once(wanted.clone(), &arguments, transfer, &stop)?;
        let is_followed = arguments.follow && exit == Exit::Done;
        let (Wanted::Pointer(name), Some(found), true) = (&wanted, found, is_followed) else {
            return Ok(exit);
        };
        if !name.await_newer(&found, &arguments.name_servers, &stop)? {
            return Ok(Exit::Interrupted);
        }
    }
}

/// Fetches a content. Returns the pointer that led to it, too.
fn fetch_once(
    wanted: Wanted,
    arguments: &Get,
    transfer: TransferOptions,
    stop: &AtomicBool,
) -> Result<(Exit, Option<FoundPointer>), Failure> {
    let output = Destination::open(&arguments.output, stop)?;
    let mut report = Report::new(arguments.json, &output);
    let found = report.find(wanted, arguments, &output, stop)?;
    let pointer = found.pointer.clone();
    let options = FetchOptions {
        content: found.content,
        key: found.key.clone(),
        output,
        transfer,
        timeout: arguments.timeout.map(|timeout| timeout.0),
        limit: arguments.max_size.map(|size| size.0),
        update: arguments.update || arguments.follow,
        offered: None,
        unpacking: None,
    };
    report.asked = asked(&found.access, &found.direct);
    report.hint = hint(&found);
    let direct = found
        .direct
        .into_iter()
        .enumerate()
        .map(|(index, host)| LinkSection::towards(format!("from-{index}"), host));
    let mut access = reach(&found.access, direct.collect())?;
    let started = Instant::now();
    let fetched = fetch(&mut access.attachment, options, stop, &mut |progress| {
        report.tell(progress)
    });
    report.end();
    match fetched {
        Ok(fetched) => {
            report.done(&fetched, started.elapsed());
            let exit = match fetched.refused.is_empty() {
                true => Exit::Done,
                false => Exit::Incomplete,
            };
            Ok((exit, pointer))
        }
        Err(error) => Err(report.failed(error)),
    }
}

/// What to try if the addresses of a ticket do not answer.
fn hint(found: &Found) -> Option<String> {
    if found.instead_of_daemon {
        return Some(
            "the ticket's addresses are asked, not the host daemon that runs here: --socket PATH asks that".into(),
        );
    }
    found.by_routers_of_ticket.then(|| {
        "the ticket names the sender's router; at a site with a router of its own, --router HOST:PORT asks that".into()
    })
}

/// Reads what to fetch from standard input: one line.
fn typed() -> Result<String, Failure> {
    let input = std::io::stdin();
    if input.is_terminal() {
        say_plainly("name, ticket or code: ");
    }
    let mut line = String::new();
    input.lock().take(MAX_TYPED).read_line(&mut line)?;
    match line.trim() {
        "" => Err(Failure::new(
            Exit::Usage,
            "nothing was typed: write a name, a ticket or a code on standard input, or in the place of -",
        )),
        typed => Ok(typed.to_owned()),
    }
}

/// Whom a fetch asks, in words.
fn asked(access: &HostAccess, direct: &[NamedRemote]) -> String {
    let all: Vec<String> = access
        .router
        .iter()
        .chain(direct)
        .map(|at| at.remote.to_string())
        .collect();
    if all.is_empty() {
        "the host daemon".to_owned()
    } else {
        all.join(", ")
    }
}

/// What the user, or a program, sees of a fetch.
struct Report {
    /// Whom it asks.
    asked: String,
    json: bool,
    to_stdout: bool,
    /// The fetch leaves a record to resume from.
    keeps: bool,
    bar: ProgressBar,
    /// The last progress that was printed, and when.
    told: Option<(Instant, Progress)>,
    /// The longest time between two arrivals since then, in microseconds.
    pause_us: u64,
    told_wait: ToldWait,
    /// What to try, until it has been said.
    hint: Option<String>,
}

impl Report {
    fn new(json: bool, output: &Destination) -> Report {
        // A bar's own rate counts from its first position on, so that resumed bytes do not count.
        let bar = progress::bar(!json, 10);
        bar.set_style(style(false));
        bar.enable_steady_tick(Duration::from_millis(250));
        Report {
            asked: String::new(),
            json,
            to_stdout: output.is_stdout(),
            keeps: !output.is_stream(),
            bar,
            told: None,
            pause_us: 0,
            told_wait: ToldWait::default(),
            hint: None,
        }
    }

    /// Finds out what to fetch, and says why it cannot be found.
    fn find(
        &self,
        wanted: Wanted,
        arguments: &Get,
        output: &Destination,
        stop: &AtomicBool,
    ) -> Result<Found, Failure> {
        let line = |value: &serde_json::Value| self.line(value);
        let asking = Asking {
            access: &arguments.access,
            from: arguments.from.as_ref(),
            timeout: arguments.timeout.map(|timeout| timeout.0),
            output,
            name_servers: &arguments.name_servers,
            stop,
            json: self.json.then_some(&line),
        };
        wanted.find(&asking).inspect_err(|failure| {
            if self.json {
                let (error, exit) = (failure.to_string(), failure.exit.code());
                self.line(&json!({ "event": "failed", "error": error, "exit": exit }));
            }
        })
    }

    /// Says why nothing comes, or that something comes again.
    fn waits(&mut self, wait: Option<&Wait>) {
        let to_stdout = self.to_stdout;
        let line = move |value: &serde_json::Value| line(to_stdout, value);
        let json: Option<&dyn Fn(&serde_json::Value)> = self.json.then_some(&line);
        self.told_wait.tell(wait, json, shows_progress());
    }

    fn tell(&mut self, progress: &Progress) {
        self.waits(progress.wait.as_ref());
        if progress.wait.is_some()
            && progress.bytes == progress.resumed
            && let Some(hint) = self.hint.take()
        {
            self.bar.suspend(|| note(&hint));
        }
        if self.json {
            self.pause_us = self.pause_us.max(progress.pause_us);
            let due = self.told.as_ref().is_none_or(|(at, last)| {
                let interval = match last.bytes == progress.bytes {
                    true => JSON_QUIET,
                    false => JSON_INTERVAL,
                };
                at.elapsed() >= interval || last.state != progress.state
            });
            if due {
                let pause_us = core::mem::take(&mut self.pause_us);
                let progress = Progress {
                    pause_us,
                    ..progress.clone()
                };
                self.line(&json!({ "event": "progress", "progress": progress }));
                self.told = Some((Instant::now(), progress));
            }
            return;
        }
        if self.bar.length() != progress.length {
            self.bar.set_style(style(progress.length.is_some()));
            if let Some(length) = progress.length {
                self.bar.set_length(length);
            }
        }
        if self.told.is_none() && progress.resumed > 0 {
            self.bar.set_position(progress.resumed);
            self.bar.reset_eta();
        }
        self.told = Some((Instant::now(), progress.clone()));
        self.bar.set_position(progress.bytes);
        let files = progress
            .files
            .map_or(String::new(), |(done, all)| format!("file {done} of {all}"));
        let wait = progress.wait.as_ref();
        let wait = wait.map_or(String::new(), |wait| format!("\n  waiting: {wait}"));
        self.bar.set_message(format!("{files}{wait}"));
        let prefix = progress
            .file_name
            .as_deref()
            .map_or("get".into(), |name| name.escape_debug().to_string());
        self.bar.set_prefix(prefix);
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn line(&self, value: &serde_json::Value) {
        line(self.to_stdout, value);
    }

    fn done(&mut self, fetched: &Fetched, elapsed: Duration) {
        // What ends a wait may end the transfer before the next progress.
        self.waits(None);
        let seconds = elapsed.as_secs_f64();
        if self.json {
            return self.line(&json!({ "event": "done", "fetched": fetched, "seconds": seconds }));
        }
        for refused in fetched.refused.iter().take(MAX_WARNINGS) {
            say(&format!("refused {}: {}", refused.path, refused.why));
        }
        if !fetched.refused.is_empty() {
            say(&format!(
                "{} of the folder's entries were refused; --json lists all of them",
                fetched.refused.len()
            ));
        }
        for remark in &fetched.remarks {
            note(remark);
        }
        let Some(path) = &fetched.path else { return };
        let rate = fetched.received as f64 * 8.0 / 1e6 / seconds.max(1e-9);
        let files = if fetched.files == 1 {
            String::new()
        } else {
            format!("{} files, ", fetched.files)
        };
        let resumed = match fetched.resumed {
            0 => String::new(),
            resumed => format!(", {resumed} of them from an earlier run"),
        };
        out(&format!(
            "{}: {files}{} bytes{resumed}, {seconds:.2} s, {rate:.1} Mbit/s, verified\n",
            path_line(path),
            fetched.length
        ));
        for link in &fetched.links {
            out(&format!("  over {}: {} bytes\n", link.peer, link.bytes));
        }
    }

    fn failed(&self, error: FetchError) -> Failure {
        let kept = self.told.as_ref().map_or(0, |(_, progress)| progress.bytes);
        let hint = match &error {
            FetchError::Failed { .. }
            | FetchError::FolderToStream
            | FetchError::InUse(_)
            | FetchError::PartRemoved(_) => "",
            _ if kept > 0 && self.keeps => {
                "; the verified part is kept, repeat the command to resume"
            }
            _ => "",
        };
        let asked = match &error {
            FetchError::Failed {
                reason: FailReason::NoSuchName | FailReason::NoNameService | FailReason::NotServed,
                ..
            } => format!(" (asked {})", self.asked),
            FetchError::TimedOut(_) => {
                let wait = self.told.as_ref().and_then(|(_, told)| told.wait.as_ref());
                wait.map_or(String::new(), |wait| format!(": {wait}"))
            }
            _ => String::new(),
        };
        let message = format!("{error}{asked}{hint}");
        let failure = match error {
            FetchError::Host(error) => no_host(error),
            error => error.into(),
        };
        if self.json {
            self.line(&json!({ "event": "failed", "error": message, "exit": failure.exit.code() }));
        }
        if failure.exit == Exit::NoDaemon || failure.is_silent() {
            failure
        } else {
            Failure::new(failure.exit, message)
        }
    }
}

/// Prints a line of JSON where the content does not go.
fn line(to_stdout: bool, value: &serde_json::Value) {
    if to_stdout {
        say_plainly(&json_text(value).unwrap_or_default())
    } else {
        json_line(value)
    }
}

/// Returns the long help of `-o`: its meaning, and how an existing PATH is treated.
pub(super) fn output_help(what: &str) -> String {
    format!("{what}\n\n{}", output::HELP)
}

pub(super) fn style(length_known: bool) -> ProgressStyle {
    let template = if length_known {
        "{prefix:.16!} {percent:>3} % [{bar:12}] {bytes}/{total_bytes} {bytes_per_sec}, {eta} left {msg}"
    } else {
        "{prefix:.16!} {spinner} {bytes}, {elapsed} {msg}"
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
