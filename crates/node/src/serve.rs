//! Serving a shelf through a host: publishing, reading chunks, and returning when the host
//! restarts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest};
use whimbrel_mobilityfirst::wire::ControlCode;

use crate::shelf::{ReadError, Shelf};
use crate::wait::{Subject, Wait, Watch};
use whimbrel_client::{Attachment, LocalClient, LocalError, requested_size};

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

/// Serves until `stop` is set. The first connection must succeed; later ones are tried repeatedly.
pub fn serve(
    attachment: &mut Attachment,
    shelf: &mut Shelf,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(ServeEvent),
) -> Result<(), LocalError> {
    let mut client = attachment.connect()?;
    loop {
        match serve_once(&mut client, shelf, stop, observe) {
            Ok(()) => return Ok(()),
            Err(LocalError::Closed | LocalError::Io(_)) if attachment.can_return() => {}
            Err(error) => return Err(error),
        }
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
    shelf: &mut Shelf,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(ServeEvent),
) -> Result<(), LocalError> {
    for offer in shelf.offers() {
        client.send(&offer)?;
    }
    let mut watch = Watch::new(Subject::Host);
    while !stop.load(Ordering::Relaxed) {
        if let Some(question) = watch.question() {
            client.send(&question)?;
        }
        match client.receive(LOOK)? {
            Some(event) if watch.note(&event, &|_| false) => observe(ServeEvent::Host {
                wait: watch.wait().cloned(),
                connected: watch.inbound(),
            }),
            Some(LocalEvent::Published { content, code }) => {
                observe(ServeEvent::Announced { content, code });
            }
            Some(LocalEvent::Read {
                read,
                content,
                index,
                chunk_log2,
            }) => {
                let chunk_size = requested_size(chunk_log2)?;
                let chunk = match shelf.read(content, index, chunk_size) {
                    Ok(chunk) => {
                        observe(ServeEvent::Sent {
                            content,
                            offset: u64::from(index) * chunk_size.bytes(),
                            bytes: chunk.data.len(),
                        });
                        Some(chunk)
                    }
                    Err(why) => {
                        shelf.remove(&content);
                        observe(ServeEvent::Unreadable { content, why });
                        None
                    }
                };
                client.send(&LocalRequest::ReadDone { read, chunk })?;
            }
            Some(_) | None => {}
        }
    }
    for offer in shelf.offers() {
        if let LocalRequest::Publish(publish) = offer {
            client.send(&LocalRequest::Withdraw {
                content: publish.content,
            })?;
        }
    }
    Ok(())
}
