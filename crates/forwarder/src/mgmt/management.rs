//! The router's side of the protocol: Interests in, Data out.

use bytes::Bytes;
use whimbrel_core::{Deadline, Time};
use whimbrel_ndn_packet::{
    CachePolicy, Component, ContentType, Data, DigestSigner, InterestRef, LpPacket, Name,
};

use super::authority::{Authority, CommandRefusal, CommandVerifier};
use super::control::{ControlParameters, ControlResponse};
use super::event_stream::EventStream;
use super::face_requests::{FaceFailure, FaceRequest, FaceRequests, RequestId};
use super::request::Request;
use super::routes::Announcement;
use super::snapshots::{FRESHNESS, Snapshots};
use super::verb::{Context, Outcome, Verb};
use super::{
    ChannelStatus, FaceQueryFilter, LinkCounters, ManagementConfig, content_store, faces, fib, routes,
    status, strategies,
};
use crate::face::FaceId;
use crate::forwarder::{Forwarder, ManagementInterest};

/// What management did with the Interests that came to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagementCounters {
    /// Commands that were carried out.
    pub commands: u64,
    /// Commands that were refused for what they asked.
    pub failures: u64,
    /// Commands that were refused for who sent them.
    pub refusals: u64,
    /// Datasets that were made.
    pub datasets: u64,
    /// Events of faces.
    pub events: u64,
    /// Interests that nothing could be answered to.
    pub ignored: u64,
}

/// Management: what it keeps between Interests.
pub(crate) struct Management {
    config: ManagementConfig,
    authority: Authority,
    requests: FaceRequests,
    snapshots: Snapshots,
    events: EventStream,
    channels: Vec<String>,
    own_prefixes: Vec<Name>,
    counters: ManagementCounters,
}

fn local_prefix() -> Name {
    Name::of([b"localhost".as_slice(), b"nfd"].map(Component::generic))
}

fn remote_prefix() -> Name {
    Name::of([b"localhop".as_slice(), b"nfd", b"rib"].map(Component::generic))
}

fn events_prefix() -> Name {
    local_prefix().child_generic(b"faces").child_generic(b"events")
}

/// What a dataset is made from, or why it is not.
type Dataset = Result<Vec<u8>, ControlResponse>;

impl Management {
    pub(crate) fn new(config: ManagementConfig) -> Management {
        let authority = Authority::new(config.policy);
        let mut own_prefixes = vec![local_prefix()];
        if authority.serves_remote() {
            own_prefixes.push(remote_prefix());
        }
        Management {
            config,
            authority,
            requests: FaceRequests::default(),
            snapshots: Snapshots::default(),
            events: EventStream::new(events_prefix()),
            channels: Vec::new(),
            own_prefixes,
            counters: ManagementCounters::default(),
        }
    }

    fn run(&mut self, now: Time, forwarder: &mut Forwarder, link: &dyn Fn(FaceId) -> LinkCounters) {
        self.tell_events(now, forwarder);
        while let Some(ManagementInterest { packet, from }) = forwarder.take_management_interest() {
            self.answer(now, forwarder, link, &packet, from);
            self.tell_events(now, forwarder);
        }
    }

    fn tell_events(&mut self, now: Time, forwarder: &mut Forwarder) {
        while let Some(event) = forwarder.poll_face_event() {
            let Some(notification) = faces::notification(forwarder, &event) else { continue };
            self.counters.events += 1;
            for data in self.events.happened(now, &notification) {
                send(now, forwarder, &data, true);
            }
        }
    }

    fn answer(
        &mut self,
        now: Time,
        forwarder: &mut Forwarder,
        link: &dyn Fn(FaceId) -> LinkCounters,
        packet: &Bytes,
        from: FaceId,
    ) {
        let request = InterestRef::decode(packet).ok().and_then(Request::of);
        // The pipeline lets `/localhost` in by local faces only; that this holds is worth one more look.
        let is_local = forwarder.face(from).is_some_and(crate::face::Face::is_local);
        let Some(request) = request.filter(|request| is_local || request.remote) else {
            self.counters.ignored += 1;
            return;
        };
        if request.remote && !(self.authority.serves_remote() && request.module == "rib") {
            self.counters.ignored += 1;
            return;
        }
        match (request.module, request.verb) {
            ("faces", "events") => self.ask_event(now, forwarder, &request),
            ("rib", "announce") => self.announce(now, forwarder, &request, from),
            (module, verb) => match Verb::find(module, verb) {
                Some(verb) => self.command(now, forwarder, &request, from, verb),
                None => self.dataset(now, forwarder, link, &request),
            },
        }
    }

    fn ask_event(&mut self, now: Time, forwarder: &mut Forwarder, request: &Request<'_>) {
        if let Some(data) = self.events.ask(now, &request.interest) {
            send(now, forwarder, &data, true);
        }
    }

    fn command(
        &mut self,
        now: Time,
        forwarder: &mut Forwarder,
        request: &Request<'_>,
        from: FaceId,
        verb: &'static Verb,
    ) {
        let parameters = match request.rest.first() {
            Some(component) => {
                ControlParameters::decode(component.value()).map_err(|error| error.to_string())
            }
            None => Err("there are none in the name".to_owned()),
        };
        let parameters = match parameters {
            Ok(parameters) => parameters,
            Err(why) => {
                let text =
                    format!("{}/{} needs ControlParameters after the verb: {why}", verb.module, verb.verb);
                return self.respond(now, forwarder, request, &ControlResponse::new(400, text));
            }
        };
        if let Err(refusal) = self.allow(now, forwarder, request) {
            return self.refuse(now, forwarder, request, &refusal);
        }
        if let Err(text) = verb.check(&parameters) {
            return self.respond(now, forwarder, request, &ControlResponse::new(400, text));
        }
        let command = request.interest.name.to_name();
        let mut context = Context {
            now,
            from,
            remote: request.remote,
            command: &command,
            forwarder,
            requests: &mut self.requests,
            config: &self.config,
            own_prefixes: &self.own_prefixes,
        };
        match (verb.run)(&mut context, parameters) {
            Outcome::Now(response) => self.respond(now, forwarder, request, &response),
            Outcome::Later => {}
        }
    }

    fn allow(
        &mut self,
        now: Time,
        forwarder: &Forwarder,
        request: &Request<'_>,
    ) -> Result<(), CommandRefusal> {
        let unix_millis = forwarder.wall().unix_millis(now);
        self.authority.allow(unix_millis, request.remote, request.module, &request.interest)
    }

    fn refuse(
        &mut self,
        now: Time,
        forwarder: &mut Forwarder,
        request: &Request<'_>,
        refusal: &CommandRefusal,
    ) {
        self.counters.refusals += 1;
        let response = ControlResponse::new(403, refusal.to_string());
        reply(now, forwarder, request.interest.name.to_name(), &response, is_signed(request));
    }

    fn respond(
        &mut self,
        now: Time,
        forwarder: &mut Forwarder,
        request: &Request<'_>,
        response: &ControlResponse,
    ) {
        self.count(response);
        reply(now, forwarder, request.interest.name.to_name(), response, is_signed(request));
    }

    fn count(&mut self, response: &ControlResponse) {
        let count =
            if response.is_success() { &mut self.counters.commands } else { &mut self.counters.failures };
        *count += 1;
    }

    fn announce(&mut self, now: Time, forwarder: &mut Forwarder, request: &Request<'_>, from: FaceId) {
        let announcement = match Announcement::decode(request.interest.parameters.unwrap_or_default()) {
            Ok(announcement) => announcement,
            Err(error) => {
                let text =
                    format!("rib/announce needs a prefix announcement as ApplicationParameters: {error}");
                return self.respond(now, forwarder, request, &ControlResponse::new(400, text));
            }
        };
        let allowed = self.allow(now, forwarder, request).and_then(|()| {
            self.authority.allow_announcement(request.remote, &announcement.prefix, &announcement.data)
        });
        if let Err(refusal) = allowed {
            return self.refuse(now, forwarder, request, &refusal);
        }
        let command = request.interest.name.to_name();
        let mut context = Context {
            now,
            from,
            remote: request.remote,
            command: &command,
            forwarder,
            requests: &mut self.requests,
            config: &self.config,
            own_prefixes: &self.own_prefixes,
        };
        let response = routes::announce(&mut context, &announcement);
        self.respond(now, forwarder, request, &response);
    }

    fn dataset(
        &mut self,
        now: Time,
        forwarder: &mut Forwarder,
        link: &dyn Fn(FaceId) -> LinkCounters,
        request: &Request<'_>,
    ) {
        if let Some((before, version, segment)) = request.version_and_segment() {
            let name = request.interest.name.prefix(before);
            let found = self.snapshots.segment(now, name, version, segment.unwrap_or(0));
            return self.send_segment(now, forwarder, found);
        }
        let name = request.interest.name;
        let version = match self.snapshots.reusable(now, name) {
            Some(version) => version,
            None => match self.make_dataset(now, forwarder, link, request) {
                Ok(content) => {
                    self.counters.datasets += 1;
                    let micros = forwarder.wall().unix_millis(now).saturating_mul(1_000);
                    self.snapshots.keep(now, micros, name.to_name(), content)
                }
                Err(refusal) => {
                    self.count(&refusal);
                    return refuse_dataset(now, forwarder, name.to_name(), &refusal);
                }
            },
        };
        let first = self.snapshots.segment(now, name, version, 0);
        self.send_segment(now, forwarder, first);
    }

    fn send_segment(&mut self, now: Time, forwarder: &mut Forwarder, found: Option<Vec<u8>>) {
        match found {
            Some(data) => send(now, forwarder, &data, true),
            None => self.counters.ignored += 1,
        }
    }

    fn make_dataset(
        &self,
        now: Time,
        forwarder: &Forwarder,
        link: &dyn Fn(FaceId) -> LinkCounters,
        request: &Request<'_>,
    ) -> Dataset {
        let version = &self.config.version;
        Ok(match (request.module, request.verb) {
            ("status", "general") => status::general(forwarder, now, version).encode(),
            ("faces", "list") => faces::list(forwarder, link, &FaceQueryFilter::default()),
            ("faces", "query") => {
                let filter = faces::filter(request.rest.first().map(|component| component.value()))?;
                faces::list(forwarder, link, &filter)
            }
            ("faces", "channels") => self.list_channels(),
            ("fib", "list") => fib::list(forwarder),
            ("rib", "list") => routes::list(forwarder, now),
            ("strategy-choice", "list") => strategies::list(forwarder),
            ("cs", "info") => {
                let mut out = Vec::new();
                content_store::info(forwarder).encode(&mut out);
                out
            }
            ("whimbrel", "counters") => status::counters(forwarder, now, version).to_string().into_bytes(),
            ("whimbrel", "links") => status::links(forwarder, link).to_string().into_bytes(),
            ("whimbrel", "strategies") => status::strategies().to_string().into_bytes(),
            (module, verb) => {
                return Err(ControlResponse::new(501, format!("this router has no {module}/{verb}")));
            }
        })
    }

    fn list_channels(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for local_uri in &self.channels {
            ChannelStatus { local_uri: local_uri.clone() }.encode(&mut out);
        }
        out
    }

    fn face_created(
        &mut self,
        now: Time,
        forwarder: &mut Forwarder,
        request: RequestId,
        outcome: &Result<FaceId, FaceFailure>,
    ) {
        let Some(pending) = self.requests.finish(request) else { return };
        let answers = faces::creation_answers(forwarder, outcome, pending.commands.len());
        for (command, response) in pending.commands.into_iter().zip(answers) {
            self.count(&response);
            reply(now, forwarder, command, &response, false);
        }
    }

    fn handle_timeout(&mut self, now: Time, forwarder: &mut Forwarder) {
        for late in self.requests.take_late(now) {
            for command in late.commands {
                let response = ControlResponse::new(504, "the face was not opened in time");
                self.count(&response);
                reply(now, forwarder, command, &response, false);
            }
        }
    }
}

/// A signed command is never the same twice, so that what answers it may be cached: a client that asks again because
/// it missed the answer gets it again, and the command is not carried out twice.
fn is_signed(request: &Request<'_>) -> bool {
    super::SignedCommand::of(&request.interest)
        .is_some_and(|signed| signed.nonce.is_some() || signed.time.is_some())
}

fn reply(now: Time, forwarder: &mut Forwarder, command: Name, response: &ControlResponse, cacheable: bool) {
    let mut data = Data::new(command, response.encode());
    data.freshness = FRESHNESS;
    send(now, forwarder, &data.encode(&DigestSigner), !cacheable);
}

fn refuse_dataset(now: Time, forwarder: &mut Forwarder, name: Name, refusal: &ControlResponse) {
    let mut data = Data::new(name, refusal.encode());
    data.content_type = ContentType::Nack;
    data.freshness = FRESHNESS;
    send(now, forwarder, &data.encode(&DigestSigner), true);
}

/// `keep_out`: the content store is not to keep it, for the next one who asks is to get news.
fn send(now: Time, forwarder: &mut Forwarder, data: &[u8], keep_out: bool) {
    if let Ok(mut packet) = LpPacket::decode(data, false) {
        packet.cache_policy = keep_out.then_some(CachePolicy::NoCache);
        forwarder.handle_packet(now, FaceId::INTERNAL, &packet);
    }
}

impl Forwarder {
    /// Answers the Interests that wait for management and tells what happened to faces. `link` says what the link of
    /// a face has counted.
    pub fn run_management(&mut self, now: Time, link: &dyn Fn(FaceId) -> LinkCounters) {
        self.with_management(|management, forwarder| management.run(now, forwarder, link));
    }

    /// The next wish about faces. [`FaceRequest::Create`] is to be answered with [`Forwarder::face_created`].
    pub fn poll_face_request(&mut self) -> Option<FaceRequest> {
        self.mgmt.as_mut()?.requests.poll()
    }

    /// A face that management asked for was added, or could not be: who asked for it is told.
    pub fn face_created(&mut self, now: Time, request: RequestId, outcome: &Result<FaceId, FaceFailure>) {
        self.with_management(|management, forwarder| {
            management.face_created(now, forwarder, request, outcome);
        });
    }

    /// The FaceUris on which the program around listens: the dataset `faces/channels`.
    pub fn set_channels(&mut self, local_uris: Vec<String>) {
        if let Some(management) = &mut self.mgmt {
            management.channels = local_uris;
        }
    }

    /// What checks signatures made by keys; without it no command that must be signed is carried out.
    pub fn set_command_verifier(&mut self, verifier: Box<dyn CommandVerifier>) {
        if let Some(management) = &mut self.mgmt {
            management.authority.verifier = verifier;
        }
    }

    /// What management did with the Interests that came to it.
    pub fn management_counters(&self) -> ManagementCounters {
        self.mgmt.as_ref().map(|management| management.counters).unwrap_or_default()
    }

    /// Gives management its prefixes.
    pub(crate) fn attach_management(&mut self, config: ManagementConfig) {
        let management = Management::new(config);
        for prefix in &management.own_prefixes {
            // They are two and three components long.
            let _ = self.engine.fib.add_next_hop(prefix.as_ref(), FaceId::INTERNAL, 0);
        }
        self.mgmt = Some(Box::new(management));
    }

    pub(crate) fn management_timeout(&mut self, now: Time) {
        self.rib.handle_timeout(now);
        self.follow_rib();
        self.with_management(|management, forwarder| management.handle_timeout(now, forwarder));
    }

    pub(crate) fn management_deadline(&self) -> Option<Deadline> {
        let creations = self.mgmt.as_ref().and_then(|management| management.requests.poll_timeout());
        Deadline::earlier(self.rib.poll_timeout(), creations)
    }

    /// Management works on the forwarder that it is part of: it steps out of it for as long as that takes.
    fn with_management(&mut self, work: impl FnOnce(&mut Management, &mut Forwarder)) {
        if let Some(mut management) = self.mgmt.take() {
            work(&mut management, self);
            self.mgmt = Some(management);
        }
    }
}
