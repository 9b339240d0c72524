//! Basic fetching, [TCP/ICN §3.3]: each segment with payload is announced, then fetched by its
//! name.

use std::collections::BTreeMap;

use bytes::Bytes;

/// A segment that waits to be fetched.
struct Waiting {
    /// Number after its last byte, extended.
    end: u64,
    packet: Bytes,
}

/// The "Data cache" of [TCP/ICN §3.3.1], step 5, for one connection.
#[derive(Default)]
pub struct Basic {
    by_number: BTreeMap<u64, Waiting>,
    bytes: usize,
    next: u64,
}

impl Basic {
    /// Keeps a segment; returns its number. Forgets the oldest ones beyond `limit` bytes.
    pub fn push(&mut self, end: u64, packet: Bytes, limit: usize) -> u64 {
        let number = self.next;
        self.next += 1;
        self.bytes += packet.len();
        self.by_number.insert(number, Waiting { end, packet });
        while self.bytes > limit && self.by_number.len() > 1 {
            let oldest = self.by_number.pop_first();
            self.bytes -= oldest.map_or(0, |(_, oldest)| oldest.packet.len());
        }
        number
    }

    /// Returns the segment with this number. It is kept: the Interest may come again.
    pub fn fetch(&self, number: u64) -> Option<Bytes> {
        self.by_number.get(&number).map(|it| it.packet.clone())
    }

    /// The other end has acknowledged everything before `number`.
    pub fn acknowledged(&mut self, number: u64) {
        while let Some(first) = self.by_number.first_entry() {
            if first.get().end > number {
                break;
            }
            self.bytes -= first.remove().packet.len();
        }
    }

    /// Returns the bytes kept.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_stay_until_they_are_acknowledged_or_too_many() {
        let mut basic = Basic::default();
        let packet = |octet: u8| Bytes::from(vec![octet; 10]);
        assert_eq!(basic.push(10, packet(1), 25), 0);
        assert_eq!(basic.push(20, packet(2), 25), 1);
        assert_eq!(basic.fetch(0), Some(packet(1)));
        assert_eq!(
            basic.push(10, packet(1), 25),
            2,
            "a retransmission is another Data"
        );
        assert_eq!((basic.fetch(0), basic.bytes()), (None, 20));
        basic.acknowledged(10);
        assert_eq!(basic.fetch(1), Some(packet(2)), "not acknowledged yet");
        basic.acknowledged(20);
        assert_eq!(
            (basic.fetch(1), basic.fetch(2), basic.bytes()),
            (None, None, 0)
        );
    }
}
