//! One TCP connection at a proxy.

use core::time::Duration;

use bytes::Bytes;
use whimbrel_core::Time;
use whimbrel_ndn_packet::Name;
use whimbrel_transport::PathTag;

use crate::admission::Charge;
use crate::basic::Basic;
use crate::message::{Opening, Protocol};
use crate::options::Options;
use crate::paths::Way;
use crate::phase::{Phase, Tracker};
use crate::reliable::{Demand, Supply};
use crate::segment::{Ends, Segment};
use crate::unreliable::Unreliable;

/// Between two wake-ups of a peer that has not answered.
const UNANSWERED_REPEAT: Duration = Duration::from_secs(1);

/// Counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounters {
    /// Segments from this side.
    pub outward_segments: u64,
    /// Bytes of payload in them.
    pub outward_bytes: u64,
    /// Segments delivered to this side.
    pub inward_segments: u64,
    /// Bytes of payload in them.
    pub inward_bytes: u64,
    /// Interests sent.
    pub interests: u64,
    /// Data sent.
    pub data: u64,
    /// Segments dropped because the queue is full.
    pub dropped: u64,
    /// Wake-ups, notifications and advertisements sent.
    pub notices: u64,
}

/// The queues of a connection's protocol.
pub(crate) enum Carrier {
    Basic(Basic),
    Reliable(Box<Supply>, Box<Demand>),
    Unreliable(Box<Unreliable>),
}

impl Carrier {
    fn new(protocol: Protocol, lifetime: Duration) -> Carrier {
        match protocol {
            Protocol::Basic => Carrier::Basic(Basic::default()),
            Protocol::Reliable => {
                Carrier::Reliable(Box::default(), Box::new(Demand::new(lifetime)))
            }
            Protocol::Unreliable => Carrier::Unreliable(Box::default()),
        }
    }

    /// Returns the bytes of segments that it holds.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Carrier::Basic(basic) => basic.bytes(),
            Carrier::Reliable(supply, _) => supply.waiting().2,
            Carrier::Unreliable(queue) => queue.waiting().2,
        }
    }

    /// Segments wait that came before the one at hand.
    pub(crate) fn has_backlog(&self) -> bool {
        match self {
            Carrier::Basic(_) => false,
            Carrier::Reliable(supply, _) => supply.backlog() > 0,
            Carrier::Unreliable(queue) => queue.waiting().0 > 0,
        }
    }

    pub(crate) fn acknowledged(&mut self, now: Time, number: u64) {
        match self {
            Carrier::Basic(basic) => basic.acknowledged(number),
            Carrier::Reliable(supply, _) => supply.acknowledged(now, number),
            Carrier::Unreliable(queue) => queue.acknowledged(now, number),
        }
    }
}

pub(crate) struct Connection {
    pub(crate) ends: Ends,
    /// Distinguishes connections that use the same slot one after the other.
    pub(crate) generation: u32,
    pub(crate) protocol: Protocol,
    pub(crate) peer: Name,
    /// This proxy's label.
    pub(crate) label: u64,
    /// Prefix of the names of this proxy's Data.
    pub(crate) own_names: Name,
    /// The same of the peer's; known from its first message with an opening.
    pub(crate) peer_names: Option<Name>,
    pub(crate) tracker: Tracker,
    pub(crate) carrier: Carrier,
    pub(crate) counters: ConnectionCounters,
    /// The last SYN from this side, which an ICMP error returns; empty if there was none.
    pub(crate) first_packet: Packet,
    /// The newest segments from this side, with and without payload: sent once more after an outage.
    pub(crate) newest: [Option<Newest>; 2],
    pub(crate) opened: Time,
    /// What it has cost whoever opened it, until it is answered.
    pub(crate) charge: Option<Charge>,
    /// Additional Interests were sent.
    pub(crate) extra_sent: bool,
    /// The path of its Interests; `None` by name.
    pub(crate) way: Option<Way>,
    /// In the queue of connections that have Data to send.
    pub(crate) is_ready: bool,
    /// Bytes of the carrier that the proxy has counted.
    pub(crate) charged: usize,
}

/// A segment that may be sent once more.
#[derive(Clone, Debug)]
pub(crate) struct Newest {
    pub(crate) at: Time,
    /// The number after it.
    pub(crate) end: u64,
    pub(crate) packet: Packet,
}

/// What makes a connection.
pub(crate) struct Beginning {
    pub(crate) ends: Ends,
    pub(crate) generation: u32,
    pub(crate) protocol: Protocol,
    pub(crate) peer: Name,
    pub(crate) label: u64,
    pub(crate) own_names: Name,
    pub(crate) adopted: bool,
    pub(crate) charge: Charge,
}

impl Connection {
    pub(crate) fn new(now: Time, beginning: Beginning, options: &Options) -> Connection {
        let Beginning {
            ends,
            generation,
            protocol,
            peer,
            label,
            own_names,
            adopted,
            charge,
        } = beginning;
        Connection {
            ends,
            generation,
            protocol,
            peer,
            label,
            own_names,
            peer_names: None,
            tracker: Tracker::new(now, adopted),
            carrier: Carrier::new(protocol, options.interest_lifetime),
            counters: ConnectionCounters::default(),
            first_packet: Packet::new(),
            newest: [None, None],
            opened: now,
            charge: Some(charge),
            extra_sent: false,
            way: None,
            is_ready: false,
            charged: 0,
        }
    }

    pub(crate) fn opening(&self, prefix: &Name) -> Opening {
        Opening {
            protocol: self.protocol,
            label: self.label,
            prefix: prefix.clone(),
        }
    }

    pub(crate) fn note_outward(&mut self, now: Time, segment: &Segment<'_>) {
        self.tracker.note_outward(now, segment);
        self.counters.outward_segments += 1;
        self.counters.outward_bytes += segment.payload as u64;
    }

    /// Returns true if a segment from this side acknowledges something that has come.
    pub(crate) fn acknowledges(&self, segment: &Segment<'_>) -> bool {
        segment.flags.ack && self.tracker.has_come(segment.acknowledgement)
    }

    /// Returns the longest time between two wake-ups: a peer that has not answered yet need not be
    /// woken more often than TCP sends again.
    pub(crate) fn wake_repeat(&self, options: &Options) -> Duration {
        match self.charge {
            Some(_) => options.wake_repeat.max(UNANSWERED_REPEAT),
            None => options.wake_repeat,
        }
    }

    /// Holds a segment from this side until there is a newer one of its kind.
    pub(crate) fn hold(&mut self, now: Time, segment: &Segment<'_>, packet: &Packet) {
        let end = self.tracker.outward.sent.extend(segment.end());
        let packet = packet.clone();
        let newest = Newest {
            at: now,
            end,
            packet,
        };
        let [with_payload, without] = &mut self.newest;
        *(if segment.payload > 0 {
            with_payload
        } else {
            without
        }) = Some(newest);
    }

    /// What may have been lost since `since`: the newest segment without payload, and the one with
    /// payload if it is not acknowledged.
    pub(crate) fn lost_since(&self, since: Time) -> impl Iterator<Item = Packet> {
        let acknowledged = self.tracker.outward_acknowledged().unwrap_or(0);
        let [with_payload, without] = &self.newest;
        let without = without.iter().filter(move |it| it.at >= since);
        let with_payload = with_payload.iter().filter(move |it| it.end > acknowledged);
        let packets: Vec<_> = without
            .chain(with_payload)
            .map(|it| it.packet.clone())
            .collect();
        packets.into_iter()
    }

    pub(crate) fn note_inward(&mut self, now: Time, segment: &Segment<'_>) {
        self.tracker.note_inward(now, segment);
        self.counters.inward_segments += 1;
        self.counters.inward_bytes += segment.payload as u64;
        if let Some(number) = self.tracker.outward_acknowledged() {
            self.carrier.acknowledged(now, number);
        }
    }

    /// Returns the next deadline, and why.
    pub(crate) fn deadline(&self, now: Time, options: &Options) -> Time {
        let end = self.tracker.touched + self.patience(options);
        let due = match &self.carrier {
            Carrier::Basic(_) => None,
            Carrier::Reliable(supply, demand) => {
                let advertise = supply.advertise_at(now);
                [advertise, demand.deadline()].into_iter().flatten().min()
            }
            Carrier::Unreliable(queue) => {
                let wake = queue.wake_at(now, self.wake_repeat(options));
                [wake, queue.alone_until()].into_iter().flatten().min()
            }
        };
        due.map_or(end, |due| due.min(end))
    }

    /// Returns true if it was asked for on this side and nothing has come from the other end yet.
    pub(crate) fn waits_for_peer(&self) -> bool {
        let nothing_came = self.tracker.inward.sent.highest().is_none();
        self.tracker.phase() == Phase::Opening && nothing_came
    }

    pub(crate) fn is_expired(&self, now: Time, options: &Options) -> bool {
        self.tracker.touched + self.patience(options) <= now
    }

    /// Returns how long it is kept while it is silent.
    fn patience(&self, options: &Options) -> Duration {
        let patience = options.patience.with(self.tracker.phase());
        match self.charge {
            Some(_) => patience.min(options.patience.opening),
            None => patience,
        }
    }

    pub(crate) fn status(&self, now: Time) -> ConnectionStatus {
        let mut status = ConnectionStatus {
            ends: self.ends,
            peer: self.peer.clone(),
            protocol: self.protocol,
            phase: self.tracker.phase(),
            age: now.since(self.opened),
            idle: now.since(self.tracker.touched),
            window: None,
            queued_segments: 0,
            queued_bytes: self.carrier.bytes(),
            interests_held: 0,
            interests_pending: 0,
            retransmitted_interests: 0,
            round_trip: None,
            path: None,
            counters: self.counters,
        };
        match &self.carrier {
            Carrier::Basic(_) => {}
            Carrier::Reliable(supply, demand) => {
                (status.queued_segments, status.interests_held, _) = supply.waiting();
                let (window, pending, _, retransmitted) = demand.state();
                status.window = Some(window);
                status.interests_pending = pending;
                status.retransmitted_interests = retransmitted;
                status.round_trip = supply.round_trip();
            }
            Carrier::Unreliable(queue) => {
                (status.queued_segments, status.interests_held, _) = queue.waiting();
                status.round_trip = queue.round_trip();
            }
        }
        status
    }
}

/// A connection, for tables.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionStatus {
    /// Its two ends.
    pub ends: Ends,
    /// The peer's prefix.
    pub peer: Name,
    /// Its protocol.
    pub protocol: Protocol,
    /// How far it is.
    pub phase: Phase,
    /// Since its first segment.
    pub age: Duration,
    /// Since its last segment.
    pub idle: Duration,
    /// The window of Interests, of reliable prefetching.
    pub window: Option<u16>,
    /// Segments that wait for Interests, or (reliable prefetching) for acknowledgement.
    pub queued_segments: usize,
    /// Their bytes.
    pub queued_bytes: usize,
    /// Interests that wait for segments.
    pub interests_held: usize,
    /// Interests in flight, of reliable prefetching.
    pub interests_pending: usize,
    /// Interests retransmitted, of reliable prefetching.
    pub retransmitted_interests: u64,
    /// From a segment to its acknowledgement, smoothed; of prefetching.
    pub round_trip: Option<Duration>,
    /// The path of its Interests; `None` by name.
    pub path: Option<PathTag>,
    /// Counters.
    pub counters: ConnectionCounters,
}

/// A whole packet, for the device.
pub type Packet = Bytes;
