//! The session beside a model of a host that crashes.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::*;
use whimbrel_content::{Assembly, ChunkSize};
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{
    ContentOffer, FailReason, LocalChunk, LocalEvent, LocalRequest, OfferId, OfferVerdict, Publish,
    SendState,
};
use whimbrel_mobilityfirst::wire::{ContentKind, ControlCode, OfferUse};

use super::*;
use crate::source::ContentSource;

const CREDIT: usize = 16;

/// Contents of several chunks, and an empty one.
fn content(which: u8) -> Vec<u8> {
    let length = [0, 10, 40_000, 300_000][usize::from(which) % 4];
    (0..length)
        .map(|at: u32| (at * 31 + u32::from(which)) as u8)
        .collect()
}

/// A host that has every content.
#[derive(Default)]
struct ModelHost {
    contents: BTreeMap<Guid, Vec<u8>>,
    gets: BTreeMap<u32, HandedOver>,
    published: BTreeSet<Guid>,
    sends: BTreeSet<u32>,
}

struct HandedOver {
    assembly: Assembly,
    outstanding: usize,
}

impl ModelHost {
    /// Takes what the session asks for.
    fn take(&mut self, session: &mut ProgramSession) {
        while let Some(request) = session.poll_request() {
            match request {
                LocalRequest::Get(get) => {
                    let assembly = match get.resume.is_empty() {
                        true => Assembly::new(get.content, u64::MAX),
                        false => Assembly::decode(&get.resume).unwrap(),
                    };
                    let handed = HandedOver {
                        assembly,
                        outstanding: 0,
                    };
                    assert!(
                        self.gets.insert(get.request, handed).is_none(),
                        "asked twice"
                    );
                }
                LocalRequest::Consumed { request } => {
                    if let Some(get) = self.gets.get_mut(&request) {
                        assert!(get.outstanding > 0, "more was consumed than handed over");
                        get.outstanding -= 1;
                    }
                }
                LocalRequest::Cancel { request } => {
                    self.gets.remove(&request);
                    self.sends.remove(&request);
                }
                LocalRequest::Publish(publish, _) => _ = self.published.insert(publish.content),
                LocalRequest::Withdraw { content } => _ = self.published.remove(&content),
                LocalRequest::Send(send) => assert!(self.sends.insert(send.request)),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Hands over the next chunk of a content, or says that it is complete.
    fn step(&mut self, number: u32) -> Option<LocalEvent> {
        let get = self.gets.get_mut(&number)?;
        let bytes = &self.contents[&get.assembly.root()];
        if get.assembly.is_complete() {
            self.gets.remove(&number);
            return Some(LocalEvent::Complete {
                request: number,
                content_len: bytes.len() as u64,
            });
        }
        if get.outstanding == CREDIT {
            return None;
        }
        let size = ChunkSize::MIN;
        let index = size.index_of(get.assembly.verified().end_of_run(0));
        let source = ContentSource::of_bytes(Bytes::copy_from_slice(bytes), "name");
        let read = source.read(index as u32, size).unwrap();
        let (proof, _) = whimbrel_content::Proof::decode(&read.proof).unwrap();
        let verified = get.assembly.check(&whimbrel_content::Offer {
            chunk_size: size,
            index,
            claimed_len: bytes.len() as u64,
            data: &read.data,
            proof: &proof,
        });
        assert!(get.assembly.commit(verified.unwrap()));
        get.outstanding += 1;
        Some(LocalEvent::Chunk(LocalChunk {
            request: number,
            index: index as u32,
            chunk_log2: size.code(),
            content_len: bytes.len() as u64,
            len_proven: false,
            kind: ContentKind::File,
            file_name: "name".to_owned(),
            proof: read.proof,
            verified: None,
            data: read.data,
        }))
    }
}

/// A program at a host, and what it has received.
#[derive(Default)]
struct Scene {
    session: ProgramSession,
    host: ModelHost,
    received: BTreeMap<u32, (Guid, Vec<u8>)>,
    complete: BTreeSet<u32>,
    published: BTreeSet<Guid>,
    sends: BTreeSet<u32>,
}

#[derive(Clone, Debug)]
enum Act {
    Get(u8),
    Cancel(usize),
    HandOver(usize),
    Take(usize),
    Crash,
    Return,
    Publish(u8),
    Withdraw(u8),
    Send(u8),
    Sending(usize, bool),
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (0u8..4).prop_map(Act::Get),
        1 => any::<usize>().prop_map(Act::Cancel),
        8 => any::<usize>().prop_map(Act::HandOver),
        8 => any::<usize>().prop_map(Act::Take),
        1 => Just(Act::Crash),
        2 => Just(Act::Return),
        1 => (0u8..4).prop_map(Act::Publish),
        1 => (0u8..4).prop_map(Act::Withdraw),
        1 => (0u8..4).prop_map(Act::Send),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(which, whole)| Act::Sending(which, whole)),
    ]
}

fn nth<T: Copy>(set: impl ExactSizeIterator<Item = T>, which: usize) -> Option<T> {
    let count = set.len();
    let mut set = set;
    (count > 0).then(|| set.nth(which % count)).flatten()
}

impl Scene {
    fn name(&mut self, which: u8) -> Guid {
        let bytes = content(which);
        let name = ContentSource::of_bytes(bytes.clone().into(), "").content();
        self.host.contents.insert(name, bytes);
        name
    }

    fn publish(&mut self, which: u8) -> Publish {
        self.name(which);
        ContentSource::of_bytes(content(which).into(), "").publish()
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Get(which) => {
                let name = self.name(which);
                let number = self.session.get(name, GetOptions::default());
                self.received.insert(number, (name, Vec::new()));
            }
            Act::Cancel(which) => {
                if let Some(number) = nth(self.received.keys().copied(), which) {
                    self.session.cancel(number);
                    self.received.remove(&number);
                    self.complete.remove(&number);
                }
            }
            Act::HandOver(which) => {
                let number = nth(self.host.gets.keys().copied(), which);
                if let Some(event) = number.and_then(|number| self.host.step(number)) {
                    self.session.handle_event(event);
                }
            }
            Act::Take(which) => {
                if let Some(number) = nth(self.received.keys().copied(), which) {
                    self.take(number);
                }
            }
            Act::Crash => {
                self.session.handle_disconnected();
                let contents = core::mem::take(&mut self.host.contents);
                self.host = ModelHost {
                    contents,
                    ..ModelHost::default()
                };
            }
            Act::Return if !self.session.is_connected() => self.session.handle_connected(),
            Act::Return => {}
            Act::Publish(which) => {
                let publish = self.publish(which);
                self.published.insert(publish.content);
                self.session
                    .publish(publish, TransferOptions::default(), false);
            }
            Act::Withdraw(which) => {
                let name = self.name(which);
                self.published.remove(&name);
                self.session.withdraw(name);
            }
            Act::Send(which) => {
                let publish = self.publish(which);
                let number = self
                    .session
                    .send(Guid([9; 32]), publish, SendOptions::default());
                self.sends.insert(number);
            }
            Act::Sending(which, whole) => {
                if let Some(request) = nth(self.host.sends.iter().copied(), which) {
                    let state = match whole {
                        true => SendState::Taken,
                        false => SendState::Leaving,
                    };
                    self.session.handle_event(LocalEvent::Sending {
                        request,
                        state,
                        taken: 1,
                        stored: 0,
                    });
                    if whole {
                        self.sends.remove(&request);
                        let outcome = self.session.send_outcome(request).unwrap();
                        assert_eq!(outcome.unwrap().state, SendState::Taken);
                    }
                }
            }
        }
        if self.session.is_connected() {
            self.host.take(&mut self.session);
            assert_eq!(self.host.published, self.published);
            assert!(self.sends.is_subset(&self.host.sends));
        } else {
            assert!(self.session.poll_request().is_none());
        }
    }

    fn take(&mut self, number: u32) {
        let (_, bytes) = self.received.get_mut(&number).unwrap();
        match self.session.take_piece(number).unwrap() {
            ChunkStep::Piece(piece) => {
                assert_eq!(piece.offset, bytes.len() as u64);
                bytes.extend_from_slice(&piece.data);
            }
            ChunkStep::Waiting => {}
            ChunkStep::Complete(length) => {
                assert_eq!(length, bytes.len() as u64);
                self.complete.insert(number);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn transfers_survive_a_host_that_crashes(acts in prop::collection::vec(any_act(), 1..120)) {
        let mut scene = Scene::default();
        for act in &acts {
            scene.act(act);
        }
        // Once the host stays, everything ends.
        scene.act(&Act::Return);
        for _ in 0..10_000 {
            let all = scene.received.len();
            if scene.complete.len() == all {
                break;
            }
            for which in 0..all {
                scene.act(&Act::HandOver(which));
                scene.act(&Act::Take(which));
            }
        }
        prop_assert_eq!(scene.complete.len(), scene.received.len());
        for (name, bytes) in scene.received.values() {
            prop_assert!(scene.host.contents[name] == *bytes);
        }
    }

    #[test]
    fn no_event_of_a_host_makes_a_session_panic(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..80), 0..40)) {
        let mut session = ProgramSession::default();
        session.handle_connected();
        let name = ContentSource::of_bytes(Bytes::from_static(b"x"), "").content();
        session.get(name, GetOptions::default());
        session.send(name, ContentSource::of_bytes(Bytes::from_static(b"y"), "").publish(), SendOptions::default());
        session.ask(Question::Status);
        session.listen(0);
        session.take_offers(OfferRule::default());
        for mut frame in frames {
            frame[0] %= 12;
            // The numbers that the session has given.
            if frame.len() > 4 {
                frame[1..4].fill(0);
                frame[4] %= 4;
            }
            if let Ok(event) = LocalEvent::decode(&frame.into()) {
                session.handle_event(event);
            }
        }
        while session.poll_request().is_some() {}
    }
}

fn offer(sender: u8, number: u64, length: u64) -> ContentOffer {
    ContentOffer {
        id: OfferId {
            sender: Guid([sender; 32]),
            number,
        },
        issued_ms: 0,
        proposed: OfferUse::File,
        content: Publish {
            content: Guid([7; 32]),
            content_len: length,
            kind: ContentKind::File,
            file_name: String::new(),
        },
    }
}

fn settled(session: &mut ProgramSession) -> Vec<(u64, OfferVerdict)> {
    let requests = std::iter::from_fn(|| session.poll_request());
    let settled = requests.filter_map(|request| match request {
        LocalRequest::Settle { id, verdict, .. } => Some((id.number, verdict)),
        _ => None,
    });
    settled.collect()
}

#[test]
fn offers_are_refused_by_rule_and_kept_within_a_bound() {
    let mut session = ProgramSession::default();
    session.handle_connected();
    session.take_offers(OfferRule {
        senders: Some([Guid([1; 32])].into()),
        max_size: Some(100),
    });
    for (sender, number, length) in [(1, 1, 100), (2, 2, 1), (1, 3, 101), (1, 1, 100)] {
        session.handle_event(LocalEvent::Offered(offer(sender, number, length)));
    }
    let refused = [(2, OfferVerdict::NotAccepted), (3, OfferVerdict::TooLong)];
    assert_eq!(settled(&mut session), refused);
    assert_eq!(session.take_offer(), Some(offer(1, 1, 100)));
    assert_eq!(session.take_offer(), None);
    for number in 0..1030 {
        session.handle_event(LocalEvent::Offered(offer(1, number, 1)));
    }
    let full = settled(&mut session);
    assert_eq!(full.len(), 6);
    assert!(
        full.iter()
            .all(|(_, verdict)| *verdict == OfferVerdict::InboxFull)
    );
}

#[test]
fn a_decision_about_an_offer_outlives_the_host() {
    let mut session = ProgramSession::default();
    session.handle_connected();
    session.take_offers(OfferRule::default());
    session.handle_event(LocalEvent::Offered(offer(1, 5, 1)));
    let taken = session.take_offer().unwrap();
    session.handle_disconnected();
    session.settle(&taken, OfferVerdict::Received);
    assert!(session.poll_request().is_none());
    session.handle_connected();
    assert_eq!(settled(&mut session), [(5, OfferVerdict::Received)]);
}

#[test]
fn a_failure_is_told_once_and_a_limit_ends_a_transfer() {
    let mut session = ProgramSession::default();
    session.handle_connected();
    let source = ContentSource::of_bytes(vec![1; 5000].into(), "");
    let limit = Some(1000);
    let options = GetOptions {
        limit,
        ..GetOptions::default()
    };
    let number = session.get(source.content(), options);
    let read = source.read(0, ChunkSize::MIN).unwrap();
    session.handle_event(LocalEvent::Chunk(LocalChunk {
        request: number,
        index: 0,
        chunk_log2: ChunkSize::MIN.code(),
        content_len: 5000,
        len_proven: false,
        kind: ContentKind::File,
        file_name: String::new(),
        proof: read.proof,
        verified: None,
        data: read.data,
    }));
    let requests: Vec<LocalRequest> = std::iter::from_fn(|| session.poll_request()).collect();
    assert_eq!(
        requests.last(),
        Some(&LocalRequest::Cancel { request: number })
    );
    let error = session.take_piece(number).unwrap_err();
    assert!(
        matches!(
            error,
            ProgramError::TooLong {
                length: 5000,
                limit: 1000
            }
        ),
        "{error}"
    );
    assert!(matches!(
        session.take_piece(number),
        Err(ProgramError::Over)
    ));
    let other = session.get(source.content(), GetOptions::default());
    let reason = FailReason::NotServed;
    session.handle_event(LocalEvent::Failed {
        request: other,
        reason,
    });
    let error = session.take_piece(other).unwrap_err();
    assert!(error.to_string().contains("no longer serve it"), "{error}");
}

#[test]
fn an_announcement_and_an_unreadable_content_are_told() {
    let mut session = ProgramSession::default();
    session.handle_connected();
    let source = ContentSource::of_bytes(vec![1; 10].into(), "");
    let content = source.content();
    session.publish(source.publish(), TransferOptions::default(), false);
    assert!(!session.is_announced(content).unwrap());
    let code = ControlCode::Registered;
    session.handle_event(LocalEvent::Published { content, code });
    assert!(session.is_announced(content).unwrap());
    assert_eq!(session.poll_announced(), Some((content, code)));
    let number = session.send(Guid([1; 32]), source.publish(), SendOptions::default());
    session.note_unreadable(content, || ProgramError::Unreadable("gone".to_owned()));
    assert!(session.send_outcome(number).is_err());
    assert!(session.is_announced(content).is_err());
}

#[test]
fn a_content_is_resumed_and_asked_for_again_after_a_failure() {
    let mut session = ProgramSession::default();
    session.handle_connected();
    let bytes = content(3);
    let source = ContentSource::of_bytes(bytes.clone().into(), "name");
    let size = ChunkSize::MIN;
    let chunk = |request: u32, index: u32| {
        let read = source.read(index, size).unwrap();
        LocalEvent::Chunk(LocalChunk {
            request,
            index,
            chunk_log2: size.code(),
            content_len: bytes.len() as u64,
            len_proven: false,
            kind: ContentKind::File,
            file_name: "name".to_owned(),
            proof: read.proof,
            verified: None,
            data: read.data,
        })
    };
    let first = session.get(source.content(), GetOptions::default());
    session.handle_event(chunk(first, 0));
    assert!(matches!(session.take_piece(first), Ok(ChunkStep::Piece(_))));
    // One that cannot be stored is missing, and so is one that was not taken.
    session.handle_event(chunk(first, 1));
    assert!(session.take_piece(first).is_ok());
    session.note_unstored(first);
    session.handle_event(chunk(first, 2));
    let assembly = session.take_content(first).unwrap();
    let here = assembly.verified_bytes();
    assert_eq!(here, size.bytes());
    let caller = Some(Guid([4; 32]));
    let options = GetOptions {
        caller,
        ..GetOptions::default()
    };
    let number = session.resume(assembly, options, None);
    let resumed = |session: &mut ProgramSession| {
        let requests = std::iter::from_fn(|| session.poll_request());
        let asked = requests.filter_map(|request| match request {
            LocalRequest::GetFrom { get, .. } if get.request == number => Some(get.resume),
            _ => None,
        });
        asked
            .last()
            .map(|it| Assembly::decode(&it).unwrap().verified_bytes())
    };
    assert_eq!(resumed(&mut session), Some(here));
    let reason = FailReason::NoSuchName;
    let request = number;
    session.handle_event(LocalEvent::Failed { request, reason });
    assert!(session.take_piece(number).is_err());
    assert_eq!(resumed(&mut session), None);
    session.ask_again(number);
    assert_eq!(resumed(&mut session), Some(here));
    // What the host says of a whole content needs no cancelling.
    for index in 1..size.count(bytes.len() as u64) as u32 {
        session.handle_event(chunk(number, index));
    }
    let received = session.requested(number).unwrap();
    assert!(received.assembly().is_complete());
    assert_eq!(received.kind(), Some(ContentKind::File));
    session.take_content(number);
    assert!(session.poll_request().is_none() && session.is_idle());
}

#[test]
fn a_content_asked_for_again_while_the_host_is_away_is_requested_once() {
    let mut session = ProgramSession::default();
    session.handle_connected();
    let request = session.get(Guid([9; 32]), GetOptions::default());
    let requests =
        |session: &mut ProgramSession| std::iter::from_fn(|| session.poll_request()).count();
    assert_eq!(requests(&mut session), 1);
    let reason = FailReason::NoSuchName;
    session.handle_event(LocalEvent::Failed { request, reason });
    session.handle_disconnected();
    session.ask_again(request);
    assert_eq!(requests(&mut session), 0);
    session.handle_connected();
    session.ask_again(request);
    assert_eq!(requests(&mut session), 1);
}

#[test]
fn further_names_are_told_again_to_a_host_that_returns() {
    let mut session = ProgramSession::default();
    session.handle_connected();
    let name = session.attach_service(ServiceKey([5; 32]));
    let attached = |session: &mut ProgramSession| {
        let request = session.poll_request();
        matches!(request, Some(LocalRequest::Attach { key }) if key == ServiceKey([5; 32]))
    };
    assert!(attached(&mut session));
    assert!(!session.is_name_known(name).unwrap());
    let published = |code| LocalEvent::Published {
        content: name,
        code,
    };
    session.handle_event(published(ControlCode::Unreachable));
    assert!(
        !session.is_name_known(name).unwrap(),
        "the host tries again"
    );
    session.handle_event(published(ControlCode::Registered));
    assert!(session.is_name_known(name).unwrap());
    session.handle_disconnected();
    session.handle_connected();
    assert!(attached(&mut session));
    session.handle_event(published(ControlCode::Full));
    let text = session.is_name_known(name).unwrap_err().to_string();
    assert!(text.contains("has no room"), "{text}");
    assert!(session.is_name_known(Guid([9; 32])).is_err());
}
