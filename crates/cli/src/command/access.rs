//! How a command reaches a host: a daemon's socket, or a host in its own process.

use whimbrel_client::place::host_daemon_socket;
use whimbrel_client::{AttachedSession, Attachment, LocalError};
use whimbrel_gnrs::KeyPair;
use whimbrel_node::config::{Config, Draft, LinkSection};
use whimbrel_node::keys;
use whimbrel_node::known_peers::KnownPeers;
use whimbrel_node::run::{EmbeddedHost, StartError};

use crate::arguments::HostAccess;
use crate::exit::{Exit, Failure};

/// A connection to a host, and the host itself if it runs in this process.
pub(crate) struct Access {
    pub(crate) attachment: Attachment,
    /// Dropping it stops the embedded host.
    pub(crate) embedded: Option<EmbeddedHost>,
    /// Of the embedded host, held until it ends.
    _key: Option<keys::HeldKey>,
}

impl Access {
    /// Connects for one question or a few: a daemon that ends is not called again.
    pub(crate) fn session(&mut self) -> Result<AttachedSession<'_>, Failure> {
        let client = self.attachment.connect().map_err(no_host)?;
        self.attachment = Attachment::Once(Some(client));
        AttachedSession::attach(&mut self.attachment).map_err(no_host)
    }

    /// Makes a new connection possible after a session with a host in this process.
    pub(crate) fn renew(&mut self) {
        if let Some(host) = &self.embedded {
            self.attachment = Attachment::Once(Some(host.connect()));
        }
    }
}

/// Connects to a host. `direct` are links in addition to those to routers: to hosts that are asked
/// directly, or for inbound peers.
pub(crate) fn reach(access: &HostAccess, direct: Vec<LinkSection>) -> Result<Access, Failure> {
    if access.router.is_empty() && direct.is_empty() {
        if access.plain {
            return Err(Failure::new(
                Exit::Usage,
                "--plain is for a host in this process; a daemon has `plain` in the [[link]] of its configuration",
            ));
        }
        if access.mtu.is_some() {
            return Err(Failure::new(
                Exit::Usage,
                "--mtu is for a host in this process; a daemon has `mtu` in the [[link]] of its configuration",
            ));
        }
        if access.post_quantum.is_some() {
            return Err(Failure::new(
                Exit::Usage,
                "--post-quantum is for a host in this process; a daemon has `post_quantum` in [hop] of its configuration",
            ));
        }
        let path = access.socket.clone().unwrap_or_else(host_daemon_socket);
        return Ok(Access {
            attachment: Attachment::Socket(path),
            embedded: None,
            _key: None,
        });
    }
    let Some(path) = &access.key else {
        return embed(access, direct, keys::ephemeral()?);
    };
    let (keys, held) = keys::hold(path)?;
    let known = |links: &[LinkSection]| KnownPeers::beside(path, links);
    Ok(Access {
        _key: Some(held),
        ..embed_with(access, direct, keys, known)?
    })
}

/// Runs a host in this process, with these keys, which are kept nowhere.
pub(crate) fn embed(
    access: &HostAccess,
    direct: Vec<LinkSection>,
    keys: KeyPair,
) -> Result<Access, Failure> {
    embed_with(access, direct, keys, KnownPeers::of_this_user)
}

/// `known` finds the names of the routers. A host that is asked directly has another name each time,
/// unless it was told a key.
fn embed_with(
    access: &HostAccess,
    direct: Vec<LinkSection>,
    keys: KeyPair,
    known: impl FnOnce(&[LinkSection]) -> Result<KnownPeers, StartError>,
) -> Result<Access, Failure> {
    let links = access
        .router
        .iter()
        .enumerate()
        .map(|(index, router)| LinkSection::towards(format!("router-{index}"), router.clone()));
    let with_mtu = |link: LinkSection| LinkSection {
        mtu: access.mtu.map_or(link.mtu, usize::from),
        plain: access.plain,
        ..link
    };
    let mut config = Config {
        link: links.chain(direct).map(with_mtu).collect(),
        ..Config::default()
    };
    config.hop.post_quantum = access.post_quantum.unwrap_or_default();
    let plan = Draft::from(config).embedded_host()?;
    let known = known(&plan.links[..access.router.len()])?;
    let (host, client) = EmbeddedHost::start(plan, keys, known)?;
    tracing::info!(guid = %host.guid(), "running a host in this process");
    Ok(Access {
        attachment: Attachment::Once(Some(client)),
        embedded: Some(host),
        _key: None,
    })
}

/// Adds the two ways to reach a host to the error of a socket without a listener.
pub(crate) fn no_host(error: LocalError) -> Failure {
    match error {
        LocalError::Nobody(path) => Failure::new(
            Exit::NoDaemon,
            format!(
                "no host daemon listens on {}; start one with `whimbrel host run`, or run without one by naming a router: \
                 `--router HOST:PORT`",
                path.display()
            ),
        ),
        other => other.into(),
    }
}
