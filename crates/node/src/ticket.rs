//! Tickets: what one needs to fetch a content, in a string that can be pasted, sent or scanned.
//!
//! A ticket is Bech32m (BIP 350) with the prefix `whimbrel`, so that a mistyped one is noticed. Its
//! bytes: a version (1), the content's name (32 bytes), and then for each address a kind, the
//! length of its text (1 byte each), and its text as `HOST:PORT`. The name is a hash of the
//! content: whoever holds a ticket needs to trust nobody on the way.

use core::fmt;
use core::str::FromStr;

use bech32::primitives::decode::CheckedHrpstring;
use bech32::{Bech32m, Checksum, Hrp};
use whimbrel_core::Guid;

use crate::config::Remote;

/// What every ticket begins with.
pub const PREFIX: &str = "whimbrel1";
const VERSION: u8 = 1;
const DIRECT: u8 = 0;
const ROUTER: u8 = 1;
/// Maximum of addresses: a ticket stays short enough for a QR code.
const MAX_ADDRESSES: usize = 12;

/// A content and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The content's name.
    pub content: Guid,
    /// Hosts that have it, to be asked directly.
    pub hosts: Vec<Remote>,
    /// Routers by which it can be found.
    pub routers: Vec<Remote>,
}

/// Why a text is no ticket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// A character is wrong or missing.
    #[error("the ticket is damaged: copy it again, all of it ({0})")]
    Damaged(String),
    /// A later release made it.
    #[error("the ticket has version {0}, which this release does not know; install a newer one")]
    Version(u8),
    /// It is whole, but not what a ticket holds.
    #[error("the ticket is not valid: {0}")]
    Invalid(&'static str),
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(self.content.as_bytes());
        let hosts = self.hosts.iter().map(|remote| (DIRECT, remote));
        let routers = self.routers.iter().map(|remote| (ROUTER, remote));
        for (kind, remote) in hosts.chain(routers).take(MAX_ADDRESSES) {
            let text = remote.to_string();
            // Longer than any host name: such an address cannot have been reached.
            let Ok(length) = u8::try_from(text.len()) else {
                continue;
            };
            bytes.extend_from_slice(&[kind, length]);
            bytes.extend_from_slice(text.as_bytes());
        }
        let prefix = Hrp::parse(&PREFIX[..PREFIX.len() - 1]).map_err(|_| fmt::Error)?;
        bech32::encode_to_fmt::<Long, _>(f, prefix, &bytes).map_err(|_| fmt::Error)
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Ticket, TicketError> {
        let checked = CheckedHrpstring::new::<Long>(text.trim())
            .map_err(|error| TicketError::Damaged(error.to_string()))?;
        let bytes: Vec<u8> = checked.byte_iter().collect();
        let (version, rest) = bytes
            .split_first()
            .ok_or(TicketError::Invalid("it is empty"))?;
        if *version != VERSION {
            return Err(TicketError::Version(*version));
        }
        let (content, mut rest) = rest
            .split_first_chunk::<32>()
            .ok_or(TicketError::Invalid("it has no name"))?;
        let mut ticket = Ticket {
            content: Guid(*content),
            hosts: Vec::new(),
            routers: Vec::new(),
        };
        while let [kind, length, more @ ..] = rest {
            let (remote, more) = more
                .split_at_checked(usize::from(*length))
                .ok_or(TicketError::Invalid("an address is cut off"))?;
            let remote = core::str::from_utf8(remote).ok();
            let remote = remote.and_then(|text| text.parse::<Remote>().ok());
            let remote = remote.ok_or(TicketError::Invalid("an address is none"))?;
            match *kind {
                DIRECT => ticket.hosts.push(remote),
                ROUTER => ticket.routers.push(remote),
                _ => return Err(TicketError::Invalid("an address is of an unknown kind")),
            }
            rest = more;
        }
        match rest {
            [] => Ok(ticket),
            _ => Err(TicketError::Invalid("an address is cut off")),
        }
    }
}

/// Bech32m without BIP 173's limit of 90 characters; a QR code holds so many.
enum Long {}

impl Checksum for Long {
    type MidstateRepr = <Bech32m as Checksum>::MidstateRepr;
    const CODE_LENGTH: usize = 4096;
    const CHECKSUM_LENGTH: usize = Bech32m::CHECKSUM_LENGTH;
    const GENERATOR_SH: [u32; 5] = Bech32m::GENERATOR_SH;
    const TARGET_RESIDUE: u32 = Bech32m::TARGET_RESIDUE;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn remote(text: &str) -> Remote {
        text.parse().expect("an address")
    }

    fn ticket() -> Ticket {
        Ticket {
            content: Guid([0xab; 32]),
            hosts: vec![remote("192.0.2.7:41234"), remote("[2001:db8::7]:41234")],
            routers: vec![remote("router.example:4711")],
        }
    }

    #[test]
    fn a_ticket_is_read_as_it_was_written_in_capitals_too() {
        let text = ticket().to_string();
        assert!(text.starts_with(PREFIX), "{text}");
        assert_eq!(text.parse(), Ok(ticket()));
        assert_eq!(text.to_uppercase().parse(), Ok(ticket()));
        assert_eq!(format!("  {text}\n").parse(), Ok(ticket()));
    }

    #[test]
    fn a_ticket_of_a_later_version_says_so() {
        let prefix = Hrp::parse("whimbrel").expect("a prefix");
        let text = bech32::encode::<Long>(prefix, &[2; 40]).expect("a ticket");
        assert_eq!(text.parse::<Ticket>(), Err(TicketError::Version(2)));
    }

    proptest! {
        #[test]
        fn one_wrong_character_is_always_noticed(at in 9usize..120, to in 0usize..32) {
            const LETTERS: &[u8] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
            let text = ticket().to_string();
            let mut bytes = text.clone().into_bytes();
            let at = at.min(bytes.len() - 1);
            prop_assume!(bytes[at] != LETTERS[to]);
            bytes[at] = LETTERS[to];
            let mistyped = String::from_utf8(bytes).expect("letters");
            prop_assert!(matches!(mistyped.parse::<Ticket>(), Err(TicketError::Damaged(_))));
        }

        #[test]
        fn any_bytes_are_a_ticket_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let prefix = Hrp::parse("whimbrel").expect("a prefix");
            let text = bech32::encode::<Long>(prefix, &bytes).expect("encoded");
            if let Ok(ticket) = text.parse::<Ticket>() {
                prop_assert_eq!(ticket.content.as_bytes(), &bytes[1..33]);
            }
        }
    }
}
