//! A program at its host.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use pyo3::prelude::*;
use whimbrel_client::place::host_daemon_socket;
use whimbrel_client::{
    AttachOptions, Client, ContentSource, Delivery, GetOptions, Guid, OfferRule, OfferUse,
    ProgramTransfer, SendOptions, Storage, TransferOptions,
};

use crate::buffer::bytes_of;
use crate::call::{Outcome, deliver, exception, name_of};
use crate::transfer::{
    NativeChannel, NativeDownload, NativeInbox, NativePublication, NativeUpload,
};

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
        let call = py.detach(|| self.client.name()).map_err(exception)?;
        deliver(py, self.is_blocking, call, |name| {
            Outcome::Text(name.to_string())
        })
    }

    fn status(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let call = py.detach(|| self.client.status()).map_err(exception)?;
        deliver(py, self.is_blocking, call, Outcome::Text)
    }

    fn ping(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        let name = name_of(name)?;
        let call = py.detach(|| self.client.ping(name)).map_err(exception)?;
        deliver(py, self.is_blocking, call, |from| {
            Outcome::Text(from.to_string())
        })
    }

    fn get(&self, py: Python<'_>, name: &str, limit: Option<u64>) -> PyResult<NativeDownload> {
        let name = name_of(name)?;
        let options = GetOptions {
            limit,
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
    ) -> PyResult<NativePublication> {
        let data = bytes_of(data)?;
        let published = py.detach(|| self.client.publish_bytes(data, file_name));
        Ok(NativePublication::new(
            published.map_err(exception)?,
            self.is_blocking,
        ))
    }

    fn publish_file(&self, py: Python<'_>, path: PathBuf) -> PyResult<NativePublication> {
        let published = py.detach(|| self.client.publish_file(&path));
        Ok(NativePublication::new(
            published.map_err(exception)?,
            self.is_blocking,
        ))
    }

    #[pyo3(signature = (destination, data, file_name, lifetime, until_delivered))]
    fn send(
        &self,
        py: Python<'_>,
        destination: &str,
        data: &Bound<'_, PyAny>,
        file_name: &str,
        lifetime: Option<f64>,
        until_delivered: bool,
    ) -> PyResult<NativeUpload> {
        let data = bytes_of(data)?;
        let options = send_options(lifetime, until_delivered)?;
        let source = move || Ok(ContentSource::of_bytes(data, file_name));
        self.send_source(py, name_of(destination)?, source, options)
    }

    #[pyo3(signature = (destination, path, lifetime, until_delivered))]
    fn send_file(
        &self,
        py: Python<'_>,
        destination: &str,
        path: PathBuf,
        lifetime: Option<f64>,
        until_delivered: bool,
    ) -> PyResult<NativeUpload> {
        let options = send_options(lifetime, until_delivered)?;
        let source = move || ContentSource::of_file(&path).map_err(Into::into);
        self.send_source(py, name_of(destination)?, source, options)
    }

    fn message(
        &self,
        py: Python<'_>,
        destination: &str,
        channel: u32,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (destination, data) = (name_of(destination)?, bytes_of(data)?);
        py.detach(|| self.client.message(destination, channel, data))
            .map_err(exception)
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
    fn send_source(
        &self,
        py: Python<'_>,
        destination: Guid,
        source: impl FnOnce() -> Result<ContentSource, whimbrel_client::ProgramError> + Send,
        options: SendOptions,
    ) -> PyResult<NativeUpload> {
        let upload = py.detach(|| self.client.send(destination, source()?, options));
        Ok(NativeUpload::new(
            upload.map_err(exception)?,
            self.is_blocking,
        ))
    }
}

fn send_options(lifetime: Option<f64>, until_delivered: bool) -> PyResult<SendOptions> {
    let lifetime = lifetime.map(Duration::try_from_secs_f64).transpose();
    let lifetime =
        lifetime.map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))?;
    Ok(SendOptions {
        proposed: OfferUse::File,
        transfer: TransferOptions {
            delivery: Delivery {
                storage: Storage::of(lifetime),
                ..Delivery::default()
            },
            ..TransferOptions::default()
        },
        until_delivered,
        ..SendOptions::default()
    })
}
