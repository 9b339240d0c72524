//! Faces in the protocol: their status, query filters, events, listening sockets.

use core::time::Duration;

use whimbrel_ndn_packet::{DecodeError, tlv};

use super::codes::{
    FaceEventKind, link_type_code, link_type_from, persistency_code, persistency_from, scope_code,
    scope_from,
};
use super::fields::{Fields, whole_millis, whole_nanos, write_optional};
use super::types;
use crate::face::{LinkType, Persistency, Scope};

/// Counters of one face: network-layer packets, and octets on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "each is named as in the protocol")]
pub struct FaceTraffic {
    pub in_interests: u64,
    pub in_data: u64,
    pub in_nacks: u64,
    pub out_interests: u64,
    pub out_data: u64,
    pub out_nacks: u64,
    pub in_bytes: u64,
    pub out_bytes: u64,
}

/// One face in `faces/list` and `faces/query`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaceStatus {
    /// FaceId.
    pub face_id: u64,
    /// Remote FaceUri.
    pub uri: String,
    /// Local FaceUri.
    pub local_uri: String,
    /// Remaining lifetime of an idle on-demand face.
    pub expiration_period: Option<Duration>,
    /// Local or not.
    pub scope: Scope,
    /// Its lifetime when it is idle or fails.
    pub persistency: Persistency,
    /// The number of possible peers.
    pub link_type: LinkType,
    /// Base interval of congestion marks.
    pub base_congestion_marking_interval: Option<Duration>,
    /// Bytes in its queue above which it is congested.
    pub default_congestion_threshold: Option<u64>,
    /// Largest frame, in bytes.
    pub mtu: Option<u64>,
    /// Counters of its traffic.
    pub counters: FaceTraffic,
    /// See [`crate::FLAG_LOCAL_FIELDS`] and its like.
    pub flags: u64,
}

impl FaceStatus {
    /// Decodes a whole FaceStatus element.
    pub fn decode(bytes: &[u8]) -> Result<FaceStatus, DecodeError> {
        let fields = Fields::of(bytes, types::FACE_STATUS)?;
        Ok(FaceStatus {
            face_id: fields.required_integer(types::FACE_ID)?,
            uri: fields.required_text(types::URI)?,
            local_uri: fields.required_text(types::LOCAL_URI)?,
            expiration_period: fields.millis(types::EXPIRATION_PERIOD)?,
            scope: fields.required_code(types::FACE_SCOPE, scope_from)?,
            persistency: fields.required_code(types::FACE_PERSISTENCY, persistency_from)?,
            link_type: fields.required_code(types::LINK_TYPE, link_type_from)?,
            base_congestion_marking_interval: fields
                .nanos(types::BASE_CONGESTION_MARKING_INTERVAL)?,
            default_congestion_threshold: fields.integer(types::DEFAULT_CONGESTION_THRESHOLD)?,
            mtu: fields.integer(types::MTU)?,
            counters: FaceTraffic {
                in_interests: fields.required_integer(types::N_IN_INTERESTS)?,
                in_data: fields.required_integer(types::N_IN_DATA)?,
                in_nacks: fields.required_integer(types::N_IN_NACKS)?,
                out_interests: fields.required_integer(types::N_OUT_INTERESTS)?,
                out_data: fields.required_integer(types::N_OUT_DATA)?,
                out_nacks: fields.required_integer(types::N_OUT_NACKS)?,
                in_bytes: fields.required_integer(types::N_IN_BYTES)?,
                out_bytes: fields.required_integer(types::N_OUT_BYTES)?,
            },
            flags: fields.required_integer(types::FLAGS)?,
        })
    }

    /// Appends the whole element.
    pub fn encode(&self, out: &mut Vec<u8>) {
        tlv::write_nested(out, types::FACE_STATUS, |out| {
            tlv::write_integer_element(out, types::FACE_ID, self.face_id);
            tlv::write_element(out, types::URI, self.uri.as_bytes());
            tlv::write_element(out, types::LOCAL_URI, self.local_uri.as_bytes());
            write_optional(
                out,
                types::EXPIRATION_PERIOD,
                self.expiration_period.map(whole_millis),
            );
            tlv::write_integer_element(out, types::FACE_SCOPE, scope_code(self.scope));
            tlv::write_integer_element(
                out,
                types::FACE_PERSISTENCY,
                persistency_code(self.persistency),
            );
            tlv::write_integer_element(out, types::LINK_TYPE, link_type_code(self.link_type));
            let interval = self.base_congestion_marking_interval.map(whole_nanos);
            write_optional(out, types::BASE_CONGESTION_MARKING_INTERVAL, interval);
            write_optional(
                out,
                types::DEFAULT_CONGESTION_THRESHOLD,
                self.default_congestion_threshold,
            );
            write_optional(out, types::MTU, self.mtu);
            for (typ, count) in [
                (types::N_IN_INTERESTS, self.counters.in_interests),
                (types::N_IN_DATA, self.counters.in_data),
                (types::N_IN_NACKS, self.counters.in_nacks),
                (types::N_OUT_INTERESTS, self.counters.out_interests),
                (types::N_OUT_DATA, self.counters.out_data),
                (types::N_OUT_NACKS, self.counters.out_nacks),
                (types::N_IN_BYTES, self.counters.in_bytes),
                (types::N_OUT_BYTES, self.counters.out_bytes),
                (types::FLAGS, self.flags),
            ] {
                tlv::write_integer_element(out, typ, count);
            }
        });
    }
}

/// The filter of `faces/query`: faces that match every field that is set.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FaceQueryFilter {
    /// This face.
    pub face_id: Option<u64>,
    /// Faces whose remote or local FaceUri has this scheme.
    pub uri_scheme: Option<String>,
    /// Faces with this remote FaceUri.
    pub uri: Option<String>,
    /// Faces with this local FaceUri.
    pub local_uri: Option<String>,
    /// Local faces, or non-local ones.
    pub scope: Option<Scope>,
    /// Faces of this persistency.
    pub persistency: Option<Persistency>,
    /// Faces of this kind of link.
    pub link_type: Option<LinkType>,
}

impl FaceQueryFilter {
    /// Decodes a whole FaceQueryFilter element.
    pub fn decode(bytes: &[u8]) -> Result<FaceQueryFilter, DecodeError> {
        let fields = Fields::of(bytes, types::FACE_QUERY_FILTER)?;
        Ok(FaceQueryFilter {
            face_id: fields.integer(types::FACE_ID)?,
            uri_scheme: fields.text(types::URI_SCHEME)?,
            uri: fields.text(types::URI)?,
            local_uri: fields.text(types::LOCAL_URI)?,
            scope: fields.code(types::FACE_SCOPE, scope_from)?,
            persistency: fields.code(types::FACE_PERSISTENCY, persistency_from)?,
            link_type: fields.code(types::LINK_TYPE, link_type_from)?,
        })
    }

    /// Encodes the whole element.
    pub fn encode(&self) -> Vec<u8> {
        let mut element = Vec::new();
        tlv::write_nested(&mut element, types::FACE_QUERY_FILTER, |out| {
            write_optional(out, types::FACE_ID, self.face_id);
            for (typ, text) in [
                (types::URI_SCHEME, &self.uri_scheme),
                (types::URI, &self.uri),
                (types::LOCAL_URI, &self.local_uri),
            ] {
                if let Some(text) = text {
                    tlv::write_element(out, typ, text.as_bytes());
                }
            }
            write_optional(out, types::FACE_SCOPE, self.scope.map(scope_code));
            write_optional(
                out,
                types::FACE_PERSISTENCY,
                self.persistency.map(persistency_code),
            );
            write_optional(out, types::LINK_TYPE, self.link_type.map(link_type_code));
        });
        element
    }

    /// Returns true if it matches this face.
    pub fn matches(&self, face: &FaceStatus) -> bool {
        let scheme =
            |uri: &str, scheme: &str| uri.split_once("://").is_some_and(|(of, _)| of == scheme);
        self.face_id.is_none_or(|id| id == face.face_id)
            && self
                .uri_scheme
                .as_deref()
                .is_none_or(|of| scheme(&face.uri, of) || scheme(&face.local_uri, of))
            && self.uri.as_ref().is_none_or(|uri| *uri == face.uri)
            && self
                .local_uri
                .as_ref()
                .is_none_or(|uri| *uri == face.local_uri)
            && self.scope.is_none_or(|scope| scope == face.scope)
            && self
                .persistency
                .is_none_or(|persistency| persistency == face.persistency)
            && self
                .link_type
                .is_none_or(|link_type| link_type == face.link_type)
    }
}

/// An event of a face.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaceEventNotification {
    /// The event.
    pub kind: FaceEventKind,
    /// FaceId.
    pub face_id: u64,
    /// Remote FaceUri.
    pub uri: String,
    /// Local FaceUri.
    pub local_uri: String,
    /// Local or not.
    pub scope: Scope,
    /// Its lifetime when it is idle or fails.
    pub persistency: Persistency,
    /// The number of possible peers.
    pub link_type: LinkType,
    /// See [`crate::FLAG_LOCAL_FIELDS`] and its like.
    pub flags: u64,
}

impl FaceEventNotification {
    /// Decodes a whole FaceEventNotification element.
    pub fn decode(bytes: &[u8]) -> Result<FaceEventNotification, DecodeError> {
        let fields = Fields::of(bytes, types::FACE_EVENT_NOTIFICATION)?;
        Ok(FaceEventNotification {
            kind: fields.required_code(types::FACE_EVENT_KIND, FaceEventKind::from_code)?,
            face_id: fields.required_integer(types::FACE_ID)?,
            uri: fields.required_text(types::URI)?,
            local_uri: fields.required_text(types::LOCAL_URI)?,
            scope: fields.required_code(types::FACE_SCOPE, scope_from)?,
            persistency: fields.required_code(types::FACE_PERSISTENCY, persistency_from)?,
            link_type: fields.required_code(types::LINK_TYPE, link_type_from)?,
            flags: fields.required_integer(types::FLAGS)?,
        })
    }

    /// Encodes the whole element.
    pub fn encode(&self) -> Vec<u8> {
        let mut element = Vec::with_capacity(self.uri.len() + self.local_uri.len() + 32);
        tlv::write_nested(&mut element, types::FACE_EVENT_NOTIFICATION, |out| {
            tlv::write_integer_element(out, types::FACE_EVENT_KIND, self.kind.code());
            tlv::write_integer_element(out, types::FACE_ID, self.face_id);
            tlv::write_element(out, types::URI, self.uri.as_bytes());
            tlv::write_element(out, types::LOCAL_URI, self.local_uri.as_bytes());
            tlv::write_integer_element(out, types::FACE_SCOPE, scope_code(self.scope));
            tlv::write_integer_element(
                out,
                types::FACE_PERSISTENCY,
                persistency_code(self.persistency),
            );
            tlv::write_integer_element(out, types::LINK_TYPE, link_type_code(self.link_type));
            tlv::write_integer_element(out, types::FLAGS, self.flags);
        });
        element
    }
}

/// A listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelStatus {
    /// Its FaceUri.
    pub local_uri: String,
}

impl ChannelStatus {
    /// Decodes a whole ChannelStatus element.
    pub fn decode(bytes: &[u8]) -> Result<ChannelStatus, DecodeError> {
        let fields = Fields::of(bytes, types::CHANNEL_STATUS)?;
        Ok(ChannelStatus {
            local_uri: fields.required_text(types::LOCAL_URI)?,
        })
    }

    /// Appends the whole element.
    pub fn encode(&self, out: &mut Vec<u8>) {
        tlv::write_nested(out, types::CHANNEL_STATUS, |out| {
            tlv::write_element(out, types::LOCAL_URI, self.local_uri.as_bytes());
        });
    }
}
