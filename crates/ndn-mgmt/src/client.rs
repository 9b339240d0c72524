//! The client side of the protocol: commands, datasets and events, without sockets.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use whimbrel_ndn_packet::{
    Component, ContentType, DataRef, DecodeError, Interest, Name, SignatureInfo, Signer, tlv,
    types as ndn,
};

use super::{
    ChannelStatus, ControlParameters, ControlResponse, CsInfo, FaceQueryFilter, FaceStatus,
    FibEntry, RibEntry, StrategyChoice, types,
};

/// The recipient of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Target {
    /// The router on this machine: `/localhost/nfd`.
    #[default]
    Local,
    /// The router at the other end of a link: `/localhop/nfd`.
    Neighbour,
}

impl Target {
    /// Returns the prefix of all its management names.
    pub fn prefix(self) -> Name {
        let scope: &[u8] = match self {
            Target::Local => b"localhost",
            Target::Neighbour => b"localhop",
        };
        Name::of([scope, b"nfd"].map(|word| Component::generic(word.to_vec())))
    }

    /// Returns the name of a command or dataset.
    pub fn name(self, module: &str, verb: &str) -> Name {
        self.prefix()
            .child_generic(module.as_bytes())
            .child_generic(verb.as_bytes())
    }
}

/// Makes a command unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Unix time in milliseconds; must increase with each command of a key, else NFD refuses the
    /// command.
    pub time: u64,
    /// Random.
    pub nonce: [u8; 8],
}

/// Generates stamps with increasing times.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stamps {
    last: u64,
}

impl Stamps {
    /// The next stamp, at `unix_millis` or just after the last one.
    pub fn next(&mut self, unix_millis: u64, nonce: [u8; 8]) -> Stamp {
        self.last = unix_millis.max(self.last + 1);
        Stamp {
            time: self.last,
            nonce,
        }
    }
}

/// Builds a command Interest, signed as in packet format v0.3.
pub fn command(
    target: Target,
    module: &str,
    verb: &str,
    parameters: &ControlParameters,
    signer: &dyn Signer,
    stamp: Stamp,
) -> Vec<u8> {
    let mut interest = Interest::new(
        target
            .name(module, verb)
            .child_generic(&parameters.encode()),
    );
    interest.must_be_fresh = true;
    interest.nonce = Some(interest_nonce(stamp));
    interest.encode_signed(signer, &stamped(signer.info(), stamp))
}

/// Builds a command Interest in the older form, with the signature in the last name components: for
/// routers without support for v0.3.
pub fn command_in_name(
    target: Target,
    module: &str,
    verb: &str,
    parameters: &ControlParameters,
    signer: &dyn Signer,
    stamp: Stamp,
) -> Vec<u8> {
    let mut info = Vec::new();
    signer.info().encode(&mut info, ndn::SIGNATURE_INFO);
    let covered = target
        .name(module, verb)
        .child_generic(&parameters.encode())
        .child_generic(&stamp.time.to_be_bytes())
        .child_generic(&stamp.nonce)
        .child_generic(&info);
    let mut value = Vec::new();
    tlv::write_element(
        &mut value,
        ndn::SIGNATURE_VALUE,
        &signer.sign(&[covered.as_ref().value()]),
    );
    let mut interest = Interest::new(covered.child_generic(&value));
    interest.must_be_fresh = true;
    interest.nonce = Some(interest_nonce(stamp));
    interest.encode()
}

/// Builds `rib/announce`: registers a prefix by an announcement signed by its owner, for the face
/// that the command arrives on.
pub fn announce(target: Target, announcement: &[u8], signer: &dyn Signer, stamp: Stamp) -> Vec<u8> {
    let mut interest = Interest::new(target.name("rib", "announce"));
    interest.must_be_fresh = true;
    interest.nonce = Some(interest_nonce(stamp));
    interest.parameters = Some(Bytes::copy_from_slice(announcement));
    interest.encode_signed(signer, &stamped(signer.info(), stamp))
}

fn stamped(info: SignatureInfo, stamp: Stamp) -> SignatureInfo {
    SignatureInfo {
        nonce: Some(Bytes::copy_from_slice(&stamp.nonce)),
        time: Some(stamp.time),
        ..info
    }
}

fn interest_nonce(stamp: Stamp) -> [u8; 4] {
    let [a, b, c, d, ..] = stamp.nonce;
    [a, b, c, d]
}

/// Why a reply cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The reply violates the protocol.
    #[error("the router's answer is malformed: {0}")]
    Malformed(#[from] DecodeError),
    /// The router refused.
    #[error("the router refused: {0}")]
    Refused(ControlResponse),
    /// The Data's name differs from the requested one.
    #[error("the router's answer has an unexpected name, {0}")]
    Name(Name),
    /// The dataset exceeds the limit.
    #[error("the dataset is larger than {MAX_OCTETS} bytes")]
    TooLarge,
}

/// Decodes the response to a command.
pub fn response(data: &[u8]) -> Result<ControlResponse, ClientError> {
    Ok(ControlResponse::decode(DataRef::decode(data)?.content)?)
}

/// Maximum of octets in a dataset.
const MAX_OCTETS: usize = 1 << 30;
/// Maximum of segments requested at a time.
const WINDOW: usize = 16;

/// Fetches a dataset: send what [`DatasetFetch::poll_request`] returns, pass in the replies.
#[derive(Clone, Debug)]
pub struct DatasetFetch {
    name: Name,
    versioned: Option<Name>,
    /// Segments by number.
    segments: BTreeMap<u64, Bytes>,
    octets: usize,
    last: Option<u64>,
    asked: BTreeSet<u64>,
    /// All segments before this one have arrived or been requested.
    next: u64,
    discovery_asked: bool,
}

impl DatasetFetch {
    /// Returns a fetch of the dataset with this name, such as [`Target::name`] returns.
    pub fn new(name: Name) -> DatasetFetch {
        DatasetFetch {
            name,
            versioned: None,
            segments: BTreeMap::new(),
            octets: 0,
            last: None,
            asked: BTreeSet::new(),
            next: 0,
            discovery_asked: false,
        }
    }

    /// Returns a fetch of `faces/query` with a filter.
    pub fn face_query(target: Target, filter: &FaceQueryFilter) -> DatasetFetch {
        DatasetFetch::new(
            target
                .name("faces", "query")
                .child_generic(&filter.encode()),
        )
    }

    /// The next Interest to send; `None` until a reply arrives.
    pub fn poll_request(&mut self, nonce: [u8; 4]) -> Option<Vec<u8>> {
        let Some(versioned) = &self.versioned else {
            if core::mem::replace(&mut self.discovery_asked, true) {
                return None;
            }
            let mut interest = Interest::new(self.name.clone());
            interest.can_be_prefix = true;
            interest.must_be_fresh = true;
            interest.nonce = Some(nonce);
            return Some(interest.encode());
        };
        // Without a final block id, segments are requested one after the other.
        let end = self.last.map_or(self.segments.len() as u64 + 1, |last| {
            last.saturating_add(1)
        });
        while self.segments.contains_key(&self.next) || self.asked.contains(&self.next) {
            self.next += 1;
        }
        if self.next >= end || self.asked.len() >= WINDOW {
            return None;
        }
        self.asked.insert(self.next);
        let next = self.next;
        let mut interest = Interest::new(versioned.child(Component::segment(next).as_ref()));
        interest.nonce = Some(nonce);
        Some(interest.encode())
    }

    /// Handles a missing reply: the outstanding segments are requested again.
    pub fn handle_timeout(&mut self) {
        self.asked.clear();
        self.next = 0;
        self.discovery_asked = false;
    }

    /// Handles a Data. Returns the whole content if this was the last missing part.
    pub fn handle_data(&mut self, data: &[u8]) -> Result<Option<Vec<u8>>, ClientError> {
        let data = DataRef::decode(data)?;
        if data.content_type == ContentType::Nack {
            return Err(ClientError::Refused(ControlResponse::decode(data.content)?));
        }
        let wrong = || ClientError::Name(data.name.to_name());
        let before = data.name.len().checked_sub(1).ok_or_else(wrong)?;
        let number = data
            .name
            .last()
            .and_then(|last| last.number_of(ndn::SEGMENT))
            .ok_or_else(wrong)?;
        let versioned = data.name.prefix(before);
        match &self.versioned {
            Some(known) if known.as_ref() == versioned && self.asked.contains(&number) => {}
            // A repeated request may be answered twice.
            Some(known) if known.as_ref() == versioned && self.segments.contains_key(&number) => {
                return Ok(None);
            }
            Some(_) => return Err(wrong()),
            None => {
                let version = versioned
                    .last()
                    .and_then(|last| last.number_of(ndn::VERSION));
                if version.is_none() || versioned.prefix(before - 1) != self.name.as_ref() {
                    return Err(wrong());
                }
                self.versioned = Some(versioned.to_name());
            }
        }
        self.take(&data, number)
    }

    fn take(&mut self, data: &DataRef<'_>, number: u64) -> Result<Option<Vec<u8>>, ClientError> {
        if self.last.is_none() {
            self.last = data
                .final_block_id
                .and_then(|last| last.number_of(ndn::SEGMENT));
        }
        self.asked.remove(&number);
        self.segments
            .insert(number, Bytes::copy_from_slice(data.content));
        // An empty segment counts too, to bound their number.
        self.octets += data.content.len() + 64;
        if self.octets > MAX_OCTETS {
            return Err(ClientError::TooLarge);
        }
        let Some(last) = self.last else {
            return Ok(None);
        };
        let parts = || self.segments.range(..=last);
        let is_complete =
            self.segments.len() as u64 > last && parts().count() as u64 == last.saturating_add(1);
        Ok(is_complete.then(|| parts().flat_map(|(_, part)| part.iter().copied()).collect()))
    }
}

/// The kind of item in a dataset's list.
pub trait DatasetItem: Sized {
    /// TLV-TYPE of an item.
    const TYPE: u64;

    /// Decodes a whole element.
    fn decode_item(element: &[u8]) -> Result<Self, DecodeError>;
}

macro_rules! dataset_items {
    ($($item:ty = $typ:expr;)*) => { $(
        impl DatasetItem for $item {
            const TYPE: u64 = $typ;
            fn decode_item(element: &[u8]) -> Result<Self, DecodeError> {
                <$item>::decode(element)
            }
        }
    )* };
}

dataset_items! {
    FaceStatus = types::FACE_STATUS;
    ChannelStatus = types::CHANNEL_STATUS;
    FibEntry = types::FIB_ENTRY;
    RibEntry = types::RIB_ENTRY;
    StrategyChoice = types::STRATEGY_CHOICE;
    CsInfo = types::CS_INFO;
}

/// Decodes the items of a dataset's content. Skips elements of other types.
pub fn decode_items<T: DatasetItem>(content: &[u8]) -> Result<Vec<T>, DecodeError> {
    let mut reader = tlv::Reader::new(content);
    let mut items = Vec::new();
    while let Some(element) = reader.element()? {
        if element.typ == T::TYPE {
            items.push(T::decode_item(element.whole)?);
        }
    }
    Ok(items)
}
