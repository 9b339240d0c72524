//! Which servers a server side asks, and how it reaches them.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::{Either, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use crate::body::PipedBody;

/// How long one address of a server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(15);
/// A server that says nothing for this long, and takes nothing, is given up.
const SILENCE: Duration = Duration::from_secs(15 * 60);
/// Addresses of one name that are tried.
const MAX_TRIED: usize = 4;

/// Servers that may be asked, besides public ones or in place of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AllowedHost {
    /// A name, whatever its addresses.
    Name(String),
    /// All names that end with this, a dot first.
    Suffix(String),
    /// Addresses.
    Network(IpNet),
}

impl FromStr for AllowedHost {
    type Err = String;

    fn from_str(text: &str) -> Result<AllowedHost, String> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(AllowedHost::Network(address.into()));
        }
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(AllowedHost::Network(network));
        }
        let is_name = |name: &str| {
            let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            !name.is_empty() && name.chars().all(is_of_name)
        };
        let text = text.to_ascii_lowercase();
        match text.strip_prefix("*.") {
            Some(suffix) if is_name(suffix) => Ok(AllowedHost::Suffix(format!(".{suffix}"))),
            None if is_name(&text) => Ok(AllowedHost::Name(text)),
            _ => Err(format!(
                "`{text}` is no host name, *.SUFFIX, address or network"
            )),
        }
    }
}

/// Which servers may be asked.
#[derive(Clone, Debug, Default)]
pub struct OriginRule {
    /// Servers that may be asked whatever their addresses.
    pub allowed: Vec<AllowedHost>,
    /// False if only those may be asked, true if any with a public address.
    pub public: bool,
    /// The server that stands behind this side's own name.
    pub published: Option<String>,
}

/// Why a server is not reached.
#[derive(Debug, thiserror::Error)]
pub enum UnreachedServer {
    /// The rule forbids it.
    #[error(
        "{0} is not a server that this proxy may ask; its operator can permit it with `--allow`"
    )]
    Forbidden(String),
    /// The name has no address.
    #[error("the name {0} has no address")]
    NoAddress(String),
    /// No address accepts a connection.
    #[error("no connection to {0}: {1}")]
    NotReached(String, io::Error),
    /// The request names no server.
    #[error("the request names no server")]
    NoServer,
}

impl OriginRule {
    /// Connects to a server.
    pub async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, UnreachedServer> {
        let (host, port) = match &self.published {
            Some(published) if is_own(host) => split(published, 80)?,
            _ => (host.to_owned(), port),
        };
        let is_own = self.published.as_deref().is_some_and(|own| {
            split(own, 80).is_ok_and(|(name, own_port)| name == host && own_port == port)
        });
        let is_named = is_own || self.allows_name(&host);
        if !is_named && !self.public && self.networks().next().is_none() {
            return Err(UnreachedServer::Forbidden(host));
        }
        let addresses = resolve(&host, port).await?;
        let permitted = |address: &SocketAddr| is_named || self.allows_address(address.ip());
        let mut addresses = addresses.into_iter().filter(permitted).peekable();
        if addresses.peek().is_none() {
            return Err(UnreachedServer::Forbidden(host));
        }
        let mut last = io::Error::from(io::ErrorKind::TimedOut);
        for address in addresses.take(MAX_TRIED) {
            match tokio::time::timeout(CONNECT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Small requests must not wait for an acknowledgement.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(UnreachedServer::NotReached(format!("{host}:{port}"), last))
    }

    fn allows_name(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        self.allowed.iter().any(|allowed| match allowed {
            AllowedHost::Name(name) => *name == host,
            AllowedHost::Suffix(suffix) => host.ends_with(suffix.as_str()),
            AllowedHost::Network(_) => false,
        })
    }

    fn networks(&self) -> impl Iterator<Item = &IpNet> {
        self.allowed.iter().filter_map(|allowed| match allowed {
            AllowedHost::Network(network) => Some(network),
            _ => None,
        })
    }

    fn allows_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks().any(|network| network.contains(&address))
            || self.public && is_public(address)
    }
}

/// Returns true for the names under which a site's own server is asked.
pub fn is_own(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host.ends_with(".whimbrel")
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, UnreachedServer> {
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = literal.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let found = tokio::net::lookup_host((host, port)).await;
    let found: Vec<SocketAddr> = found.map(Iterator::collect).unwrap_or_default();
    match found.is_empty() {
        true => Err(UnreachedServer::NoAddress(host.to_owned())),
        false => Ok(found),
    }
}

/// Divides `host:port`.
pub fn split(authority: &str, default_port: u16) -> Result<(String, u16), UnreachedServer> {
    let authority: http::uri::Authority =
        authority.parse().map_err(|_| UnreachedServer::NoServer)?;
    let port = authority.port_u16().unwrap_or(default_port);
    Ok((authority.host().to_owned(), port))
}

/// Returns true for an address of the public internet, and false for one of a site, of this machine or of a use of
/// its own (RFC 6890 and its registries).
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = a == 0
        || a == 10
        || a == 127
        || a >= 224
        || a == 100 && b & 0xc0 == 64
        || a == 169 && b == 254
        || a == 172 && b & 0xf0 == 16
        || a == 192 && b == 168
        || a == 192 && b == 0 && (c == 0 || c == 2)
        || a == 192 && b == 88 && c == 99
        || a == 198 && b & 0xfe == 18
        || a == 198 && b == 51 && c == 100
        || a == 203 && b == 0 && c == 113;
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    // Addresses that carry one of IPv4: NAT64 and 6to4.
    if parts[..6] == [0x64, 0xff9b, 0, 0, 0, 0] {
        let [.., a, b] = parts;
        return is_public_v4(Ipv4Addr::from(u32::from(a) << 16 | u32::from(b)));
    }
    if parts[0] == 0x2002 {
        let inner = u32::from(parts[1]) << 16 | u32::from(parts[2]);
        return is_public_v4(Ipv4Addr::from(inner));
    }
    let is_documentation = parts[0] == 0x2001 && parts[1] == 0xdb8 || parts[0] == 0x3fff;
    let is_teredo = parts[0] == 0x2001 && parts[1] == 0;
    // Global unicast addresses begin with 001.
    parts[0] & 0xe000 == 0x2000 && !is_documentation && !is_teredo
}

/// A connection to a server. It fails once nothing has passed for a time.
#[derive(Debug)]
pub struct OriginStream {
    stream: TcpStream,
    patience: Duration,
    silent_at: Pin<Box<Sleep>>,
}

impl OriginStream {
    fn new(stream: TcpStream, patience: Duration) -> OriginStream {
        OriginStream {
            stream,
            patience,
            silent_at: Box::pin(tokio::time::sleep(patience)),
        }
    }

    /// Begins to wait anew if something has passed.
    fn note<T>(&mut self, passed: &Poll<io::Result<T>>) {
        if passed.is_ready() {
            let silent_at = Instant::now() + self.patience;
            self.silent_at.as_mut().reset(silent_at);
        }
    }
}

impl AsyncRead for OriginStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.note(&read);
        if read.is_pending() && self.silent_at.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl AsyncWrite for OriginStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, data);
        self.note(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, data);
        self.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Connection for OriginStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// Connections of hyper's client, by the rule.
#[derive(Clone, Debug)]
pub struct OriginConnector(pub Arc<OriginRule>);

impl tower_service::Service<Uri> for OriginConnector {
    type Response = TokioIo<OriginStream>;
    type Error = UnreachedServer;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, UnreachedServer>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), UnreachedServer>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let rule = Arc::clone(&self.0);
        Box::pin(async move {
            let host = target.host().ok_or(UnreachedServer::NoServer)?;
            let port = target.port_u16().unwrap_or(80);
            let stream = rule.connect(host, port).await?;
            Ok(TokioIo::new(OriginStream::new(stream, SILENCE)))
        })
    }
}

/// A body of a request to a server.
pub type RequestBody = Either<Empty<Bytes>, PipedBody>;

/// Asks the servers of the web.
pub type OriginClient = Client<OriginConnector, RequestBody>;

/// Returns the body of a request that has none.
pub fn no_body() -> RequestBody {
    Either::Left(Empty::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_site_are_not_public_however_they_are_written() {
        for text in [
            "127.0.0.1",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:7f00:1::",
            "2001:db8::1",
            "::127.0.0.1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        for text in [
            "1.1.1.1",
            "172.32.0.1",
            "2606:4700::1111",
            "64:ff9b::1.1.1.1",
            "::ffff:8.8.8.8",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[tokio::test]
    async fn a_server_that_says_nothing_is_given_up() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let mut stream = OriginStream::new(stream, Duration::from_millis(50));
        server.write_all(b"1").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'1');
        let error = stream.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // It is open all the time.
        drop(server);
    }

    #[test]
    fn a_rule_permits_names_suffixes_and_networks() {
        let allowed = ["printer.lan", "*.example.org", "10.1.0.0/16", "::1"];
        let rule = OriginRule {
            allowed: allowed.iter().map(|text| text.parse().unwrap()).collect(),
            ..OriginRule::default()
        };
        assert!(rule.allows_name("Printer.LAN."));
        assert!(rule.allows_name("a.b.example.org"));
        assert!(!rule.allows_name("example.org") && !rule.allows_name("badexample.org"));
        assert!(rule.allows_address("10.1.9.9".parse().unwrap()));
        assert!(rule.allows_address("::ffff:10.1.9.9".parse().unwrap()));
        assert!(!rule.allows_address("10.2.0.1".parse().unwrap()));
        assert!(!rule.allows_address("1.1.1.1".parse().unwrap()));
        assert!("*.".parse::<AllowedHost>().is_err() && "a b".parse::<AllowedHost>().is_err());
    }
}
