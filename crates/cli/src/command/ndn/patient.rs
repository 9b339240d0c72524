//! A fetch that gives up after a time without new data.

use std::time::Duration;

use whimbrel_core::{Deadline, Time};
use whimbrel_ndn_packet::LpPacket;
use whimbrel_transport::application::Outgoing;
use whimbrel_transport::{Application, FaceNumber, FetchEvent, Fetcher};

/// A fetcher with the user's `--timeout`.
pub(super) struct Patient {
    pub(super) fetcher: Fetcher,
    patience: Option<Duration>,
    heard: Time,
    /// The timeout has passed: `Some(true)` once it has been reported.
    exhausted: Option<bool>,
}

impl Patient {
    /// Without `patience` it only delegates to the fetcher.
    pub(super) const fn new(fetcher: Fetcher, patience: Option<Duration>, now: Time) -> Patient {
        Patient {
            fetcher,
            patience,
            heard: now,
            exhausted: None,
        }
    }

    fn until(&self) -> Option<Time> {
        self.patience
            .filter(|_| self.exhausted.is_none())
            .map(|patience| self.heard + patience)
    }
}

impl Application for Patient {
    /// `None`: no new data for as long as the user's patience.
    type Event = Option<FetchEvent>;

    fn handle_face(&mut self, now: Time, face: FaceNumber, up: bool) {
        self.fetcher.handle_face(now, face, up);
    }

    fn handle_packet(&mut self, now: Time, face: FaceNumber, packet: &LpPacket<'_>) {
        if packet.nack.is_none() {
            self.heard = now;
        }
        self.fetcher.handle_packet(now, face, packet);
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.until().is_some_and(|until| until <= now) {
            self.exhausted = Some(false);
        }
        self.fetcher.handle_timeout(now);
    }

    fn poll_packet(&mut self, now: Time, face: FaceNumber) -> Option<Outgoing> {
        self.fetcher.poll_packet(now, face)
    }

    fn first_face(&self) -> FaceNumber {
        self.fetcher.first_face()
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        if self.exhausted == Some(false) {
            self.exhausted = Some(true);
            return Some(None);
        }
        self.fetcher.poll_event().map(Some)
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let own = self
            .until()
            .map(|until| Deadline::new(until, "nothing has come for too long"));
        Deadline::earlier(own, self.fetcher.poll_timeout())
    }
}
