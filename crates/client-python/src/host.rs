//! A program at its host.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use pyo3::prelude::*;
use whimbrel_client::place::host_daemon_socket;
use whimbrel_client::stated::{StatedOptions, read_admission, read_service_key};
use whimbrel_client::{
    AttachOptions, Call, Client, ContentSource, GetOptions, Guid, OfferRule, OfferUse,
    ProgramError, ProgramTransfer, PublishOptions, SendOptions, TransferOptions,
};

use crate::buffer::bytes_of;
use crate::call::{Outcome, deliver, exception, name_of};
use crate::transfer::{
    NativeChannel, NativeDownload, NativeInbox, NativePublication, NativeUpload,
};

/// The options of a transfer: the attributes of `whimbrel.Options`.
#[derive(FromPyObject)]
struct ChosenOptions {
    chunk_size: Option<u64>,
    reliability: Option<String>,
    nack_timeout: Option<f64>,
    storage: Option<String>,
    service: Option<String>,
    delegate: bool,
}

impl ChosenOptions {
    fn transfer(chosen: Option<&ChosenOptions>) -> PyResult<TransferOptions> {
        let Some(chosen) = chosen else {
            return Ok(TransferOptions::default());
        };
        let timeout = chosen.nack_timeout.map(Duration::try_from_secs_f64);
        let timeout = timeout
            .transpose()
            .map_err(|error| exception(ProgramError::Argument(format!("nack_timeout: {error}"))))?;
        let stated = StatedOptions {
            chunk_size: chosen.chunk_size,
            reliability: chosen.reliability.as_deref().unwrap_or_default(),
            nack_timeout: timeout,
            storage: chosen.storage.as_deref().unwrap_or_default(),
            service: chosen.service.as_deref().unwrap_or_default(),
        };
        stated.transfer().map_err(exception)
    }

    fn publish(chosen: Option<&ChosenOptions>) -> PyResult<PublishOptions> {
        Ok(PublishOptions {
            transfer: ChosenOptions::transfer(chosen)?,
            delegate: chosen.is_some_and(|chosen| chosen.delegate),
        })
    }

    fn send(chosen: Option<&ChosenOptions>, until_delivered: bool) -> PyResult<SendOptions> {
        Ok(SendOptions {
            proposed: OfferUse::File,
            transfer: ChosenOptions::transfer(chosen)?,
            delegate: chosen.is_some_and(|chosen| chosen.delegate),
            until_delivered,
        })
    }
}

/// A program at its host.
#[pyclass(frozen, module = "whimbrel._native")]
pub(crate) struct NativeHost {
    client: Client,
    is_blocking: bool,
}

#[pymethods]
impl NativeHost {
    #[new]
    fn new(
        py: Python<'_>,
        socket: Option<PathBuf>,
        reconnect_for: f64,
        is_blocking: bool,
    ) -> PyResult<NativeHost> {
        let socket = socket.unwrap_or_else(host_daemon_socket);
        let reconnect_for = Duration::try_from_secs_f64(reconnect_for)
            .map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))?;
        let client = py.detach(|| Client::attach_at(&socket, AttachOptions { reconnect_for }));
        Ok(NativeHost {
            client: client.map_err(exception)?,
            is_blocking,
        })
    }

    fn detach(&self, py: Python<'_>) {
        py.detach(|| self.client.detach());
    }

    fn is_connected(&self, py: Python<'_>) -> bool {
        py.detach(|| self.client.is_connected())
    }

    fn name(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.deliver_name(py, py.detach(|| self.client.name()))
    }

    fn status(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let call = py.detach(|| self.client.status()).map_err(exception)?;
        deliver(py, self.is_blocking, call, Outcome::Text)
    }

    fn ping(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        let name = name_of(name)?;
        self.deliver_name(py, py.detach(|| self.client.ping(name)))
    }

    fn get(
        &self,
        py: Python<'_>,
        name: &str,
        limit: Option<u64>,
        options: Option<ChosenOptions>,
    ) -> PyResult<NativeDownload> {
        let name = name_of(name)?;
        let options = GetOptions {
            limit,
            transfer: ChosenOptions::transfer(options.as_ref())?,
            ..GetOptions::default()
        };
        let download = py.detach(|| self.client.get(name, options));
        Ok(NativeDownload::new(
            download.map_err(exception)?,
            self.is_blocking,
        ))
    }

    fn publish(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        file_name: &str,
        options: Option<ChosenOptions>,
    ) -> PyResult<NativePublication> {
        let data = bytes_of(data)?;
        let source = move || Ok(ContentSource::of_bytes(data, file_name));
        self.publish_source(py, source, options)
    }

    fn publish_file(
        &self,
        py: Python<'_>,
        path: PathBuf,
        options: Option<ChosenOptions>,
    ) -> PyResult<NativePublication> {
        let source = move || ContentSource::of_file(&path).map_err(Into::into);
        self.publish_source(py, source, options)
    }

    #[pyo3(signature = (destination, data, file_name, options, until_delivered))]
    fn send(
        &self,
        py: Python<'_>,
        destination: &str,
        data: &Bound<'_, PyAny>,
        file_name: &str,
        options: Option<ChosenOptions>,
        until_delivered: bool,
    ) -> PyResult<NativeUpload> {
        let data = bytes_of(data)?;
        let options = ChosenOptions::send(options.as_ref(), until_delivered)?;
        let source = move || Ok(ContentSource::of_bytes(data, file_name));
        self.send_source(py, name_of(destination)?, source, options)
    }

    #[pyo3(signature = (destination, path, options, until_delivered))]
    fn send_file(
        &self,
        py: Python<'_>,
        destination: &str,
        path: PathBuf,
        options: Option<ChosenOptions>,
        until_delivered: bool,
    ) -> PyResult<NativeUpload> {
        let options = ChosenOptions::send(options.as_ref(), until_delivered)?;
        let source = move || ContentSource::of_file(&path).map_err(Into::into);
        self.send_source(py, name_of(destination)?, source, options)
    }

    fn message(
        &self,
        py: Python<'_>,
        destination: &str,
        channel: u32,
        data: &Bound<'_, PyAny>,
        options: Option<ChosenOptions>,
    ) -> PyResult<()> {
        let (destination, data) = (name_of(destination)?, bytes_of(data)?);
        let delivery = ChosenOptions::transfer(options.as_ref())?.delivery;
        let sent = py.detach(|| (self.client).message_with(destination, channel, delivery, data));
        sent.map_err(exception)
    }

    fn attach_service(&self, py: Python<'_>, key_file: PathBuf) -> PyResult<Py<PyAny>> {
        let key = read_service_key(&key_file).map_err(exception)?;
        self.deliver_name(py, py.detach(|| self.client.attach_service(key)))
    }

    fn join_group(&self, py: Python<'_>, admission: &str) -> PyResult<Py<PyAny>> {
        let admission = read_admission(admission).map_err(exception)?;
        self.deliver_name(py, py.detach(|| self.client.join_group(admission)))
    }

    fn leave_group(&self, py: Python<'_>, admission: &str) -> PyResult<Py<PyAny>> {
        let admission = read_admission(admission).map_err(exception)?;
        self.deliver_name(py, py.detach(|| self.client.leave_group(admission)))
    }

    fn listen(&self, py: Python<'_>, channel: u32) -> PyResult<NativeChannel> {
        let reader = py
            .detach(|| self.client.listen(channel))
            .map_err(exception)?;
        Ok(NativeChannel::new(reader, self.is_blocking))
    }

    fn inbox(
        &self,
        py: Python<'_>,
        senders: Option<Vec<String>>,
        max_size: Option<u64>,
    ) -> PyResult<NativeInbox> {
        let senders = senders.map(|senders| {
            senders
                .iter()
                .map(|sender| name_of(sender))
                .collect::<PyResult<BTreeSet<Guid>>>()
        });
        let rule = OfferRule {
            senders: senders.transpose()?,
            max_size,
        };
        let inbox = py.detach(|| self.client.inbox(rule)).map_err(exception)?;
        Ok(NativeInbox::new(inbox, self.is_blocking))
    }

    /// Returns kind, content, bytes and length of each transfer.
    fn transfers(&self, py: Python<'_>) -> Vec<(&'static str, String, u64, Option<u64>)> {
        let reports = py.detach(|| self.client.transfers());
        let reports = reports.into_iter().map(|report| match report {
            ProgramTransfer::Get(get) => ("get", get.content.to_string(), get.bytes, get.length),
            ProgramTransfer::Send { content, progress } => {
                ("send", content.to_string(), progress.taken, None)
            }
        });
        reports.collect()
    }
}

impl NativeHost {
    fn deliver_name(
        &self,
        py: Python<'_>,
        call: Result<Call<Guid>, ProgramError>,
    ) -> PyResult<Py<PyAny>> {
        deliver(py, self.is_blocking, call.map_err(exception)?, |name| {
            Outcome::Text(name.to_string())
        })
    }

    fn publish_source(
        &self,
        py: Python<'_>,
        source: impl FnOnce() -> Result<ContentSource, ProgramError> + Send,
        options: Option<ChosenOptions>,
    ) -> PyResult<NativePublication> {
        let options = ChosenOptions::publish(options.as_ref())?;
        let published = py.detach(|| self.client.publish_with(source()?, options));
        Ok(NativePublication::new(
            published.map_err(exception)?,
            self.is_blocking,
        ))
    }

    fn send_source(
        &self,
        py: Python<'_>,
        destination: Guid,
        source: impl FnOnce() -> Result<ContentSource, ProgramError> + Send,
        options: SendOptions,
    ) -> PyResult<NativeUpload> {
        let upload = py.detach(|| self.client.send(destination, source()?, options));
        Ok(NativeUpload::new(
            upload.map_err(exception)?,
            self.is_blocking,
        ))
    }
}
