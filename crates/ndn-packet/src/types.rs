//! Assigned TLV-TYPE numbers of NDN packet format v0.3 and NDNLPv2.

#![allow(missing_docs, reason = "each is named as in the specification")]

pub const INTEREST: u64 = 0x05;
pub const DATA: u64 = 0x06;
pub const NAME: u64 = 0x07;

pub const IMPLICIT_SHA256_DIGEST: u64 = 0x01;
pub const PARAMETERS_SHA256_DIGEST: u64 = 0x02;
pub const GENERIC_COMPONENT: u64 = 0x08;
pub const KEYWORD: u64 = 0x20;
pub const SEGMENT: u64 = 0x32;
pub const BYTE_OFFSET: u64 = 0x34;
pub const VERSION: u64 = 0x36;
pub const TIMESTAMP: u64 = 0x38;
pub const SEQUENCE_NUM: u64 = 0x3a;

pub const CAN_BE_PREFIX: u64 = 0x21;
pub const MUST_BE_FRESH: u64 = 0x12;
pub const FORWARDING_HINT: u64 = 0x1e;
pub const NONCE: u64 = 0x0a;
pub const INTEREST_LIFETIME: u64 = 0x0c;
pub const HOP_LIMIT: u64 = 0x22;
pub const APPLICATION_PARAMETERS: u64 = 0x24;
pub const INTEREST_SIGNATURE_INFO: u64 = 0x2c;
pub const INTEREST_SIGNATURE_VALUE: u64 = 0x2e;

pub const META_INFO: u64 = 0x14;
pub const CONTENT: u64 = 0x15;
pub const SIGNATURE_INFO: u64 = 0x16;
pub const SIGNATURE_VALUE: u64 = 0x17;
pub const CONTENT_TYPE: u64 = 0x18;
pub const FRESHNESS_PERIOD: u64 = 0x19;
pub const FINAL_BLOCK_ID: u64 = 0x1a;

pub const SIGNATURE_TYPE: u64 = 0x1b;
pub const KEY_LOCATOR: u64 = 0x1c;
pub const KEY_DIGEST: u64 = 0x1d;
pub const SIGNATURE_NONCE: u64 = 0x26;
pub const SIGNATURE_TIME: u64 = 0x28;
pub const SIGNATURE_SEQ_NUM: u64 = 0x2a;

pub const VALIDITY_PERIOD: u64 = 0xfd;
pub const NOT_BEFORE: u64 = 0xfe;
pub const NOT_AFTER: u64 = 0xff;
pub const ADDITIONAL_DESCRIPTION: u64 = 0x102;
pub const DESCRIPTION_ENTRY: u64 = 0x200;
pub const DESCRIPTION_KEY: u64 = 0x201;
pub const DESCRIPTION_VALUE: u64 = 0x202;

/// ExpirationPeriod of a prefix announcement, in milliseconds; NFD's management uses the same
/// number.
pub const EXPIRATION_PERIOD: u64 = 0x6d;

/// The container of keys exported by `ndnsec`.
pub const SAFE_BAG: u64 = 0x80;
pub const ENCRYPTED_KEY: u64 = 0x81;

pub const LP_PACKET: u64 = 0x64;
pub const LP_FRAGMENT: u64 = 0x50;
pub const LP_SEQUENCE: u64 = 0x51;
pub const LP_FRAG_INDEX: u64 = 0x52;
pub const LP_FRAG_COUNT: u64 = 0x53;
pub const LP_PIT_TOKEN: u64 = 0x62;
pub const LP_NACK: u64 = 0x0320;
pub const LP_NACK_REASON: u64 = 0x0321;
pub const LP_INCOMING_FACE_ID: u64 = 0x032c;
pub const LP_NEXT_HOP_FACE_ID: u64 = 0x0330;
pub const LP_CACHE_POLICY: u64 = 0x0334;
pub const LP_CACHE_POLICY_TYPE: u64 = 0x0335;
pub const LP_CONGESTION_MARK: u64 = 0x0340;
pub const LP_ACK: u64 = 0x0344;
pub const LP_TX_SEQUENCE: u64 = 0x0348;
pub const LP_NON_DISCOVERY: u64 = 0x034c;
pub const LP_PREFIX_ANNOUNCEMENT: u64 = 0x0350;

/// The route that a Data has taken, for consumers that tell routes apart. Unassigned: in the range
/// that a receiver may ignore.
pub const LP_ROUTE_LABEL: u64 = 0x03a0;

/// [PTP §1]: a path tag, the wish for one, and the mark of Data that has not travelled the whole path.
/// Unassigned: in the range that a receiver may ignore.
pub const LP_PATH_TAG: u64 = 0x03a4;
pub const LP_PATH_DISCOVERY: u64 = 0x03a8;
pub const LP_INTERMEDIATE: u64 = 0x03ac;

/// A question about what arrives, and its answer: to find the path MTU. Unassigned: in the range
/// that a receiver may ignore.
pub const LP_PATH_PROBE: u64 = 0x03b0;
pub const LP_PATH_ANSWER: u64 = 0x03b4;

/// The announcement of the adaptive profile of link reliability. Unassigned: in the range that a
/// receiver may ignore.
pub const LP_ADAPTIVE_HELLO: u64 = 0x03bc;
