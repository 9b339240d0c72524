//! HTTP/3: quinn and h3, at both ends.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::{Buf, Bytes};
use http::Request;
use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use super::object::answer;
use super::{QuicPlan, failed};
use crate::{CongestionControl, LabError, Namespace};

const HOST_NAME: &str = "whimbrel-web";
const ALPN: &[u8] = b"h3";
/// Bytes that a receiver offers at first, of a stream and of a connection: the receive buffer of [MFTP §5].
const WINDOW: u32 = 2_000_000;

/// The requests of a connection.
pub(super) type QuicLine = h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>;

fn fault(reason: impl std::fmt::Display) -> LabError {
    failed("HTTP/3", reason)
}

fn transport(congestion: CongestionControl) -> Arc<TransportConfig> {
    let factory: Arc<dyn ControllerFactory + Send + Sync> = match congestion {
        CongestionControl::Cubic => Arc::new(CubicConfig::default()),
        CongestionControl::Bbr => Arc::new(BbrConfig::default()),
        CongestionControl::Reno => Arc::new(NewRenoConfig::default()),
    };
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(WINDOW.into())
        .receive_window(WINDOW.into())
        .congestion_controller_factory(factory);
    Arc::new(transport)
}

/// Serves on a thread of its own until it is stopped. The certificate is written before this returns.
pub(super) fn serve(
    host: &Namespace,
    plan: QuicPlan<'_>,
    runtime: Runtime,
    stop: Arc<Notify>,
) -> Result<JoinHandle<()>, LabError> {
    let made = rcgen::generate_simple_self_signed([HOST_NAME.to_owned()]).map_err(fault)?;
    let proof = CertificateDer::from(made.cert);
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let (path, address) = (plan.certificate, plan.address);
    let action = format!("write {}", path.display());
    std::fs::write(path, &proof).map_err(LabError::system(action))?;
    let mut tls = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![proof], key.into())
        .map_err(fault)?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let tls = QuicServerConfig::try_from(tls).map_err(fault)?;
    let mut config = ServerConfig::with_crypto(Arc::new(tls));
    config.transport_config(transport(plan.congestion));
    let socket = host
        .enter(|| UdpSocket::bind(address))?
        .map_err(LabError::system(format!("listen at {address}")))?;
    host.spawn_thread("web server", move || {
        runtime.block_on(async {
            tokio::select! {
                outcome = accept(socket, config) => {
                    if let Err(error) = outcome {
                        tracing::warn!(%error, "the server of HTTP/3 has ended");
                    }
                }
                () = stop.notified() => {}
            }
        });
    })
}

async fn accept(socket: UdpSocket, config: ServerConfig) -> io::Result<()> {
    let runtime = Arc::new(TokioRuntime);
    let endpoint = Endpoint::new(EndpointConfig::default(), Some(config), socket, runtime)?;
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            if let Err(error) = connection(incoming).await {
                tracing::debug!(%error, "a connection of HTTP/3 ended early");
            }
        });
    }
    Ok(())
}

async fn connection(incoming: quinn::Incoming) -> Result<(), LabError> {
    let line = h3_quinn::Connection::new(incoming.await.map_err(fault)?);
    let mut line = h3::server::Connection::<_, Bytes>::new(line)
        .await
        .map_err(fault)?;
    while let Some(resolver) = line.accept().await.map_err(fault)? {
        tokio::spawn(async move {
            if let Err(error) = exchange(resolver).await {
                tracing::debug!(%error, "an exchange of HTTP/3 ended early");
            }
        });
    }
    Ok(())
}

async fn exchange(
    resolver: h3::server::RequestResolver<h3_quinn::Connection, Bytes>,
) -> Result<(), LabError> {
    let (request, mut stream) = resolver.resolve_request().await.map_err(fault)?;
    let (head, body) = answer(request.uri().path()).into_parts();
    let head = http::Response::from_parts(head, ());
    stream.send_response(head).await.map_err(fault)?;
    stream.send_data(body).await.map_err(fault)?;
    stream.finish().await.map_err(fault)
}

/// Connects to a server with this certificate. To be called within its host and a runtime.
pub(super) async fn connect(
    server: SocketAddr,
    certificate: &Path,
) -> Result<(Endpoint, QuicLine), LabError> {
    let action = format!("read {}", certificate.display());
    let proof = std::fs::read(certificate).map_err(LabError::system(action))?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(proof)).map_err(fault)?;
    let mut tls = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let tls = QuicClientConfig::try_from(tls).map_err(fault)?;
    let mut config = ClientConfig::new(Arc::new(tls));
    config.transport_config(transport(CongestionControl::Cubic));
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let endpoint = Endpoint::client(any).map_err(LabError::system("open a socket"))?;
    let connecting = endpoint.connect_with(config, server, HOST_NAME);
    let connection = connecting.map_err(fault)?.await.map_err(fault)?;
    let line = h3_quinn::Connection::new(connection);
    let (mut driver, requests) = h3::client::new(line).await.map_err(fault)?;
    tokio::spawn(async move { std::future::poll_fn(|context| driver.poll_close(context)).await });
    Ok((endpoint, requests))
}

/// Requests an object; `arrived` gets the pieces of its body.
pub(super) async fn get(
    requests: &mut QuicLine,
    server: SocketAddr,
    path: &str,
    mut arrived: impl FnMut(&[u8]),
) -> Result<(), LabError> {
    let request = Request::get(format!("https://{server}{path}"))
        .body(())
        .map_err(fault)?;
    let mut stream = requests.send_request(request).await.map_err(fault)?;
    stream.finish().await.map_err(fault)?;
    let response = stream.recv_response().await.map_err(fault)?;
    if !response.status().is_success() {
        return Err(fault(response.status()));
    }
    while let Some(mut data) = stream.recv_data().await.map_err(fault)? {
        while data.has_remaining() {
            let length = data.chunk().len();
            arrived(data.chunk());
            data.advance(length);
        }
    }
    Ok(())
}
