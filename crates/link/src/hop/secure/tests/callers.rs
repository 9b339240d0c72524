//! A listener's gate, and its callers.

use super::*;

#[test]
fn a_caller_gets_a_port_when_it_has_shown_its_address_and_no_sooner() {
    for plain in [false, true] {
        let now = Time::ZERO;
        let mut site = Site::new(plain);
        let (mut caller, call) = caller(plain);
        let (admission, answer) = site.ask(now, CALLER, &call);
        assert_eq!(admission, Admission::Answered);
        caller.handle(now, &answer);
        assert!(caller.hop.is_up());
        let frames = caller.frames(now);
        let (elsewhere, _) = site.ask(now, "192.0.2.8:4000", &frames[0]);
        assert_ne!(elsewhere, Admission::Admitted, "another address");
        let (late, _) = site.ask(Time::from_secs(40), CALLER, &frames[0]);
        assert_ne!(late, Admission::Admitted, "much later");
        let mut site = Site::new(plain);
        let (admission, _) = site.ask(now, CALLER, &frames[0]);
        assert_eq!(admission, Admission::Admitted);
        let mut end = site.admit(now, CALLER);
        for frame in &frames {
            end.handle(now, frame);
        }
        assert!(end.hop.is_up());
        for frame in end.frames(now) {
            caller.handle(now, &frame);
        }
        assert!(caller.hop.stats().frames_received > 0);
    }
}

#[test]
fn chunks_pass_both_ways_whatever_ids_the_ends_begin_with() {
    let now = Time::ZERO;
    for plain in [false, true] {
        for seed in 0..16 {
            let mut site = Site::new(plain);
            let (mut caller, call) = caller(plain);
            let (_, answer) = site.ask(now, CALLER, &call);
            caller.handle(now, &answer);
            // The port's hop draws its ids anew, and knows nothing of what the gate has said.
            let mut end = site.admit(now, CALLER);
            end.hop = Hop::new(end.config.clone(), SeededRng::new(seed), now);
            caller.hop.send(now, 1, chunk(1, 5_000), Bytes::new());
            end.hop.send(now, 2, chunk(2, 5_000), Bytes::new());
            for _ in 0..8 {
                for frame in caller.frames(now) {
                    end.handle(now, &frame);
                }
                for frame in end.frames(now) {
                    caller.handle(now, &frame);
                }
            }
            for (receiver, tag) in [(&end, 1), (&caller, 2)] {
                let got: Vec<u64> = receiver.received.iter().map(|(_, it)| tag_of(it)).collect();
                assert_eq!(got, [tag], "plain: {plain}, seed {seed}");
            }
        }
    }
}

#[test]
fn a_proof_is_accepted_once_even_if_its_port_is_gone() {
    let now = Time::ZERO;
    let mut site = Site::new(false);
    let (mut caller, call) = caller(false);
    let (_, answer) = site.ask(now, CALLER, &call);
    caller.handle(now, &answer);
    caller.hop.send(now, 1, chunk(1, 100), Bytes::new());
    let frames = caller.frames(now);
    for again in 0..2 {
        let mut end = site.admit(now, CALLER);
        for frame in &frames {
            end.handle(now, frame);
        }
        assert_eq!(end.hop.is_up(), again == 0);
        assert_eq!(end.received.len(), 1 - again);
    }
    assert_eq!(site.hop.reception.counters().repeated, 1);
}

#[test]
fn in_a_flood_of_calls_a_cookie_lets_a_newcomer_in() {
    let mut site = Site::new(false);
    let mut cookies = 0;
    for number in 0..2_000u32 {
        let mut forged = vec![0; CALL_LEN];
        forged[..4].copy_from_slice(&[0x30, 1, 1, 0]);
        forged[4..8].copy_from_slice(&number.to_be_bytes());
        forged[8..12].copy_from_slice(&number.to_be_bytes());
        let from = format!("198.51.100.{}:{}", number % 250, 1_000 + number);
        let (admission, reply) = site.ask(Time::ZERO, &from, &forged);
        assert_ne!(admission, Admission::Admitted);
        cookies += usize::from(reply.len() == 24);
    }
    assert!(cookies > 1_900, "{cookies}");
    let (mut caller, call) = caller(false);
    let (_, cookie) = site.ask(Time::ZERO, CALLER, &call);
    assert_eq!(cookie.len(), 24);
    caller.handle(Time::ZERO, &cookie);
    let call = caller.frames(Time::ZERO).remove(0);
    let (_, answer) = site.ask(Time::ZERO, CALLER, &call);
    caller.handle(Time::ZERO, &answer);
    assert!(caller.hop.is_up());
    // The same proof of an address for many calls.
    let answered = (0..200)
        .filter(|_| site.ask(Time::ZERO, CALLER, &call).0 == Admission::Answered)
        .count();
    assert!(answered < 40, "{answered}");
}

/// What a flood costs is mostly the answers: one sender gets few, however much it sends, and others get
/// theirs.
#[test]
fn who_sends_very_much_is_told_little_and_others_as_before() {
    let mut site = Site::new(false);
    let now = Time::ZERO;
    let mut frame = vec![0x21; 100];
    let [mut forged, mut plain] = [vec![0; CALL_LEN], vec![0; CALL_LEN]];
    forged[..4].copy_from_slice(&[0x30, 1, 1, 0]);
    plain[..4].copy_from_slice(&[0x30, 5, 1, 0]);
    // What may be answered in full to whomever is used up.
    for port in 1..200 {
        let _ = site.ask(now, &format!("198.51.100.9:{port}"), &forged);
    }
    for (index, what) in [&frame, &forged, &plain].into_iter().enumerate() {
        let from = |number: usize| format!("198.51.100.7:{}", 10_000 + index * 1_000 + number);
        let mut told = |now, from: &str, times| {
            let asked = (0..times).map(|_| site.ask(now, from, what).0);
            asked.filter(|it| *it == Admission::Answered).count()
        };
        assert_eq!(told(now, &from(0), 1_000), 4, "{what:?}");
        // Some senders share a place with others.
        let others = (1..100).filter(|number| told(now, &from(*number), 1) == 1);
        assert!(others.count() > 95, "{what:?} of other ports");
    }
    let later = now + Duration::from_secs(1);
    let asked = (0..1_000).map(|_| site.ask(later, "198.51.100.7:10000", &frame).0);
    let told = asked.filter(|it| *it == Admission::Answered).count();
    assert_eq!(told, 4, "a second later");
    // A caller that comes back after a restart of this node is told, whoever floods it.
    frame[1..9].copy_from_slice(&[7; 8]);
    let (admission, lost) = site.ask(now, CALLER, &frame);
    assert_eq!((admission, lost.len()), (Admission::Answered, 12));
    assert!(site.hop.reception.counters().limited > 3_900);
}

#[test]
fn a_hop_that_is_gone_is_called_again() {
    for plain in [false, true] {
        let now = Time::ZERO;
        let mut site = Site::new(plain);
        let (mut caller, call) = caller(plain);
        let (_, answer) = site.ask(now, CALLER, &call);
        caller.handle(now, &answer);
        let mut end = site.admit(now, CALLER);
        for frame in caller.frames(now) {
            end.handle(now, &frame);
        }
        for frame in end.frames(now) {
            caller.handle(now, &frame);
        }
        // The port is closed; the caller has something to say.
        let later = Time::from_secs(2);
        caller.hop.send(later, 1, chunk(1, 100), Bytes::new());
        let frame = caller.frames(later).pop().unwrap();
        let (_, lost) = site.ask(later, CALLER, &frame);
        assert_eq!(lost.len(), 12, "{plain}");
        caller.handle(later, &lost);
        let call = caller.frames(later).remove(0);
        let (_, answer) = site.ask(later, CALLER, &call);
        let later = later + Duration::from_millis(50);
        caller.handle(later, &answer);
        let mut end = site.admit(later, CALLER);
        for frame in caller.frames(later) {
            end.handle(later, &frame);
        }
        assert_eq!(end.received.len(), 1, "{plain}");
    }
}

/// A right cookie proves an address, and a name is proven by a signature: junk behind a cookie opens
/// no port.
#[test]
fn a_proof_that_is_wrong_anywhere_opens_no_port() {
    let now = Time::ZERO;
    let mut site = Site::new(false);
    let (_, proof) = proving(&mut site);
    for at in (60..proof.len()).step_by(7) {
        // Slowly, so that none is refused for being one of many.
        let now = now + Duration::from_millis(at as u64 * 20);
        let mut wrong = proof.to_vec();
        wrong[at] ^= 1;
        let (admission, reply) = site.ask(now, CALLER, &wrong);
        assert_eq!(
            (admission, reply.len()),
            (Admission::Refused, 0),
            "octet {at}"
        );
    }
    let (admission, _) = site.ask(now + Duration::from_secs(8), CALLER, &proof);
    assert_eq!(admission, Admission::Admitted);
}

/// A node's plain listener and its encrypted one share secrets, so that each knows the other's cookies.
#[test]
fn a_call_that_another_listener_has_answered_opens_no_port_of_the_other_kind() {
    let now = Time::ZERO;
    for plain in [false, true] {
        let (mut caller, call) = caller(plain);
        let mut site = Site::new(plain);
        let (_, answer) = site.ask(now, CALLER, &call);
        caller.handle(now, &answer);
        let proof = caller.frames(now).swap_remove(0);
        let mut other = Site::new(!plain);
        assert_eq!(other.ask(now, CALLER, &proof).0, Admission::Refused);
        assert_eq!(other.hop.reception.counters().wrong_mode, 1);
        let mut end = other.admit(now, CALLER);
        end.handle(now, &proof);
        assert_eq!(end.hop.stats().drops.wrong_mode, 1);
        assert_eq!(site.ask(now, CALLER, &proof).0, Admission::Admitted);
    }
}

/// Whoever is on the way can change what a call asks for, but not what its caller takes.
#[test]
fn nobody_on_the_way_changes_whether_frames_are_encrypted() {
    let now = Time::ZERO;
    for plain in [false, true] {
        let (mut caller, mut call) = caller(plain);
        let mut site = Site::new(!plain);
        call[1] ^= 4;
        let (admission, answer) = site.ask(now, CALLER, &call);
        assert_eq!(admission, Admission::Answered);
        assert_eq!(answer[0], 0x31);
        caller.handle(now, &answer);
        assert!(!caller.hop.is_up());
        assert_eq!(caller.hop.stats().drops.bad_handshake, 1, "plain: {plain}");
        // Nor by another word for what the answer has.
        let mut answer = answer;
        answer[1] = if plain { 3 } else { 1 };
        caller.handle(now, &answer);
        assert!(!caller.hop.is_up());
    }
}

/// Whoever opens thousands of ports and acknowledges nothing costs a listener little on each,
/// although something waits for all of them.
#[test]
fn a_caller_that_acknowledges_nothing_is_seldom_probed() {
    for plain in [false, true] {
        let mut now = Time::ZERO;
        let mut site = Site::new(plain);
        let (mut caller, call) = caller(plain);
        let (_, answer) = site.ask(now, CALLER, &call);
        caller.handle(now, &answer);
        let mut end = site.admit(now, CALLER);
        for frame in caller.frames(now) {
            end.handle(now, &frame);
        }
        assert!(end.hop.is_up());
        end.hop.send(now, 1, chunk(1, 100), Bytes::new());
        let mut sent = 0;
        for _ in 0..6_000 {
            now += Duration::from_millis(10);
            end.hop.handle_timeout(now, &mut end.buffer);
            sent += end.frames(now).len();
        }
        assert!(
            (10..150).contains(&sent),
            "{sent} frames in a minute, plain: {plain}"
        );
    }
}

/// A caller, the site that it calls, and its port there once it has one.
struct Visit {
    now: Time,
    site: Site,
    caller: End,
    port: Option<End>,
    /// Frames of the caller that brought it no port.
    in_vain: usize,
}

impl Visit {
    fn of(policy: CallerPolicy) -> Visit {
        let site = Site::new(false);
        site.hop
            .reception
            .with_callers(|callers| callers.policy = policy);
        Visit {
            now: Time::ZERO,
            site,
            caller: End::new(config(0, 1), Time::ZERO),
            port: None,
            in_vain: 0,
        }
    }

    fn run(&mut self, millis: u64) {
        for _ in 0..millis / 10 {
            self.now += Duration::from_millis(10);
            let now = self.now;
            for end in core::iter::once(&mut self.caller).chain(&mut self.port) {
                end.hop.handle_timeout(now, &mut end.buffer);
            }
            for frame in self.caller.frames(now) {
                if self.port.is_none() {
                    let (admission, reply) = self.site.ask(now, CALLER, &frame);
                    self.in_vain += usize::from(admission != Admission::Admitted);
                    if admission == Admission::Admitted {
                        self.port = Some(self.site.admit(now, CALLER));
                    } else if !reply.is_empty() {
                        self.caller.handle(now, &reply);
                    }
                }
                if let Some(port) = &mut self.port {
                    port.handle(now, &frame);
                }
            }
            for frame in self.port.iter_mut().flat_map(|port| port.frames(now)) {
                self.caller.handle(now, &frame);
            }
        }
    }

    fn unwilling(&self) -> Option<Unwilling> {
        self.caller.hop.unwilling()
    }
}

#[test]
fn who_is_not_listed_gets_no_port_until_it_is_and_is_told() {
    let mut visit = Visit::of(CallerPolicy::Listed);
    visit
        .caller
        .hop
        .send(Time::ZERO, 1, chunk(1, 5_000), Bytes::new());
    visit.run(600_000);
    assert!(visit.port.is_none() && !visit.caller.hop.is_up());
    assert_eq!(visit.unwilling(), Some(Unwilling::NotAdmitted));
    // It calls ever less often: a call, a proof, and the chunk's first frames each time.
    assert!((20..400).contains(&visit.in_vain), "{}", visit.in_vain);
    let reception = visit.site.hop.reception.clone();
    assert!(reception.counters().not_admitted >= 5);
    let refused = reception.callers().refused().to_vec();
    assert_eq!((refused.len(), refused[0].name), (1, keys(0).guid()));
    assert_eq!(refused[0].from, CALLER.parse().ok());
    assert!(reception.with_callers(|callers| callers.decide(keys(0).guid(), true)));
    visit.run(100_000);
    assert!(visit.caller.hop.is_up());
    assert_eq!(visit.unwilling(), None);
    assert_eq!(visit.port.unwrap().received.len(), 1);
}

#[test]
fn who_is_denied_while_connected_is_refused_from_the_next_call_on() {
    let mut visit = Visit::of(CallerPolicy::FirstUse);
    visit.run(1_000);
    assert!(visit.port.is_some());
    let reception = visit.site.hop.reception.clone();
    assert!(reception.callers().lists.allowed.contains(&keys(0).guid()));
    assert!(reception.with_callers(|callers| callers.decide(keys(0).guid(), false)));
    // The node closes its port; the caller has something to say.
    visit.port = None;
    visit
        .caller
        .hop
        .send(visit.now, 1, chunk(1, 5_000), Bytes::new());
    visit.run(3_000);
    assert!(visit.port.is_none() && !visit.caller.hop.is_up());
    assert_eq!(visit.unwilling(), Some(Unwilling::NotAdmitted));
    assert!(reception.with_callers(|callers| callers.decide(keys(0).guid(), true)));
    visit.run(10_000);
    assert_eq!(visit.port.unwrap().received.len(), 1);
}

/// Off the path, nobody can know the indices of a session.
#[test]
fn a_refusal_of_another_session_changes_nothing() {
    let now = Time::ZERO;
    let mut site = Site::new(false);
    let (mut caller, proof) = proving(&mut site);
    for at in 4..12 {
        let mut refusal = vec![0x35, 3, 1, 0];
        refusal.extend_from_slice(&proof[4..12]);
        refusal[at] ^= 1;
        caller.handle(now, &refusal);
        assert!(caller.hop.is_up(), "octet {at}");
    }
    let mut refusal = vec![0x35, 3, 1, 0];
    refusal.extend_from_slice(&proof[4..12]);
    caller.handle(now, &refusal);
    assert!(!caller.hop.is_up());
}
