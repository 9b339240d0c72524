//! A fetch that gives up after a time without new data.

use std::time::Duration;

use whimbrel_core::{Deadline, Time};
use whimbrel_ndn_packet::{LpPacket, NackReason};
use whimbrel_transport::application::Outgoing;
use whimbrel_transport::{Application, FaceNumber, FetchEvent, Fetcher};

/// A wait that is shorter is none.
const NOTICED: Duration = Duration::from_secs(1);

/// What a [`Patient`] says.
pub(super) enum PatientEvent {
    /// Of the fetcher.
    Fetch(FetchEvent),
    /// Nothing has come for [`NOTICED`], for another reason than before, or something comes again.
    Waits(Option<Silence>),
    /// Nothing has come for as long as `--timeout` says.
    Exhausted,
}

/// Why nothing comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Silence {
    /// Nobody answers.
    Unanswered,
    /// The answers are Nacks.
    Nack(NackReason),
}

/// A fetcher with the user's `--timeout`.
pub(super) struct Patient {
    pub(super) fetcher: Fetcher,
    patience: Option<Duration>,
    heard: Time,
    /// The timeout has passed: `Some(true)` once it has been reported.
    exhausted: Option<bool>,
    /// What holds now, and what was reported last.
    silence: Option<Silence>,
    reported: Option<Silence>,
}

impl Patient {
    /// Without `patience` it only delegates to the fetcher.
    pub(super) const fn new(fetcher: Fetcher, patience: Option<Duration>, now: Time) -> Patient {
        Patient {
            fetcher,
            patience,
            heard: now,
            exhausted: None,
            silence: None,
            reported: None,
        }
    }

    fn look(&mut self, now: Time) {
        // A fetch that has failed waits for nothing; its failure says why.
        if self.fetcher.is_over() {
            return;
        }
        let refusal = self.fetcher.refusal();
        let why = refusal.map_or(Silence::Unanswered, Silence::Nack);
        self.silence = (now >= self.heard + NOTICED).then_some(why);
    }

    fn until(&self) -> Option<Time> {
        self.patience
            .filter(|_| self.exhausted.is_none())
            .map(|patience| self.heard + patience)
    }
}

impl Application for Patient {
    type Event = PatientEvent;

    fn handle_face(&mut self, now: Time, face: FaceNumber, up: bool) {
        self.fetcher.handle_face(now, face, up);
    }

    fn handle_packet(&mut self, now: Time, face: FaceNumber, packet: &LpPacket<'_>) {
        if packet.nack.is_none() {
            self.heard = now;
        }
        self.fetcher.handle_packet(now, face, packet);
        self.look(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.until().is_some_and(|until| until <= now) {
            self.exhausted = Some(false);
        }
        self.fetcher.handle_timeout(now);
        self.look(now);
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
            return Some(PatientEvent::Exhausted);
        }
        if self.silence != self.reported {
            self.reported = self.silence;
            return Some(PatientEvent::Waits(self.silence));
        }
        self.fetcher.poll_event().map(PatientEvent::Fetch)
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let own = self
            .until()
            .map(|until| Deadline::new(until, "nothing has come for too long"));
        let noticed = Deadline::new(self.heard + NOTICED, "nothing has come for a while");
        let own = Deadline::earlier(own, self.silence.is_none().then_some(noticed));
        Deadline::earlier(own, self.fetcher.poll_timeout())
    }
}
