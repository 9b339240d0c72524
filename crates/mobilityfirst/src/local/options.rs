//! The options of a transfer, as a program chooses them [MFTP §4]: "i) desired chunk size; ii) end-to-end
//! reliability preference; iii) NACK timeout; iv) willingness to use in-network proxy", and the service.

use core::ops::Range;
use core::str::FromStr;
use core::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use whimbrel_content::ChunkSize;
use whimbrel_core::Guid;
use whimbrel_core::units::Span;
use whimbrel_gnrs::Record;

use crate::wire::{EXACT_SIZE, NetworkHeader, Reader, Reliability, ServiceId, WireError, codes};

/// Maximum of ranges of missing bytes that a program is told; further ones are counted only.
pub const MAX_MISSING: usize = 256;
/// The code of a reliability that the program leaves to the other end.
const NO_RELIABILITY: u8 = 0xff;

/// The options of a get, a push, a served content, and (its delivery alone) of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TransferOptions {
    /// Largest chunk as a power of two: 14 (16 KiB) to 22 (4 MiB); 0 leaves it to the path. A chunk is smaller
    /// if the path affords no larger one ([`crate::chunk_size`]), unless
    /// [`EXACT_SIZE`](crate::wire::EXACT_SIZE) is added. A source sends none above its own size.
    pub chunk_log2: u8,
    /// What the receiver confirms or reports. A source's choice goes before that of a receiver; if both leave
    /// it open, it is NACK.
    pub reliability: Option<Reliability>,
    /// How long a chunk may be missing before the source is told, in milliseconds; 0 leaves it open. The
    /// receiver's choice goes before the source's, and that before the host's default.
    pub nack_timeout_ms: u32,
    /// How the network treats the chunks and messages.
    pub delivery: Delivery,
}

/// How the network treats what a program sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Delivery {
    /// The use of in-network proxies.
    pub storage: Storage,
    /// The service.
    pub service: Service,
}

/// "Willingness to use in-network proxy" [MFTP §4].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Storage {
    /// A router stores a chunk for as long as its configuration says.
    #[default]
    Default,
    /// A router that cannot forward a chunk drops it, and tells its source.
    Never,
    /// A router stores a chunk for this many milliseconds, if its configuration does not say less.
    Lifetime(u32),
}

/// The delivery of one operation [MF-5G §IV].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// By the links that the host's policy uses.
    #[default]
    Default,
    /// By one link at a time, also where the policy uses several.
    Unicast,
    /// Divided among all links of the host, also where the policy uses one.
    Multihoming,
    /// To the nearest of the hosts that are attached by the name.
    Anycast,
    /// To each member of the group of this name [MFTP §3.5].
    Multicast,
}

codes!(Service, "service", {
    Default = 0,
    Unicast = 1,
    Multihoming = 2,
    Anycast = 3,
    Multicast = 4,
});

impl Service {
    /// Returns its name in options and configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Service::Default => "default",
            Service::Unicast => "unicast",
            Service::Multihoming => "multihoming",
            Service::Anycast => "anycast",
            Service::Multicast => "multicast",
        }
    }
}

impl Storage {
    const NEVER: u32 = u32::MAX;

    /// Returns the storage for a time; none is the routers' default.
    pub fn of(lifetime: Option<Duration>) -> Storage {
        lifetime.map_or(Storage::Default, |lifetime| {
            let ms = lifetime.as_millis().min(u128::from(Storage::NEVER - 1));
            match ms {
                0 => Storage::Never,
                ms => Storage::Lifetime(ms as u32),
            }
        })
    }

    fn code(self) -> u32 {
        match self {
            Storage::Default => 0,
            Storage::Never => Storage::NEVER,
            Storage::Lifetime(ms) => ms.clamp(1, Storage::NEVER - 1),
        }
    }

    fn from_code(code: u32) -> Storage {
        match code {
            0 => Storage::Default,
            Storage::NEVER => Storage::Never,
            ms => Storage::Lifetime(ms),
        }
    }

    /// Returns the storage that a header asks for.
    pub(crate) fn of_header(header: &NetworkHeader) -> Storage {
        match header.extensions.lifetime_ms {
            _ if !header.service.has(ServiceId::DELAY_TOLERANT) => Storage::Never,
            Some(ms) => Storage::from_code(ms.clamp(1, Storage::NEVER - 1)),
            None => Storage::Default,
        }
    }

    /// Returns the words by which people write it: "never", "default", "2 h".
    pub fn words(self) -> String {
        match self {
            Storage::Default => "default".to_owned(),
            Storage::Never => "never".to_owned(),
            Storage::Lifetime(ms) => format!("{ms} ms"),
        }
    }

    /// Returns the shorter one of two.
    pub(crate) fn stricter(self, other: Storage) -> Storage {
        match (self, other) {
            (Storage::Never, _) | (_, Storage::Never) => Storage::Never,
            (Storage::Default, other) | (other, Storage::Default) => other,
            (Storage::Lifetime(one), Storage::Lifetime(other)) => Storage::Lifetime(one.min(other)),
        }
    }
}

impl FromStr for Storage {
    type Err = String;

    fn from_str(text: &str) -> Result<Storage, String> {
        match text {
            "default" => Ok(Storage::Default),
            "never" => Ok(Storage::Never),
            text => {
                let lifetime = Span::with_unit(text);
                let lifetime = lifetime.map_err(|_| "never, default, or a time such as 2 h");
                Ok(Storage::of(Some(lifetime?.0)))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Storage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Storage, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Delivery {
    const LEN: usize = 5;

    fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.storage.code().to_be_bytes());
        out.push(self.service.code());
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Delivery, WireError> {
        Ok(Delivery {
            storage: Storage::from_code(reader.u32()?),
            service: Service::from_code(reader.u8()?)?,
        })
    }

    pub(super) fn bytes(self) -> [u8; Delivery::LEN] {
        let mut out = Vec::with_capacity(Delivery::LEN);
        self.encode(&mut out);
        out.try_into().unwrap_or_default()
    }

    /// Returns the delivery of an answer to a request with this header, of a content that is served so.
    pub(crate) fn of_answer(self, asked: &NetworkHeader) -> Delivery {
        Delivery {
            storage: self.storage.stricter(Storage::of_header(asked)),
            ..self.to_one()
        }
    }

    /// Returns the delivery to one of the hosts that are attached by a name, once it is known.
    pub(crate) fn to_one(self) -> Delivery {
        let service = match self.service {
            Service::Anycast | Service::Multicast => Service::Default,
            service => service,
        };
        Delivery { service, ..self }
    }

    /// Returns the name by which a destination is addressed.
    pub(crate) fn address(self, destination: Guid) -> Guid {
        match self.service {
            Service::Anycast => Record::members_of(&destination),
            Service::Multicast => Record::group_of(&destination),
            _ => destination,
        }
    }

    /// Returns true or false if the operation is divided among links whatever the host's policy says.
    pub(crate) fn divides(self) -> Option<bool> {
        match self.service {
            Service::Default => None,
            Service::Multihoming => Some(true),
            Service::Unicast | Service::Anycast | Service::Multicast => Some(false),
        }
    }

    /// Adds its flags to a service.
    pub(crate) fn service(self, service: ServiceId) -> ServiceId {
        let service = match self.storage {
            Storage::Never => service,
            Storage::Default | Storage::Lifetime(_) => service.with(ServiceId::DELAY_TOLERANT),
        };
        match self.service {
            Service::Default | Service::Unicast => service,
            Service::Multihoming => service.with(ServiceId::MULTIHOMING),
            Service::Anycast => service.with(ServiceId::ANYCAST),
            Service::Multicast => service.with(ServiceId::MULTICAST),
        }
    }

    /// Returns the lifetime that its chunks carry, in milliseconds.
    pub(crate) fn lifetime_ms(self) -> Option<u32> {
        match self.storage {
            Storage::Lifetime(ms) => Some(ms),
            Storage::Default | Storage::Never => None,
        }
    }
}

impl TransferOptions {
    /// Returns the options with a NACK timeout.
    #[must_use]
    pub fn with_nack_timeout(self, timeout: Option<Duration>) -> TransferOptions {
        let ms = timeout.map_or(0, |timeout| timeout.as_millis().clamp(1, 1 << 31) as u32);
        TransferOptions {
            nack_timeout_ms: ms,
            ..self
        }
    }

    /// Returns the options with chunks of exactly this size.
    #[must_use]
    pub fn with_chunk_size(self, size: Option<ChunkSize>) -> TransferOptions {
        TransferOptions {
            chunk_log2: size.map_or(0, |size| size.code() | EXACT_SIZE),
            ..self
        }
    }

    /// Returns the largest chunk that a program asks for, by default that of the network.
    pub(crate) fn asked_log2(&self) -> u8 {
        match self.chunk_log2 {
            0 => ChunkSize::DEFAULT.code(),
            chunk_log2 => chunk_log2,
        }
    }

    /// Returns the largest chunk that a source sends.
    pub(crate) fn largest_log2(&self) -> u8 {
        match self.chunk_log2 & !EXACT_SIZE {
            0 => u8::MAX,
            chunk_log2 => chunk_log2.max(ChunkSize::MIN.code()),
        }
    }

    /// Returns the time that a source asks receivers to wait for a missing chunk, in milliseconds.
    pub(crate) fn nack_timeout(&self) -> Option<u32> {
        Some(self.nack_timeout_ms).filter(|ms| *ms > 0)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let reliability = self.reliability.map_or(NO_RELIABILITY, Reliability::code);
        out.extend_from_slice(&[self.chunk_log2, reliability]);
        out.extend_from_slice(&self.nack_timeout_ms.to_be_bytes());
        self.delivery.encode(out);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<TransferOptions, WireError> {
        Ok(TransferOptions {
            chunk_log2: reader.u8()?,
            reliability: match reader.u8()? {
                NO_RELIABILITY => None,
                code => Some(Reliability::from_code(code)?),
            },
            nack_timeout_ms: reader.u32()?,
            delivery: Delivery::read(reader)?,
        })
    }
}

/// What is missing of a content that is not requested again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingParts {
    /// The content's length in bytes, if a chunk has proven it.
    pub content_len: Option<u64>,
    /// The number of missing bytes, if the length is known.
    pub bytes: u64,
    /// The ranges of missing bytes in order, the first [`MAX_MISSING`] of them. Without a known length the last
    /// one has no end.
    pub ranges: Vec<Range<u64>>,
}

impl MissingParts {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.content_len.is_some()));
        out.extend_from_slice(&self.content_len.unwrap_or_default().to_be_bytes());
        out.extend_from_slice(&self.bytes.to_be_bytes());
        let ranges = self.ranges.len().min(MAX_MISSING);
        out.extend_from_slice(&(ranges as u16).to_be_bytes());
        for range in &self.ranges[..ranges] {
            out.extend_from_slice(&range.start.to_be_bytes());
            out.extend_from_slice(&range.end.to_be_bytes());
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<MissingParts, WireError> {
        let is_known = reader.u8()? == 1;
        let content_len = Some(reader.u64()?).filter(|_| is_known);
        let bytes = reader.u64()?;
        let count = usize::from(reader.u16()?);
        if count > MAX_MISSING {
            return Err(WireError::Invalid("count of missing ranges"));
        }
        let ranges = (0..count).map(|_| Ok(reader.u64()?..reader.u64()?));
        Ok(MissingParts {
            content_len,
            bytes,
            ranges: ranges.collect::<Result<_, WireError>>()?,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::wire::UpperProtocol;
    use proptest::prelude::*;

    pub(crate) fn any_options() -> impl Strategy<Value = TransferOptions> {
        let numbers = (any::<u8>(), 0usize..4, any::<u32>());
        (numbers, any_delivery()).prop_map(
            |((chunk_log2, reliability, nack_timeout_ms), delivery)| TransferOptions {
                chunk_log2,
                reliability: Reliability::ALL.get(reliability).copied(),
                nack_timeout_ms,
                delivery,
            },
        )
    }

    pub(crate) fn any_delivery() -> impl Strategy<Value = Delivery> {
        (any::<u32>(), 0usize..5).prop_map(|(storage, service)| Delivery {
            storage: Storage::from_code(storage),
            service: Service::ALL[service],
        })
    }

    #[test]
    fn the_stricter_storage_of_both_ends_holds() {
        let (never, short, long) = (Storage::Never, Storage::Lifetime(5), Storage::Lifetime(9));
        for (one, other, both) in [
            (Storage::Default, Storage::Default, Storage::Default),
            (never, long, never),
            (Storage::Default, never, never),
            (short, long, short),
            (Storage::Default, long, long),
        ] {
            assert_eq!(one.stricter(other), both);
            assert_eq!(other.stricter(one), both);
        }
    }

    proptest! {
        /// What the flags and extensions of a header say is what the program has chosen.
        #[test]
        fn a_header_carries_the_storage(delivery in any_delivery()) {
            let service = delivery.service(ServiceId::UNICAST);
            let upper = UpperProtocol::Transport;
            let mut header = NetworkHeader::new(service, upper, Guid([1; 32]), Guid([2; 32]));
            header.extensions.lifetime_ms = delivery.lifetime_ms();
            prop_assert_eq!(Storage::of_header(&header), delivery.storage);
        }

        #[test]
        fn options_and_missing_parts_round_trip(
            options in any_options(), len: Option<u64>, bytes: u64, starts in prop::collection::vec(any::<u64>(), 0..9),
        ) {
            let mut out = Vec::new();
            options.encode(&mut out);
            prop_assert_eq!(TransferOptions::read(&mut Reader(&out)), Ok(options));
            let ranges = starts.into_iter().map(|start| start..start.saturating_add(3)).collect();
            let missing = MissingParts { content_len: len, bytes, ranges };
            out.clear();
            missing.encode(&mut out);
            prop_assert_eq!(MissingParts::read(&mut Reader(&out)), Ok(missing));
        }
    }
}
