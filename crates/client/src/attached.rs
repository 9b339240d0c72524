//! A session on a blocking connection, for a program with a loop of its own: the command line, whose host may be in
//! the same process.

use std::time::{Duration, Instant};

use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest};

use crate::connection::{Attachment, LocalClient};
use crate::error::LocalError;
use crate::session::{Answer, MAX_NUMBER, ProgramSession, Question};

/// Interval at which a host that has gone is called.
const CALL_INTERVAL: Duration = Duration::from_millis(200);

/// See the module's text.
#[derive(Debug)]
pub struct AttachedSession<'a> {
    attachment: &'a mut Attachment,
    client: Option<LocalClient>,
    session: ProgramSession,
    aside: Vec<LocalRequest>,
}

/// What has happened in a step.
#[derive(Debug)]
pub enum SessionStep {
    /// Nothing.
    Idle,
    /// The session has handled an event.
    Handled,
    /// The host has answered a question beside the session.
    Aside(LocalEvent),
    /// The host has gone; further steps call it.
    HostGone,
    /// The host is back, and is asked again for all that is not over.
    HostBack,
}

impl<'a> AttachedSession<'a> {
    /// Returns a session that is not connected yet.
    pub fn new(attachment: &'a mut Attachment) -> AttachedSession<'a> {
        AttachedSession {
            attachment,
            client: None,
            session: ProgramSession::default(),
            aside: Vec::new(),
        }
    }

    /// Returns a session that is connected.
    pub fn attach(attachment: &'a mut Attachment) -> Result<AttachedSession<'a>, LocalError> {
        let mut host = AttachedSession::new(attachment);
        host.connect()?;
        Ok(host)
    }

    /// Connects for the first time.
    pub fn connect(&mut self) -> Result<(), LocalError> {
        self.client = Some(self.attachment.connect()?);
        self.session.handle_connected();
        Ok(())
    }

    /// Returns what the program has asked for.
    pub fn session(&mut self) -> &mut ProgramSession {
        &mut self.session
    }

    /// Asks a question beside the session, with a number that the session does not use. It is lost with the host.
    pub fn ask_aside(&mut self, question: Option<LocalRequest>) {
        self.aside.extend(question);
    }

    /// Asks a question, and handles what the host says until the answer is there: for at most `patience`. Returns `None`
    /// after that.
    pub fn ask(
        &mut self,
        question: Question,
        patience: Duration,
    ) -> Result<Option<Answer>, LocalError> {
        let number = self.session.ask(question);
        let until = Instant::now() + patience;
        loop {
            if let Some(answer) = self.session.take_answer(number) {
                return Ok(Some(answer));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.session.cancel(number);
                return Ok(None);
            }
            self.step(left)?;
        }
    }

    /// Passes on what is asked for, without waiting for an event.
    pub fn flush(&mut self) -> Result<(), LocalError> {
        let Some(client) = &mut self.client else {
            return Ok(());
        };
        let mut due: Vec<LocalRequest> =
            std::iter::from_fn(|| self.session.poll_request()).collect();
        due.append(&mut self.aside);
        match due.is_empty() {
            true => Ok(()),
            false => client.send_all(due),
        }
    }

    /// Passes on what is asked for, and handles the next event if one comes within `patience`. Fails if the host
    /// has gone and cannot be called again.
    pub fn step(&mut self, patience: Duration) -> Result<SessionStep, LocalError> {
        if self.client.is_none() {
            std::thread::sleep(patience.min(CALL_INTERVAL));
            return Ok(match self.connect() {
                Ok(()) => SessionStep::HostBack,
                Err(_) => SessionStep::Idle,
            });
        }
        let flushed = match self.flush() {
            // What the host said before it left is still to be read, and its end is noticed there.
            Err(LocalError::Closed) => Ok(()),
            flushed => flushed,
        };
        let received = flushed.and_then(|()| match &mut self.client {
            Some(client) => client.receive(patience),
            None => Ok(None),
        });
        match received {
            Ok(None) => Ok(SessionStep::Idle),
            Ok(Some(LocalEvent::Status { request, json })) if request > MAX_NUMBER => {
                Ok(SessionStep::Aside(LocalEvent::Status { request, json }))
            }
            Ok(Some(event)) => {
                self.session.handle_event(event);
                Ok(SessionStep::Handled)
            }
            Err(LocalError::Closed | LocalError::Io(_)) if self.attachment.can_return() => {
                self.client = None;
                self.aside.clear();
                self.session.handle_disconnected();
                Ok(SessionStep::HostGone)
            }
            Err(error) => Err(error),
        }
    }
}
