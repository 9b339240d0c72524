//! Where a name server has its records.

use core::fmt;
use std::path::{Path, PathBuf};

use whimbrel_core::Peer;
use whimbrel_gnrs_cluster::{ClusterAddress, ClusterConfig};

use super::checks::Found;
use super::sections::GnrsSection;
use whimbrel_client::place::Places;

/// Where a name server has its records.
#[derive(Clone, Debug)]
pub enum NameStorePlan {
    /// In memory.
    Memory,
    /// In a file.
    Disk(PathBuf),
    /// On a Redis or Valkey Cluster.
    Cluster(ClusterConfig),
}

impl NameStorePlan {
    /// Returns the file, or the address of the cluster without the password.
    pub fn place(&self) -> Option<PathBuf> {
        match self {
            NameStorePlan::Memory => None,
            other => Some(other.to_string().into()),
        }
    }
}

impl fmt::Display for NameStorePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameStorePlan::Memory => f.write_str("memory"),
            NameStorePlan::Disk(path) => path.display().fmt(f),
            NameStorePlan::Cluster(config) => config.address.fmt(f),
        }
    }
}

/// The most name servers that a name server knows.
const MAX_PEERS: usize = 1024;

/// Reads `gnrs.peers`.
pub(super) fn peers(
    section: &GnrsSection,
    store: &NameStorePlan,
    found: &mut Found<'_>,
) -> Vec<(String, Peer)> {
    if section.peers.len() > MAX_PEERS {
        found.add("gnrs.peers", format!("at most {MAX_PEERS} are possible"));
    }
    if !section.peers.is_empty() && matches!(store, NameStorePlan::Cluster(_)) {
        let text = "name servers on one cluster have the same records: peers are for a store in a file or in memory";
        found.add("gnrs.peers", text);
    }
    if section.peers.len() >= section.copies && section.name.is_none() {
        let text = "with fewer copies than servers, each needs the name by which the others know it (gnrs.name)";
        found.add("gnrs.copies", text);
    }
    let mut peers = Vec::new();
    for (index, remote) in section.peers.iter().enumerate() {
        match remote.udp() {
            Some(peer) => peers.push((remote.to_string(), peer)),
            None => found.add(
                format!("gnrs.peers[{index}]"),
                "name servers are reached over UDP: write HOST:PORT",
            ),
        }
    }
    peers
}

/// Reads `gnrs.store` and the keys that belong to a cluster.
pub(super) fn store(section: &GnrsSection, found: &mut Found<'_>) -> NameStorePlan {
    let text = section.store.as_deref().and_then(Path::to_str);
    let Some(text) = text.filter(|it| ClusterAddress::is_meant_by(it)) else {
        let only_clusters = "is for a store on a cluster only (gnrs.store = \"redis://...\")";
        if section.store_password_file.is_some() {
            found.add("gnrs.store_password_file", only_clusters);
        }
        if section.store_certificates.is_some() {
            found.add("gnrs.store_certificates", only_clusters);
        }
        return match &section.store {
            Some(path) if path == Path::new("memory") => NameStorePlan::Memory,
            Some(path) => NameStorePlan::Disk(path.clone()),
            None => NameStorePlan::Disk(Places::of_this_user().state.join("names.redb")),
        };
    };
    let mut address = match text.parse::<ClusterAddress>() {
        Ok(address) => address,
        Err(fault) => {
            found.add("gnrs.store", fault.to_string());
            return NameStorePlan::Memory;
        }
    };
    if let Some(path) = &section.store_password_file {
        match std::fs::read_to_string(path) {
            Ok(password) => address.password = Some(password.trim_end_matches('\n').to_owned()),
            Err(fault) => found.add(
                "gnrs.store_password_file",
                format!("cannot read {}: {fault}", path.display()),
            ),
        }
    }
    let is_tls = address.tls;
    let mut config = ClusterConfig::new(address);
    config.max_providers = section.max_providers;
    if let Some(path) = &section.store_certificates {
        match std::fs::read(path) {
            Ok(_) if !is_tls => found.add(
                "gnrs.store_certificates",
                "is for TLS only: begin gnrs.store with rediss://",
            ),
            Ok(certificates) => config.root_certificates = Some(certificates),
            Err(fault) => found.add(
                "gnrs.store_certificates",
                format!("cannot read {}: {fault}", path.display()),
            ),
        }
    }
    NameStorePlan::Cluster(config)
}
