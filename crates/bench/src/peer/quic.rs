//! quinn's side: one process that serves a file over QUIC, one that fetches it.
//!
//! Defaults of quinn, except where a default would be the limit of a fast clean link: flow control
//! windows, the kernel's socket buffers (Whimbrel requests the same), and the largest packet that
//! MTU discovery probes.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use quinn::{
    ClientConfig, Endpoint, EndpointConfig, MtuDiscoveryConfig, ServerConfig, TokioRuntime,
    TransportConfig, VarInt,
};
use rustix::net::sockopt;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::{PeerEnd, PeerError};

/// Flow control windows in bytes: far beyond what a veth pair has in flight.
const WINDOW: u32 = 256 << 20;
/// Requested kernel buffers in bytes: those of `whimbrel_io::UdpConfig`.
const SOCKET_BUFFER: usize = 8 << 20;
/// Bytes read from the file at a time; handed to quinn without a copy.
const READ_SIZE: usize = 1 << 20;
/// Received pieces that are written to the file with one system call (Linux's IOV_MAX).
const PIECES: usize = 1024;
/// IPv4 and UDP headers, bytes.
const HEADERS: u16 = 28;
const HOST_NAME: &str = "whimbrel-bench";

/// Listens, writes the certificate to its file, calls `ready` and sends the file to the first
/// client that connects.
pub(super) fn serve(end: &PeerEnd, ready: impl FnOnce()) -> Result<(), PeerError> {
    let PeerEnd {
        address,
        mtu,
        threads,
        ..
    } = *end;
    let (file, certificate) = (&end.file, &end.certificate);
    runtime(threads)?.block_on(async {
        let made =
            rcgen::generate_simple_self_signed([HOST_NAME.to_owned()]).map_err(PeerError::quic)?;
        let proof = CertificateDer::from(made.cert);
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        std::fs::write(certificate, &proof).map_err(PeerError::file(certificate))?;
        let mut config =
            ServerConfig::with_single_cert(vec![proof], key.into()).map_err(PeerError::quic)?;
        config.transport_config(transport(mtu));
        let endpoint = endpoint(address, mtu, Some(config))?;
        ready();
        let incoming = endpoint
            .accept()
            .await
            .ok_or_else(|| PeerError::quic("the endpoint was closed"))?;
        let connection = incoming.await.map_err(PeerError::quic)?;
        let mut stream = connection.open_uni().await.map_err(PeerError::quic)?;
        let mut source = File::open(file).map_err(PeerError::file(file))?;
        loop {
            let mut block = BytesMut::zeroed(READ_SIZE);
            let count = source.read(&mut block).map_err(PeerError::file(file))?;
            if count == 0 {
                break;
            }
            block.truncate(count);
            stream
                .write_chunk(block.freeze())
                .await
                .map_err(PeerError::quic)?;
        }
        stream.finish().map_err(PeerError::quic)?;
        // The client closes when it has the whole file.
        connection.closed().await;
        Ok(())
    })
}

/// Fetches the server's file.
pub(super) fn fetch(end: &PeerEnd) -> Result<(), PeerError> {
    let PeerEnd {
        address,
        mtu,
        threads,
        ..
    } = *end;
    let (output, certificate) = (&end.file, &end.certificate);
    runtime(threads)?.block_on(async {
        let proof = std::fs::read(certificate).map_err(PeerError::file(certificate))?;
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from(proof))
            .map_err(PeerError::quic)?;
        let mut config =
            ClientConfig::with_root_certificates(Arc::new(roots)).map_err(PeerError::quic)?;
        config.transport_config(transport(mtu));
        let endpoint = endpoint(SocketAddr::from(([0, 0, 0, 0], 0)), mtu, None)?;
        let connecting = endpoint
            .connect_with(config, address, HOST_NAME)
            .map_err(PeerError::quic)?;
        let connection = connecting.await.map_err(PeerError::quic)?;
        let mut stream = connection.accept_uni().await.map_err(PeerError::quic)?;
        let mut target = File::create(output).map_err(PeerError::file(output))?;
        let mut pieces = vec![Bytes::new(); PIECES];
        while let Some(count) = stream
            .read_chunks(&mut pieces)
            .await
            .map_err(PeerError::quic)?
        {
            write_all(&mut target, &pieces[..count]).map_err(PeerError::file(output))?;
        }
        connection.close(VarInt::from_u32(0), b"done");
        // Lets the connection's task send the CLOSE; `wait_idle` would wait for three more
        // timeouts.
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        Ok(())
    })
}

fn write_all(file: &mut File, pieces: &[Bytes]) -> std::io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut left = slices.as_mut_slice();
    while !left.is_empty() {
        let written = file.write_vectored(left)?;
        if written == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut left, written);
    }
    Ok(())
}

fn runtime(threads: usize) -> Result<tokio::runtime::Runtime, PeerError> {
    let mut builder = match threads {
        ..=1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let built = builder.worker_threads(threads.max(1)).enable_all().build();
    built.map_err(PeerError::system("start quinn's runtime"))
}

fn transport(mtu: u16) -> Arc<TransportConfig> {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(mtu - HEADERS);
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(WINDOW.into())
        .mtu_discovery_config(Some(discovery));
    Arc::new(transport)
}

fn endpoint(
    address: SocketAddr,
    mtu: u16,
    server: Option<ServerConfig>,
) -> Result<Endpoint, PeerError> {
    let socket =
        UdpSocket::bind(address).map_err(PeerError::system(format!("listen at {address}")))?;
    // Beyond the system's limit if permitted, as Whimbrel's sockets.
    if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER);
    }
    if sockopt::set_socket_send_buffer_size_force(&socket, SOCKET_BUFFER).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER);
    }
    let mut config = EndpointConfig::default();
    config
        .max_udp_payload_size(mtu - HEADERS)
        .map_err(PeerError::quic)?;
    Endpoint::new(config, server, socket, Arc::new(TokioRuntime))
        .map_err(PeerError::system("start a QUIC endpoint"))
}
