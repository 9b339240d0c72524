//! What a client returns for something that continues: a download, an upload, a publication, an inbox, a channel.

use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{ContentOffer, OfferVerdict};

use crate::call::{Call, DriverShare};
use crate::error::ProgramError;
use crate::session::{
    ChannelMessage, ChunkStep, ContentPiece, FetchedSoFar, GetOptions, SendProgress,
};

/// The number of a transfer or a question, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct NumberGuard {
    share: Arc<DriverShare>,
    number: u32,
}

impl NumberGuard {
    pub(crate) fn new(share: &Arc<DriverShare>, number: u32) -> NumberGuard {
        let share = Arc::clone(share);
        NumberGuard { share, number }
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for NumberGuard {
    fn drop(&mut self) {
        if let Some(mut driver) = self.share.lock() {
            driver.cancel(self.number);
        }
    }
}

/// A fetched content. Dropping it ends the transfer.
#[derive(Debug)]
pub struct Download {
    guard: Arc<NumberGuard>,
    content: Guid,
    offer: Option<ContentOffer>,
}

impl Download {
    pub(crate) fn new(
        share: &Arc<DriverShare>,
        number: u32,
        content: Guid,
        offer: Option<ContentOffer>,
    ) -> Download {
        Download {
            guard: Arc::new(NumberGuard::new(share, number)),
            content,
            offer,
        }
    }

    /// Returns the content's name.
    pub fn content(&self) -> Guid {
        self.content
    }

    /// Returns the progress; `None` once the transfer is over.
    pub fn progress(&self) -> Option<FetchedSoFar> {
        let mut driver = self.guard.share.lock()?;
        driver.session().get_progress(self.guard.number)
    }

    /// Returns the next bytes in order, verified; `None` after the last. Taking them opens the flow-control window
    /// for further bytes.
    pub fn next_piece(&mut self) -> Call<Option<ContentPiece>> {
        let guard = Arc::clone(&self.guard);
        self.guard.share.call(move |driver| {
            Ok(match driver.session().take_piece(guard.number)? {
                ChunkStep::Piece(piece) => Some(Some(piece)),
                ChunkStep::Complete(_) => Some(None),
                ChunkStep::Waiting => None,
            })
        })
    }

    /// Reports the verdict to the sender of an offered content. [`Download::bytes`] and [`Download::to_file`] report
    /// the delivery themselves.
    pub fn settle(&self, verdict: OfferVerdict) {
        if let (Some(offer), Some(mut driver)) = (&self.offer, self.guard.share.lock()) {
            driver.session().settle(offer, verdict);
            driver.flush();
        }
    }

    /// Returns all bytes. [`GetOptions::limit`] bounds the memory that this takes.
    pub fn bytes(self) -> Call<Bytes> {
        let share = Arc::clone(&self.guard.share);
        let mut collected = BytesMut::new();
        share.call(move |driver| {
            loop {
                match driver.session().take_piece(self.guard.number)? {
                    ChunkStep::Waiting => return Ok(None),
                    ChunkStep::Piece(piece) => {
                        let end = piece.offset as usize + piece.data.len();
                        collected.resize(collected.len().max(end), 0);
                        collected[piece.offset as usize..end].copy_from_slice(&piece.data);
                    }
                    ChunkStep::Complete(_) => {
                        if let Some(offer) = &self.offer {
                            driver.session().settle(offer, OfferVerdict::Received);
                        }
                        return Ok(Some(core::mem::take(&mut collected).freeze()));
                    }
                }
            }
        })
    }

    /// Writes all bytes to a file, which appears at `path` when it is complete and replaces an existing one. Returns
    /// the length in bytes.
    pub fn to_file(self, path: &Path) -> Result<Call<u64>, ProgramError> {
        let failed = |path: &Path, source| ProgramError::Write {
            path: path.to_owned(),
            source,
        };
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let part = tempfile::Builder::new()
            .prefix(".whimbrel-")
            .suffix(".part")
            // As any new file: the process's mask applies.
            .permissions(std::fs::Permissions::from_mode(0o666))
            .tempfile_in(folder)
            .map_err(|source| failed(path, source))?;
        let (mut part, path) = (Some(part), path.to_owned());
        let share = Arc::clone(&self.guard.share);
        Ok(share.call(move |driver| {
            loop {
                match driver.session().take_piece(self.guard.number)? {
                    ChunkStep::Waiting => return Ok(None),
                    ChunkStep::Piece(piece) => {
                        let part = part.as_ref().ok_or(ProgramError::Over)?;
                        part.as_file()
                            .write_all_at(&piece.data, piece.offset)
                            .map_err(|source| failed(&path, source))?;
                    }
                    ChunkStep::Complete(length) => {
                        let part = part.take().ok_or(ProgramError::Over)?;
                        part.persist(&path)
                            .map_err(|error| failed(&path, error.error))?;
                        if let Some(offer) = &self.offer {
                            driver.session().settle(offer, OfferVerdict::Received);
                        }
                        return Ok(Some(length));
                    }
                }
            }
        }))
    }

    /// Writes all bytes to `writer`, in order. Blocks this thread until then. Returns the length in bytes.
    pub fn copy_to(mut self, writer: &mut dyn Write) -> Result<u64, ProgramError> {
        let failed = |source| ProgramError::Write {
            path: PathBuf::from("the program's writer"),
            source,
        };
        let mut length = 0;
        while let Some(piece) = self.next_piece().wait()? {
            if piece.offset != length {
                let text =
                    "bytes can be written in order only if they are fetched so: set in_order";
                return Err(ProgramError::Argument(text.to_owned()));
            }
            writer.write_all(&piece.data).map_err(failed)?;
            length += piece.data.len() as u64;
        }
        writer.flush().map_err(failed)?;
        self.settle(OfferVerdict::Received);
        Ok(length)
    }
}

/// A sent content. Dropping it ends the transfer; bytes that the network has taken are still delivered.
#[derive(Debug)]
pub struct Upload {
    guard: Arc<NumberGuard>,
    content: Guid,
}

impl Upload {
    pub(crate) fn new(share: &Arc<DriverShare>, number: u32, content: Guid) -> Upload {
        let guard = Arc::new(NumberGuard::new(share, number));
        Upload { guard, content }
    }

    /// Returns the content's name.
    pub fn content(&self) -> Guid {
        self.content
    }

    /// Returns the progress; `None` once the transfer is over.
    pub fn progress(&self) -> Option<SendProgress> {
        let mut driver = self.guard.share.lock()?;
        driver.session().send_progress(self.guard.number)
    }

    /// Waits until the first router or, with [`until_delivered`](crate::SendOptions::until_delivered), the receiver
    /// has all bytes. Returns the last state. A refusal is an error.
    pub fn outcome(&self) -> Call<SendProgress> {
        let guard = Arc::clone(&self.guard);
        let share = &self.guard.share;
        share.call(move |driver| driver.session().send_outcome(guard.number))
    }
}

/// A published content. Dropping it withdraws the content.
#[derive(Debug)]
pub struct Publication {
    share: Arc<DriverShare>,
    content: Guid,
}

impl Publication {
    pub(crate) fn new(share: &Arc<DriverShare>, content: Guid) -> Publication {
        let share = Arc::clone(share);
        Publication { share, content }
    }

    /// Returns the content's name, by which others fetch it.
    pub fn content(&self) -> Guid {
        self.content
    }

    /// Returns once the content is registered with the name service, so that others can find it.
    pub fn announced(&self) -> Call<()> {
        let content = self.content;
        self.share
            .call(move |driver| Ok(driver.session().is_announced(content)?.then_some(())))
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        if let Some(mut driver) = self.share.lock() {
            driver.withdraw(self.content);
        }
    }
}

/// The messages of a channel.
#[derive(Debug)]
pub struct ChannelReader {
    share: Arc<DriverShare>,
    channel: u32,
}

impl ChannelReader {
    pub(crate) fn new(share: &Arc<DriverShare>, channel: u32) -> ChannelReader {
        let share = Arc::clone(share);
        ChannelReader { share, channel }
    }

    /// Returns the next message.
    pub fn next_message(&mut self) -> Call<ChannelMessage> {
        let channel = self.channel;
        self.share
            .call(move |driver| driver.session().take_message(channel))
    }
}

impl Drop for ChannelReader {
    fn drop(&mut self) {
        if let Some(mut driver) = self.share.lock() {
            driver.session().stop_listening(self.channel);
        }
    }
}

/// The offers of unrequested content to this program.
#[derive(Debug)]
pub struct OfferInbox {
    share: Arc<DriverShare>,
}

impl OfferInbox {
    pub(crate) fn new(share: &Arc<DriverShare>) -> OfferInbox {
        let share = Arc::clone(share);
        OfferInbox { share }
    }

    /// Returns the next offer.
    pub fn next_offer(&mut self) -> Call<IncomingOffer> {
        let share = Arc::clone(&self.share);
        self.share.call(move |driver| {
            let offer = driver.session().take_offer();
            Ok(offer.map(|offer| IncomingOffer::new(&share, offer)))
        })
    }
}

/// A content offered by a sender. Unless it is accepted or refused, the host offers it to the next program with an
/// inbox.
#[derive(Debug)]
pub struct IncomingOffer {
    share: Arc<DriverShare>,
    offer: ContentOffer,
}

impl IncomingOffer {
    pub(crate) fn new(share: &Arc<DriverShare>, offer: ContentOffer) -> IncomingOffer {
        let share = Arc::clone(share);
        IncomingOffer { share, offer }
    }

    /// Returns the sender and the description of the content. The file name must not be used as a path.
    pub fn offer(&self) -> &ContentOffer {
        &self.offer
    }

    /// Accepts the content.
    pub fn accept(self) -> Result<Download, ProgramError> {
        let mut driver = self.share.enter()?;
        let options = GetOptions {
            limit: Some(self.offer.content.content_len),
            ..GetOptions::default()
        };
        let number = driver.session().accept(&self.offer, options);
        driver.flush();
        drop(driver);
        let content = self.offer.content.content;
        Ok(Download::new(
            &self.share,
            number,
            content,
            Some(self.offer),
        ))
    }

    /// Refuses the content. The sender is told the reason.
    pub fn refuse(self, verdict: OfferVerdict) -> Result<(), ProgramError> {
        let mut driver = self.share.enter()?;
        driver.session().settle(&self.offer, verdict);
        driver.flush();
        Ok(())
    }
}
