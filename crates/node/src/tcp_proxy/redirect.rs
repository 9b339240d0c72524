//! Redirection of TCP alone to the device: nftables mark the packets, and a routing table of their
//! own leads them there. Other protocols to the same addresses keep their routes.

use std::fmt::Write;
use std::process::{Command, Stdio};

use ipnet::IpNet;

use super::run::{RunError, ip};

/// The first number of routing tables and marks; the device's number is added.
const FIRST_TABLE: u32 = 7400;

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
    /// Returns the number of its routing table, which is its mark too: two proxies on one machine
    /// have devices with different numbers.
    fn table(&self) -> u32 {
        let digits = self
            .device
            .trim_start_matches(|c: char| !c.is_ascii_digit());
        FIRST_TABLE + digits.parse::<u32>().map_or(0, |number| number % 1000)
    }

    fn name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let device: String = self.device.chars().map(plain).collect();
        format!("whimbrel_{device}")
    }

    /// Returns the rules, for `nft -f -`. What an earlier run left behind is replaced.
    pub fn rules(&self) -> String {
        let (name, mark) = (self.name(), self.table());
        let mut marks = String::new();
        for (family, is_v4) in [("ip", true), ("ip6", false)] {
            let of = |nets: &[IpNet]| -> Vec<String> {
                let mut nets: Vec<IpNet> = nets.iter().map(IpNet::trunc).collect();
                nets.retain(|net| net.addr().is_ipv4() == is_v4);
                // nftables refuse sets that overlap.
                let nets = IpNet::aggregate(&nets);
                nets.iter().map(IpNet::to_string).collect()
            };
            let (from, to) = (of(&self.from), of(&self.to));
            if from.is_empty() || to.is_empty() {
                continue;
            }
            // Cannot fail: it is a String.
            let _ = writeln!(
                marks,
                "        meta l4proto tcp {family} saddr {{ {} }} {family} daddr {{ {} }} meta mark set {mark}",
                from.join(", "),
                to.join(", ")
            );
        }
        let device = &self.device;
        format!(
            "table inet {name}\ndelete table inet {name}\ntable inet {name} {{\n    chain local {{\n        \
             type route hook output priority mangle\n{marks}    }}\n    chain forwarded {{\n        \
             type filter hook prerouting priority mangle\n        iifname \"{device}\" return\n{marks}    }}\n}}\n"
        )
    }

    /// Returns the commands of `ip` that belong to the rules.
    pub fn commands(&self) -> [Vec<String>; 2] {
        let table = self.table().to_string();
        let words = |text: &str| text.split(' ').map(str::to_owned).collect();
        [
            words(&format!("rule add fwmark {table} lookup {table}")),
            words(&format!(
                "route replace default dev {} table {table}",
                self.device
            )),
        ]
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
        while ip(&["rule", "del", "fwmark", &table, "lookup", &table]).is_ok() {}
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
        let mark =
            "meta l4proto tcp ip saddr { 10.1.0.0/24 } ip daddr { 10.2.0.0/16 } meta mark set 7403";
        assert_eq!(rules.matches(mark).count(), 2, "{rules}");
        assert!(!rules.contains("ip6"), "no source of that family: {rules}");
        assert_eq!(
            redirection.commands()[1].join(" "),
            "route replace default dev tcpicn3 table 7403"
        );
    }
}
