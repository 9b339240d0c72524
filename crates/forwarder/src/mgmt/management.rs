//! The router's side of the protocol: Interests in, Data out.

use bytes::Bytes;
use whimbrel_core::Time;
use whimbrel_ndn_mgmt::{
    ChannelStatus, ControlParameters, ControlResponse, FaceQueryFilter, FaceUri, Verb,
};
use whimbrel_ndn_packet::{
    CachePolicy, Component, ContentType, Data, DigestSigner, InterestRef, LpPacket, Name,
    PrefixAnnouncementRef,
};

use super::anchors::Anchors;
use super::authority::{Authority, CommandRefusal, Proof};
use super::event_stream::EventStream;
use super::face_requests::{Creations, FaceFailure, RequestId};
use super::host::FaceHost;
use super::request::Request;
use super::snapshots::{FRESHNESS, Snapshots};
use super::verb::{self, Context, Outcome};
use super::{ManagementConfig, content_store, faces, fib, routes, status, strategies};
use crate::face::FaceId;
use crate::forwarder::{FaceEvent, Forwarder, ManagementInterest};

/// Counters of management.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagementCounters {
    /// Commands that were carried out.
    pub commands: u64,
    /// Commands refused for their content.
    pub failures: u64,
    /// Commands refused for their sender.
    pub refusals: u64,
    /// Commands allowed although their digest does not match, because commands of programs on this
    /// machine need no signature.
    pub wrong_digests: u64,
    /// Datasets generated.
    pub datasets: u64,
    /// Face events.
    pub events: u64,
    /// Interests left unanswered.
    pub ignored: u64,
}

/// The state of management.
pub(crate) struct Management {
    config: ManagementConfig,
    pub(super) authority: Authority,
    pub(super) creations: Creations,
    snapshots: Snapshots,
    events: EventStream,
    pub(super) channels: Vec<String>,
    pub(super) own_prefixes: Vec<Name>,
    pub(super) counters: ManagementCounters,
}

/// Returns true for a program on this machine. A browser's WebSocket is one although the face is
/// not local: it may register prefixes for itself, under `/localhop`.
fn is_of_this_machine(forwarder: &Forwarder, face: FaceId) -> bool {
    forwarder.face(face).is_some_and(|face| {
        let by_browser = || match face.spec.remote_uri.parse() {
            Ok(FaceUri::WebSocketClient(endpoint)) => endpoint.address.is_loopback(),
            _ => false,
        };
        face.is_local() || by_browser()
    })
}

fn local_prefix() -> Name {
    Name::of([b"localhost".as_slice(), b"nfd"].map(Component::generic))
}

fn remote_prefix() -> Name {
    Name::of([b"localhop".as_slice(), b"nfd", b"rib"].map(Component::generic))
}

fn events_prefix() -> Name {
    local_prefix()
        .child_generic(b"faces")
        .child_generic(b"events")
}

/// Index of a command's parameters in its name: after scope, `nfd`, module and verb.
const PARAMETERS_AT: usize = 4;

/// A dataset's content, or a refusal.
type Dataset = Result<Vec<u8>, ControlResponse>;

impl Management {
    pub(crate) fn new(config: ManagementConfig) -> Management {
        let authority = Authority::new(config.policy, Box::new(Anchors::new()));
        let own_prefixes = vec![local_prefix(), remote_prefix()];
        Management {
            config,
            authority,
            creations: Creations::default(),
            snapshots: Snapshots::default(),
            events: EventStream::new(events_prefix()),
            channels: Vec::new(),
            own_prefixes,
            counters: ManagementCounters::default(),
        }
    }

    /// Forgets a face that is gone.
    pub(crate) fn forget_face(&mut self, face: FaceId) {
        self.authority.forget(face);
    }

    pub(super) fn run(&mut self, now: Time, forwarder: &mut Forwarder, host: &mut dyn FaceHost) {
        self.tell_events(now, forwarder);
        while let Some(ManagementInterest { packet, from }) = forwarder.take_management_interest() {
            self.answer(now, forwarder, host, &packet, from);
            self.tell_events(now, forwarder);
        }
    }

    fn tell_events(&mut self, now: Time, forwarder: &mut Forwarder) {
        let events: Vec<FaceEvent> = core::iter::from_fn(|| forwarder.poll_face_event()).collect();
        for (at, event) in events.iter().enumerate() {
            let since = events.get(at..).unwrap_or_default();
            let Some(notification) = faces::notification(forwarder, event, since) else {
                continue;
            };
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
        host: &mut dyn FaceHost,
        packet: &[u8],
        from: FaceId,
    ) {
        let request = InterestRef::decode(packet).ok().and_then(Request::of);
        // The pipeline accepts `/localhost` on local faces only; this double-checks it.
        let is_local = forwarder
            .face(from)
            .is_some_and(crate::face::Face::is_local);
        let Some(request) = request.filter(|request| is_local || request.remote) else {
            self.counters.ignored += 1;
            return;
        };
        let request = Request {
            of_this_machine: is_of_this_machine(forwarder, from),
            ..request
        };
        let served = self.authority.serves_remote() || request.of_this_machine;
        if request.remote && !(served && request.module == "rib") {
            self.counters.ignored += 1;
            return;
        }
        match (request.module, request.verb) {
            ("faces", "events") => self.ask_event(now, forwarder, &request),
            ("rib", "announce") => self.announce(now, forwarder, host, &request, from),
            (module, verb) => match Verb::find(module, verb) {
                Some(verb) => self.command(now, forwarder, host, &request, from, verb),
                // A neighbour may not read the router's datasets.
                None if request.remote => self.counters.ignored += 1,
                None => self.dataset(now, forwarder, host, &request),
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
        host: &mut dyn FaceHost,
        request: &Request<'_>,
        from: FaceId,
        verb: Verb,
    ) {
        let parameters = match request.rest.first() {
            Some(component) => {
                ControlParameters::decode(component.value()).map_err(|error| error.to_string())
            }
            None => Err("the name has none".to_owned()),
        };
        let parameters = match parameters {
            Ok(parameters) => parameters,
            Err(why) => {
                let text = format!(
                    "{}/{} needs ControlParameters after the verb: {why}",
                    verb.module(),
                    verb.name()
                );
                return self.respond(now, forwarder, request, &ControlResponse::new(400, text));
            }
        };
        if let Err(refusal) = self.allow(now, forwarder, request, from) {
            return self.refuse(now, forwarder, request, &refusal);
        }
        if let Err(error) = verb.check(&parameters) {
            let response = ControlResponse::new(400, error.to_string());
            return self.respond(now, forwarder, request, &response);
        }
        let command = request.interest.name.to_name();
        let mut context = Context {
            now,
            from,
            remote: request.remote,
            command: &command,
            forwarder,
            host,
            creations: &mut self.creations,
            config: &self.config,
            own_prefixes: &self.own_prefixes,
        };
        match verb::run(verb, &mut context, parameters) {
            Outcome::Now(response) => self.respond(now, forwarder, request, &response),
            Outcome::Later => {}
        }
    }

    fn allow(
        &mut self,
        now: Time,
        forwarder: &Forwarder,
        request: &Request<'_>,
        from: FaceId,
    ) -> Result<(), CommandRefusal> {
        let unix_millis = forwarder.wall().unix_millis(now);
        let proof = self.authority.allow(
            ((unix_millis, now), from),
            request.is_strangers(),
            request.module,
            &request.interest,
        )?;
        self.counters.wrong_digests += u64::from(proof == Proof::WrongDigest);
        Ok(())
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
        reply(
            now,
            forwarder,
            request.interest.name.to_name(),
            &response,
            is_signed(request),
        );
    }

    fn respond(
        &mut self,
        now: Time,
        forwarder: &mut Forwarder,
        request: &Request<'_>,
        response: &ControlResponse,
    ) {
        self.count(response);
        reply(
            now,
            forwarder,
            request.interest.name.to_name(),
            response,
            is_signed(request),
        );
    }

    fn count(&mut self, response: &ControlResponse) {
        let count = if response.is_success() {
            &mut self.counters.commands
        } else {
            &mut self.counters.failures
        };
        *count += 1;
    }

    fn announce(
        &mut self,
        now: Time,
        forwarder: &mut Forwarder,
        host: &mut dyn FaceHost,
        request: &Request<'_>,
        from: FaceId,
    ) {
        let announcement =
            match PrefixAnnouncementRef::decode(request.interest.parameters.unwrap_or_default()) {
                Ok(announcement) => announcement,
                Err(error) => {
                    let text = format!(
                        "rib/announce needs a prefix announcement as ApplicationParameters: {error}"
                    );
                    return self.respond(now, forwarder, request, &ControlResponse::new(400, text));
                }
            };
        let allowed = self.allow(now, forwarder, request, from).and_then(|()| {
            let moment = (forwarder.wall().unix_millis(now), now);
            self.authority
                .allow_announcement((moment, from), request.is_strangers(), &announcement)
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
            host,
            creations: &mut self.creations,
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
        host: &mut dyn FaceHost,
        request: &Request<'_>,
    ) {
        if let Some((before, version, segment)) = request.version_and_segment() {
            let name = request.interest.name.prefix(before);
            let found = self
                .snapshots
                .segment(now, name, version, segment.unwrap_or(0));
            return self.send_segment(now, forwarder, found);
        }
        let name = request.interest.name;
        let version = match self.snapshots.reusable(now, name) {
            Some(version) => version,
            None => match self.make_dataset(now, forwarder, host, request) {
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
        host: &dyn FaceHost,
        request: &Request<'_>,
    ) -> Dataset {
        let version = &self.config.version;
        let link = &|face| host.link_counters(face);
        Ok(match (request.module, request.verb) {
            ("status", "general") => status::general(forwarder, now, version).encode(),
            ("faces", "list") => faces::list(forwarder, link, &FaceQueryFilter::default()),
            ("faces", "query") => {
                let filter =
                    faces::filter(request.rest.first().map(|component| component.value()))?;
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
            ("whimbrel", "counters") => status::counters(forwarder, now, version, &self.counters)
                .to_string()
                .into_bytes(),
            ("whimbrel", "links") => status::links(forwarder, link).to_string().into_bytes(),
            ("whimbrel", "strategies") => {
                let kinds = forwarder.engine.config.strategy_kinds;
                status::strategies(kinds).to_string().into_bytes()
            }
            (module, verb) => {
                return Err(ControlResponse::new(
                    501,
                    format!("this router has no {module}/{verb}"),
                ));
            }
        })
    }

    fn list_channels(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for local_uri in &self.channels {
            ChannelStatus {
                local_uri: local_uri.clone(),
            }
            .encode(&mut out);
        }
        out
    }

    pub(super) fn face_created(
        &mut self,
        now: Time,
        forwarder: &mut Forwarder,
        request: RequestId,
        outcome: &Result<FaceId, FaceFailure>,
    ) {
        let Some(pending) = self.creations.finish(request) else {
            return;
        };
        for (at, command) in pending.commands.into_iter().enumerate() {
            let asked = parameters_in(&command).unwrap_or_default();
            let response = faces::creation_answer(forwarder, outcome, &asked, at == 0);
            self.count(&response);
            reply(now, forwarder, command, &response, false);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time, forwarder: &mut Forwarder) {
        for late in self.creations.take_late(now) {
            for command in late.commands {
                let response = ControlResponse::new(504, "the face was not opened in time");
                self.count(&response);
                reply(now, forwarder, command, &response, false);
            }
        }
    }
}

/// A signed command is unique, so its answer may be cached: a client that retransmits because it
/// missed the answer gets it again, and the command is not carried out twice.
fn is_signed(request: &Request<'_>) -> bool {
    super::SignedCommand::of(&request.interest)
        .is_some_and(|signed| signed.nonce.is_some() || signed.time.is_some())
}

/// Decodes the parameters of a command, in the component after the verb.
fn parameters_in(command: &Name) -> Option<ControlParameters> {
    ControlParameters::decode(command.as_ref().get(PARAMETERS_AT)?.value()).ok()
}

/// A refusal without a body of its own returns the command's parameters, octet by octet: python-ndn
/// fails on an answer without any, and a client that registers many prefixes sees which one was
/// refused.
fn reply(
    now: Time,
    forwarder: &mut Forwarder,
    command: Name,
    response: &ControlResponse,
    cacheable: bool,
) {
    let mut response = response.clone();
    if !response.is_success() && response.body.is_empty() && parameters_in(&command).is_some() {
        let given = command
            .as_ref()
            .get(PARAMETERS_AT)
            .map(|component| component.value());
        response.body = Bytes::copy_from_slice(given.unwrap_or_default());
    }
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

/// Sends a Data. `keep_out`: the content store must not keep it, so that the next request gets new
/// information.
fn send(now: Time, forwarder: &mut Forwarder, data: &[u8], keep_out: bool) {
    if let Ok(mut packet) = LpPacket::decode(data, false) {
        packet.cache_policy = keep_out.then_some(CachePolicy::NoCache);
        forwarder.handle_packet(now, FaceId::INTERNAL, &packet);
    }
}
