//! How a command reaches a host: a daemon's socket, or a host in its own process.

use whimbrel_node::config::{Config, LinkSection};
use whimbrel_node::keys;
use whimbrel_node::local_client::{Attachment, LocalError};
use whimbrel_node::place::Places;
use whimbrel_node::run::EmbeddedHost;

use crate::arguments::HostAccess;
use crate::exit::{Exit, Failure};

/// A way to a host, and the host itself if it lives here.
pub(crate) struct Access {
    pub(crate) attachment: Attachment,
    /// Lives as long as what is attached to it.
    pub(crate) embedded: Option<EmbeddedHost>,
}

/// `direct` are links beside those to routers: to hosts that are asked directly, or to be asked by.
pub(crate) fn reach(access: &HostAccess, direct: Vec<LinkSection>) -> Result<Access, Failure> {
    if access.router.is_empty() && direct.is_empty() {
        if access.mtu.is_some() {
            return Err(Failure::new(
                Exit::Usage,
                "--mtu is for a host in this process; a daemon has `mtu` in the [[link]] of its configuration",
            ));
        }
        let path = access
            .socket
            .clone()
            .unwrap_or_else(|| Places::of_this_user().host_socket());
        return Ok(Access {
            attachment: Attachment::Socket(path),
            embedded: None,
        });
    }
    let keys = match &access.key {
        Some(path) => keys::load_or_create(path)?,
        None => keys::ephemeral()?,
    };
    let links = access
        .router
        .iter()
        .enumerate()
        .map(|(index, remote)| LinkSection {
            remote: Some(remote.clone()),
            ..LinkSection::new(format!("router-{index}"))
        });
    let with_mtu = |link: LinkSection| LinkSection {
        mtu: access.mtu.map_or(link.mtu, usize::from),
        ..link
    };
    let config = Config {
        link: links.chain(direct).map(with_mtu).collect(),
        ..Config::default()
    };
    let (host, stream) = EmbeddedHost::start(&config, keys)?;
    tracing::info!(guid = %host.guid(), "this process is a host of its own");
    Ok(Access {
        attachment: Attachment::Stream(Some(stream)),
        embedded: Some(host),
    })
}

/// The message for a socket that nobody listens on says both ways to a host.
pub(crate) fn no_host(error: LocalError) -> Failure {
    match error {
        LocalError::Nobody(path) => Failure::new(
            Exit::NoDaemon,
            format!(
                "no host answers on {}; start one with `whimbrel host run`, or do without by naming a router: \
                 `--router HOST:PORT`",
                path.display()
            ),
        ),
        other => other.into(),
    }
}
