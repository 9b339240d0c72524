//! `push` and `message`.

use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use whimbrel_client::place::Places;
use whimbrel_core::Guid;
use whimbrel_core::units::Span;
use whimbrel_mobilityfirst::host::GroupStatus;
use whimbrel_mobilityfirst::local::SendState;
use whimbrel_mobilityfirst::wire::{MAX_MESSAGE, OfferUse};
use whimbrel_node::push::{PushError, PushEvent, PushItem, PushOptions, PushProgress, push};
use whimbrel_node::shelf::Shelf;
use whimbrel_node::wait::Wait;

use super::access::{no_host, reach};
use super::directory;
use super::group::{PushReceiver, receiver};
use super::serve::shelve;
use super::transfer::TransferArguments;
use super::waiting::ToldWait;
use super::{Outcome, json_line, out, stop_flag};
use crate::arguments::HostAccess;
use crate::exit::{self, Exit, Failure};
use crate::logging::{note, one_line, path_line, say, say_plainly, shows_progress};
use crate::progress;

/// What `push` and `message` have in common.
#[derive(Args, Debug)]
pub(crate) struct PushArguments {
    /// The receiver: the name of a host, as its `whimbrel inbox` prints it, or an alias (`whimbrel names`).
    /// After "group:" the name or alias of a group: each member gets it
    #[arg(long, value_name = "NAME|group:NAME", value_parser = receiver)]
    to: PushReceiver,
    /// Wait until the receiver has it; by default the command ends when the network has taken everything
    #[arg(long)]
    wait: bool,
    /// Give up after this long, as "30 s"; by default it waits for ever
    #[arg(long, value_name = "DURATION", value_parser = Span::with_unit)]
    timeout: Option<Span>,
    /// Ask the access router to keep a copy until the receiver has it, and to retransmit what is lost on the
    /// way, so that this machine may be switched off
    #[arg(long)]
    delegate: bool,
    #[command(flatten)]
    access: HostAccess,
    #[command(flatten)]
    transfer: TransferArguments,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

/// `push`.
#[derive(Args, Debug)]
#[command(after_help = format!("Example:\n  whimbrel push --to 6b1e...c2 --router 192.0.2.1:4711 log.txt\n\nThe receiver need not be reachable: routers store \
    what they cannot deliver yet. It accepts what its `whimbrel inbox` allows.\n\n{}", exit::HELP))]
pub(crate) struct PushCommand {
    /// Files and folders; - is standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The name that the receiver sees, in place of the file's or folder's own
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    sending: PushArguments,
}

/// `message`.
#[derive(Args, Debug)]
#[command(after_help = format!("Example:\n  whimbrel message --to 6b1e...c2 --router 192.0.2.1:4711 'on my way'\n\n{}", exit::HELP))]
pub(crate) struct MessageArguments {
    /// The text, at most 32 KiB; by default it is read from standard input
    text: Option<String>,
    #[command(flatten)]
    sending: PushArguments,
}

pub(crate) fn run(mut arguments: PushCommand) -> Outcome {
    let stop = stop_flag()?;
    arguments.sending.choose_service()?;
    let sending = &arguments.sending;
    if arguments.name.is_some() && arguments.paths.len() > 1 {
        let text = "--name is the name of one file: run a command for each";
        return Err(Failure::new(Exit::Usage, text));
    }
    // Detects a missing daemon before hashing for an hour.
    let mut access = reach(&sending.access, Vec::new())?;
    let mut shelf = Shelf::new(Some(Places::of_this_user().cache.join("trees")));
    let mut items = Vec::new();
    // Standard input, which is read once and may be read again by chunk.
    let mut spooled = Vec::new();
    for path in &arguments.paths {
        let from_stdin = path.as_os_str() == "-";
        let spool = from_stdin.then(spool).transpose()?;
        let source = spool.as_ref().map_or(path.as_path(), |file| file.path());
        let shelved = shelve(&mut shelf, source, sending.json)?;
        for skipped in &shelved.skipped {
            note(&format!("skipped {:?}: {}", skipped.path, skipped.why));
        }
        let name = match (&arguments.name, from_stdin) {
            (Some(name), _) => Some(name.as_str()),
            (None, true) => Some("stdin"),
            (None, false) => None,
        };
        if let Some(name) = name {
            shelf.rename(&shelved.name, name);
        }
        let item = match source.is_dir() {
            true => PushItem {
                content: shelf.bundle(&shelved.name, source, &mut |_, _| {})?,
                proposed: OfferUse::Bundle,
            },
            false => PushItem {
                content: shelved.name,
                proposed: OfferUse::File,
            },
        };
        let shown = path_line(path);
        let is_same = |earlier: &&(PushItem, String)| earlier.0.content == item.content;
        match items.iter().find(is_same) {
            Some((_, first)) => note(&format!(
                "{shown} has the same bytes as {first}: they are sent once, under that name"
            )),
            None => items.push((item, shown)),
        }
        spooled.extend(spool);
    }
    deliver(&mut access, &shelf, &items, sending, &stop)
}

pub(crate) fn message(mut arguments: MessageArguments) -> Outcome {
    let stop = stop_flag()?;
    arguments.sending.choose_service()?;
    let text = match arguments.text {
        Some(text) => text.into_bytes(),
        None => typed()?,
    };
    if text.is_empty() || text.len() > MAX_MESSAGE {
        let text = format!(
            "a message has 1 to {MAX_MESSAGE} bytes, this one has {}; `whimbrel push` sends files",
            text.len()
        );
        return Err(Failure::new(Exit::Usage, text));
    }
    let mut access = reach(&arguments.sending.access, Vec::new())?;
    let mut shelf = Shelf::new(None);
    let item = PushItem {
        content: shelf.add_bytes(text.into(), ""),
        proposed: OfferUse::Note,
    };
    let items = [(item, "the message".to_owned())];
    deliver(&mut access, &shelf, &items, &arguments.sending, &stop)
}

impl PushArguments {
    /// What is for a group is sent by multicast.
    fn choose_service(&mut self) -> Result<(), Failure> {
        match self.to.is_group || self.transfer.is_multicast() {
            true => self.transfer.choose_multicast(),
            false => Ok(()),
        }
    }
}

/// Reads standard input into a file that goes with the process.
fn spool() -> Result<tempfile::NamedTempFile, Failure> {
    let mut file = tempfile::NamedTempFile::new()?;
    std::io::copy(&mut std::io::stdin().lock(), &mut file)?;
    file.flush()?;
    Ok(file)
}

fn typed() -> Result<Vec<u8>, Failure> {
    let input = std::io::stdin();
    if input.is_terminal() {
        say_plainly("message, until Ctrl-D:\n");
    }
    let mut text = Vec::new();
    let most = MAX_MESSAGE as u64 + 1;
    input.lock().take(most).read_to_end(&mut text)?;
    Ok(text)
}

fn deliver(
    access: &mut super::access::Access,
    shelf: &Shelf,
    items: &[(PushItem, String)],
    sending: &PushArguments,
    stop: &std::sync::atomic::AtomicBool,
) -> Outcome {
    if sending.wait && sending.transfer.is_sent_once() {
        let text = "--wait waits for the receiver's confirmation, and with --reliability dont-care there is none";
        return Err(Failure::new(Exit::Usage, text));
    }
    let options = PushOptions {
        destination: sending.to.name,
        transfer: sending.transfer.options()?,
        delegate: sending.delegate,
        until_delivered: sending.wait,
        timeout: sending.timeout.map(|span| span.0),
    };
    let mut report = PushReport::new(items, shelf, sending);
    let contents: Vec<PushItem> = items.iter().map(|(item, _)| *item).collect();
    let mut observe = |event: PushEvent| report.tell(event);
    let outcome = push(
        &mut access.attachment,
        shelf,
        &contents,
        &options,
        stop,
        &mut observe,
    );
    report.bar.finish_and_clear();
    match outcome {
        Ok(outcome) => report.end(&outcome),
        Err(PushError::Host(error)) => Err(no_host(error)),
        Err(error @ PushError::OldDaemon) => Err(Failure::new(Exit::NoDaemon, error)),
        Err(PushError::Interrupted) => Err(Failure::new(
            Exit::Interrupted,
            "interrupted; what the network has taken is delivered, the rest is not",
        )),
        Err(error @ PushError::TimedOut { .. }) => {
            let wait = report.told_wait.wait().map(ToString::to_string);
            let why = wait.or_else(|| report.lacking());
            let why = why.map_or(String::new(), |why| format!(": {why}"));
            Err(Failure::new(Exit::TimedOut, format!("{error}{why}")))
        }
    }
}

/// Members that are named where some lack a content.
const MAX_NAMED: usize = 4;

/// What the user, or a program, sees of a push.
struct PushReport<'a> {
    json: bool,
    is_for_group: bool,
    items: &'a [(PushItem, String)],
    lengths: Vec<u64>,
    taken: Vec<u64>,
    /// The members of the group, by content.
    members: Vec<Option<GroupStatus>>,
    bar: ProgressBar,
    told_wait: ToldWait,
}

impl PushReport<'_> {
    fn new<'a>(
        items: &'a [(PushItem, String)],
        shelf: &Shelf,
        sending: &PushArguments,
    ) -> PushReport<'a> {
        let json = sending.json;
        let length = |(item, _): &(PushItem, String)| {
            let content = shelf.publish(&item.content);
            content.map_or(0, |content| content.content_len)
        };
        let lengths: Vec<u64> = items.iter().map(length).collect();
        let bar = progress::bar(!json, 4);
        let style = ProgressStyle::with_template(
            "{spinner} {bytes} of {total_bytes} taken by the network; {msg}",
        );
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_length(lengths.iter().sum());
        PushReport {
            json,
            is_for_group: sending.transfer.is_multicast(),
            items,
            taken: vec![0; lengths.len()],
            members: vec![None; lengths.len()],
            lengths,
            bar,
            told_wait: ToldWait::default(),
        }
    }

    fn place(&self, content: &Guid) -> Option<usize> {
        let mut items = self.items.iter();
        items.position(|(item, _)| item.content == *content)
    }

    fn tell(&mut self, event: PushEvent) {
        match event {
            PushEvent::Progress(progress) => self.progress(&progress),
            PushEvent::Host(wait) => self.waits(wait.as_ref()),
            PushEvent::Members(content, group) => self.note_members(&content, group),
            PushEvent::Unreadable(content, why) => {
                if self.json {
                    let error = why.to_string();
                    json_line(&json!({ "event": "unreadable", "name": content, "error": error }));
                } else {
                    self.bar.suspend(|| say(&one_line(&why.to_string())));
                }
            }
            PushEvent::DaemonGone => self.bar.suspend(|| {
                note("the host daemon closed the connection; waiting for it");
            }),
        }
    }

    fn note_members(&mut self, content: &Guid, group: GroupStatus) {
        if self.json {
            json_line(&json!({ "event": "members", "name": content, "group": group }));
        }
        let (has, all) = (group.delivered, group.members);
        self.bar
            .set_message(format!("{has} of {all} members have it"));
        if let Some(at) = self.place(content) {
            self.members[at] = Some(group);
        }
    }

    /// Returns which members lack what was sent to a group, as far as it is known.
    fn lacking(&self) -> Option<String> {
        let groups = self.members.iter().flatten();
        let group = groups.max_by_key(|group| group.lacking.len())?;
        let lack = group
            .members
            .saturating_sub(group.delivered + group.refused);
        if group.members == 0 {
            return Some(String::from("no member of the group is known yet"));
        }
        let named = group.lacking.iter().take(MAX_NAMED).map(|member| {
            let shown = directory::shown(&member.name);
            let away = if member.stored { " (away)" } else { "" };
            format!("{shown}{away}")
        });
        let more = if lack > MAX_NAMED { ", ..." } else { "" };
        let named: Vec<String> = named.collect();
        let (all, named) = (group.members, named.join(", "));
        Some(format!("{lack} of {all} members lack it: {named}{more}"))
    }

    /// Says what has become of a content for a group that the network has.
    fn taken_for_group(&self, at: usize, is_stored: bool) -> String {
        let known = match &self.members[at] {
            None => String::new(),
            // Routers keep one copy, and it is not known who else will join.
            Some(group) if group.members == 0 => {
                let text = "; no member of the group is known yet: the first that joins gets them; with --wait all do that join meanwhile";
                return text.to_owned();
            }
            Some(group) => format!(
                "; {} of {} members have them",
                group.delivered, group.members
            ),
        };
        match is_stored {
            true => format!("{known}; routers store them for members that are away or slow"),
            false => known,
        }
    }

    fn waits(&mut self, wait: Option<&Wait>) {
        let json: Option<&dyn Fn(&Value)> = self.json.then_some(&|value| json_line(value));
        self.told_wait.tell(wait, json, shows_progress());
    }

    fn progress(&mut self, progress: &PushProgress) {
        if self.json {
            json_line(&json!({ "event": "sending", "progress": progress }));
        }
        if let Some(at) = self.place(&progress.content) {
            self.taken[at] = progress.taken;
        }
        self.bar.set_position(self.taken.iter().sum());
        match progress.stored {
            _ if self.is_for_group => {}
            0 => self.bar.set_message(String::new()),
            stored => {
                let text = format!("{stored} bytes wait in routers for the receiver");
                self.bar.set_message(text);
            }
        }
    }

    /// Says how it ended. A refusal is a failure.
    fn end(&self, outcome: &[PushProgress]) -> Outcome {
        let mut failure = None;
        for (at, progress) in outcome.iter().enumerate() {
            let what = &self.items[at].1;
            let length = self.lengths[at];
            if self.json {
                json_line(&json!({ "event": "done", "progress": progress }));
            }
            let refused = match progress.state {
                SendState::Delivered if self.is_for_group => {
                    self.say(&format!("{what}: {length} bytes, the members have them"));
                    continue;
                }
                SendState::DeliveredToSome => {
                    self.say(&format!(
                        "{what}: {length} bytes, some members have them, and all others have refused them"
                    ));
                    continue;
                }
                SendState::Taken | SendState::Kept if self.is_for_group => {
                    let members = self.taken_for_group(at, progress.stored > 0);
                    self.say(&format!(
                        "{what}: {length} bytes, the network has them{members}"
                    ));
                    continue;
                }
                SendState::Delivered => {
                    self.say(&format!("{what}: {length} bytes, the receiver has them"));
                    continue;
                }
                SendState::Taken | SendState::Kept if progress.stored > 0 => {
                    self.say(&format!(
                        "{what}: {length} bytes, the network has them: the receiver is away, and gets them when it comes"
                    ));
                    continue;
                }
                SendState::Taken => {
                    self.say(&format!("{what}: {length} bytes, the network has them"));
                    continue;
                }
                SendState::Kept => {
                    self.say(&format!(
                        "{what}: {length} bytes, the network has them, and the access router keeps a copy"
                    ));
                    continue;
                }
                SendState::Leaving => "it can no longer be read, and was not sent whole",
                SendState::Lost => {
                    "a router could not forward parts of it, and they are not sent again (--reliability dont-care)"
                }
                SendState::NotAccepted => {
                    "the receiver takes nothing from this sender, or nothing at all (whimbrel inbox --from)"
                }
                SendState::TooLong => {
                    "it is longer than the receiver takes (whimbrel inbox --max-size)"
                }
                SendState::InboxFull => {
                    "the receiver's inbox is full, or too many of this sender's contents wait there; send it later"
                }
                SendState::Unusable => {
                    "the receiver cannot use it: a file of this name is there and kept, or it cannot be written"
                }
                SendState::Replaced => {
                    "another program of this host sends the same bytes to the same receiver; that one says how it ends"
                }
            };
            let text = format!("{what} was refused: {refused}");
            let text = match progress.state {
                SendState::Leaving | SendState::Lost | SendState::Replaced => {
                    format!("{what}: {refused}")
                }
                _ => text,
            };
            if self.json {
                json_line(&json!({ "event": "failed", "name": progress.content, "error": text }));
            }
            let exit = match progress.state {
                SendState::Lost => Exit::PartsMissing,
                _ => Exit::Refused,
            };
            match failure {
                None => failure = Some((exit, text)),
                Some(_) => say(&text),
            }
        }
        match failure {
            Some((exit, text)) => Err(Failure::new(exit, text)),
            None => Ok(Exit::Done),
        }
    }

    fn say(&self, text: &str) {
        if !self.json {
            out(&format!("{text}\n"));
        }
    }
}
