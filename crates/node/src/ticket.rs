//! A ticket: a content's name and where to ask for it, in one short string.
//!
//! The string is Bech32m (BIP 350): `whimbrel1`, then the bytes below in base 32 with a checksum,
//! so that a mistyped character is noticed. It has no upper limit for addresses but that of the
//! checksum's code, 1,023 characters.
//!
//! ```text
//! ticket  = version field*          version: 0, or 1 with a key, which no program may ignore
//! field   = type length value       one byte each for type and length
//! type 0  : the name, 32 bytes      required, once
//! type 1  : a host to ask directly; its address
//! type 2  : a router; its address
//! address = IPv4 (4 bytes) or IPv6 (16 bytes), then the port (2 bytes)
//! type 3  : as type 1, and 4 as 2, with the address as text: a host name and a port
//! type 5  : the name that is to be proven at the addresses behind it, 32 bytes; or empty: any
//! type 6  : the key of the content, 16 bytes; not there if it is not encrypted
//! ```
//!
//! Fields of other types are ignored, by programs that do not know them type 5 as well.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::str::FromStr;

use bech32::primitives::decode::CheckedHrpstring;
use bech32::{Bech32m, Checksum, Hrp};
use whimbrel_content::ContentKey;
use whimbrel_core::{Guid, Peer};

use crate::config::{NamedRemote, Remote};

/// The human-readable part, with which a ticket begins.
const PREFIX: &str = "whimbrel";
const VERSION: u8 = 0;
/// The version of a ticket with a key.
const ENCRYPTED: u8 = 1;
/// The type of the field that names what answers at the addresses behind it.
const NAME: u8 = 5;
/// The type of the field with the key.
const KEY: u8 = 6;
/// Bound of the addresses in a ticket: a receiver asks all of them.
const MAX_ADDRESSES: usize = 16;

/// A content's name, and where to ask for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// The content.
    pub content: Guid,
    /// The key of its bytes, if they are encrypted.
    pub key: Option<ContentKey>,
    /// Hosts that serve it, to be asked directly.
    pub hosts: Vec<NamedRemote>,
    /// Routers that know its holders.
    pub routers: Vec<NamedRemote>,
}

/// The reason why a text is not a ticket.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TicketError {
    /// It does not begin like a ticket.
    #[error("a ticket begins with \"whimbrel1\"")]
    NotOne,
    /// Its checksum does not fit.
    #[error("the ticket is mistyped or cut off: its checksum does not fit; copy it again")]
    Mistyped,
    /// It is of a later version.
    #[error("the ticket is of version {0}, which this program does not know; update this program")]
    Version(u8),
    /// It contradicts its format.
    #[error("the ticket has no valid content, although its checksum fits; make a new one")]
    Malformed,
    /// Its addresses do not fit into a string with this checksum.
    #[error("too many addresses, or too long ones, for a ticket")]
    TooLong,
}

impl Ticket {
    /// Returns the ticket as text.
    pub fn encode(&self) -> Result<String, TicketError> {
        let mut bytes = vec![if self.key.is_some() {
            ENCRYPTED
        } else {
            VERSION
        }];
        put(&mut bytes, 0, self.content.as_bytes())?;
        if let Some(key) = &self.key {
            put(&mut bytes, KEY, key.as_bytes())?;
        }
        let mut named = None;
        for (remotes, kind) in [(&self.hosts, 1), (&self.routers, 2)] {
            // Who gets the ticket may be on another wire: an address on Ethernet or bare IP may
            // mean nothing there.
            let over_udp = remotes
                .iter()
                .filter_map(|it| Some((it.name, it.remote.udp()?)))
                .filter(|(_, peer)| means_the_same_elsewhere(peer));
            for (name, peer) in over_udp.take(MAX_ADDRESSES) {
                if name != named {
                    named = name;
                    let name = name.as_ref().map_or(&[][..], |name| &name.as_bytes()[..]);
                    put(&mut bytes, NAME, name)?;
                }
                match peer {
                    Peer::Address(address) => put(&mut bytes, kind, &octets(address))?,
                    Peer::Named { host, port, .. } => {
                        put(&mut bytes, kind + 2, format!("{host}:{port}").as_bytes())?;
                    }
                }
            }
        }
        let prefix = Hrp::parse(PREFIX).map_err(|_| TicketError::NotOne)?;
        bech32::encode::<Bech32m>(prefix, &bytes).map_err(|_| TicketError::TooLong)
    }

    /// Returns true if the text looks like a ticket rather than a name.
    pub fn is_meant_by(text: &str) -> bool {
        let start = text.get(..PREFIX.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
    }
}

/// Returns false for an address that another machine would have to write with an interface of its own.
pub fn means_the_same_elsewhere(peer: &Peer) -> bool {
    let Peer::Address(address) = peer else {
        return true;
    };
    !matches!(address.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local())
}

fn put(bytes: &mut Vec<u8>, kind: u8, value: &[u8]) -> Result<(), TicketError> {
    let length = u8::try_from(value.len()).map_err(|_| TicketError::TooLong)?;
    bytes.extend_from_slice(&[kind, length]);
    bytes.extend_from_slice(value);
    Ok(())
}

fn octets(address: SocketAddr) -> Vec<u8> {
    let mut octets = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    octets.extend_from_slice(&address.port().to_be_bytes());
    octets
}

/// Returns `None` if these are no address, and `Some(None)` if it cannot work: other programs may write
/// such.
fn address(octets: &[u8]) -> Option<Option<Remote>> {
    let (ip, port) = octets.split_last_chunk::<2>()?;
    let ip = match ip.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(ip).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(ip).ok()?),
    };
    let address = SocketAddr::new(ip, u16::from_be_bytes(*port));
    Some(address.to_string().parse().ok())
}

fn host_name(text: &[u8]) -> Option<Remote> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Ticket, TicketError> {
        let text = text.trim();
        if !Ticket::is_meant_by(text) {
            return Err(TicketError::NotOne);
        }
        if text.len() > Bech32m::CODE_LENGTH {
            return Err(TicketError::TooLong);
        }
        let checked = CheckedHrpstring::new::<Bech32m>(text).map_err(|_| TicketError::Mistyped)?;
        if !checked.hrp().as_str().eq_ignore_ascii_case(PREFIX) {
            return Err(TicketError::NotOne);
        }
        let bytes: Vec<u8> = checked.byte_iter().collect();
        match bytes.split_first() {
            Some((&(VERSION | ENCRYPTED), fields)) => read(fields).ok_or(TicketError::Malformed),
            Some((version, _)) => Err(TicketError::Version(*version)),
            None => Err(TicketError::Malformed),
        }
    }
}

fn read(mut fields: &[u8]) -> Option<Ticket> {
    let (mut content, mut hosts, mut routers) = (None, Vec::new(), Vec::new());
    let (mut name, mut key) = (None, None);
    while let [kind, length, rest @ ..] = fields {
        let (value, behind) = rest.split_at_checked(usize::from(*length))?;
        fields = behind;
        let named = |remote: Remote| NamedRemote { name, remote };
        match kind {
            0 if content.is_none() => content = Some(Guid(value.try_into().ok()?)),
            0 => return None,
            1 => hosts.extend(address(value)?.map(named)),
            2 => routers.extend(address(value)?.map(named)),
            3 => hosts.push(named(host_name(value)?)),
            4 => routers.push(named(host_name(value)?)),
            &NAME if value.is_empty() => name = None,
            &NAME => name = Some(Guid(value.try_into().ok()?)),
            &KEY => key = Some(ContentKey::new(value.try_into().ok()?)),
            _ => {}
        }
    }
    let few = hosts.len() <= MAX_ADDRESSES && routers.len() <= MAX_ADDRESSES;
    let is_whole = fields.is_empty() && few;
    content.filter(|_| is_whole).map(|content| Ticket {
        content,
        key,
        hosts,
        routers,
    })
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.encode().map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_remote() -> impl Strategy<Value = NamedRemote> {
        let name = prop::option::of(prop::sample::select(vec![Guid([1; 32]), Guid([2; 32])]));
        (name, any_address()).prop_map(|(name, remote)| NamedRemote { name, remote })
    }

    fn any_address() -> impl Strategy<Value = Remote> {
        let port = 1u16..;
        prop_oneof![
            (any::<[u8; 4]>(), port.clone()).prop_map(|(ip, port)| SocketAddr::new(
                ip.into(),
                port
            )
            .to_string()),
            (any::<[u8; 16]>(), port.clone()).prop_map(|(ip, port)| SocketAddr::new(
                ip.into(),
                port
            )
            .to_string()),
            ("[a-z]{1,12}\\.example", port).prop_map(|(host, port)| format!("{host}:{port}")),
        ]
        .prop_filter_map("it cannot work", |text: String| text.parse().ok())
    }

    fn any_ticket() -> impl Strategy<Value = Ticket> {
        let remotes = || prop::collection::vec(any_remote(), 0..5);
        let key = prop::option::of(any::<[u8; 16]>().prop_map(ContentKey::new));
        let all = (any::<[u8; 32]>(), key, remotes(), remotes());
        all.prop_map(|(content, key, hosts, routers)| Ticket {
            content: Guid(content),
            key,
            hosts,
            routers,
        })
    }

    proptest! {
        #[test]
        fn tickets_round_trip_in_either_case(ticket in any_ticket()) {
            let text = ticket.encode().unwrap();
            prop_assert!(text.starts_with("whimbrel1"));
            prop_assert_eq!(text.parse::<Ticket>().unwrap(), ticket.clone());
            prop_assert_eq!(text.to_uppercase().parse::<Ticket>().unwrap(), ticket);
        }

        #[test]
        fn a_wrong_character_is_noticed(ticket in any_ticket(), at in any::<prop::sample::Index>(), by in 1usize..32) {
            const DIGITS: &str = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
            let text = ticket.encode().unwrap();
            let at = "whimbrel1".len() + at.index(text.len() - "whimbrel1".len());
            let digit = DIGITS.find(&text[at..=at]).unwrap();
            let other = (digit + by) % 32;
            let wrong = format!("{}{}{}", &text[..at], &DIGITS[other..=other], &text[at + 1..]);
            prop_assert_eq!(wrong.parse::<Ticket>(), Err(TicketError::Mistyped));
        }

        #[test]
        fn any_bytes_under_a_right_checksum_are_a_ticket_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let text = bech32::encode::<Bech32m>(Hrp::parse(PREFIX).unwrap(), &bytes).unwrap();
            if let Ok(ticket) = text.parse::<Ticket>() {
                prop_assert_eq!(ticket.encode().unwrap().parse::<Ticket>(), Ok(ticket));
            }
        }

        #[test]
        fn any_text_is_a_ticket_or_refused(text in "(whimbrel1)?\\PC{0,80}") {
            let _ = text.parse::<Ticket>();
        }
    }

    #[test]
    fn a_ticket_that_is_cut_off_or_of_a_later_version_says_so() {
        let ticket = Ticket {
            content: Guid([9; 32]),
            key: None,
            hosts: vec!["192.0.2.7:4711".parse().unwrap()],
            routers: Vec::new(),
        };
        let text = ticket.encode().unwrap();
        assert_eq!(text.len(), "whimbrel1".len() + 75);
        let cut = &text[..text.len() - 5];
        assert_eq!(cut.parse::<Ticket>(), Err(TicketError::Mistyped));
        let later = bech32::encode::<Bech32m>(Hrp::parse(PREFIX).unwrap(), &[2, 2, 3]).unwrap();
        assert_eq!(later.parse::<Ticket>(), Err(TicketError::Version(2)));
        // Without its key the content is noise: a program that knows no keys refuses the ticket.
        let key = Some(ContentKey::new([7; 16]));
        let text = Ticket { key, ..ticket }.encode().unwrap();
        let checked = CheckedHrpstring::new::<Bech32m>(&text).unwrap();
        assert_eq!(checked.byte_iter().next(), Some(ENCRYPTED));
        assert_eq!("6b1ec2".parse::<Ticket>(), Err(TicketError::NotOne));
    }

    #[test]
    fn an_address_that_cannot_work_is_left_out() {
        let elsewhere: SocketAddr = "192.0.2.7:4711".parse().unwrap();
        let mut bytes = vec![VERSION];
        put(&mut bytes, 0, &[9; 32]).unwrap();
        for address in ["0.0.0.0:4711", "[fe80::1]:4711", "192.0.2.7:0"] {
            put(&mut bytes, 1, &octets(address.parse().unwrap())).unwrap();
        }
        put(&mut bytes, 1, &octets(elsewhere)).unwrap();
        let text = bech32::encode::<Bech32m>(Hrp::parse(PREFIX).unwrap(), &bytes).unwrap();
        let ticket: Ticket = text.parse().unwrap();
        assert_eq!(ticket.hosts, [elsewhere.to_string().parse().unwrap()]);
        // An interface of this machine means nothing to another one.
        let own = Ticket {
            hosts: vec!["[fe80::1%lo]:4711".parse().unwrap()],
            ..ticket
        };
        let read: Ticket = own.encode().unwrap().parse().unwrap();
        assert!(read.hosts.is_empty(), "{read:?}");
    }

    #[test]
    fn a_host_name_with_control_characters_is_none() {
        for name in ["a\u{1b}[31mb:1", "a\nb:1", "a\u{9b}:1", "a b:1"] {
            let mut bytes = vec![VERSION];
            put(&mut bytes, 0, &[9; 32]).unwrap();
            put(&mut bytes, 3, name.as_bytes()).unwrap();
            let text = bech32::encode::<Bech32m>(Hrp::parse(PREFIX).unwrap(), &bytes).unwrap();
            assert_eq!(text.parse::<Ticket>(), Err(TicketError::Malformed));
        }
    }

    #[test]
    fn fields_of_later_programs_are_ignored() {
        let mut bytes = vec![VERSION];
        put(&mut bytes, 200, b"something new").unwrap();
        put(&mut bytes, 0, &[9; 32]).unwrap();
        let text = bech32::encode::<Bech32m>(Hrp::parse(PREFIX).unwrap(), &bytes).unwrap();
        assert_eq!(text.parse::<Ticket>().unwrap().content, Guid([9; 32]));
    }
}
