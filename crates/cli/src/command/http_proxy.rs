//! `http-proxy client|server`.
#![allow(
    rustdoc::bare_urls,
    reason = "doc comments of options are texts of --help"
)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::json;
use whimbrel_core::Guid;
use whimbrel_core::units::{ByteSize, Span};
use whimbrel_http_proxy::client::ClientOptions;
use whimbrel_http_proxy::origin::{AllowedHost, OriginRule, split};
use whimbrel_http_proxy::run::{Common, ProxyError, run_client, run_server};
use whimbrel_http_proxy::server::{PermittedCallers, ServerOptions};
use whimbrel_node::config::{Bind, LinkSection, NamedRemote};
use whimbrel_node::keys::random_bytes;

use super::access::{Access, no_host, reach};
use super::inbox::senders;
use super::serve::{DIRECT, listening};
use super::{Outcome, directory, offering, stop_flag, tell, tell_json};
use crate::arguments::HostAccess;
use crate::exit::{self, Exit, Failure};

#[derive(Subcommand, Debug)]
pub(crate) enum HttpProxyCommand {
    /// Run the client side: the proxy for browsers, curl, apt, pip and git
    #[command(after_help = format!("Examples:\n  whimbrel http-proxy client --to 6b1e...c2 --router 192.0.2.1:4711 --key web.pem\n  \
                      curl -x http://127.0.0.1:3128 https://example.org/\n\nThe other side, `whimbrel http-proxy server`, sends requests to web servers.\n\n{}", exit::HELP))]
    Client(ProxyClient),
    /// Run the server side: it sends the requests of client sides to web servers
    #[command(after_help = format!("Examples:\n  whimbrel http-proxy server --from 81f0...aa --router 192.0.2.1:4711 --key server.pem\n  \
                      whimbrel http-proxy server --from anyone --publish 127.0.0.1:8000\n\nIt prints its name for `whimbrel http-proxy client --to NAME`. Private addresses of \
                      its own site are refused unless --allow permits them.\n\n{}", exit::HELP))]
    Server(ProxyServer),
}

#[derive(Args, Debug)]
pub(crate) struct ProxyClient {
    /// The name of the server side's host, which it prints, or its alias; without one, only NAME.whimbrel is reachable
    #[arg(long, value_name = "NAME", value_parser = directory::name)]
    to: Option<Guid>,
    /// Address of the proxy for programs; a port alone stands for 127.0.0.1
    #[arg(long, value_name = "[ADDRESS:]PORT", default_value = "127.0.0.1:3128", value_parser = listen)]
    listen: SocketAddr,
    /// Reach the server side directly at this address: no router or name service is needed
    #[arg(long, value_name = "[NAME@]HOST:PORT", conflicts_with = "socket", requires = "to", value_parser = directory::remote)]
    at: Option<NamedRemote>,
    /// Give up a request when nothing has been heard from the server side for this long
    #[arg(long, value_name = "DURATION", default_value = "5 min", value_parser = Span::with_unit)]
    patience: Span,
    /// Cache size for responses; 0 disables the cache
    #[arg(long, value_name = "SIZE", default_value = "256 MiB")]
    cache: ByteSize,
    /// Serve a stale response if its server has not revalidated it within this time
    #[arg(long, value_name = "DURATION", default_value = "5 s", value_parser = Span::with_unit)]
    stale_after: Span,
    /// How long an unanswered GET is retried after its program has given up;
    /// http://proxy.whimbrel/ lists them
    #[arg(long, value_name = "DURATION", default_value = "24 h", value_parser = Span::with_unit)]
    keep: Span,
    #[command(flatten)]
    access: HostAccess,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ProxyServer {
    /// A permitted caller: the name of a client side's host, or "anyone"; can be repeated
    #[arg(long, value_name = "NAME|anyone", required_unless_present = "known")]
    from: Vec<String>,
    /// A file with the names of permitted callers, one on each line; the rest of a line, and lines that begin
    /// with #, are remarks
    #[arg(long, value_name = "FILE")]
    known: Option<PathBuf>,
    /// Allow this server regardless of its address: a host name, *.SUFFIX, an address or a network; can be repeated
    #[arg(long, value_name = "HOST")]
    allow: Vec<AllowedHost>,
    /// Allow only the servers of --allow and --publish
    #[arg(long)]
    only: bool,
    /// The server that clients reach as http://NAME.whimbrel/; without --allow, no other server is reachable
    #[arg(long, value_name = "HOST:PORT")]
    publish: Option<String>,
    /// Also answer client sides that connect here directly (`--at`)
    #[arg(long, value_name = "[ADDRESS:]PORT", conflicts_with = "socket")]
    listen: Option<Bind>,
    /// Give up a request when nothing has been heard from its client side for this long
    #[arg(long, value_name = "DURATION", default_value = "10 min", value_parser = Span::with_unit)]
    patience: Span,
    #[command(flatten)]
    access: HostAccess,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

/// Reads the address of the proxy; a port alone is one of this machine only, because a proxy serves
/// anyone who reaches it.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let port = text
        .parse()
        .map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)));
    port.or_else(|_| text.parse()).map_err(|_| {
        "write a port, or an IP address and a port, as in 3128, 127.0.0.1:3128 or [::1]:3128"
            .to_owned()
    })
}

pub(crate) fn run(command: HttpProxyCommand) -> Outcome {
    match command {
        HttpProxyCommand::Client(arguments) => client(arguments),
        HttpProxyCommand::Server(arguments) => server(arguments),
    }
}

fn client(arguments: ProxyClient) -> Outcome {
    let stop = stop_flag()?;
    let direct = arguments.at.as_ref().map(|host| {
        let link = LinkSection::towards("at", host.clone());
        LinkSection {
            name: link.name.or(arguments.to),
            ..link
        }
    });
    let mut access = reach(&arguments.access, direct.into_iter().collect())?;
    let common = Common {
        attachment: attachment(&mut access),
        patience: arguments.patience.0,
        secret: random_bytes()?,
        stop: &stop,
    };
    let options = ClientOptions {
        server: arguments.to,
        cache: arguments.cache.0,
        stale_after: arguments.stale_after.0,
        keep: arguments.keep.0,
        find: Arc::new(|text| {
            // 64 digits are one more than a label of a host name may have.
            let digits = text.replace('.', "");
            directory::name(&digits)
                .or_else(|_| directory::name(text))
                .ok()
        }),
    };
    let json = arguments.json;
    run_client(common, arguments.listen, options, |name, address| {
        if json {
            return tell_json(&json!({ "event": "listening", "name": name, "proxy": format!("http://{address}") }));
        }
        tell(&format!("http://{address} is the proxy of host {name}\n"));
    })
    .map_err(failure)?;
    Ok(Exit::Done)
}

fn server(arguments: ProxyServer) -> Outcome {
    let stop = stop_flag()?;
    let callers = senders(&arguments.from, arguments.known.as_deref())?;
    if let Some(published) = &arguments.publish {
        split(published, 80).map_err(|_| {
            Failure::new(
                Exit::Usage,
                format!("--publish: `{published}` is not HOST:PORT"),
            )
        })?;
    }
    let mut access = reach(&arguments.access, listening(arguments.listen.as_ref()))?;
    let links = access.embedded.as_ref().map(|host| host.links());
    let listener = links.and_then(|links| links.get(DIRECT));
    let addresses = listener.into_iter().flat_map(offering::reachable);
    let addresses: Vec<String> = addresses.map(|address| address.to_string()).collect();
    let common = Common {
        attachment: attachment(&mut access),
        patience: arguments.patience.0,
        secret: random_bytes()?,
        stop: &stop,
    };
    let options = ServerOptions {
        callers: callers.map_or(PermittedCallers::Anyone, PermittedCallers::Listed),
        origins: OriginRule {
            public: !arguments.only && (arguments.publish.is_none() || !arguments.allow.is_empty()),
            allowed: arguments.allow,
            published: arguments.publish,
        },
    };
    let json = arguments.json;
    run_server(common, options, |name| {
        if json {
            return tell_json(
                &json!({ "event": "listening", "name": name, "addresses": addresses }),
            );
        }
        let at = addresses.first();
        let at = at.map_or(String::new(), |address| format!(" --at {address}"));
        tell(&format!("whimbrel http-proxy client --to {name}{at}\n"));
    })
    .map_err(failure)?;
    Ok(Exit::Done)
}

fn attachment(access: &mut Access) -> whimbrel_client::Attachment {
    let none = whimbrel_client::Attachment::Once(None);
    std::mem::replace(&mut access.attachment, none)
}

fn failure(error: ProxyError) -> Failure {
    match error {
        ProxyError::Host(error) => no_host(error),
        ProxyError::Listen(_, ref cause) if cause.kind() == std::io::ErrorKind::AddrInUse => {
            Failure::new(Exit::InUse, error.to_string())
        }
        error => Failure::new(Exit::Other, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_listens_on_this_machine_only() {
        for (text, address) in [
            ("4720", "127.0.0.1:4720"),
            ("0.0.0.0:4720", "0.0.0.0:4720"),
            ("[::1]:4720", "[::1]:4720"),
        ] {
            assert_eq!(
                listen(text).map(|it| it.to_string()).as_deref(),
                Ok(address)
            );
        }
        for text in ["", "65536", "localhost:4720", "127.0.0.1"] {
            assert!(listen(text).is_err(), "{text}");
        }
    }
}
