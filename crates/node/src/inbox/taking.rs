//! One content on its way to the folder: a thread that fetches it.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use whimbrel_mobilityfirst::local::{ContentOffer, OfferId, TransferOptions};
use whimbrel_mobilityfirst::wire::OfferUse;

use super::rule::{Existing, place_of};
use crate::fetch::{FetchError, FetchOptions, Fetched, Progress, Unpacking, fetch};
use crate::output::{Destination, Stream};
use whimbrel_client::{Attachment, LocalError};

/// What a thread tells its inbox.
pub(super) enum TakingEvent {
    /// Something has come.
    Progress(OfferId, Progress),
    /// The end, with the text of a message.
    Ended(OfferId, Result<(Fetched, Option<String>), FetchError>),
}

/// How contents are received.
#[derive(Clone, Copy)]
pub(super) struct TakingManner {
    /// What becomes of a file whose name is taken.
    pub(super) existing: Existing,
    /// The most that a folder may take on disk, in bytes.
    pub(super) limit: Option<u64>,
}

/// A content under way.
pub(super) struct TakenContent {
    offer: ContentOffer,
    /// The same content under another number, if its sender has started again.
    next: Option<ContentOffer>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    /// The bytes that are here, and since when.
    here: (u64, Instant),
}

/// The bytes of a message.
#[derive(Clone, Default)]
struct NoteText(Arc<Mutex<Vec<u8>>>);

impl Write for NoteText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TakenContent {
    /// Begins to receive an accepted content.
    pub(super) fn start(
        offer: &ContentOffer,
        folder: &Path,
        manner: TakingManner,
        mut attachment: Attachment,
        tell: mpsc::Sender<TakingEvent>,
    ) -> Result<TakenContent, FetchError> {
        let stop = Arc::new(AtomicBool::new(false));
        let text = NoteText::default();
        let output = match offer.proposed {
            OfferUse::Note => Destination::Stream(Stream {
                writer: Box::new(text.clone()),
                path: None,
            }),
            OfferUse::File | OfferUse::Bundle => {
                destination(offer, folder, manner.existing, &stop)?
            }
        };
        let options = FetchOptions {
            content: offer.content.content,
            key: None,
            output,
            timeout: None,
            transfer: TransferOptions::default(),
            limit: Some(offer.content.content_len),
            update: false,
            offered: Some(offer.id),
            unpacking: (offer.proposed == OfferUse::Bundle).then_some(Unpacking {
                limit: manner.limit,
            }),
        };
        let (id, is_note) = (offer.id, offer.proposed == OfferUse::Note);
        let stopped = stop.clone();
        let run = move || {
            let mut observe = |progress: &Progress| {
                let _ = tell.send(TakingEvent::Progress(id, progress.clone()));
            };
            let outcome = fetch(&mut attachment, options, &stopped, &mut observe);
            let text = text.0.lock().unwrap_or_else(PoisonError::into_inner);
            let note = is_note.then(|| String::from_utf8_lossy(&text).into_owned());
            let _ = tell.send(TakingEvent::Ended(
                id,
                outcome.map(|fetched| (fetched, note)),
            ));
        };
        let thread = std::thread::Builder::new()
            .name("inbox".into())
            .spawn(run)
            .map_err(LocalError::Io)?;
        Ok(TakenContent {
            offer: offer.clone(),
            next: None,
            stop,
            thread,
            here: (0, Instant::now()),
        })
    }

    pub(super) fn offer(&self) -> &ContentOffer {
        &self.offer
    }

    pub(super) fn note_progress(&mut self, progress: &Progress) {
        if progress.bytes != self.here.0 {
            self.here = (progress.bytes, Instant::now());
        }
    }

    /// Returns true if nothing of it has come for so long.
    pub(super) fn is_stalled(&self, patience: Duration) -> bool {
        self.here.1.elapsed() >= patience
    }

    /// The sender has started again, and offers the same content under another number.
    pub(super) fn follow(&mut self, next: ContentOffer) {
        self.stop.store(true, Ordering::Relaxed);
        self.next = Some(next);
    }

    /// Waits for the thread, which has said that it ends. Returns the offer, and what follows it.
    pub(super) fn join(self) -> (ContentOffer, Option<ContentOffer>) {
        let _ = self.thread.join();
        (self.offer, self.next)
    }

    /// Ends it; what has come is kept.
    pub(super) fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
    }
}

/// Returns the place of a content. Only a file is replaced: a link could lead anywhere.
fn destination(
    offer: &ContentOffer,
    folder: &Path,
    existing: Existing,
    stop: &AtomicBool,
) -> Result<Destination, FetchError> {
    let is_file = offer.proposed == OfferUse::File;
    let place = place_of(offer, folder).filter(|_| is_file && existing == Existing::Replace);
    let file = place.filter(|path| fs::symlink_metadata(path).is_ok_and(|it| it.is_file()));
    let path = file.as_deref().unwrap_or(folder);
    Ok(Destination::open(path, stop)?)
}
