//! The names that were proven at the addresses of configured neighbours, as ssh keeps its known hosts:
//! whoever answers at such an address later under another name gets no session.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_core::{Guid, Peer};
use whimbrel_gnrs::Store;
use whimbrel_io::{IoError, LoopHandle};
use whimbrel_mobilityfirst::links::NameRule;

use crate::config::{LinkSection, Way};
use crate::kept::KeptFile;
use crate::machine::Node;
use crate::run::StartError;
use whimbrel_client::place::known_peers_file;

/// The file is written this often if there is a new name: one of the last moment before a node is
/// killed is not kept.
const INTERVAL: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(5);
/// Addresses that are kept; the one that was entered first is forgotten for a further one.
const MAX_KEPT: usize = 4096;

const WHAT: &str = "which names the neighbours have proven";

/// An address, as it is configured, and the name that was proven there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct KnownPeer {
    address: String,
    name: Guid,
}

/// The names of a node's neighbours, and the file where they are kept.
#[derive(Clone, Debug)]
pub struct KnownPeers {
    /// `None` if nothing is kept.
    file: Option<KeptFile<Vec<KnownPeer>>>,
    peers: Vec<KnownPeer>,
    /// The addresses of links, by their numbers.
    addresses: BTreeMap<u32, String>,
}

impl KnownPeers {
    /// Keeps no names: any name will do where the configuration gives none.
    pub fn none() -> KnownPeers {
        KnownPeers {
            file: None,
            peers: Vec::new(),
            addresses: BTreeMap::new(),
        }
    }

    /// Reads the names that a node with this key has found at the ends of its links, which are the
    /// first of its configuration.
    pub fn beside(key: &Path, links: &[LinkSection]) -> Result<KnownPeers, StartError> {
        KnownPeers::read(KeptFile::beside(key, ".peers.json", WHAT), links, |_| true)
    }

    /// Reads the names that this user's programs without a key of their own have found, if they keep any. Programs of
    /// this machine pass its own addresses on to each other, so names are not kept for these.
    pub fn of_this_user(links: &[LinkSection]) -> Result<KnownPeers, StartError> {
        let Some(path) = known_peers_file() else {
            return Ok(KnownPeers::none());
        };
        let file = KeptFile::at(path, WHAT);
        KnownPeers::read(file, links, |way| !is_loopback(way))
    }

    fn read(
        file: KeptFile<Vec<KnownPeer>>,
        links: &[LinkSection],
        is_kept: impl Fn(&Way) -> bool,
    ) -> Result<KnownPeers, StartError> {
        let remote = |link: &LinkSection| {
            let remote = link.remote.as_ref().filter(|it| is_kept(it.way()))?;
            Some(remote.to_string())
        };
        let numbered = (0..).zip(links);
        let addresses: BTreeMap<u32, String> = numbered
            .filter_map(|(number, link)| Some((number, remote(link)?)))
            .collect();
        if addresses.is_empty() {
            return Ok(KnownPeers::none());
        }
        let peers = file.read().map_err(|source| StartError::KnownPeers {
            path: file.path().to_owned(),
            source,
        })?;
        Ok(KnownPeers {
            file: Some(file),
            peers,
            addresses,
        })
    }

    /// Returns what the neighbours of these links must prove, by the links' numbers.
    pub(crate) fn rules(&self, links: &[LinkSection]) -> Vec<(u32, NameRule)> {
        let rule = |(number, link): (u32, &LinkSection)| {
            let first = || {
                let address = self.addresses.get(&number)?;
                Some(NameRule::FirstProven(self.name_at(address)))
            };
            let rule = link.name.map(NameRule::Given).or_else(first)?;
            Some((number, rule))
        };
        (0..).zip(links).filter_map(rule).collect()
    }

    fn name_at(&self, address: &str) -> Option<Guid> {
        let known = self.peers.iter().find(|peer| peer.address == address);
        known.map(|peer| peer.name)
    }

    /// Returns what is to be kept once these names were proven: the file may have others meanwhile.
    fn with(&self, proven: &BTreeMap<u32, Guid>) -> Vec<KnownPeer> {
        let mut peers = self.peers.clone();
        if let Some(Ok(newer)) = self.file.as_ref().map(KeptFile::read) {
            peers = newer;
        }
        for (number, name) in proven {
            let Some(address) = self.addresses.get(number) else {
                continue;
            };
            let (address, name) = (address.clone(), *name);
            let known = peers.iter_mut().find(|peer| peer.address == address);
            match known {
                Some(known) => known.name = name,
                None => peers.push(KnownPeer { address, name }),
            }
        }
        peers.drain(..peers.len().saturating_sub(MAX_KEPT));
        peers
    }

    /// Keeps these names.
    pub(crate) fn note(&self, proven: &BTreeMap<u32, Guid>) {
        let peers = self.with(proven);
        if let Some(file) = self.file.as_ref().filter(|_| peers != self.peers) {
            file.note(&peers);
        }
    }

    /// Keeps the file up to date until the node's loop ends.
    pub(crate) fn follow<S: Store + 'static>(
        &self,
        handle: LoopHandle<Node<S>>,
    ) -> Result<(), StartError> {
        let Some(file) = self.file.clone() else {
            return Ok(());
        };
        let known = self.clone();
        let ask = move || {
            let (answer, asked) = mpsc::channel();
            let task = move |node: &mut Node<S>, _| {
                let _ = answer.send(node.proven_names());
            };
            handle.post(task)?;
            // It does not answer while it is busy.
            let proven = asked.recv_timeout(PATIENCE).ok();
            Ok::<_, IoError>(proven.map(|proven| known.with(&proven)))
        };
        file.follow(self.peers.clone(), INTERVAL, ask, |_, _| {})
    }
}

fn is_loopback(way: &Way) -> bool {
    let is_own = |ip: IpAddr| ip.to_canonical().is_loopback();
    match way {
        Way::Udp(Peer::Address(at)) | Way::Ip(Peer::Address(at)) => is_own(at.ip()),
        Way::Udp(Peer::Named { host, .. }) | Way::Ip(Peer::Named { host, .. }) => {
            host == "localhost"
        }
        Way::Ethernet { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(remote: &str) -> LinkSection {
        LinkSection::towards(remote, remote.parse().unwrap())
    }

    fn name(byte: u8) -> Guid {
        Guid([byte; 32])
    }

    #[test]
    fn the_first_name_at_an_address_is_kept_and_a_given_name_replaces_it() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("router.pem");
        let links = [link("192.0.2.1:1"), link("a.example:2")];
        let known = KnownPeers::beside(&key, &links).unwrap();
        let nothing = NameRule::FirstProven(None);
        assert_eq!(known.rules(&links), [(0, nothing), (1, nothing)]);
        known.note(&BTreeMap::from([(1, name(7))]));
        // The links have another order in the next run.
        let again = [link("a.example:2"), link("192.0.2.1:1")];
        let known = KnownPeers::beside(&key, &again).unwrap();
        let kept = NameRule::FirstProven(Some(name(7)));
        assert_eq!(known.rules(&again), [(0, kept), (1, nothing)]);
        let given = [link(&format!("{}@a.example:2", name(8)))];
        let known = KnownPeers::beside(&key, &given).unwrap();
        assert_eq!(known.rules(&given), [(0, NameRule::Given(name(8)))]);
        known.note(&BTreeMap::from([(0, name(8))]));
        let known = KnownPeers::beside(&key, &again).unwrap();
        assert_eq!(known.name_at("a.example:2"), Some(name(8)));
    }

    #[test]
    fn names_are_not_read_from_a_damaged_file_and_not_taken_for_none() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("router.pem");
        let file = folder.path().join("router.pem.peers.json");
        std::fs::write(&file, "[{").unwrap();
        let error = KnownPeers::beside(&key, &[link("192.0.2.1:1")]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("router.pem.peers.json"), "{text}");
    }

    #[test]
    fn a_full_file_forgets_the_address_that_was_entered_first() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("router.pem");
        let links: Vec<LinkSection> = (0..=MAX_KEPT)
            .map(|number| link(&format!("192.0.2.1:{}", number + 1)))
            .collect();
        let known = KnownPeers::beside(&key, &links).unwrap();
        let proven = (0..=MAX_KEPT as u32).map(|number| (number, name(1)));
        let peers = known.with(&proven.collect());
        assert_eq!(peers.len(), MAX_KEPT);
        assert_eq!(peers[0].address, "192.0.2.1:2");
    }

    #[test]
    fn programs_without_a_key_keep_no_names_of_this_machines_addresses() {
        let way = |text: &str| link(text).remote.unwrap().way().clone();
        for (text, is_own) in [
            ("127.0.0.1:1", true),
            ("[::1]:1", true),
            ("192.0.2.1:1", false),
            ("ip://127.0.0.1", true),
            ("ether://[02:00:5e:10:00:07%lo]", false),
        ] {
            assert_eq!(is_loopback(&way(text)), is_own, "{text}");
        }
    }
}
