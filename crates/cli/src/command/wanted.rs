//! What `get` and `receive` are told to fetch: a name or its first digits, a ticket or a code.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::{Value, json};
use whimbrel_client::place::host_daemon_socket;
use whimbrel_client::{Answer, Question, connect_socket};
use whimbrel_content::ContentKey;
use whimbrel_core::{Guid, GuidPrefix};
use whimbrel_node::config::NamedRemote;
use whimbrel_node::directory::ResolveError;
use whimbrel_node::fetch::unfinished_at;
use whimbrel_node::output::Destination;
use whimbrel_node::pointers::FoundPointer;
use whimbrel_node::ticket::{Ticket, TicketError};
use whimbrel_spoken::{Code, CodeError};

use super::access::reach;
use super::code::{self, Told};
use super::directory;
use super::pointers::{NameServers, PointerName};
use crate::arguments::HostAccess;
use crate::exit::{Exit, Failure};
use crate::logging::note;

/// How long a host daemon has for its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long name servers have for their answer.
const NAME_PATIENCE: Duration = Duration::from_secs(10);

/// What is to be fetched.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    Name(Guid),
    /// The only name that is known here and begins so.
    Prefix(GuidPrefix),
    Ticket(Ticket),
    /// What its owner calls so now.
    Pointer(PointerName),
    /// Its ticket is asked of who made it.
    Code(Code),
}

impl FromStr for Wanted {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Wanted, Failure> {
        let wrong = |what: String| Failure::new(Exit::Usage, what);
        if Ticket::is_meant_by(text) {
            let ticket = text.parse().map(Wanted::Ticket);
            return ticket.map_err(|error: TicketError| wrong(error.to_string()));
        }
        if Code::is_meant_by(text) {
            let code = text.parse().map(Wanted::Code);
            return code.map_err(|error: CodeError| wrong(error.to_string()));
        }
        if let Some(pointer) = PointerName::read(text) {
            return pointer.map(Wanted::Pointer);
        }
        if let Some(prefix) = GuidPrefix::new(text) {
            return Ok(Wanted::Prefix(prefix));
        }
        directory::name(text).map(Wanted::Name).map_err(|error| match error {
            ResolveError::Neither { .. } if text.chars().all(|it| it.is_ascii_hexdigit()) => wrong(format!(
                "'{text}' has {} digits; a name has 64, of which the first {} suffice where it is known",
                text.len(),
                GuidPrefix::MIN
            )),
            ResolveError::Neither { alias, .. } => wrong(format!(
                "'{}' is not an alias ({alias}), and neither a name (64 hexadecimal digits), a ticket (begins with \
                 whimbrel1), a code (begins with a number) nor a pointer (OWNER/ALIAS)",
                text.escape_debug()
            )),
            other => wrong(other.to_string()),
        })
    }
}

/// What the user said beside it.
pub(super) struct Asking<'a> {
    pub(super) access: &'a HostAccess,
    /// The host to ask directly.
    pub(super) from: Option<&'a NamedRemote>,
    pub(super) timeout: Option<Duration>,
    pub(super) output: &'a Destination,
    pub(super) name_servers: &'a NameServers,
    pub(super) stop: &'a AtomicBool,
    /// Prints a line, if lines are wanted.
    pub(super) json: Option<&'a dyn Fn(&Value)>,
}

/// The content, and whom to ask for it.
pub(super) struct Found {
    pub(super) content: Guid,
    /// The key of its bytes, if they are encrypted.
    pub(super) key: Option<ContentKey>,
    /// What led to it.
    pub(super) pointer: Option<FoundPointer>,
    pub(super) access: HostAccess,
    /// Hosts to ask directly.
    pub(super) direct: Vec<NamedRemote>,
    /// The addresses of a ticket take the place of a host daemon that runs here.
    pub(super) instead_of_daemon: bool,
    /// Routers that the sender has named are asked.
    pub(super) by_routers_of_ticket: bool,
}

impl Wanted {
    /// Finds out which content is meant, and whom to ask.
    pub(super) fn find(self, asking: &Asking<'_>) -> Result<Found, Failure> {
        let mut found = Found {
            content: Guid::NONE,
            key: None,
            pointer: None,
            access: asking.access.clone(),
            direct: asking.from.cloned().into_iter().collect(),
            instead_of_daemon: false,
            by_routers_of_ticket: false,
        };
        match self {
            Wanted::Name(name) => found.content = name,
            Wanted::Prefix(prefix) => found.content = asking.name_beginning(&prefix)?,
            Wanted::Pointer(name) => {
                let timeout = asking.timeout.unwrap_or(NAME_PATIENCE);
                let pointer = name.find(asking.name_servers, timeout, asking.stop, asking.json)?;
                found.content = pointer.pointer.content;
                found.pointer = Some(pointer);
            }
            Wanted::Ticket(ticket) => found.take(ticket, asking),
            Wanted::Code(code) => {
                let ticket = asking.ticket_of(code)?;
                (found.content, found.key) = (ticket.content, ticket.key);
                // Where the two sides met, the content can be had: by a host daemon too.
            }
        }
        Ok(found)
    }
}

impl Found {
    /// A ticket's routers and hosts are asked, unless the user names others, or a daemon.
    fn take(&mut self, ticket: Ticket, asking: &Asking<'_>) {
        (self.content, self.key) = (ticket.content, ticket.key);
        let says_where = !ticket.routers.is_empty() || !ticket.hosts.is_empty();
        let says_whom =
            asking.from.is_some() || self.access.socket.is_some() || !self.access.router.is_empty();
        if says_where && !says_whom {
            self.by_routers_of_ticket = !ticket.routers.is_empty();
            self.access.router = ticket.routers;
            self.instead_of_daemon = connect_socket(&host_daemon_socket()).is_ok();
            self.direct = ticket.hosts;
        }
    }
}

impl Asking<'_> {
    /// Returns the only name that begins so: of an unfinished download at the output, or known to
    /// the host daemon.
    fn name_beginning(&self, prefix: &GuidPrefix) -> Result<Guid, Failure> {
        let mut known: BTreeSet<Guid> = unfinished_at(self.output)
            .into_iter()
            .filter(|name| prefix.is_of(name))
            .collect();
        let mut asked = "unfinished downloads at the output".to_owned();
        if self.from.is_none() && self.access.router.is_empty() {
            known.extend(self.names_at_daemon(prefix)?);
            asked += " and the host daemon";
        }
        let mut names = known.iter();
        match (names.next(), names.len()) {
            (Some(name), 0) => {
                if self.json.is_none() {
                    note(&format!("{prefix} is {name}"));
                }
                Ok(*name)
            }
            (None, _) => Err(Failure::new(
                Exit::NoSuchName,
                format!(
                    "no name that is known here begins with {prefix} (asked {asked}); type the whole name"
                ),
            )),
            (Some(_), _) => {
                let names: Vec<String> = known.iter().map(Guid::to_string).collect();
                let names = names.join("\n  ");
                let text =
                    format!("several names begin with {prefix}; type more of it:\n  {names}");
                Err(Failure::new(Exit::Usage, text))
            }
        }
    }

    fn names_at_daemon(&self, prefix: &GuidPrefix) -> Result<Vec<Guid>, Failure> {
        let mut access = reach(self.access, Vec::new())?;
        let question = Question::Names(prefix.clone());
        match access.session()?.ask(question, PATIENCE)? {
            Some(Answer::Names(names)) => Ok(names),
            _ => Err(Failure::new(
                Exit::NoDaemon,
                "the host daemon does not say which names begin so, as one of an older release would not; type the whole name",
            )),
        }
    }

    /// Returns the ticket of who made this code.
    fn ticket_of(&self, code: Code) -> Result<Ticket, Failure> {
        let told = Told {
            code,
            access: self.access,
            from: self.from,
            timeout: self.timeout,
        };
        let is_anywhere = self.from.is_none() && self.access.router.is_empty();
        let ticket = code::take(&told, self.stop, self.json).map_err(|failure| {
            if failure.exit != Exit::NoDaemon || !is_anywhere {
                return failure;
            }
            let text = format!("{failure}, or the sender: `--from HOST:PORT`");
            Failure::new(failure.exit, text)
        })?;
        match self.json {
            Some(json) => json(
                &json!({ "event": "ticket", "name": ticket.content, "ticket": ticket.to_string() }),
            ),
            None => note("the code is right"),
        }
        Ok(ticket)
    }
}
