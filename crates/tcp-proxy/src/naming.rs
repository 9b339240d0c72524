//! The names of Interests and Data between proxies.
//!
//! | | name |
//! |---|---|
//! | message | `/<receiver's prefix>/<sealed message>/<nonce>` |
//! | basic fetching | `/<producer's prefix>/<4-tuple>/<label>/<sequence number>/<wraparound>/<number>` |
//! | reliable prefetching | `/<producer's prefix>/<4-tuple>/<label>/<number>` |
//!
//! The label is random for each connection and proxy: the same 4-tuple and sequence number occur
//! again in later connections, and a name must not.

use whimbrel_ndn_packet::{Component, Name, NameRef};

use crate::seal::{NONCE, Protection, Sealer};
use crate::segment::Flow;

/// What an Interest under a proxy's prefix is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked<'a> {
    /// It carries a message.
    Message {
        /// The sealed message.
        sealed: &'a [u8],
        /// Its nonce.
        nonce: &'a [u8],
    },
    /// It fetches segment `number` of a connection of basic fetching.
    Noted {
        /// The producer's label of the connection.
        label: u64,
        /// The number in the notification.
        number: u64,
    },
    /// It fetches segment `number` of a connection of reliable prefetching.
    Numbered {
        /// The producer's label of the connection.
        label: u64,
        /// The segment's number.
        number: u64,
    },
}

/// Name of a message to the proxy at `prefix`.
pub fn message(prefix: &Name, sealed: &[u8], nonce: &[u8; NONCE]) -> Name {
    prefix.child_generic(sealed).child_generic(nonce)
}

/// Name of a segment of basic fetching: [TCP/ICN §3.3.1], with label and number.
pub fn noted(connection: &Name, sequence: u64, number: u64) -> Name {
    let (sequence, wraparound) = (sequence & 0xffff_ffff, sequence >> 32);
    connection
        .child(Component::sequence_num(sequence).as_ref())
        .child(Component::version(wraparound).as_ref())
        .child_generic(&number.to_be_bytes())
}

/// Name of a segment of reliable prefetching: [TCP/ICN §3.4.1], with the label.
pub fn numbered(connection: &Name, number: u64) -> Name {
    connection.child(Component::sequence_num(number).as_ref())
}

/// Returns the prefix of a connection's Data. With encryption, a pseudonym stands for the 4-tuple.
pub fn connection(producer: &Name, flow: &Flow, label: u64, sealer: &Sealer) -> Name {
    let mut tuple = Vec::with_capacity(37);
    crate::message::write_flow(&mut tuple, flow);
    let producer = match sealer.protection() {
        Protection::Encrypted => producer.child_generic(&sealer.pseudonym(&tuple)),
        Protection::None | Protection::Authenticated => producer.child_generic(&tuple),
    };
    producer.child_generic(&label.to_be_bytes())
}

/// Reads a name under `prefix`.
pub fn parse<'a>(prefix: &Name, name: NameRef<'a>) -> Option<Asked<'a>> {
    if !prefix.as_ref().is_prefix_of(name) {
        return None;
    }
    let part = |index: usize| name.get(prefix.len() + index);
    let label = || Some(u64::from_be_bytes(part(1)?.value().try_into().ok()?));
    match name.len() - prefix.len() {
        2 => Some(Asked::Message {
            sealed: part(0)?.value(),
            nonce: part(1)?.value(),
        }),
        3 => Some(Asked::Numbered {
            label: label()?,
            number: part(2)?.as_sequence_num()?,
        }),
        5 => Some(Asked::Noted {
            label: label()?,
            number: u64::from_be_bytes(part(4)?.value().try_into().ok()?),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::SealOptions;
    use whimbrel_core::{SeededRng, WallClock};

    #[test]
    fn names_are_read_as_they_were_written() {
        let prefix: Name = "/site/proxy".parse().unwrap();
        let options = SealOptions::unprotected([0; 8], WallClock::new(0));
        let sealer = Sealer::new(options, &mut SeededRng::new(1));
        let flow = Flow {
            source: "10.0.0.1:1".parse().unwrap(),
            destination: "10.0.0.2:2".parse().unwrap(),
        };
        let connection = connection(&prefix, &flow, 7, &sealer);
        let name = noted(&connection, 5 << 32 | 6, 9);
        let expected = Asked::Noted {
            label: 7,
            number: 9,
        };
        assert_eq!(parse(&prefix, name.as_ref()), Some(expected));
        let name = numbered(&connection, 3);
        let expected = Asked::Numbered {
            label: 7,
            number: 3,
        };
        assert_eq!(parse(&prefix, name.as_ref()), Some(expected));
        let name = message(&prefix, b"m", &[1; NONCE]);
        let expected = Asked::Message {
            sealed: b"m",
            nonce: &[1; NONCE],
        };
        assert_eq!(parse(&prefix, name.as_ref()), Some(expected));
        assert_eq!(
            parse(&prefix, connection.as_ref()).map(|_| ()),
            Some(()),
            "two components"
        );
        assert_eq!(parse(&connection, prefix.as_ref()), None);
    }
}
