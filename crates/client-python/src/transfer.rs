//! What continues: downloads, uploads, publications, inboxes and channels.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use whimbrel_client::{
    ChannelReader, ContentOffer, Download, IncomingOffer, OfferInbox, OfferVerdict, ProgramError,
    Publication, Upload,
};

use crate::call::{Outcome, deliver, exception};

/// Bytes, length, the suggested name, and whether it is complete.
type ProgressParts = (u64, Option<u64>, String, bool);

/// Something that a method can take for itself, once.
struct Taken<T>(Mutex<Option<T>>);

impl<T: Send> Taken<T> {
    fn new(value: T) -> Taken<T> {
        Taken(Mutex::new(Some(value)))
    }

    fn take(&self) -> PyResult<T> {
        let mut value = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        value.take().ok_or_else(|| exception(ProgramError::Over))
    }

    fn with<R: Send>(&self, py: Python<'_>, act: impl FnOnce(&mut T) -> R + Send) -> PyResult<R> {
        py.detach(|| {
            let mut value = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            value.as_mut().map(act)
        })
        .ok_or_else(|| exception(ProgramError::Over))
    }

    /// Drops it, which ends what it stands for.
    fn end(&self, py: Python<'_>) {
        py.detach(|| {
            let value = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(value);
        });
    }
}

/// A content that is fetched.
#[pyclass(frozen, module = "whimbrel._native")]
pub(crate) struct NativeDownload {
    download: Taken<Download>,
    is_blocking: bool,
}

impl NativeDownload {
    pub(crate) fn new(download: Download, is_blocking: bool) -> NativeDownload {
        NativeDownload {
            download: Taken::new(download),
            is_blocking,
        }
    }
}

#[pymethods]
impl NativeDownload {
    fn bytes(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let call = self.download.take()?.bytes();
        deliver(py, self.is_blocking, call, Outcome::Data)
    }

    fn to_file(&self, py: Python<'_>, path: PathBuf) -> PyResult<Py<PyAny>> {
        let call = self.download.take()?.to_file(&path).map_err(exception)?;
        deliver(py, self.is_blocking, call, Outcome::Number)
    }

    fn next_piece(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let call = self.download.with(py, Download::next_piece)?;
        deliver(py, self.is_blocking, call, |piece| {
            Outcome::Piece(piece.map(|piece| (piece.offset, piece.data)))
        })
    }

    /// Returns bytes, length, the suggested name, and whether it is complete.
    fn progress(&self, py: Python<'_>) -> PyResult<Option<ProgressParts>> {
        let progress = self.download.with(py, |download| download.progress())?;
        Ok(progress.map(|it| (it.bytes, it.length, it.file_name, it.is_complete)))
    }

    /// Tells the sender of an offered content that it is here.
    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        self.download
            .with(py, |download| download.settle(OfferVerdict::Received))
    }

    fn cancel(&self, py: Python<'_>) {
        self.download.end(py);
    }
}

/// A content that is sent.
#[pyclass(frozen, module = "whimbrel._native")]
pub(crate) struct NativeUpload {
    upload: Taken<Upload>,
    is_blocking: bool,
}

impl NativeUpload {
    pub(crate) fn new(upload: Upload, is_blocking: bool) -> NativeUpload {
        NativeUpload {
            upload: Taken::new(upload),
            is_blocking,
        }
    }
}

#[pymethods]
impl NativeUpload {
    fn outcome(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let call = self.upload.with(py, |upload| upload.outcome())?;
        deliver(py, self.is_blocking, call, |progress| {
            Outcome::Number(progress.stored)
        })
    }

    /// Returns bytes taken and stored.
    fn progress(&self, py: Python<'_>) -> PyResult<Option<(u64, u64)>> {
        let progress = self.upload.with(py, |upload| upload.progress())?;
        Ok(progress.map(|it| (it.taken, it.stored)))
    }

    fn cancel(&self, py: Python<'_>) {
        self.upload.end(py);
    }
}

/// A published content.
#[pyclass(frozen, module = "whimbrel._native")]
pub(crate) struct NativePublication {
    publication: Taken<Publication>,
    #[pyo3(get)]
    name: String,
    is_blocking: bool,
}

impl NativePublication {
    pub(crate) fn new(publication: Publication, is_blocking: bool) -> NativePublication {
        NativePublication {
            name: publication.content().to_string(),
            publication: Taken::new(publication),
            is_blocking,
        }
    }
}

#[pymethods]
impl NativePublication {
    fn announced(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let call = self
            .publication
            .with(py, |publication| publication.announced())?;
        deliver(py, self.is_blocking, call, |()| Outcome::Nothing)
    }

    fn withdraw(&self, py: Python<'_>) {
        self.publication.end(py);
    }
}

/// What others send.
#[pyclass(frozen, module = "whimbrel._native")]
pub(crate) struct NativeInbox {
    inbox: Taken<OfferInbox>,
    is_blocking: bool,
}

impl NativeInbox {
    pub(crate) fn new(inbox: OfferInbox, is_blocking: bool) -> NativeInbox {
        NativeInbox {
            inbox: Taken::new(inbox),
            is_blocking,
        }
    }
}

#[pymethods]
impl NativeInbox {
    fn next_offer(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let (call, is_blocking) = (
            self.inbox.with(py, OfferInbox::next_offer)?,
            self.is_blocking,
        );
        deliver(py, is_blocking, call, move |offer| {
            let offer = NativeOffer::new(offer, is_blocking);
            Outcome::Object(Box::new(|py| Ok(Py::new(py, offer)?.into_any())))
        })
    }
}

/// A content that a sender offers.
#[pyclass(frozen, module = "whimbrel._native")]
pub(crate) struct NativeOffer {
    incoming: Taken<IncomingOffer>,
    offer: ContentOffer,
    is_blocking: bool,
}

impl NativeOffer {
    pub(crate) fn new(incoming: IncomingOffer, is_blocking: bool) -> NativeOffer {
        NativeOffer {
            offer: incoming.offer().clone(),
            incoming: Taken::new(incoming),
            is_blocking,
        }
    }
}

#[pymethods]
impl NativeOffer {
    #[getter]
    fn sender(&self) -> String {
        self.offer.id.sender.to_string()
    }

    #[getter]
    fn content(&self) -> String {
        self.offer.content.content.to_string()
    }

    #[getter]
    fn length(&self) -> u64 {
        self.offer.content.content_len
    }

    #[getter]
    fn file_name(&self) -> String {
        self.offer.content.file_name.clone()
    }

    fn accept(&self, py: Python<'_>) -> PyResult<NativeDownload> {
        let incoming = self.incoming.take()?;
        let download = py.detach(|| incoming.accept()).map_err(exception)?;
        Ok(NativeDownload::new(download, self.is_blocking))
    }

    fn refuse(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        let verdict = match reason {
            "not-accepted" => OfferVerdict::NotAccepted,
            "too-long" => OfferVerdict::TooLong,
            "inbox-full" => OfferVerdict::InboxFull,
            "unusable" => OfferVerdict::Unusable,
            _ => {
                let text = "reason is not-accepted, too-long, inbox-full or unusable";
                return Err(PyValueError::new_err(text));
            }
        };
        let incoming = self.incoming.take()?;
        py.detach(|| incoming.refuse(verdict)).map_err(exception)
    }
}

/// The messages of a channel.
#[pyclass(frozen, module = "whimbrel._native")]
pub(crate) struct NativeChannel {
    reader: Taken<ChannelReader>,
    is_blocking: bool,
}

impl NativeChannel {
    pub(crate) fn new(reader: ChannelReader, is_blocking: bool) -> NativeChannel {
        NativeChannel {
            reader: Taken::new(reader),
            is_blocking,
        }
    }
}

#[pymethods]
impl NativeChannel {
    fn next_message(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let call = self.reader.with(py, ChannelReader::next_message)?;
        deliver(py, self.is_blocking, call, |message| {
            Outcome::Message(message.from.to_string(), message.payload)
        })
    }

    fn close(&self, py: Python<'_>) {
        self.reader.end(py);
    }
}
