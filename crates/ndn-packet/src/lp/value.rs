//! Structured values of header fields.

use core::fmt;

use crate::types;

/// Why an Interest cannot be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NackReason {
    /// No reason is given.
    None,
    /// The link is congested.
    Congestion,
    /// The same Interest arrived before, on another path.
    Duplicate,
    /// There is no next hop.
    NoRoute,
    /// Any other number.
    Other(u64),
}

impl NackReason {
    /// Returns the number on the wire.
    pub const fn code(self) -> u64 {
        match self {
            NackReason::None => 0,
            NackReason::Congestion => 50,
            NackReason::Duplicate => 100,
            NackReason::NoRoute => 150,
            NackReason::Other(code) => code,
        }
    }

    /// Converts from the number on the wire.
    pub const fn from_code(code: u64) -> NackReason {
        match code {
            0 => NackReason::None,
            50 => NackReason::Congestion,
            100 => NackReason::Duplicate,
            150 => NackReason::NoRoute,
            code => NackReason::Other(code),
        }
    }
}

impl fmt::Display for NackReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NackReason::Other(code) => write!(f, "{code}"),
            named => write!(f, "{named:?}"),
        }
    }
}

/// Whether a content store may keep a Data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// It must not.
    NoCache,
    /// Any other number, without a meaning.
    Other(u64),
}

impl CachePolicy {
    /// Returns the number on the wire.
    pub const fn code(self) -> u64 {
        match self {
            CachePolicy::NoCache => 1,
            CachePolicy::Other(code) => code,
        }
    }

    /// Converts from the number on the wire.
    pub const fn from_code(code: u64) -> CachePolicy {
        match code {
            1 => CachePolicy::NoCache,
            code => CachePolicy::Other(code),
        }
    }
}

impl fmt::Display for CachePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CachePolicy::Other(code) => write!(f, "{code}"),
            named => write!(f, "{named:?}"),
        }
    }
}

/// A value encoded as one integer element within its field.
pub(super) trait Code: Copy + PartialEq + fmt::Display {
    /// TLV-TYPE of the integer element, and its name in NDNLPv2.
    const INNER: (u64, &'static str);
    /// The meaning of a field without that element; `None` if the element is required.
    const WITHOUT: Option<Self>;

    fn number(self) -> u64;

    fn of(number: u64) -> Self;
}

impl Code for NackReason {
    const INNER: (u64, &'static str) = (types::LP_NACK_REASON, "NackReason");
    const WITHOUT: Option<NackReason> = Some(NackReason::None);

    fn number(self) -> u64 {
        self.code()
    }

    fn of(number: u64) -> NackReason {
        NackReason::from_code(number)
    }
}

impl Code for CachePolicy {
    const INNER: (u64, &'static str) = (types::LP_CACHE_POLICY_TYPE, "CachePolicyType");
    const WITHOUT: Option<CachePolicy> = None;

    fn number(self) -> u64 {
        self.code()
    }

    fn of(number: u64) -> CachePolicy {
        CachePolicy::from_code(number)
    }
}
