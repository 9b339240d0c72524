//! What a neighbour says about itself outside a session: that it has lost one, or wants none.

use whimbrel_core::{Guid, Time};

use super::secure::Unwilling;
use super::{Hop, HopEvent, REPORT_INTERVAL, Sessions, secure};

impl Hop {
    /// Handles a message of who requires encryption, where this end is plain.
    pub(super) fn handle_notice(&mut self, now: Time, frame: &[u8]) {
        let Sessions::Plain(session) = &mut self.session else {
            return;
        };
        match frame[0] & 15 {
            secure::handshake::LOST => session.handle_lost(now, frame),
            secure::handshake::REFUSAL => {
                let refusal = secure::handshake::decode_refusal(frame);
                // Whoever has not seen this end's HELLO can tell nothing.
                let why = refusal.filter(|(why, about)| {
                    *why == Unwilling::Plain && session.is_greeting_of(about)
                });
                self.note_unwilling(now, why.map(|(why, _)| why));
            }
            _ => {
                self.stats.drops.wrong_mode += 1;
                if frame.len() > secure::handshake::NOTICE_LEN {
                    session.handle_sealed(now, frame);
                }
            }
        }
    }

    /// Returns why the neighbour does not talk with this end, as an unproven notice has said since
    /// it last did.
    pub fn unwilling(&self) -> Option<Unwilling> {
        self.unwilling
    }

    /// From now on a session is accepted only from this name. A present session continues.
    pub fn expect_neighbour(&mut self, name: Guid) {
        self.config.neighbour = Some(name);
        if let Sessions::Sealed(session) = &mut self.session {
            session.expect(name);
        }
    }

    pub(super) fn note_unwilling(&mut self, now: Time, why: Option<Unwilling>) {
        self.unwilling = why.or(self.unwilling);
        if let Some(why) = why.filter(|_| now >= self.report_at) {
            self.report_at = now + REPORT_INTERVAL;
            self.events.push_back(HopEvent::Unwilling(why));
        }
    }
}
