//! `inbox`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use whimbrel_client::Attachment;
use whimbrel_core::Guid;
use whimbrel_core::units::ByteSize;
use whimbrel_keychain::small_file;
use whimbrel_mobilityfirst::local::ContentOffer;
use whimbrel_mobilityfirst::wire::ControlCode;
use whimbrel_node::inbox::{Existing, InboxEvent, InboxNames, InboxRule, take_offers};
use whimbrel_node::keys;

use super::access::{no_host, reach};
use super::directory;
use super::group;
use super::waiting::ToldWait;
use super::{Outcome, stop_flag, tell, tell_json};
use crate::arguments::HostAccess;
use crate::exit::{self, Exit, Failure};
use crate::logging::{note, one_line, path_line, printable};

/// Receives what others push.
#[derive(Args, Debug)]
#[command(after_help = format!("Example:\n  whimbrel inbox -o incoming --from 6b1e...c2 --key inbox.pem --router 192.0.2.1:4711\n\nIt prints the name for \
    `whimbrel push --to NAME`. Whatever is pushed while it is not running waits in the routers.\n\n{}", exit::HELP))]
pub(crate) struct Inbox {
    /// Destination folder
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// A permitted sender: a name, or "anyone"; can be repeated
    #[arg(long, value_name = "NAME|anyone", required_unless_present = "known")]
    from: Vec<String>,
    /// A file with the names of permitted senders, one on each line; the rest of a line, and lines that begin
    /// with #, are remarks
    #[arg(long, value_name = "FILE")]
    known: Option<PathBuf>,
    /// Refuse files and folders above this size
    #[arg(long, value_name = "SIZE")]
    max_size: Option<ByteSize>,
    /// The most that the folder may hold; a content that would exceed it is refused
    #[arg(long, value_name = "SIZE")]
    total: Option<ByteSize>,
    /// What to do with a file whose name is taken
    #[arg(long, value_name = "WHAT", default_value = "number")]
    existing: ExistingFile,
    /// Exit after this many files and messages; by default run until Ctrl-C
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Also accept what is pushed to the name of this key with `--service anycast`. Several inboxes may have it:
    /// the nearest gets what is sent; can be repeated
    #[arg(long, value_name = "KEY")]
    service: Vec<PathBuf>,
    /// Join a group by this admission, or the file that holds it (`whimbrel group admit`), and accept what
    /// is pushed to the group; can be repeated
    #[arg(long, value_name = "ADMISSION")]
    group: Vec<String>,
    #[command(flatten)]
    access: HostAccess,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

/// `--existing`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ExistingFile {
    /// Keep the existing file, and refuse the new one
    Keep,
    /// Give the new file a numbered name
    Number,
    /// Replace the existing file once the new one is complete
    Replace,
}

impl From<ExistingFile> for Existing {
    fn from(existing: ExistingFile) -> Existing {
        match existing {
            ExistingFile::Keep => Existing::Keep,
            ExistingFile::Number => Existing::Number,
            ExistingFile::Replace => Existing::Replace,
        }
    }
}

pub(crate) fn run(arguments: Inbox) -> Outcome {
    let wrong = |text: &str| Err(Failure::new(Exit::Usage, text));
    if !arguments.access.router.is_empty() && arguments.access.key.is_none() {
        return wrong(
            "an inbox needs a name that stays, so that others can push to it: name a file for its key with --key (it is made \
             if it does not exist), or run it at a host daemon",
        );
    }
    let folder = &arguments.output;
    if let Err(error) = std::fs::create_dir(folder)
        && !folder.is_dir()
    {
        let text = format!("cannot make the folder {}: {error}", path_line(folder));
        return wrong(&text);
    }
    let rule = InboxRule {
        senders: senders(&arguments.from, arguments.known.as_deref())?,
        max_size: arguments.max_size.map(|size| size.0),
        total: arguments.total.map(|size| size.0),
        existing: arguments.existing.into(),
    };
    let services = arguments.service.iter().map(|path| keys::load(path));
    let services = services.collect::<Result<Vec<_>, _>>()?;
    let groups = arguments.group.iter().map(|text| group::admission(text));
    let groups = groups.collect::<Result<Vec<_>, _>>()?;
    let names = InboxNames {
        services: &services,
        groups: &groups,
    };
    let stop = stop_flag()?;
    let mut access = reach(&arguments.access, Vec::new())?;
    let mut attach = || match (&access.embedded, &mut access.attachment) {
        (Some(host), _) => Attachment::Once(Some(host.connect())),
        (None, Attachment::Socket(path)) => Attachment::Socket(path.clone()),
        (None, Attachment::Once(client)) => Attachment::Once(client.take()),
    };
    let mut teller = InboxTeller {
        json: arguments.json,
        folder: &arguments.output,
        rule: &rule,
        told_wait: ToldWait::default(),
    };
    let mut observe = |event: InboxEvent| teller.tell(event);
    let (folder, count) = (&arguments.output, arguments.count);
    take_offers(
        &mut attach,
        folder,
        &rule,
        names,
        count,
        &stop,
        &mut observe,
    )
    .map_err(|error| match error {
        whimbrel_node::inbox::InboxError::Host(error) => no_host(error),
        other => other.into(),
    })?;
    Ok(Exit::Done)
}

/// Returns the permitted senders; `None` for anyone.
pub(super) fn senders(
    from: &[String],
    known: Option<&Path>,
) -> Result<Option<BTreeSet<Guid>>, Failure> {
    let mut senders = BTreeSet::new();
    let mut is_anyone = false;
    for text in from {
        match text.as_str() {
            "anyone" => is_anyone = true,
            name => {
                senders.insert(name_in(name, "--from")?);
            }
        }
    }
    if let Some(path) = known {
        let text = small_file::read_text(path).map_err(|error| {
            Failure::new(
                Exit::Usage,
                format!("cannot read {}: {error}", path_line(path)),
            )
        })?;
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        for name in lines.filter_map(|line| line.split_whitespace().next()) {
            senders.insert(name_in(name, &path_line(path))?);
        }
    }
    if is_anyone && !senders.is_empty() {
        return Err(Failure::new(
            Exit::Usage,
            "--from anyone allows everybody: leave out the other names, or leave out anyone",
        ));
    }
    Ok((!is_anyone).then_some(senders))
}

fn name_in(text: &str, place: &str) -> Result<Guid, Failure> {
    directory::name(text).map_err(|error| {
        let text = format!("{place}: {}", one_line(&error.to_string()));
        Failure::new(Exit::Usage, text)
    })
}

/// Tells what comes.
struct InboxTeller<'a> {
    json: bool,
    folder: &'a Path,
    rule: &'a InboxRule,
    told_wait: ToldWait,
}

impl InboxTeller<'_> {
    fn tell(&mut self, event: InboxEvent) {
        match event {
            InboxEvent::Ready(name) => self.ready(name),
            InboxEvent::Host(wait) => {
                let json: Option<&dyn Fn(&Value)> = self.json.then_some(&|value| tell_json(value));
                self.told_wait.tell(wait.as_ref(), json, false);
            }
            InboxEvent::Membership(group, code) => self.membership(group, code),
            InboxEvent::Accepted(offer) => self.line("accepted", &offer, json!({}), None),
            InboxEvent::Progress(offer, progress) => {
                if self.json {
                    self.line("progress", &offer, json!({ "bytes": progress.bytes }), None);
                }
            }
            InboxEvent::Refused(offer, refused) => {
                let text = format!("refused {}: {}", named(&offer), refused.why);
                self.line("refused", &offer, json!({ "why": refused.why }), Some(text));
            }
            InboxEvent::Received(offer, fetched) => {
                let path = fetched.path.as_deref().map(path_line).unwrap_or_default();
                let (sender, length) = (offer.id.sender, fetched.length);
                if !self.json {
                    tell(&format!(
                        "{path}  {length} bytes from {}\n",
                        directory::shown(&sender)
                    ));
                }
                for remark in &fetched.remarks {
                    note(remark);
                }
                for refused in &fetched.refused {
                    note(&format!("{}: {}", refused.path, refused.why));
                }
                self.line("received", &offer, json!({ "fetched": fetched }), None);
            }
            InboxEvent::Note(offer, text) => {
                if !self.json {
                    tell(&format!(
                        "{}: {}\n",
                        directory::shown(&offer.id.sender),
                        printable(&text)
                    ));
                }
                self.line("message", &offer, json!({ "text": text }), None);
            }
            InboxEvent::Again(offer) => {
                let text = format!("{} was sent again; it is here already", named(&offer));
                self.line("again", &offer, json!({}), Some(text));
            }
            InboxEvent::Failed(offer, error) => {
                let why = error.to_string();
                let text = format!("{}: {why}; it is tried again", named(&offer));
                self.line("failed", &offer, json!({ "why": why }), Some(text));
            }
            InboxEvent::DaemonGone => {
                note("the host daemon closed the connection; waiting for it");
            }
        }
    }

    fn ready(&self, name: Guid) {
        let senders = match &self.rule.senders {
            None => "anyone".to_owned(),
            Some(senders) if senders.len() == 1 => "1 sender".to_owned(),
            Some(senders) => format!("{} senders", senders.len()),
        };
        if self.json {
            return tell_json(&json!({ "event": "ready", "name": name }));
        }
        let folder = path_line(self.folder);
        note(&format!(
            "taking into {folder} what {senders} may push; elsewhere:"
        ));
        tell(&format!("whimbrel push --to {name} FILE\n"));
    }

    fn membership(&self, group: Guid, code: ControlCode) {
        let why = group::refusal(code);
        if self.json {
            let line = json!({ "event": "membership", "group": group, "joined": why.is_none(), "why": why });
            return tell_json(&line);
        }
        let group = directory::shown(&group);
        note(&match why {
            None => format!("joined {group}"),
            Some(why) => format!("cannot join {group}: {why}"),
        });
    }

    /// Prints an event about an offer: a line of JSON, or the text if there is one.
    fn line(&self, event: &str, offer: &ContentOffer, mut more: Value, text: Option<String>) {
        if !self.json {
            if let Some(text) = text {
                note(&text);
            }
            return;
        }
        let content = &offer.content;
        more["event"] = event.into();
        more["from"] = offer.id.sender.to_string().into();
        more["name"] = content.content.to_string().into();
        more["file_name"] = content.file_name.clone().into();
        more["length"] = content.content_len.into();
        tell_json(&more);
    }
}

/// Returns an offered content in words.
fn named(offer: &ContentOffer) -> String {
    let name = match offer.content.file_name.as_str() {
        "" => offer.content.content.to_string(),
        name => format!("{name:?}"),
    };
    format!("{name} from {}", directory::shown(&offer.id.sender))
}
