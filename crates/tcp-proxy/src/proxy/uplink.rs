//! What goes to the forwarder: sealed messages, pending Interests and Data.

use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_core::{SeededRng, Time};
use whimbrel_ndn_packet::{
    Data, Interest, LpHeader, Name, NameRef, SignatureInfo, SignatureType, Signer,
};
use whimbrel_transport::Outgoing;
use whimbrel_transport::ledger::{HashedLedger, Ledger, Sent};
use whimbrel_transport::path::PathId;

use crate::counters::Counters;
use crate::message::{Carried, Message, Stock};
use crate::naming;
use crate::options::Options;
use crate::paths::PeerIndex;
use crate::seal::{NONCE, Sealer, TAG};
use crate::table::Slot;

/// A pending Interest; its path is in the ledger.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    /// Of a connection.
    Connection {
        slot: Slot,
        generation: u32,
        /// Of reliable prefetching: the number that it fetches.
        number: Option<u64>,
    },
    /// Finds or checks a path to this peer.
    Probe(PeerIndex),
}

/// An Interest's path, lifetime and link header.
#[derive(Debug)]
pub(super) struct InterestTerms {
    pub(super) path: PathId,
    pub(super) lifetime: Duration,
    pub(super) header: Option<Box<LpHeader>>,
}

/// A Data is authenticated by the seal in its content; its signature is empty.
struct NoSignature;

impl Signer for NoSignature {
    fn info(&self) -> SignatureInfo {
        SignatureInfo::new(SignatureType::Null)
    }

    fn sign(&self, _: &[&[u8]]) -> Vec<u8> {
        Vec::new()
    }
}

/// The side of a proxy that faces its forwarder.
pub(super) struct ForwarderSide {
    pub(super) sealer: Sealer,
    /// By name.
    pub(super) pending: HashedLedger<Bytes, Pending>,
    pub(super) rng: SeededRng,
    /// Interests to send, and Data that answer an Interest at hand.
    queue: VecDeque<Outgoing>,
    /// Maximum of these.
    most: usize,
    up: bool,
}

impl ForwarderSide {
    pub(super) fn new(options: &Options, sealer: Sealer, rng: SeededRng) -> ForwarderSide {
        let mut rng = rng;
        ForwarderSide {
            pending: Ledger::hashed(options.limits.pending, &mut rng),
            sealer,
            rng,
            queue: VecDeque::new(),
            most: options.limits.outgoing,
            up: false,
        }
    }

    /// The forwarder is there, or has gone.
    pub(super) fn set_up(&mut self, up: bool) {
        self.up = up;
        if !up {
            // A new forwarder does not know the Interests; TCP recovers what they carried.
            self.queue.clear();
        }
    }

    pub(super) const fn is_up(&self) -> bool {
        self.up
    }

    /// Returns the next packet for the forwarder.
    pub(super) fn pop(&mut self) -> Option<Outgoing> {
        self.queue.pop_front()
    }

    /// Returns true if another packet for the forwarder may wait; counts those that may not.
    pub(super) fn claim_room(&self, counters: &mut Counters) -> bool {
        let has_room = self.up && self.queue.len() < self.most;
        counters.queue_full += u64::from(!has_room);
        has_room
    }

    /// Returns the name of an Interest that carries a message to the proxy at `peer`.
    pub(super) fn sealed_name(&mut self, now: Time, peer: &Name, message: &Message) -> Name {
        let mut sealed = message.encode();
        let nonce = self.sealer.seal(now, peer.as_ref().value(), &mut sealed);
        naming::message(peer, &sealed, &nonce)
    }

    /// Sends an Interest, and remembers it until it is answered.
    pub(super) fn send(
        &mut self,
        now: Time,
        name: Name,
        sending: InterestTerms,
        pending: Pending,
        counters: &mut Counters,
    ) {
        let nonce = self.rng.next_word() as u32;
        let key = Bytes::copy_from_slice(name.as_ref().value());
        let sent = Sent::first(now, sending.path, nonce, Some(now + sending.lifetime));
        // A retransmission of reliable prefetching has the same name.
        self.pending.take(&key[..]);
        self.pending.send(key, sent, pending);
        self.push_interest(name, nonce, sending, counters);
    }

    /// Sends an Interest whose answer does not matter.
    pub(super) fn tell(&mut self, name: Name, sending: InterestTerms, counters: &mut Counters) {
        let nonce = self.rng.next_word() as u32;
        self.push_interest(name, nonce, sending, counters);
    }

    fn push_interest(
        &mut self,
        name: Name,
        nonce: u32,
        sending: InterestTerms,
        counters: &mut Counters,
    ) {
        let interest = Interest {
            nonce: Some(nonce.to_be_bytes()),
            lifetime: Some(sending.lifetime),
            ..Interest::new(name)
        };
        counters.out_interests += 1;
        let packet = (interest.encode().into(), sending.header);
        self.queue.push_back(packet);
    }

    /// Returns a Data with these packets.
    pub(super) fn sealed_data(
        &mut self,
        now: Time,
        name: NameRef<'_>,
        stock: Stock,
        packets: &[Bytes],
        counters: &mut Counters,
    ) -> Bytes {
        let mut content = Vec::with_capacity(NONCE + Carried::bound(packets) + TAG);
        content.extend_from_slice(&[0; NONCE]);
        Carried::write(stock, packets, &mut content);
        let context = super::context_of(name);
        self.sealer.seal_content(now, context, &mut content);
        counters.out_data += 1;
        Data::new(name.to_name(), content)
            .encode(&NoSignature)
            .into()
    }

    pub(super) fn push_data(&mut self, data: Bytes, counters: &mut Counters) {
        if self.queue.len() >= self.most {
            counters.queue_full += 1;
        } else {
            self.queue.push_back((data, None));
        }
    }
}
