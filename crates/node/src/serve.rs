//! Serving a shelf through a host: publishing, reading chunks, and returning when the host
//! restarts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::TransferOptions;
use whimbrel_mobilityfirst::wire::ControlCode;

use crate::shelf::{ReadError, Shelf};
use crate::wait::{Subject, Wait, Watch};
use whimbrel_client::session::ProgramSession;
use whimbrel_client::{Attachment, LocalClient, LocalError, ProgramError};

/// Interval at which the stop flag is checked, and a daemon that has gone is called.
const LOOK: Duration = Duration::from_millis(200);

/// An event of serving.
#[derive(Debug)]
pub enum ServeEvent {
    /// The name service knows that this content is available here (or does not know it yet; then
    /// the announcement is repeated).
    Announced {
        /// The content.
        content: Guid,
        /// The answer of the name service, or of a router on the way to it.
        code: ControlCode,
    },
    /// A chunk was read for a receiver.
    Sent {
        /// The content.
        content: Guid,
        /// The chunk's offset in the content.
        offset: u64,
        /// The chunk's bytes.
        bytes: usize,
    },
    /// A host's state, each second: why nobody can find it through a router, if so, and how many
    /// hosts are connected to its listener.
    Host {
        /// The reason why it waits.
        wait: Option<Wait>,
        /// Hosts that are connected to the listener.
        connected: usize,
    },
    /// A content is no longer served.
    Unreadable {
        /// The content.
        content: Guid,
        /// The reason.
        why: ReadError,
    },
    /// The daemon has gone; it is called until it is back.
    DaemonGone,
    /// The daemon is back, and everything is published again.
    DaemonBack,
}

/// Serves with these options until `stop` is set. The first connection must succeed; later ones are tried repeatedly.
pub fn serve(
    attachment: &mut Attachment,
    shelf: &mut Shelf,
    options: TransferOptions,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(ServeEvent),
) -> Result<(), LocalError> {
    let mut client = attachment.connect()?;
    let mut session = ProgramSession::default();
    for publish in shelf.published() {
        session.publish(publish, options, shelf.is_delegated());
    }
    loop {
        match serve_once(&mut client, &mut session, shelf, stop, observe) {
            Ok(()) => return Ok(()),
            Err(LocalError::Closed | LocalError::Io(_)) if attachment.can_return() => {}
            Err(error) => return Err(error),
        }
        session.handle_disconnected();
        observe(ServeEvent::DaemonGone);
        client = loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            std::thread::sleep(LOOK);
            if let Ok(client) = attachment.connect() {
                break client;
            }
        };
        observe(ServeEvent::DaemonBack);
    }
}

fn serve_once(
    client: &mut LocalClient,
    session: &mut ProgramSession,
    shelf: &mut Shelf,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(ServeEvent),
) -> Result<(), LocalError> {
    session.handle_connected();
    let mut watch = Watch::new(Subject::Host);
    while !stop.load(Ordering::Relaxed) {
        send_requests(client, session)?;
        if let Some(question) = watch.question() {
            client.send(&question)?;
        }
        match client.receive(LOOK)? {
            Some(event) if watch.note(&event, &|_| false) => observe(ServeEvent::Host {
                wait: watch.wait().cloned(),
                connected: watch.inbound(),
            }),
            Some(event) => session.handle_event(event),
            None => {}
        }
        while let Some((content, code)) = session.poll_announced() {
            observe(ServeEvent::Announced { content, code });
        }
        while let Some(wanted) = session.poll_read() {
            let (content, chunk_size) = (wanted.content, wanted.chunk_size);
            let chunk = match shelf.read(content, wanted.index, chunk_size) {
                Ok(chunk) => {
                    observe(ServeEvent::Sent {
                        content,
                        offset: u64::from(wanted.index) * chunk_size.bytes(),
                        bytes: chunk.data.len(),
                    });
                    Some(chunk)
                }
                Err(why) => {
                    shelf.remove(&content);
                    session.note_unreadable(content, || ProgramError::Over);
                    observe(ServeEvent::Unreadable { content, why });
                    None
                }
            };
            session.answer_read(wanted.read, chunk);
        }
    }
    session.withdraw_all();
    send_requests(client, session)
}

fn send_requests(client: &mut LocalClient, session: &mut ProgramSession) -> Result<(), LocalError> {
    while let Some(request) = session.poll_request() {
        client.send(&request)?;
    }
    Ok(())
}
