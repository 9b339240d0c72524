//! The transports of a loop: their places, what is polled, and when each wants to be served.

use std::io;
use std::net::SocketAddr;

use whimbrel_core::{Time, TimerQueue};

use crate::counters::{TransportCounters, TransportSnapshot};
use crate::poller::Poller;
use crate::transport::{Transport, TransportId};

/// A place for a transport. The generation tells late events of a closed transport from events of
/// its successor.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    transport: Option<Transport>,
}

/// All transports of a loop, by slot.
pub(crate) struct Transports {
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// A lower bound of each slot's next deadline: see [`Transports::arm`].
    timers: TimerQueue<usize>,
    pub(crate) poller: Poller,
    closed: TransportCounters,
}

impl Transports {
    pub(crate) fn new(poller: Poller) -> Transports {
        Transports {
            slots: Vec::new(),
            free: Vec::new(),
            timers: TimerQueue::new(),
            poller,
            closed: TransportCounters::default(),
        }
    }

    /// Returns a place for a transport that will be installed or released.
    pub(crate) fn reserve(&mut self) -> TransportId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        let generation = self.slots.get_mut(slot).map_or(0, |slot| {
            slot.generation = slot.generation.wrapping_add(1);
            slot.generation
        });
        TransportId {
            slot: slot as u32,
            generation,
        }
    }

    /// Releases a slot in which nothing was installed.
    pub(crate) fn release(&mut self, id: TransportId) {
        self.free.push(id.slot as usize);
    }

    /// Puts a transport into its reserved slot. Releases the slot if that fails.
    pub(crate) fn install(&mut self, id: TransportId, transport: Transport) -> io::Result<()> {
        if let Err(error) = self.poller.add(&transport, id.token()) {
            self.release(id);
            return Err(error);
        }
        self.replace(id, transport);
        self.arm(id.slot as usize);
        Ok(())
    }

    /// Puts a transport into the slot of one that was lifted from it. The poller knows it already.
    pub(crate) fn replace(&mut self, id: TransportId, transport: Transport) {
        if let Some(slot) = self.slots.get_mut(id.slot as usize) {
            slot.transport = Some(transport);
        }
    }

    /// Takes a transport out of its slot, which stays reserved and polled.
    pub(crate) fn lift(&mut self, slot: usize) -> Option<(TransportId, Transport)> {
        let place = self.slots.get_mut(slot)?;
        let transport = place.transport.take()?;
        self.timers.cancel(&slot);
        let id = TransportId {
            slot: slot as u32,
            generation: place.generation,
        };
        Some((id, transport))
    }

    /// Takes a transport out for good.
    pub(crate) fn remove(&mut self, slot: usize) -> Option<Transport> {
        let (id, transport) = self.lift(slot)?;
        self.poller.remove(&transport);
        self.release(id);
        self.closed.add(&transport.snapshot().counters);
        Some(transport)
    }

    pub(crate) fn get(&mut self, slot: usize) -> Option<&mut Transport> {
        self.slots.get_mut(slot)?.transport.as_mut()
    }

    /// Returns a transport with the poller that it changes.
    pub(crate) fn polled(&mut self, slot: usize) -> Option<(&mut Transport, &mut Poller)> {
        let transport = self.slots.get_mut(slot)?.transport.as_mut()?;
        Some((transport, &mut self.poller))
    }

    /// Returns the slot of a transport, or `None` if it is gone.
    pub(crate) fn slot_of(&self, id: TransportId) -> Option<usize> {
        let slot = self.slots.get(id.slot as usize)?;
        (slot.generation == id.generation && slot.transport.is_some()).then_some(id.slot as usize)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (TransportId, &Transport)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let id = TransportId {
                slot: index as u32,
                generation: slot.generation,
            };
            slot.transport.as_ref().map(|transport| (id, transport))
        })
    }

    /// Returns the first UDP link that admits inbound peers and reaches the address. Prefers links
    /// of the address's family to links of both families.
    pub(crate) fn listening_link(&self, address: SocketAddr) -> Option<TransportId> {
        let bound = |transport: &Transport| match transport {
            Transport::Udp(endpoint) if endpoint.listens_on_udp() => Some(endpoint.local()),
            _ => None,
        };
        let find = |fits: &dyn Fn(SocketAddr) -> bool| {
            let mut links = self.iter();
            let found = links.find(|(_, link)| bound(link).is_some_and(fits));
            found.map(|(id, _)| id)
        };
        find(&|local| local.is_ipv4() == address.is_ipv4())
            .or_else(|| find(&|local| local.is_ipv6() && local.ip().is_unspecified()))
    }

    /// Returns true if a socket has not taken all output of its transport.
    pub(crate) fn have_unsent(&self) -> bool {
        self.iter().any(|(_, transport)| transport.has_unsent())
    }

    /// Returns the slots that are in use.
    pub(crate) fn in_use(&self) -> Vec<usize> {
        self.iter().map(|(id, _)| id.slot as usize).collect()
    }

    /// Ensures that the loop wakes up in time for the transport in `slot`. A deadline that moves
    /// back is left where it is: one early wake-up costs less than an update per packet.
    pub(crate) fn arm(&mut self, slot: usize) {
        if let Some(at) = self.get(slot).and_then(|it| it.next_deadline()) {
            self.timers.set_earlier(slot, at);
        }
    }

    /// Returns the time of the next deadline.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.timers.next().map(|(at, _)| at)
    }

    /// Returns the slots whose deadlines may be due.
    pub(crate) fn take_due(&mut self, now: Time) -> Vec<usize> {
        std::iter::from_fn(|| self.timers.pop_due(now))
            .map(|(_, slot)| slot)
            .collect()
    }

    /// Returns the counters of open transports, and the sum of those of closed ones.
    pub(crate) fn snapshot(&self) -> (Vec<TransportSnapshot>, TransportCounters) {
        let open = self.iter().map(|(_, transport)| transport.snapshot());
        (open.collect(), self.closed)
    }
}
