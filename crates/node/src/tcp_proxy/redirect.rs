//! Redirection of TCP alone to the device: nftables mark the packets, and a routing table of their
//! own leads them there. Other protocols to the same addresses keep their routes.

use std::fmt::Write;
use std::process::{Command, Stdio};

use ipnet::IpNet;

use super::run::{RunError, ip};

/// The upper octet of marks and of numbers of routing tables, far from those that people give.
const FIRST_OCTET: u8 = 0x77;

/// Which packets go to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirection {
    /// The device.
    pub device: String,
    /// Destinations: the addresses of the routes.
    pub to: Vec<IpNet>,
    /// Sources: what the policy allows at this side.
    pub from: Vec<IpNet>,
}

impl Redirection {
    /// Returns the number of its routing table, which is its mark too, of the device's whole name: two
    /// proxies on one machine have devices with different names.
    fn table(&self) -> u32 {
        let hash = blake3::hash(self.device.as_bytes());
        let [a, b, c, ..] = *hash.as_bytes();
        u32::from_be_bytes([FIRST_OCTET, a, b, c])
    }

    fn name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let device: String = self.device.chars().map(plain).collect();
        format!("whimbrel_{device}")
    }

    /// Returns the sources and destinations of one address family; `None` if there is nothing to
    /// redirect.
    fn family(&self, is_v4: bool) -> Option<[String; 2]> {
        let of = |nets: &[IpNet]| {
            let mut nets: Vec<IpNet> = nets.iter().map(IpNet::trunc).collect();
            nets.retain(|net| net.addr().is_ipv4() == is_v4);
            // nftables refuse sets that overlap.
            let nets: Vec<String> = IpNet::aggregate(&nets)
                .iter()
                .map(IpNet::to_string)
                .collect();
            (!nets.is_empty()).then(|| nets.join(", "))
        };
        Some([of(&self.from)?, of(&self.to)?])
    }

    /// Returns the rules, for `nft -f -`. What an earlier run left behind is replaced.
    pub fn rules(&self) -> String {
        let (name, mark) = (self.name(), self.table());
        let mut marks = String::new();
        for (family, is_v4) in [("ip", true), ("ip6", false)] {
            if let Some([from, to]) = self.family(is_v4) {
                // Cannot fail: it is a String.
                let _ = writeln!(
                    marks,
                    "        meta l4proto tcp {family} saddr {{ {from} }} {family} daddr {{ {to} }} meta mark set {mark}"
                );
            }
        }
        let device = &self.device;
        format!(
            "table inet {name}\ndelete table inet {name}\ntable inet {name} {{\n    chain local {{\n        \
             type route hook output priority mangle\n{marks}    }}\n    chain forwarded {{\n        \
             type filter hook prerouting priority mangle\n        iifname \"{device}\" return\n{marks}    }}\n}}\n"
        )
    }

    /// Returns the commands of `ip` that belong to the rules.
    pub fn commands(&self) -> Vec<Vec<String>> {
        let (table, device) = (self.table(), &self.device);
        let families = [("-4", true), ("-6", false)].into_iter();
        let families = families.filter(|(_, is_v4)| self.family(*is_v4).is_some());
        let commands = families.flat_map(|(family, _)| {
            [
                format!("{family} rule add fwmark {table} lookup {table}"),
                format!("{family} route replace default dev {device} table {table}"),
            ]
        });
        commands
            .map(|command| command.split(' ').map(str::to_owned).collect())
            .collect()
    }

    /// Installs rules and routes. The device must exist.
    pub(super) fn install(&self) -> Result<(), RunError> {
        self.remove();
        nft(&["-f", "-"], &self.rules())?;
        for command in self.commands() {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            ip(&words)?;
        }
        // What comes out of the device has sources whose routes, without the mark, lead elsewhere:
        // loose filtering accepts that (ip-sysctl(7)).
        let filter = format!("/proc/sys/net/ipv4/conf/{}/rp_filter", self.device);
        let _ = std::fs::write(filter, "2");
        Ok(())
    }

    /// Removes what is there. The routes go with the device.
    pub(super) fn remove(&self) {
        let table = self.table().to_string();
        // Rules may have been left behind by several runs that were killed.
        for family in ["-4", "-6"] {
            while ip(&[family, "rule", "del", "fwmark", &table, "lookup", &table]).is_ok() {}
        }
        let name = self.name();
        let _ = nft(&["delete", "table", "inet", &name], "");
    }
}

fn nft(arguments: &[&str], input: &str) -> Result<(), RunError> {
    let mut child = Command::new("nft")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(RunError::NoNft)?;
    if let Some(mut stdin) = child.stdin.take() {
        use std::io::Write;
        // If it does not read, its exit status says so.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(RunError::NoNft)?;
    if output.status.success() {
        return Ok(());
    }
    Err(RunError::Nft(
        String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn rules_mark_tcp_between_the_two_sides_only() {
        let redirection = Redirection {
            device: "tcpicn3".into(),
            to: nets(&["10.2.0.0/16", "10.2.3.0/24", "2001:db8::/32"]),
            from: nets(&["10.1.0.1/24"]),
        };
        let rules = redirection.rules();
        let number = redirection.table();
        let mark = format!(
            "meta l4proto tcp ip saddr {{ 10.1.0.0/24 }} ip daddr {{ 10.2.0.0/16 }} meta mark set {number}\n"
        );
        assert_eq!(rules.matches(&mark).count(), 2, "{rules}");
        assert!(!rules.contains("ip6"), "no source of that family: {rules}");
        let commands = redirection.commands();
        assert_eq!(
            commands[1].join(" "),
            format!("-4 route replace default dev tcpicn3 table {number}")
        );
        assert_eq!(commands.len(), 2);
    }

    #[test]
    fn each_device_has_a_table_of_its_own_and_each_family_its_commands() {
        let of = |device: &str| Redirection {
            device: device.into(),
            to: nets(&["10.2.0.0/16", "2001:db8:2::/48"]),
            from: nets(&["10.1.0.1/32", "2001:db8:1::1/128"]),
        };
        let tables = ["tcpicn0", "wan0", "wan", "tcpicn10"].map(|device| of(device).table());
        let different: std::collections::BTreeSet<u32> = tables.into();
        assert_eq!(different.len(), tables.len());
        assert!(of("wan").rules().contains("ip6 daddr { 2001:db8:2::/48 }"));
        assert_eq!(of("wan").commands().len(), 4);
    }
}
