//! The network device for smoltcp: two queues, with a record of sent sequence numbers.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::time::Instant;
use smoltcp::wire::{IpProtocol, Ipv4Packet, TcpPacket, TcpSeqNumber};
use whimbrel_core::{RttEstimator, Time};

use super::SenderSample;

/// Bound of the unused buffers that are kept.
const MAX_SPARE: usize = 4096;

/// Interval of the samples of a sender.
const SAMPLES: Duration = Duration::from_millis(500);
/// Bound of the samples: later ones are not taken.
const MAX_SAMPLES: usize = 1_000_000;
/// smoltcp's bounds of the retransmission timeout; it keeps its own value to itself.
const LEAST_TIMEOUT: Duration = Duration::from_secs(1);
const LARGEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The other end of a connection: its address, its port and the port at this end.
type Peer = (u32, u16, u16);

/// What was sent to one peer.
#[derive(Debug)]
struct Sent {
    /// The sequence number after the last payload byte.
    highest: TcpSeqNumber,
    acknowledged: TcpSeqNumber,
    /// A byte whose acknowledgement is awaited, and when it was sent. Never one that was sent twice
    /// (RFC 6298 §3).
    timed: Option<(TcpSeqNumber, Instant)>,
    timeout: RttEstimator,
}

/// Queues of packets in and out.
#[derive(Debug)]
pub(super) struct QueueDevice {
    mtu: usize,
    incoming: VecDeque<Vec<u8>>,
    outgoing: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    sent: BTreeMap<Peer, Sent>,
    retransmitted_segments: u64,
    retransmitted_bytes: u64,
    samples: Vec<SenderSample>,
}

impl QueueDevice {
    pub(super) fn new(mtu: usize) -> QueueDevice {
        QueueDevice {
            mtu,
            incoming: VecDeque::new(),
            outgoing: VecDeque::new(),
            spare: Vec::new(),
            sent: BTreeMap::new(),
            retransmitted_segments: 0,
            retransmitted_bytes: 0,
            samples: Vec::new(),
        }
    }

    pub(super) fn receive_frame(&mut self, frame: &[u8]) {
        let mut packet = self.spare.pop().unwrap_or_default();
        packet.extend_from_slice(frame);
        self.incoming.push_back(packet);
    }

    pub(super) fn has_incoming(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Appends the next packet to `buffer` and returns its size.
    pub(super) fn take_outgoing(&mut self, buffer: &mut Vec<u8>) -> Option<usize> {
        let packet = self.outgoing.pop_front()?;
        buffer.extend_from_slice(&packet);
        let size = packet.len();
        self.recycle(packet);
        Some(size)
    }

    /// Returns the number of retransmitted segments and payload bytes.
    pub(super) fn retransmitted(&self) -> (u64, u64) {
        (self.retransmitted_segments, self.retransmitted_bytes)
    }

    fn recycle(&mut self, mut packet: Vec<u8>) {
        if self.spare.len() < MAX_SPARE {
            packet.clear();
            self.spare.push(packet);
        }
    }

    /// Returns what was sampled of the sender.
    pub(super) fn samples(&self) -> &[SenderSample] {
        &self.samples
    }

    /// Counts payload that was sent before, since smoltcp itself does not report it.
    fn watch(&mut self, now: Instant, packet: &[u8]) {
        let Some((peer, segment)) = tcp(packet, Way::Out) else {
            return;
        };
        if segment.syn() || segment.rst() {
            self.sent.remove(&peer);
            return;
        }
        let length = segment.payload().len();
        if length == 0 {
            return;
        }
        let (begin, end) = (segment.seq_number(), segment.seq_number() + length);
        let sent = self.sent.entry(peer).or_insert_with(|| Sent {
            highest: begin,
            acknowledged: begin,
            timed: None,
            timeout: RttEstimator::new(LEAST_TIMEOUT, LEAST_TIMEOUT, LARGEST_TIMEOUT),
        });
        if begin < sent.highest {
            self.retransmitted_segments += 1;
            self.retransmitted_bytes += length as u64;
            sent.timed = None;
        } else {
            sent.timed.get_or_insert((end, now));
        }
        if sent.highest < end {
            sent.highest = end;
        }
        self.sample(now);
    }

    /// Notes what an arriving segment acknowledges.
    fn watch_acknowledgement(&mut self, now: Instant, packet: &[u8]) {
        let Some((peer, segment)) = tcp(packet, Way::In) else {
            return;
        };
        let number = segment.ack_number();
        if let Some(sent) = self.sent.get_mut(&peer).filter(|_| segment.ack())
            && sent.acknowledged < number
            && number <= sent.highest + 1
        {
            sent.acknowledged = number;
            if let Some((_, at)) = sent.timed.take_if(|(end, _)| *end <= number) {
                let micros = now.total_micros() - at.total_micros();
                let elapsed = Duration::from_micros(u64::try_from(micros).unwrap_or(0));
                sent.timeout.sample(elapsed);
            }
            self.sample(now);
        }
    }

    /// smoltcp drops a segment with its payload if its acknowledgement is older than another one's that
    /// overtook it. RFC 9293 §3.10.7.4 ignores the acknowledgement only, and so do kernels: it is replaced
    /// by the newest.
    fn renew_acknowledgement(&self, packet: &mut [u8]) {
        let Some((peer, segment)) = tcp(packet, Way::In) else {
            return;
        };
        let newest = self.sent.get(&peer);
        let newest = newest.map(|sent| sent.acknowledged);
        if let Some(number) = newest.filter(|number| segment.ack_number() < *number)
            && segment.ack()
            && !segment.payload().is_empty()
        {
            rewrite(packet, |segment| segment.set_ack_number(number));
        }
    }

    /// After a timeout smoltcp acknowledges with the sequence number from which it sends again, which the
    /// peer may be beyond: then it ignores the acknowledgement, and if both ends do so the connection
    /// hangs. RFC 9293 §3.10.7.4 has SND.NXT there, which does not go back.
    fn renew_sequence(&self, packet: &mut [u8]) {
        let Some((peer, segment)) = tcp(packet, Way::Out) else {
            return;
        };
        let highest = self.sent.get(&peer);
        let highest = highest.map(|sent| sent.highest);
        let is_bare = segment.payload().is_empty();
        let is_control = segment.syn() || segment.fin() || segment.rst();
        if let Some(number) = highest.filter(|number| segment.seq_number() < *number)
            && is_bare
            && !is_control
        {
            rewrite(packet, |segment| segment.set_seq_number(number));
        }
    }

    /// Takes a sample, if it is due.
    fn sample(&mut self, now: Instant) {
        let at = Time::from_nanos(
            u64::try_from(now.total_micros())
                .unwrap_or(0)
                .saturating_mul(1_000),
        );
        let due = |last: &SenderSample| at >= last.at + SAMPLES;
        if !self.samples.last().is_none_or(due) || self.samples.len() >= MAX_SAMPLES {
            return;
        }
        let flight = |sent: &Sent| {
            let bytes = sent.highest.max(sent.acknowledged) - sent.acknowledged;
            bytes as u64
        };
        let timeouts = self.sent.values().map(|sent| sent.timeout.timeout());
        self.samples.push(SenderSample {
            at,
            flight: self.sent.values().map(flight).sum(),
            timeout: timeouts.max().unwrap_or(LEAST_TIMEOUT),
            retransmitted: self.retransmitted_segments,
        });
    }
}

/// Of a packet, from this device's view.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

/// Returns a packet's TCP segment, with the peer.
fn tcp(packet: &[u8], way: Way) -> Option<(Peer, TcpPacket<&[u8]>)> {
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    let header = usize::from(ip.header_len());
    let whole = usize::from(ip.total_len());
    if ip.next_header() != IpProtocol::Tcp {
        return None;
    }
    let segment = TcpPacket::new_checked(packet.get(header..whole)?).ok()?;
    let (from, to) = (segment.src_port(), segment.dst_port());
    let peer = match way {
        Way::In => (u32::from(ip.src_addr()), from, to),
        Way::Out => (u32::from(ip.dst_addr()), to, from),
    };
    Some((peer, segment))
}

/// Changes a packet's TCP header, and its checksum with it.
fn rewrite(packet: &mut [u8], change: impl FnOnce(&mut TcpPacket<&mut [u8]>)) {
    let Ok(mut ip) = Ipv4Packet::new_checked(packet) else {
        return;
    };
    let (source, destination) = (ip.src_addr(), ip.dst_addr());
    if let Ok(mut segment) = TcpPacket::new_checked(ip.payload_mut()) {
        change(&mut segment);
        segment.fill_checksum(&source.into(), &destination.into());
    }
}

impl phy::Device for QueueDevice {
    type RxToken<'a> = ReceivedFrame;
    type TxToken<'a> = TransmitSlot<'a>;

    fn receive(&mut self, now: Instant) -> Option<(ReceivedFrame, TransmitSlot<'_>)> {
        let mut packet = self.incoming.pop_front()?;
        self.watch_acknowledgement(now, &packet);
        self.renew_acknowledgement(&mut packet);
        Some((ReceivedFrame(packet), TransmitSlot(self, now)))
    }

    fn transmit(&mut self, now: Instant) -> Option<TransmitSlot<'_>> {
        Some(TransmitSlot(self, now))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities
    }
}

/// A received packet.
pub(super) struct ReceivedFrame(Vec<u8>);

impl phy::RxToken for ReceivedFrame {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, process: F) -> R {
        process(&self.0)
    }
}

/// Permission to send one packet.
pub(super) struct TransmitSlot<'a>(&'a mut QueueDevice, Instant);

impl phy::TxToken for TransmitSlot<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut packet = self.0.spare.pop().unwrap_or_default();
        packet.resize(length, 0);
        let result = fill(&mut packet);
        self.0.watch(self.1, &packet);
        self.0.renew_sequence(&mut packet);
        self.0.outgoing.push_back(packet);
        result
    }
}
