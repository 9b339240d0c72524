//! Contents that a program sends to a group: the source's side of [MFTP §3.5].
//!
//! Each chunk leaves once, for all members. "The source aggregates retransmission requests for the transmitted
//! chunks; it can either employ multicast again for retransmission when the number of requestors exceeds a
//! threshold; otherwise retransmitted data chunks can be sent using unicast destination GUIDs." A repair by
//! multicast lists those that asked, so that the others get nothing twice.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::{Guid, Time};
use whimbrel_gnrs::MAX_MEMBERS;

use super::{Key, Presence, Timer, Uploads};
use crate::chunk_size::for_group;
use crate::host::effects::{Action, Effects};
use crate::host::status::{GroupStatus, MemberStatus};
use crate::local::{SendState, Service};
use crate::wire::{ChunkRanges, DropReason, Notice, Reliability, Request};

/// Requests are gathered for this part of the time for which a receiver waits for a missing chunk, within
/// bounds: receivers notice one loss at about the same moment.
const MOMENT_PART: u32 = 8;
const LEAST_MOMENT: Duration = Duration::from_millis(20);
const LONGEST_MOMENT: Duration = Duration::from_millis(250);
/// The number of requesters from which a chunk is repaired by multicast.
const MULTICAST_FROM: usize = 2;
/// The router is asked for the members after this long, until it answers; then after the longer one.
const ASK_FIRST: Duration = Duration::from_secs(1);
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// A chunk that a router could not store for a member is sent again after this long, and after twice as long
/// each time, up to 16 times.
const AGAIN: Duration = Duration::from_secs(2);
/// Nothing leaves for this long, or until the router has told the members: their number decides about the size
/// of chunks.
const MEMBERS_WAIT: Duration = Duration::from_millis(500);
/// It is asked again after this long meanwhile: one that does not know them asks the name service.
const ASK_WAITING: Duration = Duration::from_millis(20);
/// Members in a report.
const MAX_REPORTED: usize = 32;

/// What is known of a member.
#[derive(Debug, Default)]
struct Member {
    // Its last word: received, or refused.
    verdict: Option<SendState>,
    // Chunks that it has asked for, or that a router has dropped, and that have not been sent again yet.
    owed: ChunkRanges,
    // When those leave.
    due: Option<Time>,
    // What it has said last that it lacks.
    missing: Option<u64>,
    // Chunks of it that routers have given back, in succession.
    drops: u32,
    // Chunks that routers store for it: it is away.
    stored: ChunkRanges,
}

/// Those that get a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Recipients {
    /// The one receiver of a content, or all members of a group.
    All,
    /// A member.
    One(Guid),
    /// These members.
    Some(Vec<Guid>),
}

/// The state of a content for a group.
#[derive(Debug, Default)]
pub(super) struct GroupPush {
    members: BTreeMap<Guid, Member>,
    // The router has told them.
    is_known: bool,
    asked_at: Option<Time>,
    // The members are waited for until then.
    waits_until: Option<Time>,
    // Chunks that have left for all members.
    sent: ChunkRanges,
    repairs: [u64; 2],
}

impl GroupPush {
    /// A content whose chunks get their size once the members are known.
    pub(super) fn waiting_for_members(now: Time) -> GroupPush {
        GroupPush {
            waits_until: Some(now + MEMBERS_WAIT),
            ..GroupPush::default()
        }
    }

    /// Returns true while nothing leaves, because the members are not known yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.waits_until.is_some()
    }

    /// Returns who gets the chunk that is sent now; `None` if nobody wants it any more.
    pub(super) fn recipients_of(&mut self, index: u32) -> Option<Recipients> {
        let only = index..index.saturating_add(1);
        let is_first = !self.sent.contains(index);
        let mut wanting = Vec::new();
        for (name, member) in &mut self.members {
            if member.verdict.is_none() && member.owed.contains(index) {
                member.owed.remove_range(only.clone());
                wanting.push(*name);
            }
        }
        if is_first {
            self.sent.insert(index);
            return Some(Recipients::All);
        }
        self.repairs[usize::from(wanting.len() < MULTICAST_FROM)] += u64::from(!wanting.is_empty());
        match wanting.len() {
            0 => None,
            count if count < MULTICAST_FROM => wanting.pop().map(Recipients::One),
            _ => Some(Recipients::Some(wanting)),
        }
    }

    /// Chunks have not left, or have not reached any router: they are sent to all.
    pub(super) fn take_back(&mut self, chunks: &ChunkRanges) {
        self.sent.subtract(chunks);
    }

    /// The chunks have another size now.
    pub(super) fn begin_again(&mut self) {
        self.sent = ChunkRanges::default();
        for member in self.members.values_mut() {
            (member.owed, member.due) = (ChunkRanges::default(), None);
            member.stored = ChunkRanges::default();
        }
    }

    /// Returns what is known of a member, which has shown that it got a chunk.
    fn member(&mut self, name: Guid) -> Option<&mut Member> {
        let is_full = self.members.len() >= MAX_MEMBERS;
        match self.members.contains_key(&name) || !is_full {
            true => Some(self.members.entry(name).or_default()),
            false => None,
        }
    }

    /// A member asks for chunks. Returns when those leave.
    fn note_request(
        &mut self,
        now: Time,
        name: Guid,
        chunks: &ChunkRanges,
        moment: Duration,
    ) -> Option<Time> {
        // Those that have not left yet come anyway.
        let owed = chunks.intersection(&self.sent);
        let open = self.members.values().filter_map(|member| member.due);
        let open = open.filter(|due| *due <= now + moment).min();
        let member = self.member(name)?;
        (member.verdict, member.drops) = (None, 0);
        member.stored = ChunkRanges::default();
        member.missing = Some(chunks.count());
        if owed.is_empty() {
            return None;
        }
        member.owed.union(&owed);
        let due = open.unwrap_or(now + moment);
        member.due = Some(member.due.map_or(due, |earlier| earlier.min(due)));
        member.due
    }

    /// A router could not keep chunks for a member. Returns when they leave again.
    fn note_dropped(&mut self, now: Time, name: Guid, chunks: &ChunkRanges) -> Option<Time> {
        let member = self.member(name)?;
        member.owed.union(chunks);
        member.stored.subtract(chunks);
        let due = now + AGAIN.saturating_mul(1 << member.drops.min(4));
        member.drops += 1;
        member.due = Some(member.due.map_or(due, |earlier| earlier.min(due)));
        member.due
    }

    /// Returns the chunks that are due, and when the next ones are.
    fn take_due(&mut self, now: Time) -> (ChunkRanges, Option<Time>) {
        let (mut due, mut next) = (ChunkRanges::default(), None);
        for member in self.members.values_mut() {
            match member.due {
                Some(at) if at <= now => {
                    member.due = None;
                    due.union(&member.owed);
                }
                Some(at) => next = Some(next.map_or(at, |next: Time| next.min(at))),
                None => {}
            }
        }
        (due, next)
    }

    /// The members that have not confirmed the content are sent this chunk again. Returns false if all have.
    fn owe_to_all(&mut self, index: u32) -> bool {
        let mut any = false;
        for member in self.members.values_mut().filter(|it| it.verdict.is_none()) {
            member.owed.insert(index);
            any = true;
        }
        any
    }

    /// Returns how the content has ended, once every member has said so.
    fn outcome(&self) -> Option<SendState> {
        if !self.is_known || self.members.is_empty() {
            return None;
        }
        let verdicts = self.members.values().map(|member| member.verdict);
        let verdicts: Vec<SendState> = verdicts.collect::<Option<_>>()?;
        let is_delivered = |verdict: &SendState| *verdict == SendState::Delivered;
        match verdicts.iter().filter(|it| is_delivered(it)).count() {
            0 => verdicts.first().copied(),
            count if count == verdicts.len() => Some(SendState::Delivered),
            _ => Some(SendState::DeliveredToSome),
        }
    }

    /// Returns the chunks that routers store for members that are away.
    pub(super) fn stored(&self) -> ChunkRanges {
        let mut stored = ChunkRanges::default();
        let away = self.members.values().filter(|it| it.verdict.is_none());
        away.for_each(|member| stored.union(&member.stored));
        stored
    }

    fn must_ask(&mut self, now: Time) -> bool {
        // What all have confirmed ends with the next answer.
        let pause = match self.is_known && self.outcome().is_none() {
            true => ASK_AGAIN,
            false if self.is_waiting() => ASK_WAITING,
            false => ASK_FIRST,
        };
        let is_due = self.asked_at.is_none_or(|at| now.since(at) >= pause);
        if is_due {
            self.asked_at = Some(now);
        }
        is_due
    }

    fn status(&self) -> GroupStatus {
        let with =
            |wanted: fn(&Member) -> bool| self.members.values().filter(|it| wanted(it)).count();
        let lacking = self.members.iter().filter(|(_, it)| it.verdict.is_none());
        let lacking = lacking
            .take(MAX_REPORTED)
            .map(|(name, member)| MemberStatus {
                name: *name,
                missing: member.missing,
                stored: !member.stored.is_empty(),
            });
        GroupStatus {
            members: self.members.len(),
            delivered: with(|it| it.verdict == Some(SendState::Delivered)),
            refused: with(|it| it.verdict.is_some_and(|it| it != SendState::Delivered)),
            repairs_multicast: self.repairs[0],
            repairs_unicast: self.repairs[1],
            lacking: lacking.collect(),
        }
    }
}

impl Uploads {
    fn group_of(&mut self, key: &Key) -> Option<&mut GroupPush> {
        let push = self.by_key.get_mut(key)?.push.as_mut()?;
        push.group.as_mut()
    }

    /// Returns the state of a content for a group, for reports.
    pub(super) fn group_status(&self, key: &Key) -> Option<GroupStatus> {
        let push = self.by_key.get(key)?.push.as_ref()?;
        push.group.as_ref().map(GroupPush::status)
    }

    /// Returns the upload to a group that a member, or a router on the way to it, speaks of.
    pub(super) fn sent_to_group(&self, key: &Key, request_id: Option<u64>) -> Option<Key> {
        let sent = (self.by_key).shared_by(key, request_id, Service::Multicast)?;
        (sent.client != key.client).then_some(sent)
    }

    /// A member asks for chunks.
    pub(super) fn note_group_request(
        &mut self,
        now: Time,
        key: Key,
        member: Guid,
        request: Request,
        presence: Presence,
        effects: &mut Effects,
    ) {
        let count = self.count_of(&key);
        let Some(upload) = self.by_key.get_mut(&key) else {
            return;
        };
        if upload.reliability == Reliability::DontCare {
            // "Sends and forgets" [MFTP §3.2.2].
            return effects.counters.drop("not-sent-again");
        }
        let size = upload.chunk_size.code();
        // All members get chunks of one size.
        let asked_log2 = request.chunk_log2;
        let mut wanted = match asked_log2.checked_sub(size) {
            Some(0) | None => coarser(&request.chunks, size.saturating_sub(asked_log2)),
            Some(_) => request.in_chunks_of(size).chunks,
        };
        wanted = wanted.intersection(&ChunkRanges::from(0..count));
        if wanted.is_empty() {
            return;
        }
        upload.rotate_sent(now);
        if presence == Presence::MayBeUnderWay {
            wanted.subtract(&upload.sent[0]);
            wanted.subtract(&upload.sent[1]);
        }
        upload.last_use = now;
        upload.go_on();
        let patience = upload.nack_timeout_ms.map_or(LONGEST_MOMENT, |ms| {
            Duration::from_millis(ms.into()) / MOMENT_PART
        });
        let moment = patience.clamp(LEAST_MOMENT, LONGEST_MOMENT);
        effects.counters.group_nacks += 1;
        let Some(group) = self.group_of(&key) else {
            return;
        };
        if let Some(due) = group.note_request(now, member, &wanted, moment) {
            effects.set_earlier(Timer::Uploads, due);
        }
    }

    /// A member has the content, or refuses it.
    pub(super) fn note_verdict(
        &mut self,
        key: &Key,
        member: Guid,
        verdict: SendState,
        effects: &mut Effects,
    ) {
        let Some(known) = self.group_of(key).and_then(|group| group.member(member)) else {
            return;
        };
        *known = Member {
            verdict: Some(verdict),
            ..Member::default()
        };
        // Members may have joined meanwhile.
        if self.group_of(key).is_some_and(|it| it.outcome().is_some()) {
            effects.push(Action::AskMembers(key.client));
        }
    }

    /// A member confirms chunks.
    pub(super) fn note_member_confirmed(
        &mut self,
        key: &Key,
        member: Guid,
        chunks: &ChunkRanges,
        effects: &mut Effects,
    ) {
        let mut left = ChunkRanges::from(0..self.count_of(key));
        left.subtract(chunks);
        if left.is_empty() {
            self.note_verdict(key, member, SendState::Delivered, effects);
        }
    }

    /// A router, or a member, could not take chunks that are for one member.
    pub(super) fn note_member_dropped(
        &mut self,
        now: Time,
        key: &Key,
        notice: &Notice,
        reason: DropReason,
        effects: &mut Effects,
    ) {
        if let Some(refusal) = SendState::of_refusal(reason) {
            return self.note_verdict(key, notice.destination, refusal, effects);
        }
        let all = ChunkRanges::from(0..self.count_of(key));
        let upload = self.by_key.get(key);
        if upload.is_none_or(|upload| upload.reliability == Reliability::DontCare) {
            return;
        }
        let chunks = notice.chunks.intersection(&all);
        let Some(group) = self.group_of(key) else {
            return;
        };
        if let Some(due) = group.note_dropped(now, notice.destination, &chunks) {
            effects.set_earlier(Timer::Uploads, due);
        }
    }

    /// A router stores chunks for a member.
    pub(super) fn note_member_stored(&mut self, key: &Key, member: Guid, chunks: &ChunkRanges) {
        let all = ChunkRanges::from(0..self.count_of(key));
        if let Some(member) = self.group_of(key).and_then(|group| group.member(member)) {
            member.stored.union(&chunks.intersection(&all));
        }
    }

    /// The router tells the members of a group. Those that have joined since the last time are sent the last
    /// chunk, and ask for the others.
    pub(in crate::host) fn note_members(
        &mut self,
        now: Time,
        group: Guid,
        members: &[Guid],
        effects: &mut Effects,
    ) {
        let to_group = |key: &&Key| key.client == group;
        let keys: Vec<Key> = self.by_key.keys().filter(to_group).copied().collect();
        for key in keys {
            let (guid, last) = (self.guid, self.count_of(&key).saturating_sub(1));
            let Some(push) = self.group_of(&key) else {
                continue;
            };
            let is_news = core::mem::replace(&mut push.is_known, true);
            let is_sent = push.sent.contains(last);
            push.members
                .retain(|name, it| it.verdict.is_some() || members.contains(name));
            for name in members.iter().filter(|name| **name != guid) {
                if push.members.contains_key(name) || push.members.len() >= MAX_MEMBERS {
                    continue;
                }
                let mut member = Member::default();
                if is_news && is_sent {
                    member.owed.insert(last);
                    member.due = Some(now);
                }
                push.members.insert(*name, member);
            }
            effects.set_earlier(Timer::Uploads, now);
            self.size_chunks(now, &key);
            self.end_group(&key, effects);
        }
    }

    /// The members of a group are known, or have been waited for: its chunks get their size, and leave.
    fn size_chunks(&mut self, now: Time, key: &Key) {
        let length = self.len_of(key);
        let Some(group) = self.group_of(key) else {
            return;
        };
        if group.waits_until.take().is_none() {
            return;
        }
        let members = group.is_known.then_some(group.members.len());
        if let Some(upload) = self.by_key.get_mut(key) {
            let size = for_group(length, members, upload.chunk_size);
            self.begin_in_chunks_of(now, key, size);
        }
        self.take_turn(*key);
    }

    fn end_group(&mut self, key: &Key, effects: &mut Effects) {
        let outcome = self.group_of(key).and_then(|group| group.outcome());
        let upload = self.by_key.get(key);
        let push = upload.and_then(|upload| upload.push.as_ref());
        let (Some(outcome), Some(push)) = (outcome, push) else {
            return;
        };
        push.end(outcome, effects);
        self.by_key.remove(key);
    }

    /// Has due repairs sent, and asks for the members. Returns when the next repairs are due.
    pub(super) fn check_group(
        &mut self,
        now: Time,
        key: &Key,
        effects: &mut Effects,
    ) -> Option<Time> {
        let client = key.client;
        let group = self.group_of(key)?;
        if group.must_ask(now) {
            effects.push(Action::AskMembers(client));
        }
        if group.waits_until.is_some_and(|until| until <= now) {
            self.size_chunks(now, key);
        }
        let group = self.group_of(key)?;
        let ask_again = group.is_waiting().then_some(now + ASK_WAITING);
        let (due, next) = group.take_due(now);
        let next = [next, ask_again].into_iter().flatten().min();
        if !due.is_empty()
            && let Some(upload) = self.by_key.get_mut(key)
        {
            upload.pending.union(&due);
            self.take_turn(*key);
        }
        next
    }

    /// Sends the last chunk again to the members that have not confirmed the content. Returns false if the
    /// upload is for one receiver.
    pub(super) fn probe_group(&mut self, key: &Key, last: u32) -> bool {
        let Some(group) = self.group_of(key) else {
            return false;
        };
        if group.owe_to_all(last)
            && let Some(upload) = self.by_key.get_mut(key)
        {
            upload.pending.insert(last);
        }
        true
    }
}

/// Returns the chunks that hold these, which are smaller by so many powers of two.
fn coarser(chunks: &ChunkRanges, log2: u8) -> ChunkRanges {
    let mut all = ChunkRanges::default();
    let log2 = u32::from(log2.min(31));
    for range in chunks.iter() {
        let end = (range.end.saturating_sub(1) >> log2).saturating_add(1);
        all.insert_range(range.start >> log2..end);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn name(number: u8) -> Guid {
        Guid([number; 32])
    }

    fn ranges(range: core::ops::Range<u32>) -> ChunkRanges {
        ChunkRanges::from(range)
    }

    fn sent(count: u32) -> GroupPush {
        let mut group = GroupPush::default();
        for index in 0..count {
            assert_eq!(group.recipients_of(index), Some(Recipients::All));
        }
        group
    }

    #[test]
    fn requests_of_a_moment_are_repaired_together() {
        let mut group = sent(10);
        let moment = Duration::from_millis(100);
        let due = group.note_request(at(1_000), name(1), &ranges(2..4), moment);
        assert_eq!(due, Some(at(1_100)));
        // The second one joins the moment that the first one has begun.
        let due = group.note_request(at(1_060), name(2), &ranges(3..5), moment);
        assert_eq!(due, Some(at(1_100)));
        assert!(group.take_due(at(1_099)).0.is_empty());
        let (due, next) = group.take_due(at(1_100));
        assert_eq!((due, next), (ranges(2..5), None));
        assert_eq!(group.recipients_of(2), Some(Recipients::One(name(1))));
        let both = Recipients::Some(vec![name(1), name(2)]);
        assert_eq!(group.recipients_of(3), Some(both));
        assert_eq!(group.recipients_of(4), Some(Recipients::One(name(2))));
        assert_eq!(group.recipients_of(4), None);
    }

    #[test]
    fn a_storm_of_requests_costs_one_copy_of_each_chunk() {
        let mut group = sent(10);
        let moment = Duration::from_millis(100);
        for number in 0..2_000u32 {
            let mut member = [1; 32];
            member[..4].copy_from_slice(&number.to_be_bytes());
            for repeated in 0..3 {
                group.note_request(at(repeated), Guid(member), &ranges(0..10), moment);
            }
        }
        let (due, _) = group.take_due(at(200));
        assert_eq!(due, ranges(0..10));
        for index in 0..10 {
            let recipients = group.recipients_of(index);
            let Some(Recipients::Some(members)) = recipients else {
                panic!("{recipients:?}");
            };
            assert_eq!(members.len(), MAX_MEMBERS);
            assert_eq!(group.recipients_of(index), None);
        }
        assert_eq!(group.repairs, [10, 0]);
    }

    #[test]
    fn a_chunk_that_has_not_left_yet_is_no_repair() {
        let mut group = sent(3);
        let due = group.note_request(at(0), name(1), &ranges(3..9), Duration::from_millis(100));
        assert_eq!(due, None);
        assert_eq!(group.recipients_of(3), Some(Recipients::All));
        // One that came back is sent to all again.
        group.take_back(&ranges(1..2));
        assert_eq!(group.recipients_of(1), Some(Recipients::All));
    }

    #[test]
    fn what_a_router_drops_is_sent_again_ever_later() {
        let mut group = sent(3);
        for wait in [2_000, 4_000, 8_000, 16_000, 32_000, 32_000] {
            assert_eq!(
                group.note_dropped(at(0), name(1), &ranges(0..1)),
                Some(at(wait))
            );
            assert_eq!(group.take_due(at(wait)), (ranges(0..1), None));
            assert_eq!(group.recipients_of(0), Some(Recipients::One(name(1))));
        }
    }

    #[test]
    fn smaller_chunks_are_parts_of_larger_ones() {
        assert_eq!(coarser(&ranges(5..9), 2), ranges(1..3));
        assert_eq!(coarser(&ranges(8..9), 3), ranges(1..2));
        assert_eq!(coarser(&ranges(0..u32::MAX), 0), ranges(0..u32::MAX));
    }
}
