//! Contents that hosts send without a request, and what must become of them.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::Time;
use whimbrel_mobilityfirst::local::SendState;

use super::{Breach, library};

/// A content that was acknowledged arrives without its sender if nothing of this kind has been younger for so
/// long: a router stores it for twice as long.
const JUDGED_WITHIN: Duration = Duration::from_secs(60);
/// Of larger ones, what is stored may be too much for a flow, and is given back to nobody.
const JUDGED_LEN: u64 = 70_000;

/// The ends and the content of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PushAct {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) content: usize,
}

#[derive(Debug)]
struct PushEntry {
    what: PushAct,
    request: u32,
    since: Time,
    // The network has it, and its sender may end.
    is_acknowledged: bool,
    has_sender: bool,
    is_received: bool,
    // One of those of a group, which its sender may not know.
    is_member: bool,
}

impl PushEntry {
    /// The sender's host reports a state.
    fn note_state(&mut self, state: SendState) -> Result<(), Breach> {
        let PushAct { from, to, content } = self.what;
        let refused = |what| {
            Err(Breach::Push {
                from,
                to,
                content,
                what,
            })
        };
        match state {
            SendState::Leaving => Ok(()),
            SendState::Taken | SendState::Kept => {
                self.is_acknowledged = !self.is_member;
                Ok(())
            }
            SendState::Delivered if self.is_received => Ok(()),
            SendState::Delivered => refused("was called delivered before the receiver had it"),
            _ => refused("was refused, although its receiver takes everything"),
        }
    }
}

/// All pushes of a world, and the faults after which a network may have forgotten what it acknowledged.
#[derive(Debug, Default)]
pub(super) struct PushLedger {
    all: Vec<PushEntry>,
    // When each node crashed last.
    crashed: BTreeMap<usize, Time>,
    // When a clock was changed last.
    clocks: Option<Time>,
}

impl PushLedger {
    /// Begins a push. Returns false if it is under way, or over, already.
    pub(super) fn begin(&mut self, now: Time, what: PushAct, request: u32) -> bool {
        self.begin_all(now, &[what], request)
    }

    /// Begins a push to the members of a group. Returns false if one to any of them is under way, or over,
    /// already.
    pub(super) fn begin_group(&mut self, now: Time, members: &[PushAct], request: u32) -> bool {
        let is_new = self.begin_all(now, members, request);
        if is_new {
            let of_request = self.all.iter_mut().filter(|it| it.request == request);
            of_request.for_each(|it| it.is_member = true);
        }
        is_new
    }

    fn begin_all(&mut self, now: Time, all: &[PushAct], request: u32) -> bool {
        if self.all.iter().any(|it| all.contains(&it.what)) {
            return false;
        }
        let entries = all.iter().map(|what| PushEntry {
            what: *what,
            request,
            since: now,
            is_acknowledged: false,
            has_sender: true,
            is_received: false,
            is_member: false,
        });
        self.all.extend(entries);
        true
    }

    /// The sender's host reports a state.
    pub(super) fn note_state(
        &mut self,
        from: usize,
        request: u32,
        state: SendState,
    ) -> Result<(), Breach> {
        let is_meant =
            |it: &&mut PushEntry| it.what.from == from && it.request == request && it.has_sender;
        let all: Vec<&mut PushEntry> = self.all.iter_mut().filter(is_meant).collect();
        if all.iter().any(|it| it.is_member) && state == SendState::Delivered {
            // Those that had not joined yet are not waited for.
            for pushed in all {
                pushed.has_sender = false;
            }
            return Ok(());
        }
        all.into_iter()
            .try_for_each(|pushed| pushed.note_state(state))
    }

    /// A receiver has a content whole.
    pub(super) fn note_received(&mut self, what: PushAct) -> Result<(), Breach> {
        let known = self.all.iter_mut().find(|it| it.what == what);
        let PushAct { from, to, content } = what;
        match known {
            Some(known) if !known.is_received => {
                known.is_received = true;
                Ok(())
            }
            _ => Err(Breach::Push {
                from,
                to,
                content,
                what: "arrived twice",
            }),
        }
    }

    /// A node has crashed: what its programs sent has no sender any longer.
    pub(super) fn note_crash(&mut self, now: Time, node: usize) {
        self.crashed.insert(node, now);
        let of = self.all.iter_mut().filter(|it| it.what.from == node);
        of.for_each(|it| it.has_sender = false);
    }

    /// A clock was changed: what is stored may expire earlier.
    pub(super) fn note_clock(&mut self, now: Time) {
        self.clocks = Some(now);
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn received(&self) -> usize {
        self.all.iter().filter(|it| it.is_received).count()
    }

    /// Returns the breach that a push means which has not arrived, `ended` being the time of the last fault. Those
    /// with a sender arrive in any case; those without one if they were acknowledged and no node crashed since
    /// that had them.
    pub(super) fn stuck(&self, ended: Time, now: Time) -> Option<Breach> {
        let must = |it: &&PushEntry| {
            !it.is_received && (it.has_sender || self.is_orphan_that_arrives(it, ended))
        };
        let pushed = self.all.iter().find(must)?;
        let PushAct { from, to, content } = pushed.what;
        Some(Breach::Undelivered {
            from,
            to,
            content,
            acknowledged: pushed.is_acknowledged,
            sender: pushed.has_sender,
            waited_s: now.since(ended).as_secs(),
        })
    }

    fn is_orphan_that_arrives(&self, pushed: &PushEntry, ended: Time) -> bool {
        let mut crashes = self.crashed.iter();
        let is_calm = crashes.all(|(node, at)| *node == pushed.what.from || *at < pushed.since);
        pushed.is_acknowledged
            && is_calm
            && self.clocks.is_none()
            && ended.since(pushed.since) < JUDGED_WITHIN
            && library::contents()[pushed.what.content].len() <= JUDGED_LEN
    }
}
