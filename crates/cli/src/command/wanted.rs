//! What `get` and `receive` are told to fetch: a name, a ticket or a code.

use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::{Value, json};
use whimbrel_core::{Guid, ParseGuidError};
use whimbrel_node::config::Remote;
use whimbrel_node::ticket::{Ticket, TicketError};
use whimbrel_spoken::{Code, CodeError};

use super::code::{self, Told};
use crate::arguments::HostAccess;
use crate::exit::{Exit, Failure};
use crate::logging::note;

/// What is to be fetched.
#[derive(Debug)]
pub(super) enum Wanted {
    Name(Guid),
    Ticket(Ticket),
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
        let name = text.parse().map(Wanted::Name);
        name.map_err(|error: ParseGuidError| {
            wrong(format!(
                "'{text}': {error}; a ticket begins with whimbrel1, a code with a number"
            ))
        })
    }
}

/// What the user said beside it.
pub(super) struct Asking<'a> {
    pub(super) access: &'a HostAccess,
    /// The host to ask directly.
    pub(super) from: Option<&'a Remote>,
    pub(super) timeout: Option<Duration>,
    pub(super) stop: &'a AtomicBool,
    /// Prints a line, if lines are wanted.
    pub(super) json: Option<&'a dyn Fn(&Value)>,
}

/// The content, and whom to ask for it.
pub(super) struct Found {
    pub(super) content: Guid,
    pub(super) access: HostAccess,
    /// Hosts to ask directly.
    pub(super) direct: Vec<Remote>,
}

impl Wanted {
    /// Finds out which content is meant, and whom to ask.
    pub(super) fn find(self, asking: &Asking<'_>) -> Result<Found, Failure> {
        let mut found = Found {
            content: Guid::NONE,
            access: asking.access.clone(),
            direct: asking.from.cloned().into_iter().collect(),
        };
        match self {
            Wanted::Name(name) => found.content = name,
            Wanted::Ticket(ticket) => found.take(ticket, asking),
            Wanted::Code(code) => {
                let ticket = asking.ticket_of(code)?;
                found.content = ticket.content;
                // Where the two sides met, the content can be had: by a host daemon too.
            }
        }
        Ok(found)
    }
}

impl Found {
    /// A ticket's routers and hosts are asked, unless the user names others.
    fn take(&mut self, ticket: Ticket, asking: &Asking<'_>) {
        self.content = ticket.content;
        let says_where = !ticket.routers.is_empty() || !ticket.hosts.is_empty();
        if asking.from.is_none() && self.access.router.is_empty() && says_where {
            self.access.router = ticket.routers;
            self.access.socket = None;
            self.direct = ticket.hosts;
        }
    }
}

impl Asking<'_> {
    /// The ticket of who made this code.
    fn ticket_of(&self, code: Code) -> Result<Ticket, Failure> {
        let told = Told {
            code,
            access: self.access,
            from: self.from,
            timeout: self.timeout,
        };
        let ticket = code::take(&told, self.stop, self.json)?;
        match self.json {
            Some(json) => json(
                &json!({ "event": "ticket", "name": ticket.content, "ticket": ticket.to_string() }),
            ),
            None => note("the code is right"),
        }
        Ok(ticket)
    }
}
