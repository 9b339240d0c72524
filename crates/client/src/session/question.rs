//! Questions with one answer.

use whimbrel_core::{Guid, GuidPrefix};
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest};

use crate::error::ProgramError;

/// A question to the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Question {
    /// The host's counters and links.
    Status,
    /// The state of the host's links after a change, as JSON; the empty text changes nothing.
    Interfaces(String),
    /// Whom the node takes as inbound peers after a change, as JSON; the empty text changes nothing.
    Callers(String),
    /// The members of a group.
    Members(Guid),
    /// An echo request to a name, with extra bytes.
    Ping {
        /// The destination.
        destination: Guid,
        /// Extra bytes, at most 32 KiB.
        padding: u16,
    },
    /// The contents of the host's programs whose names begin so.
    Names(GuidPrefix),
}

/// The host's answer.
#[derive(Debug)]
pub enum Answer {
    /// A JSON object, to all questions but the next two.
    Status(String),
    /// To [`Question::Ping`]: the name of the node that has answered.
    Pong(Guid),
    /// To [`Question::Names`].
    Names(Vec<Guid>),
    /// None.
    Failed(ProgramError),
}

impl Question {
    pub(super) fn request(&self, number: u32) -> LocalRequest {
        let request = number;
        match self {
            Question::Status => LocalRequest::Status { request },
            Question::Interfaces(change) => LocalRequest::Interfaces {
                request,
                change: change.clone(),
            },
            Question::Callers(change) => LocalRequest::Callers {
                request,
                change: change.clone(),
            },
            Question::Members(group) => LocalRequest::Members {
                request,
                group: *group,
            },
            Question::Ping {
                destination,
                padding,
            } => LocalRequest::Ping {
                request,
                destination: *destination,
                sequence: 0,
                padding: *padding,
            },
            Question::Names(prefix) => LocalRequest::Names {
                request,
                prefix: prefix.clone(),
            },
        }
    }

    /// Returns the answer that an event is; `None` if it answers another kind of question.
    pub(super) fn answer(&self, event: LocalEvent) -> Option<Answer> {
        match (self, event) {
            (Question::Ping { .. }, LocalEvent::Pong { from, .. }) => Some(Answer::Pong(from)),
            (Question::Names(_), LocalEvent::Names { names, .. }) => Some(Answer::Names(names)),
            (Question::Ping { .. } | Question::Names(_), _) => None,
            (_, LocalEvent::Status { json, .. }) => Some(Answer::Status(json)),
            _ => None,
        }
    }
}
