//! Commands' parameters and responses.

use core::fmt;
use core::time::Duration;

use bytes::Bytes;
use whimbrel_ndn_packet::{DecodeError, Name, tlv};

use super::codes::{persistency_code, persistency_from};
use super::fields::{Fields, whole_millis, whole_nanos, write_optional};
use super::types;
use crate::face::Persistency;

/// The fields of a command or of its result. Each command accepts some of them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ControlParameters {
    /// Name prefix.
    pub name: Option<Name>,
    /// FaceId; 0 is the face that the command arrived on.
    pub face_id: Option<u64>,
    /// Remote FaceUri.
    pub uri: Option<String>,
    /// Local FaceUri.
    pub local_uri: Option<String>,
    /// The source of a route: see [`crate::RouteOrigin`].
    pub origin: Option<u64>,
    /// Cost of a route or next hop.
    pub cost: Option<u64>,
    /// Capacity of the content store.
    pub capacity: Option<u64>,
    /// Number of items.
    pub count: Option<u64>,
    /// Flag bits, significant where `mask` has a one.
    pub flags: Option<u64>,
    /// Which flag bits are significant.
    pub mask: Option<u64>,
    /// Name of a strategy.
    pub strategy: Option<Name>,
    /// Lifetime of a route; whole milliseconds on the wire.
    pub expiration_period: Option<Duration>,
    /// Persistency of a face.
    pub persistency: Option<Persistency>,
    /// Base interval of congestion marks; nanoseconds on the wire.
    pub base_congestion_marking_interval: Option<Duration>,
    /// Bytes in a face's queue above which it is congested.
    pub default_congestion_threshold: Option<u64>,
    /// Largest frame of a face, in bytes.
    pub mtu: Option<u64>,
}

impl ControlParameters {
    /// Decodes a whole ControlParameters element.
    pub fn decode(bytes: &[u8]) -> Result<ControlParameters, DecodeError> {
        let fields = Fields::of(bytes, types::CONTROL_PARAMETERS)?;
        Ok(ControlParameters {
            name: fields.name()?,
            face_id: fields.integer(types::FACE_ID)?,
            uri: fields.text(types::URI)?,
            local_uri: fields.text(types::LOCAL_URI)?,
            origin: fields.integer(types::ORIGIN)?,
            cost: fields.integer(types::COST)?,
            capacity: fields.integer(types::CAPACITY)?,
            count: fields.integer(types::COUNT)?,
            flags: fields.integer(types::FLAGS)?,
            mask: fields.integer(types::MASK)?,
            strategy: fields.nested_name(types::STRATEGY)?,
            expiration_period: fields.millis(types::EXPIRATION_PERIOD)?,
            persistency: fields.code(types::FACE_PERSISTENCY, persistency_from)?,
            base_congestion_marking_interval: fields
                .nanos(types::BASE_CONGESTION_MARKING_INTERVAL)?,
            default_congestion_threshold: fields.integer(types::DEFAULT_CONGESTION_THRESHOLD)?,
            mtu: fields.integer(types::MTU)?,
        })
    }

    /// Encodes the whole element.
    pub fn encode(&self) -> Vec<u8> {
        let mut element = Vec::with_capacity(64);
        tlv::write_nested(&mut element, types::CONTROL_PARAMETERS, |out| {
            self.encode_fields(out)
        });
        element
    }

    fn encode_fields(&self, out: &mut Vec<u8>) {
        if let Some(name) = &self.name {
            name.as_ref().encode(out);
        }
        write_optional(out, types::FACE_ID, self.face_id);
        for (typ, text) in [(types::URI, &self.uri), (types::LOCAL_URI, &self.local_uri)] {
            if let Some(text) = text {
                tlv::write_element(out, typ, text.as_bytes());
            }
        }
        write_optional(out, types::ORIGIN, self.origin);
        write_optional(out, types::COST, self.cost);
        write_optional(out, types::CAPACITY, self.capacity);
        write_optional(out, types::COUNT, self.count);
        write_optional(out, types::FLAGS, self.flags);
        write_optional(out, types::MASK, self.mask);
        if let Some(strategy) = &self.strategy {
            tlv::write_nested(out, types::STRATEGY, |out| strategy.as_ref().encode(out));
        }
        write_optional(
            out,
            types::EXPIRATION_PERIOD,
            self.expiration_period.map(whole_millis),
        );
        write_optional(
            out,
            types::FACE_PERSISTENCY,
            self.persistency.map(persistency_code),
        );
        let interval = self.base_congestion_marking_interval.map(whole_nanos);
        write_optional(out, types::BASE_CONGESTION_MARKING_INTERVAL, interval);
        write_optional(
            out,
            types::DEFAULT_CONGESTION_THRESHOLD,
            self.default_congestion_threshold,
        );
        write_optional(out, types::MTU, self.mtu);
    }

    /// Returns the value of one flag bit; `None` if the mask excludes it.
    pub fn flag(&self, bit: u64) -> Option<bool> {
        if self.mask.unwrap_or(0) & bit == 0 {
            None
        } else {
            Some(self.flags.unwrap_or(0) & bit != 0)
        }
    }

    /// Sets or clears one flag bit, and includes it in the mask.
    pub fn with_flag(mut self, bit: u64, on: bool) -> ControlParameters {
        self.mask = Some(self.mask.unwrap_or(0) | bit);
        let others = self.flags.unwrap_or(0) & !bit;
        self.flags = Some(if on { others | bit } else { others });
        self
    }

    /// Returns the names of the fields present, as the protocol spells them.
    pub fn present(&self) -> impl Iterator<Item = &'static str> {
        [
            (self.name.is_some(), "Name"),
            (self.face_id.is_some(), "FaceId"),
            (self.uri.is_some(), "Uri"),
            (self.local_uri.is_some(), "LocalUri"),
            (self.origin.is_some(), "Origin"),
            (self.cost.is_some(), "Cost"),
            (self.capacity.is_some(), "Capacity"),
            (self.count.is_some(), "Count"),
            (self.flags.is_some(), "Flags"),
            (self.mask.is_some(), "Mask"),
            (self.strategy.is_some(), "Strategy"),
            (self.expiration_period.is_some(), "ExpirationPeriod"),
            (self.persistency.is_some(), "FacePersistency"),
            (
                self.base_congestion_marking_interval.is_some(),
                "BaseCongestionMarkingInterval",
            ),
            (
                self.default_congestion_threshold.is_some(),
                "DefaultCongestionThreshold",
            ),
            (self.mtu.is_some(), "Mtu"),
        ]
        .into_iter()
        .filter_map(|(is_present, name)| is_present.then_some(name))
    }
}

/// The response to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlResponse {
    /// 200 for success; others as in HTTP.
    pub status_code: u64,
    /// The outcome and what to do, for a person.
    pub status_text: String,
    /// A following element, usually ControlParameters; may be empty.
    pub body: Bytes,
}

impl ControlResponse {
    /// Returns a response without a body.
    pub fn new(status_code: u64, status_text: impl Into<String>) -> ControlResponse {
        ControlResponse {
            status_code,
            status_text: status_text.into(),
            body: Bytes::new(),
        }
    }

    /// Success, with these parameters.
    pub fn success(parameters: &ControlParameters) -> ControlResponse {
        ControlResponse::new(200, "OK").with(parameters)
    }

    /// Adds parameters as the body.
    pub fn with(mut self, parameters: &ControlParameters) -> ControlResponse {
        self.body = parameters.encode().into();
        self
    }

    /// Returns true for code 200.
    pub const fn is_success(&self) -> bool {
        self.status_code == 200
    }

    /// Returns the body as parameters; `None` without a body.
    pub fn parameters(&self) -> Result<Option<ControlParameters>, DecodeError> {
        if self.body.is_empty() {
            Ok(None)
        } else {
            ControlParameters::decode(&self.body).map(Some)
        }
    }

    /// Decodes the content of the Data that answers a command.
    pub fn decode(bytes: &[u8]) -> Result<ControlResponse, DecodeError> {
        let outer = tlv::outermost(bytes)?;
        if outer.typ != types::CONTROL_RESPONSE {
            return Err(DecodeError::WrongType(outer.typ));
        }
        let mut reader = tlv::Reader::new(outer.value);
        let status_code = reader.expect(types::STATUS_CODE)?.integer()?;
        let text = reader.expect(types::STATUS_TEXT)?.value;
        let body = reader
            .element()?
            .map(|element| element.whole)
            .unwrap_or_default();
        Fields::new(reader.rest())?;
        Ok(ControlResponse {
            status_code,
            status_text: String::from_utf8_lossy(text).into_owned(),
            body: Bytes::copy_from_slice(body),
        })
    }

    /// Encodes the whole element.
    pub fn encode(&self) -> Vec<u8> {
        let mut element = Vec::with_capacity(self.status_text.len() + self.body.len() + 16);
        tlv::write_nested(&mut element, types::CONTROL_RESPONSE, |out| {
            tlv::write_integer_element(out, types::STATUS_CODE, self.status_code);
            tlv::write_element(out, types::STATUS_TEXT, self.status_text.as_bytes());
            out.extend_from_slice(&self.body);
        });
        element
    }
}

impl fmt::Display for ControlResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status_code, self.status_text)
    }
}
