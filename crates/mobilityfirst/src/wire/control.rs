//! Messages between neighbours: a host and its access router, or two routers.

use bytes::Bytes;
use core::time::Duration;
use whimbrel_core::Guid;

use super::{Flow, MAX_LISTED_MEMBERS, Reader, WireError};

/// Domain of the signature in [`Control::Attach`].
pub const ATTACH_CONTEXT: &str = "whimbrel attach v1";
const MAX_RECORD: usize = 4096;
/// Flags of a message about a flow: what has no credit may be sent when there is nothing else to send; its chunks
/// carry an offer.
const SPARE: u8 = 1;
const OFFERED: u8 = 2;

/// One message; always one hop ([`ServiceId::NEIGHBOUR`](super::ServiceId::NEIGHBOUR)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// From a router when a neighbour comes up: sign this to attach a GUID here.
    Challenge {
        /// Fresh each time the hop comes up.
        nonce: [u8; 16],
        /// The router's clock, in milliseconds since the Unix epoch.
        unix_ms: u64,
    },
    /// From a host: bind the record's GUID to this router.
    Attach {
        /// The host's signed binding record, which names this router (`docs/protocols/gnrs.md`).
        record: Bytes,
        /// Over [`attach_statement`], by the record's key: proves that the holder of the key is on
        /// this port now. The record alone is public, and could be replayed by anyone.
        signature: [u8; 64],
    },
    /// From a host: forward this signed record to the name service.
    Register {
        /// The signed record.
        record: Bytes,
    },
    /// From a router: the outcome of a record.
    Outcome {
        /// The record's subject.
        guid: Guid,
        /// The record's version.
        version: u64,
        /// The outcome.
        code: ControlCode,
    },
    /// From a router: what may come of a flow that it forwards.
    Credit(Credit),
    /// From a router to one that calls it, and sends what this GUID is the source of: prove that it
    /// speaks for it.
    Ask {
        /// The source.
        guid: Guid,
    },
    /// The answer.
    Vouch {
        /// The source's signed binding record, which names the sender of this message.
        record: Bytes,
    },
    /// From a router: the downstream state of a flow that an upstream node divides.
    Pace(Pace),
    /// From a host to a router that it was attached to, by way of another one: it is elsewhere now.
    Left {
        /// The host's signed binding record, which does not name that router.
        record: Bytes,
    },
    /// From a router to one that a host's record names, and back: whether the host is there.
    Presence(Presence),
    /// From a host to its router: who are the members of this group?
    AskMembers {
        /// The name of the group's memberships ([`whimbrel_gnrs::Record::group_of`]).
        group: Guid,
    },
    /// The answer, when the name service has given it.
    Members {
        /// The name that was asked for.
        group: Guid,
        /// The first [`MAX_LISTED_MEMBERS`](super::MAX_LISTED_MEMBERS) members.
        members: Vec<Guid>,
    },
    /// Between neighbouring routers that learn their ways (`docs/protocols/routing.md`).
    Routing(whimbrel_routing::Message),
}

/// A question whether a host is attached to a router, or the answer. Both have the same length, so that
/// nobody gains by asking in the name of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence {
    /// The host.
    pub guid: Guid,
    /// Drawn for the question, repeated in its answer.
    pub nonce: u64,
    /// Which of both.
    pub code: PresenceCode,
}

/// A question about a host, or what its answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresenceCode {
    /// Is it there?
    Asked,
    /// It is attached.
    Here,
    /// It is not.
    Absent,
}

codes!(PresenceCode, "presence", {
    Asked = 0,
    Here = 1,
    Absent = 2,
});

/// The downstream rate, delay and backlog of a divided flow at a router [MF-5G §III].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The flow.
    pub flow: Flow,
    /// Bytes per second that leave; 0 if that is not told, because parts of the flow meet there.
    pub rate: u64,
    /// The time of a chunk from there to the destination, beside its transmission; encoded in
    /// microseconds.
    pub delay: Duration,
    /// Bytes that wait there and further on.
    pub waiting: u64,
}

impl Pace {
    /// Returns a pace that says nothing but that no other one will be told.
    pub const fn none(flow: Flow) -> Pace {
        Pace {
            flow,
            rate: 0,
            delay: Duration::ZERO,
            waiting: 0,
        }
    }
}

/// What a router lets the node before it send of a flow [MFTP §3.4.1]: back-pressure for this flow alone. A
/// flow of which nothing is told is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// The flow.
    pub flow: Flow,
    /// Bytes that may be sent in turn with other flows, besides what is left of earlier credit; the last
    /// chunk may exceed them. 0 takes back what is left.
    pub octets: u32,
    /// What has no credit may be sent when there is nothing else to send: the destination is away, and what
    /// comes is stored.
    pub spare: bool,
    /// The flow is free again after this time; 0: at once.
    pub lease: Duration,
}

/// The outcome of a host's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlCode {
    /// The name service has stored it.
    Registered,
    /// The router delivers to the host; the name service has not answered yet.
    Attached,
    /// Signature or form is wrong.
    Invalid,
    /// The name service has a newer one.
    Stale,
    /// The name service did not answer.
    Unreachable,
    /// The router or the name service is full.
    Full,
    /// By the judge's clock, the record has expired or was made in the future.
    Clock,
}

codes!(ControlCode, "outcome code", {
    Registered = 0,
    Attached = 1,
    Invalid = 2,
    Stale = 3,
    Unreachable = 4,
    Full = 5,
    Clock = 6,
});

/// Returns the bytes that a host signs to attach: router, challenge and version of its record.
pub fn attach_statement(router: &Guid, nonce: &[u8; 16], version: u64) -> Vec<u8> {
    let mut statement = Vec::with_capacity(56);
    statement.extend_from_slice(router.as_bytes());
    statement.extend_from_slice(nonce);
    statement.extend_from_slice(&version.to_be_bytes());
    statement
}

impl Control {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Control::Challenge { nonce, unix_ms } => {
                out.push(0);
                out.extend_from_slice(nonce);
                out.extend_from_slice(&unix_ms.to_be_bytes());
            }
            Control::Attach { record, signature } => {
                out.push(1);
                out.extend_from_slice(signature);
                out.extend_from_slice(record);
            }
            Control::Register { record } => {
                out.push(2);
                out.extend_from_slice(record);
            }
            Control::Outcome {
                guid,
                version,
                code,
            } => {
                out.push(3);
                out.extend_from_slice(guid.as_bytes());
                out.extend_from_slice(&version.to_be_bytes());
                out.push(code.code());
            }
            Control::Credit(credit) => {
                out.push(11);
                out.push(flags(&credit.flow, if credit.spare { SPARE } else { 0 }));
                let lease = u32::try_from(credit.lease.as_millis()).unwrap_or(u32::MAX);
                out.extend_from_slice(&lease.to_be_bytes());
                out.extend_from_slice(&credit.octets.to_be_bytes());
                out.extend_from_slice(credit.flow.source.as_bytes());
                out.extend_from_slice(credit.flow.destination.as_bytes());
            }
            Control::Ask { guid } => {
                out.push(5);
                out.extend_from_slice(guid.as_bytes());
            }
            Control::Vouch { record } => {
                out.push(6);
                out.extend_from_slice(record);
            }
            Control::Pace(pace) => {
                out.push(7);
                out.push(flags(&pace.flow, 0));
                out.extend_from_slice(pace.flow.source.as_bytes());
                out.extend_from_slice(pace.flow.destination.as_bytes());
                out.extend_from_slice(&pace.rate.to_be_bytes());
                let delay = u32::try_from(pace.delay.as_micros()).unwrap_or(u32::MAX);
                out.extend_from_slice(&delay.to_be_bytes());
                out.extend_from_slice(&pace.waiting.to_be_bytes());
            }
            Control::Left { record } => {
                out.push(8);
                out.extend_from_slice(record);
            }
            Control::Presence(about) => {
                out.push(9);
                out.extend_from_slice(about.guid.as_bytes());
                out.extend_from_slice(&about.nonce.to_be_bytes());
                out.push(about.code.code());
            }
            Control::AskMembers { group } => {
                out.push(17);
                out.extend_from_slice(group.as_bytes());
            }
            Control::Members { group, members } => {
                out.push(18);
                out.extend_from_slice(group.as_bytes());
                for member in members {
                    out.extend_from_slice(member.as_bytes());
                }
            }
            Control::Routing(message) => {
                out.push(16);
                message.encode(out);
            }
        }
    }

    /// Decodes the message, all of `payload`.
    pub fn decode(payload: &Bytes) -> Result<Control, WireError> {
        let mut reader = Reader(payload);
        let record = |reader: Reader<'_>| {
            if reader.0.len() > MAX_RECORD {
                return Err(WireError::Invalid("record length"));
            }
            Ok(payload.slice(payload.len() - reader.0.len()..))
        };
        match reader.u8()? {
            0 => {
                let nonce = reader
                    .take(16)?
                    .try_into()
                    .map_err(|_| WireError::Truncated)?;
                let unix_ms = reader.u64()?;
                reader.finish()?;
                Ok(Control::Challenge { nonce, unix_ms })
            }
            1 => {
                let signature = reader
                    .take(64)?
                    .try_into()
                    .map_err(|_| WireError::Truncated)?;
                Ok(Control::Attach {
                    record: record(reader)?,
                    signature,
                })
            }
            2 => Ok(Control::Register {
                record: record(reader)?,
            }),
            3 => {
                let (guid, version, code) = (reader.guid()?, reader.u64()?, reader.u8()?);
                reader.finish()?;
                let code = ControlCode::from_code(code)?;
                Ok(Control::Outcome {
                    guid,
                    version,
                    code,
                })
            }
            5 => {
                let guid = reader.guid()?;
                reader.finish()?;
                Ok(Control::Ask { guid })
            }
            6 => Ok(Control::Vouch {
                record: record(reader)?,
            }),
            7 => {
                let is_offered = read_flags(&mut reader, OFFERED)? & OFFERED != 0;
                let (source, destination) = (reader.guid()?, reader.guid()?);
                let rate = reader.u64()?;
                let delay = Duration::from_micros(reader.u32()?.into());
                let waiting = reader.u64()?;
                reader.finish()?;
                let flow = Flow {
                    source,
                    destination,
                    is_offered,
                };
                Ok(Control::Pace(Pace {
                    flow,
                    rate,
                    delay,
                    waiting,
                }))
            }
            8 => Ok(Control::Left {
                record: record(reader)?,
            }),
            9 => {
                let (guid, nonce, code) = (reader.guid()?, reader.u64()?, reader.u8()?);
                reader.finish()?;
                let code = PresenceCode::from_code(code)?;
                Ok(Control::Presence(Presence { guid, nonce, code }))
            }
            11 => read_credit(reader).map(Control::Credit),
            17 => {
                let group = reader.guid()?;
                reader.finish()?;
                Ok(Control::AskMembers { group })
            }
            18 => {
                let group = reader.guid()?;
                let members = guids(reader.0)?;
                Ok(Control::Members { group, members })
            }
            16 => whimbrel_routing::Message::decode(reader.0)
                .map(Control::Routing)
                .map_err(|_| WireError::Invalid("routing message")),
            other => Err(WireError::MessageType(other)),
        }
    }
}

/// Returns the first byte of a message about a flow.
fn flags(flow: &Flow, others: u8) -> u8 {
    others | if flow.is_offered { OFFERED } else { 0 }
}

fn read_flags(reader: &mut Reader<'_>, known: u8) -> Result<u8, WireError> {
    let flags = reader.u8()?;
    match flags & !known {
        0 => Ok(flags),
        _ => Err(WireError::Invalid("flags of a flow")),
    }
}

fn read_credit(mut reader: Reader<'_>) -> Result<Credit, WireError> {
    let flags = read_flags(&mut reader, SPARE | OFFERED)?;
    let lease = Duration::from_millis(reader.u32()?.into());
    let octets = reader.u32()?;
    let (source, destination) = (reader.guid()?, reader.guid()?);
    reader.finish()?;
    let flow = Flow {
        source,
        destination,
        is_offered: flags & OFFERED != 0,
    };
    Ok(Credit {
        flow,
        octets,
        spare: flags & SPARE != 0,
        lease,
    })
}

/// Reads names to the end of a message.
fn guids(bytes: &[u8]) -> Result<Vec<Guid>, WireError> {
    let whole = bytes.chunks_exact(Guid::LEN);
    if !whole.remainder().is_empty() || whole.len() > MAX_LISTED_MEMBERS {
        return Err(WireError::Invalid("members"));
    }
    Ok(whole.filter_map(Guid::from_slice).collect())
}

#[cfg(test)]
mod tests {
    use super::super::network::tests::any_guid;
    use super::*;
    use proptest::prelude::*;

    fn any_flow() -> impl Strategy<Value = Flow> {
        (any_guid(), any_guid(), any::<bool>()).prop_map(|(source, destination, is_offered)| Flow {
            source,
            destination,
            is_offered,
        })
    }

    fn any_control() -> impl Strategy<Value = Control> {
        let record = || prop::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from);
        prop_oneof![
            any::<([u8; 16], u64)>()
                .prop_map(|(nonce, unix_ms)| Control::Challenge { nonce, unix_ms }),
            (record(), prop::collection::vec(any::<u8>(), 64)).prop_map(|(record, signature)| {
                Control::Attach {
                    record,
                    signature: signature.try_into().expect("64 bytes"),
                }
            }),
            record().prop_map(|record| Control::Register { record }),
            (
                any_guid(),
                any::<u64>(),
                prop::sample::select(ControlCode::ALL.to_vec())
            )
                .prop_map(|(guid, version, code)| Control::Outcome {
                    guid,
                    version,
                    code
                }),
            (any_flow(), any::<u32>(), any::<bool>(), any::<u32>()).prop_map(
                |(flow, octets, spare, lease)| {
                    Control::Credit(Credit {
                        flow,
                        octets,
                        spare,
                        lease: Duration::from_millis(lease.into()),
                    })
                }
            ),
            any_guid().prop_map(|guid| Control::Ask { guid }),
            any_guid().prop_map(|group| Control::AskMembers { group }),
            (any_guid(), prop::collection::vec(any_guid(), 0..9))
                .prop_map(|(group, members)| Control::Members { group, members }),
            record().prop_map(|record| Control::Vouch { record }),
            record().prop_map(|record| Control::Left { record }),
            (
                any_guid(),
                any::<u64>(),
                prop::sample::select(PresenceCode::ALL.to_vec())
            )
                .prop_map(|(guid, nonce, code)| Control::Presence(Presence {
                    guid,
                    nonce,
                    code
                })),
            (any_flow(), any::<u64>(), any::<u32>(), any::<u64>()).prop_map(
                |(flow, rate, delay, waiting)| {
                    Control::Pace(Pace {
                        flow,
                        rate,
                        delay: Duration::from_micros(delay.into()),
                        waiting,
                    })
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn a_message_round_trips(message in any_control()) {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            prop_assert_eq!(Control::decode(&bytes.into()), Ok(message));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..150)) {
            let _ = Control::decode(&bytes.into());
        }
    }
}
