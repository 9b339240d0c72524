//! Serving a shelf through a host: publishing, reading chunks, and returning when the host
//! restarts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::TransferOptions;
use whimbrel_mobilityfirst::wire::ControlCode;

use crate::shelf::{ReadError, Shelf};
use crate::wait::{Subject, Wait, Watch};
use whimbrel_client::{AttachedSession, Attachment, LocalError, ProgramError, SessionStep};

/// Interval at which the stop flag is checked.
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

/// A connection to the host that serves.
#[derive(Debug)]
pub struct ShelfServer<'a>(AttachedSession<'a>);

impl<'a> ShelfServer<'a> {
    /// Connects to a host. This must succeed; later connections are tried repeatedly.
    pub fn connect(attachment: &'a mut Attachment) -> Result<ShelfServer<'a>, LocalError> {
        let mut host = AttachedSession::new(attachment);
        host.connect()?;
        Ok(ShelfServer(host))
    }

    /// Publishes all that is on the shelf, with these options. A host in this process answers others from then on.
    pub fn publish(&mut self, shelf: &Shelf, options: TransferOptions) -> Result<(), LocalError> {
        let session = self.0.session();
        for publish in shelf.published() {
            session.publish(publish, options, shelf.is_delegated());
        }
        match self.0.flush() {
            // A daemon that has gone is called again.
            Err(LocalError::Closed) => Ok(()),
            flushed => flushed,
        }
    }

    /// Serves until `stop` is set.
    pub fn run(
        self,
        shelf: &mut Shelf,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(ServeEvent),
    ) -> Result<(), LocalError> {
        let ShelfServer(mut host) = self;
        let mut watch = Watch::new(Subject::Host);
        while !stop.load(Ordering::Relaxed) {
            host.ask_aside(watch.question());
            match host.step(LOOK)? {
                SessionStep::Idle => {}
                SessionStep::Handled => answer(&mut host, shelf, observe),
                SessionStep::Aside(event) => {
                    if watch.note(&event, &|_| false) {
                        observe(ServeEvent::Host {
                            wait: watch.wait().cloned(),
                            connected: watch.inbound(),
                        });
                    }
                }
                SessionStep::HostGone => observe(ServeEvent::DaemonGone),
                SessionStep::HostBack => {
                    watch = Watch::new(Subject::Host);
                    observe(ServeEvent::DaemonBack);
                }
            }
        }
        host.session().withdraw_all();
        host.flush()
    }
}

/// Reads what the host wants, and tells what it has said.
fn answer(host: &mut AttachedSession<'_>, shelf: &mut Shelf, observe: &mut dyn FnMut(ServeEvent)) {
    let session = host.session();
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
