//! Measuring what a network carries between two hosts: `whimbrel perf`, the counterpart of
//! MobilityFirst's `mfperf` with the habits of iperf3 (`docs/protocols/perf.md`).
//!
//! A *stream* is a sequence of *laps*: contents of up to [`LAP`] bytes with names of their own, so
//! that nothing on the way has them already. The receiver of a stream asks for its laps one after
//! the other, the next one while half of the last is still under way.
//!
//! | module | holds |
//! |---|---|
//! | `words` | the messages of the two ends |
//! | `laps` | what a sender makes and offers |
//! | `receiving` | what a receiver asks for, and counts |
//! | [`server`], [`client`] | the two ends over a host |

pub mod client;
mod laps;
mod receiving;
pub mod server;
mod words;

use std::time::Duration;

use whimbrel_content::ChunkSize;

/// Bytes of a lap: a second at half a gigabit per second.
pub const LAP: u64 = 64 << 20;
/// The channel of the two ends' messages; the port of iperf3.
const CHANNEL: u32 = 5201;
/// Bound of the streams in one direction.
pub const MAX_STREAMS: u16 = 64;
/// Messages arrive at most once: what is not answered is said again after this time.
const AGAIN: Duration = Duration::from_secs(1);
/// Interval at which the stop flag is checked and timers are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Plan {
    /// Streams from the client to the server.
    pub up: u16,
    /// Streams from the server to the client.
    pub down: u16,
    /// Bytes in each direction, divided among its streams; `None`: until the client says so.
    pub bytes: Option<u64>,
    /// Chunk size as a power of two.
    pub chunk_log2: u8,
    /// Interval of the server's reports, in milliseconds.
    pub interval_ms: u32,
}

impl Plan {
    /// Returns why a server does not accept it; `None` if it does.
    fn fault(&self) -> Option<&'static str> {
        if self.up.max(self.down) > MAX_STREAMS || self.up + self.down == 0 {
            return Some("a test has 1 to 64 streams in each direction that it has");
        }
        if ChunkSize::from_code(self.chunk_log2).is_none() {
            return Some("no chunks have this size");
        }
        (self.interval_ms < 100).then_some("reports have at least 100 ms between them")
    }

    /// Returns the numbers of the streams that the server receives, and of those that it sends.
    fn streams(&self) -> (core::ops::Range<u16>, core::ops::Range<u16>) {
        (0..self.up, self.up..self.up + self.down)
    }

    /// Returns the bytes of each of `streams` streams, the first ones with a byte more if they
    /// cannot be equal.
    fn shares(&self, streams: u16) -> impl Iterator<Item = Option<u64>> {
        let (count, bytes) = (u64::from(streams).max(1), self.bytes);
        (0..count).map(move |at| bytes.map(|all| all / count + u64::from(at < all % count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_from_the_network_are_held_to_their_bounds() {
        let plan = |up, down| Plan {
            up,
            down,
            bytes: None,
            chunk_log2: 20,
            interval_ms: 1000,
        };
        for (up, down) in [(0, 0), (u16::MAX, u16::MAX), (u16::MAX, 1), (0, 65)] {
            assert!(plan(up, down).fault().is_some(), "{up} {down}");
        }
        assert_eq!(plan(64, 64).fault(), None);
        let chunk_log2 = 63;
        assert!(
            Plan {
                chunk_log2,
                ..plan(1, 1)
            }
            .fault()
            .is_some()
        );
        let interval_ms = 0;
        assert!(
            Plan {
                interval_ms,
                ..plan(1, 1)
            }
            .fault()
            .is_some()
        );
    }

    #[test]
    fn the_shares_of_streams_add_up() {
        for (bytes, streams) in [(10, 3), (1 << 30, 7), (2, 5)] {
            let plan = Plan {
                up: streams,
                down: 0,
                bytes: Some(bytes),
                chunk_log2: 20,
                interval_ms: 1000,
            };
            let shares: Vec<u64> = plan.shares(streams).flatten().collect();
            assert_eq!(shares.len(), usize::from(streams));
            assert_eq!(shares.iter().sum::<u64>(), bytes);
        }
    }
}
