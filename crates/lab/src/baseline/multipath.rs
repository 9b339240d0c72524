//! The kernel's Multipath TCP (RFC 8684), set up as its own documentation says: an endpoint for each
//! address of the client, source routes, and limits that allow every subflow.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::{LabError, Namespace};

/// Subflows that each end allows beside the first one; the kernel's largest number.
const LIMIT: &str = "8";
/// The first of the routing tables with the source routes, one for each interface.
const FIRST_TABLE: usize = 100;

/// One of the client's ways to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subflow {
    /// The client's interface.
    pub interface: String,
    /// The client's address there.
    pub address: Ipv4Addr,
    /// The next hop.
    pub gateway: Ipv4Addr,
}

/// Lets both ends open a subflow over each of the client's interfaces.
pub(super) fn prepare(
    server: &Namespace,
    client: &Namespace,
    subflows: &[Subflow],
) -> Result<(), LabError> {
    for end in [server, client] {
        end.set_sysctl("net.mptcp.enabled", "1")?;
        let limits = [
            "mptcp",
            "limits",
            "set",
            "subflows",
            LIMIT,
            "add_addr_accepted",
            LIMIT,
        ];
        end.run("ip", &limits)?;
    }
    client.run("ip", &["mptcp", "endpoint", "flush"])?;
    let rules = client.run("ip", &["rule", "show"])?;
    let mut batch = String::new();
    for (index, subflow) in subflows.iter().enumerate() {
        let Subflow {
            interface,
            address,
            gateway,
        } = subflow;
        let table = FIRST_TABLE + index;
        if !rules.contains(&format!("from {address} ")) {
            batch += &format!("rule add from {address} table {table}\n");
        }
        batch += &format!("route replace default via {gateway} dev {interface} table {table}\n");
        batch += &format!("mptcp endpoint add {address} dev {interface} subflow\n");
    }
    client.run_with_input("ip", &["-batch", "-"], &batch)?;
    Ok(())
}

/// The kernel's counters of Multipath TCP in a host, since it was made.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters(BTreeMap<String, u64>);

impl Counters {
    pub(super) fn of(host: &Namespace) -> Result<Counters, LabError> {
        // `/proc/net` is that of the process, whose first thread is elsewhere.
        let text = host.enter(|| std::fs::read_to_string("/proc/thread-self/net/netstat"))?;
        let text = text.map_err(LabError::system("read the counters of Multipath TCP"))?;
        Ok(Counters::parse(&text))
    }

    fn parse(text: &str) -> Counters {
        let mut lines = text
            .lines()
            .filter_map(|line| line.strip_prefix("MPTcpExt:"));
        let (names, values) = (lines.next(), lines.next());
        let names = names.unwrap_or_default().split_whitespace();
        let values = values.unwrap_or_default().split_whitespace();
        let pairs = names
            .zip(values)
            .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
        Counters(pairs.collect())
    }

    fn count(&self, is_meant: impl Fn(&str) -> bool) -> u64 {
        let meant = self.0.iter().filter(|(name, _)| is_meant(name));
        meant.map(|(_, count)| count).sum()
    }

    /// Returns the reason for which a connection since `before` was not one over all `subflows`.
    pub(super) fn fault_since(&self, before: &Counters, subflows: usize) -> Option<String> {
        let since = |is_meant: fn(&str) -> bool| self.count(is_meant) - before.count(is_meant);
        let fallen = since(|name| name.contains("Fallback"));
        if fallen > 0 {
            return Some(String::from("Multipath TCP fell back to TCP"));
        }
        let joined = since(|name| name == "MPJoinSynAckRx") as usize + 1;
        (joined < subflows).then(|| {
            format!("Multipath TCP used {joined} of {subflows} interfaces: a subflow did not join")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "TcpExt: SyncookiesSent\nTcpExt: 7\n\
        MPTcpExt: MPCapableSYNRX MPCapableFallbackACK MPJoinSynAckRx\nMPTcpExt: 3 0 1\n";

    #[test]
    fn a_connection_without_all_its_subflows_is_no_multipath_connection() {
        let (before, after) = (Counters::default(), Counters::parse(TEXT));
        assert_eq!(after.fault_since(&before, 2), None);
        assert!(after.fault_since(&before, 3).is_some());
        let fallen = Counters::parse(&TEXT.replace("3 0 1", "3 1 1"));
        let said = fallen.fault_since(&before, 2).unwrap();
        assert!(said.contains("fell back"), "{said}");
        assert_eq!(fallen.fault_since(&fallen, 1), None);
    }
}
