//! What neighbouring routers say to each other, and its form on the wire (`docs/protocols/routing.md`).

use core::time::Duration;

use whimbrel_core::Guid;

use crate::announcement::{Announcement, Edition};
use crate::cost::Cost;
use crate::database::MAX_ROUTERS;
use crate::reader::{MessageError, Reader};

/// A message to a neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A router's links.
    Announce {
        /// How long it counts still, in milliseconds on the wire.
        left: Duration,
        /// The announcement.
        announcement: Announcement,
    },
    /// The routers in the sender's database, by name, with the editions of their announcements: send
    /// what is newer there.
    List(Vec<(Guid, Edition)>),
    /// The sender's distances.
    Distances(Distances),
    /// What the sender has.
    State(State),
}

/// Distances of a router, as changes of what it told before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distances {
    /// The number of these changes, 1 or more.
    pub sequence: u32,
    /// The number of those that they follow; 0: none, these are all distances.
    pub base: u32,
    /// Destinations with their new distance, by name; [`Cost::NEVER`] for one that is out of reach.
    pub changed: Vec<(Guid, Cost)>,
}

/// What a router has of its neighbour, and of all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The number of the neighbour's last distances that it has; 0: none.
    pub applied: u32,
    /// The digest of its database: equal databases have equal digests.
    pub digest: u64,
}

/// Maximum of routers in a message: changes name those that came and those that left.
const MAX_NAMES: usize = 2 * MAX_ROUTERS;

impl Message {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Message::Announce { left, announcement } => {
                out.push(1);
                let left = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
                out.extend_from_slice(&left.to_be_bytes());
                announcement.encode(out);
            }
            Message::List(known) => {
                out.push(2);
                for (name, edition) in known {
                    out.extend_from_slice(name.as_bytes());
                    out.extend_from_slice(&edition.sequence.to_be_bytes());
                    out.extend_from_slice(&edition.tag.to_be_bytes());
                }
            }
            Message::Distances(distances) => {
                out.push(3);
                out.extend_from_slice(&distances.sequence.to_be_bytes());
                out.extend_from_slice(&distances.base.to_be_bytes());
                for (name, cost) in &distances.changed {
                    out.extend_from_slice(name.as_bytes());
                    out.extend_from_slice(&cost.0.to_be_bytes());
                }
            }
            Message::State(state) => {
                out.push(4);
                out.extend_from_slice(&state.applied.to_be_bytes());
                out.extend_from_slice(&state.digest.to_be_bytes());
            }
        }
    }

    /// Decodes a message, all of `bytes`. The signature of an announcement is not checked.
    pub fn decode(bytes: &[u8]) -> Result<Message, MessageError> {
        let mut reader = Reader::new(bytes);
        let message = match reader.u8()? {
            1 => Message::Announce {
                left: Duration::from_millis(reader.u32()?.into()),
                announcement: Announcement::decode(&mut reader)?,
            },
            2 => Message::List(reader.pairs(MAX_NAMES, |reader| {
                Ok(Edition {
                    sequence: reader.u64()?,
                    tag: reader.u64()?,
                })
            })?),
            3 => {
                let (sequence, base) = (reader.u32()?, reader.u32()?);
                if base >= sequence {
                    return Err(MessageError::Invalid("number of distances"));
                }
                let changed = reader.pairs(MAX_NAMES, |reader| reader.u32().map(Cost))?;
                Message::Distances(Distances {
                    sequence,
                    base,
                    changed,
                })
            }
            4 => Message::State(State {
                applied: reader.u32()?,
                digest: reader.u64()?,
            }),
            other => return Err(MessageError::Type(other)),
        };
        match reader.is_empty() {
            true => Ok(message),
            false => Err(MessageError::TooLong),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::announcement::Link;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use whimbrel_core::identity::KeyPair;

    fn any_pairs<T: Clone + core::fmt::Debug>(
        value: impl Strategy<Value = T>,
    ) -> impl Strategy<Value = Vec<(Guid, T)>> {
        let map = prop::collection::btree_map(any::<[u8; 32]>(), value, 0..20);
        map.prop_map(|map: BTreeMap<[u8; 32], T>| {
            map.into_iter()
                .map(|(name, value)| (Guid(name), value))
                .collect()
        })
    }

    fn any_message() -> impl Strategy<Value = Message> {
        let costs = (1..=Cost::MAX_LINK.0, 1..=Cost::MAX_LINK.0);
        prop_oneof![
            (
                any::<[u8; 32]>(),
                any::<(u32, u64)>(),
                1..3600u64,
                any_pairs(costs)
            )
                .prop_map(|(secret, (left, sequence), lease, links)| {
                    let link = |(to, (cost, usual)): (Guid, (u32, u32))| Link {
                        to,
                        cost: Cost(cost),
                        usual: Cost(usual),
                    };
                    let keys = KeyPair::from_secret(&secret);
                    let lease = Duration::from_secs(lease);
                    let links = links.into_iter().map(link).collect();
                    Message::Announce {
                        left: Duration::from_millis(left.into()),
                        announcement: Announcement::sign(&keys, sequence, lease, links),
                    }
                }),
            any_pairs(any::<(u64, u64)>()).prop_map(|list| {
                let edition = |(sequence, tag)| Edition { sequence, tag };
                let list = list.into_iter();
                Message::List(list.map(|(name, of)| (name, edition(of))).collect())
            }),
            (1..u32::MAX, any_pairs(any::<u32>())).prop_map(|(sequence, changed)| {
                Message::Distances(Distances {
                    sequence,
                    base: sequence - 1,
                    changed: changed
                        .into_iter()
                        .map(|(to, cost)| (to, Cost(cost)))
                        .collect(),
                })
            }),
            any::<(u32, u64)>()
                .prop_map(|(applied, digest)| Message::State(State { applied, digest })),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_message_round_trips_and_its_signature_holds(message in any_message()) {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            let read = Message::decode(&bytes);
            if let Ok(Message::Announce { announcement, .. }) = &read {
                prop_assert!(announcement.is_genuine());
            }
            prop_assert_eq!(read, Ok(message));
        }

        #[test]
        fn a_changed_announcement_is_not_genuine(at in 5usize..190, flip in 1u8..=255) {
            let keys = KeyPair::from_secret(&[7; 32]);
            let link = Link { to: Guid([9; 32]), cost: Cost(10), usual: Cost(20) };
            let announcement = Announcement::sign(&keys, 5, Duration::from_secs(60), vec![link]);
            let mut bytes = Vec::new();
            Message::Announce { left: Duration::from_secs(1), announcement }.encode(&mut bytes);
            let at = at.min(bytes.len() - 1);
            bytes[at] ^= flip;
            if let Ok(Message::Announce { announcement, .. }) = Message::decode(&bytes) {
                prop_assert!(!announcement.is_genuine());
            }
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Message::decode(&bytes);
        }
    }
}
