//! The forwarder and its tables in the protocol.

use core::time::Duration;

use whimbrel_ndn_packet::{DecodeError, Name, tlv};

use super::fields::{Fields, whole_millis, write_optional};
use super::types;

/// The forwarder as a whole: the content of `status/general`, which has no container of its own.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "each counter is named as in the protocol")]
pub struct ForwarderStatus {
    /// The software and its version.
    pub nfd_version: String,
    /// When it started, in milliseconds since the Unix epoch.
    pub start_timestamp: u64,
    /// The time of this report, in milliseconds since the Unix epoch.
    pub current_timestamp: u64,
    pub name_tree_entries: u64,
    pub fib_entries: u64,
    pub pit_entries: u64,
    pub measurements_entries: u64,
    pub cs_entries: u64,
    pub in_interests: u64,
    pub in_data: u64,
    pub in_nacks: u64,
    pub out_interests: u64,
    pub out_data: u64,
    pub out_nacks: u64,
    pub satisfied_interests: u64,
    pub unsatisfied_interests: u64,
}

impl ForwarderStatus {
    /// Decodes the content of the dataset.
    pub fn decode(content: &[u8]) -> Result<ForwarderStatus, DecodeError> {
        let fields = Fields::new(content)?;
        Ok(ForwarderStatus {
            nfd_version: fields.required_text(types::NFD_VERSION)?,
            start_timestamp: fields.required_integer(types::START_TIMESTAMP)?,
            current_timestamp: fields.required_integer(types::CURRENT_TIMESTAMP)?,
            name_tree_entries: fields.required_integer(types::N_NAME_TREE_ENTRIES)?,
            fib_entries: fields.required_integer(types::N_FIB_ENTRIES)?,
            pit_entries: fields.required_integer(types::N_PIT_ENTRIES)?,
            measurements_entries: fields.required_integer(types::N_MEASUREMENTS_ENTRIES)?,
            cs_entries: fields.required_integer(types::N_CS_ENTRIES)?,
            in_interests: fields.required_integer(types::N_IN_INTERESTS)?,
            in_data: fields.required_integer(types::N_IN_DATA)?,
            in_nacks: fields.required_integer(types::N_IN_NACKS)?,
            out_interests: fields.required_integer(types::N_OUT_INTERESTS)?,
            out_data: fields.required_integer(types::N_OUT_DATA)?,
            out_nacks: fields.required_integer(types::N_OUT_NACKS)?,
            satisfied_interests: fields.required_integer(types::N_SATISFIED_INTERESTS)?,
            unsatisfied_interests: fields.required_integer(types::N_UNSATISFIED_INTERESTS)?,
        })
    }

    /// Encodes the content of the dataset.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.nfd_version.len() + 16 * 8);
        tlv::write_element(&mut out, types::NFD_VERSION, self.nfd_version.as_bytes());
        for (typ, number) in [
            (types::START_TIMESTAMP, self.start_timestamp),
            (types::CURRENT_TIMESTAMP, self.current_timestamp),
            (types::N_NAME_TREE_ENTRIES, self.name_tree_entries),
            (types::N_FIB_ENTRIES, self.fib_entries),
            (types::N_PIT_ENTRIES, self.pit_entries),
            (types::N_MEASUREMENTS_ENTRIES, self.measurements_entries),
            (types::N_CS_ENTRIES, self.cs_entries),
            (types::N_IN_INTERESTS, self.in_interests),
            (types::N_IN_DATA, self.in_data),
            (types::N_IN_NACKS, self.in_nacks),
            (types::N_OUT_INTERESTS, self.out_interests),
            (types::N_OUT_DATA, self.out_data),
            (types::N_OUT_NACKS, self.out_nacks),
            (types::N_SATISFIED_INTERESTS, self.satisfied_interests),
            (types::N_UNSATISFIED_INTERESTS, self.unsatisfied_interests),
        ] {
            tlv::write_integer_element(&mut out, typ, number);
        }
        out
    }
}

/// One next hop of a FIB entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHopRecord {
    /// FaceId.
    pub face_id: u64,
    /// Lower is preferred.
    pub cost: u64,
}

/// One FIB entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FibEntry {
    /// Name prefix.
    pub name: Name,
    /// The next hops of Interests under it.
    pub next_hops: Vec<NextHopRecord>,
}

impl FibEntry {
    /// Decodes a whole FibEntry element.
    pub fn decode(bytes: &[u8]) -> Result<FibEntry, DecodeError> {
        let fields = Fields::of(bytes, types::FIB_ENTRY)?;
        let next_hops = fields
            .all(types::NEXT_HOP_RECORD)
            .map(|element| {
                let fields = Fields::new(element.value)?;
                let face_id = fields.required_integer(types::FACE_ID)?;
                Ok(NextHopRecord {
                    face_id,
                    cost: fields.required_integer(types::COST)?,
                })
            })
            .collect::<Result<_, DecodeError>>()?;
        Ok(FibEntry {
            name: fields.required_name()?,
            next_hops,
        })
    }

    /// Appends the whole element.
    pub fn encode(&self, out: &mut Vec<u8>) {
        tlv::write_nested(out, types::FIB_ENTRY, |out| {
            self.name.as_ref().encode(out);
            for hop in &self.next_hops {
                tlv::write_nested(out, types::NEXT_HOP_RECORD, |out| {
                    tlv::write_integer_element(out, types::FACE_ID, hop.face_id);
                    tlv::write_integer_element(out, types::COST, hop.cost);
                });
            }
        });
    }
}

/// One route in `rib/list`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteStatus {
    /// FaceId.
    pub face_id: u64,
    /// See [`crate::RouteOrigin`].
    pub origin: u64,
    /// Lower is preferred.
    pub cost: u64,
    /// See [`crate::ROUTE_CHILD_INHERIT`] and [`super::ROUTE_CAPTURE`].
    pub flags: u64,
    /// Remaining lifetime; `None`: as long as its face.
    pub expiration_period: Option<Duration>,
}

/// The routes of one prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RibEntry {
    /// Name prefix.
    pub name: Name,
    /// Its routes.
    pub routes: Vec<RouteStatus>,
}

impl RibEntry {
    /// Decodes a whole RibEntry element.
    pub fn decode(bytes: &[u8]) -> Result<RibEntry, DecodeError> {
        let fields = Fields::of(bytes, types::RIB_ENTRY)?;
        let routes = fields
            .all(types::ROUTE)
            .map(|element| {
                let fields = Fields::new(element.value)?;
                Ok(RouteStatus {
                    face_id: fields.required_integer(types::FACE_ID)?,
                    origin: fields.required_integer(types::ORIGIN)?,
                    cost: fields.required_integer(types::COST)?,
                    flags: fields.required_integer(types::FLAGS)?,
                    expiration_period: fields.millis(types::EXPIRATION_PERIOD)?,
                })
            })
            .collect::<Result<_, DecodeError>>()?;
        Ok(RibEntry {
            name: fields.required_name()?,
            routes,
        })
    }

    /// Appends the whole element.
    pub fn encode(&self, out: &mut Vec<u8>) {
        tlv::write_nested(out, types::RIB_ENTRY, |out| {
            self.name.as_ref().encode(out);
            for route in &self.routes {
                tlv::write_nested(out, types::ROUTE, |out| {
                    tlv::write_integer_element(out, types::FACE_ID, route.face_id);
                    tlv::write_integer_element(out, types::ORIGIN, route.origin);
                    tlv::write_integer_element(out, types::COST, route.cost);
                    tlv::write_integer_element(out, types::FLAGS, route.flags);
                    write_optional(
                        out,
                        types::EXPIRATION_PERIOD,
                        route.expiration_period.map(whole_millis),
                    );
                });
            }
        });
    }
}

/// The strategy chosen for a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrategyChoice {
    /// Name prefix.
    pub name: Name,
    /// Name of the strategy, with its version.
    pub strategy: Name,
}

impl StrategyChoice {
    /// Decodes a whole StrategyChoice element.
    pub fn decode(bytes: &[u8]) -> Result<StrategyChoice, DecodeError> {
        let fields = Fields::of(bytes, types::STRATEGY_CHOICE)?;
        let strategy = fields
            .nested_name(types::STRATEGY)?
            .ok_or(DecodeError::Missing(types::STRATEGY))?;
        Ok(StrategyChoice {
            name: fields.required_name()?,
            strategy,
        })
    }

    /// Appends the whole element.
    pub fn encode(&self, out: &mut Vec<u8>) {
        tlv::write_nested(out, types::STRATEGY_CHOICE, |out| {
            self.name.as_ref().encode(out);
            tlv::write_nested(out, types::STRATEGY, |out| {
                self.strategy.as_ref().encode(out)
            });
        });
    }
}

/// The content store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CsInfo {
    /// Its limit, in the forwarder's unit.
    pub capacity: u64,
    /// See [`crate::FLAG_CS_ADMIT`] and [`super::FLAG_CS_SERVE`].
    pub flags: u64,
    /// Data in it.
    pub entries: u64,
    /// Interests that it answered.
    pub hits: u64,
    /// Interests that it could not answer.
    pub misses: u64,
}

impl CsInfo {
    /// Decodes a whole CsInfo element.
    pub fn decode(bytes: &[u8]) -> Result<CsInfo, DecodeError> {
        let fields = Fields::of(bytes, types::CS_INFO)?;
        Ok(CsInfo {
            capacity: fields.required_integer(types::CAPACITY)?,
            flags: fields.required_integer(types::FLAGS)?,
            entries: fields.required_integer(types::N_CS_ENTRIES)?,
            hits: fields.required_integer(types::N_HITS)?,
            misses: fields.required_integer(types::N_MISSES)?,
        })
    }

    /// Appends the whole element.
    pub fn encode(&self, out: &mut Vec<u8>) {
        tlv::write_nested(out, types::CS_INFO, |out| {
            for (typ, number) in [
                (types::CAPACITY, self.capacity),
                (types::FLAGS, self.flags),
                (types::N_CS_ENTRIES, self.entries),
                (types::N_HITS, self.hits),
                (types::N_MISSES, self.misses),
            ] {
                tlv::write_integer_element(out, typ, number);
            }
        });
    }
}
