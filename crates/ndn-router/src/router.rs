//! The forwarder and the link services of its faces, as one machine.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;
use whimbrel_core::{
    Deadline, Endpoint, Machine, OpenRefusal, PortEvent, PortId, PortInfo, PortOrigin, PortRequest,
    PortToken, SeededRng, Time, TimerQueue, Transmit, WallClock,
};
use whimbrel_forwarder::mgmt::{FaceFailure, FaceHost, FaceRequest, LinkCounters, RequestId};
use whimbrel_forwarder::rib::{Route, RouteKey};
use whimbrel_forwarder::{FaceId, Forwarder, ForwarderConfig, LinkType, Persistency};
use whimbrel_link::ndnlp::{FrameKind, LinkEvent, LinkService, LinkServiceConfig};
use whimbrel_ndn_mgmt::{FaceUri, ROUTE_CHILD_INHERIT, RouteOrigin};
use whimbrel_ndn_packet::{LpPacket, Name, types};

use crate::endpoint::endpoint;
use crate::faces::{self, FaceSettings};

/// Packets that are put together on the stack before they go to the forwarder; drivers hand in
/// about as many.
const PACKETS_AT_ONCE: usize = 32;
/// How often faces are looked at that nobody configured, for having been silent too long.
const IDLE_CHECK: Duration = Duration::from_secs(5);
/// Pause before a lost permanent face is opened again; doubles up to [`SLOWEST_REOPEN`].
const REOPEN: Duration = Duration::from_secs(1);
const SLOWEST_REOPEN: Duration = Duration::from_secs(60);
/// The forwarder hears of a link's state at most this often: its queues change within some
/// milliseconds, and a packet must not pay for it.
const LINK_STATE_INTERVAL: Duration = Duration::from_millis(1);
/// Pause before a configured face that never came up is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// What an [`NdnRouter`] is made from.
pub struct NdnRouterConfig {
    /// The forwarding plane's.
    pub forwarder: ForwarderConfig,
    /// Every face's link, where its own settings say nothing else.
    pub link: LinkServiceConfig,
    /// Faces of callers end after this silence.
    pub idle_timeout: Duration,
    /// Most faces; callers beyond are turned away.
    pub max_faces: usize,
    /// How [`Time`] relates to Unix time.
    pub wall: WallClock,
}

/// A face that is asked for, until its port is up.
struct Asked {
    settings: FaceSettings,
    endpoint: Endpoint,
    /// The request of management, if that asked.
    request: Option<RequestId>,
}

/// One face and its link.
struct Attached {
    /// `None` while a permanent face waits for its socket to be opened again.
    port: Option<PortId>,
    link: LinkService,
    /// In `ready`.
    waiting: bool,
    on_demand: bool,
    /// A caller whose frames have not shown yet whether it takes part in link reliability. Until
    /// they do it gets plain frames: many programs read nothing else.
    answers_in_kind: bool,
    last_heard: Time,
    /// The link's deadline as it stands in the timers.
    deadline: Option<Time>,
    /// Nothing is lost on it, and it ends when the program at its other end does.
    stream: bool,
    reopen_after: Duration,
    /// Largest frame that the port takes, bytes.
    port_mtu: usize,
    /// Largest frame that somebody wants, bytes.
    wanted_mtu: Option<usize>,
    /// What it was opened to, if this router did.
    endpoint: Option<Endpoint>,
    /// When the forwarder was last told of the link's state.
    state_told: Time,
}

/// True for a frame with a number to be acknowledged, or with the announcement of the adaptive
/// profile.
fn speaks_of_reliability(frame: &[u8]) -> bool {
    frame.first() == Some(&(types::LP_PACKET as u8))
        && LpPacket::decode(frame, true).is_ok_and(|packet| {
            packet.link.tx_sequence.is_some() || packet.link.adaptive_hello.is_some()
        })
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Timer {
    Link(FaceId),
    Idle,
    Reopen(FaceId),
    /// Ports that the configuration wants and that could not be opened are asked for again.
    AskAgain,
}

/// A whole NDN router but its sockets.
pub struct NdnRouter {
    forwarder: Forwarder,
    config: NdnRouterConfig,
    rng: SeededRng,
    faces: BTreeMap<FaceId, Attached>,
    ports: BTreeMap<PortId, FaceId>,
    /// Faces that management or the configuration asked for, until their port is up.
    asked: BTreeMap<PortToken, Asked>,
    next_token: u64,
    /// Configured faces that could not be opened.
    to_ask_again: Vec<Asked>,
    /// Faces whose links may have something to send.
    ready: VecDeque<FaceId>,
    timers: TimerQueue<Timer>,
    port_requests: VecDeque<PortRequest>,
    refused_callers: u64,
    routes: Vec<ConfiguredRoute>,
}

/// What management needs of the faces; it works on them once the forwarder has returned.
struct Links<'a> {
    faces: &'a BTreeMap<FaceId, Attached>,
    requests: Vec<FaceRequest>,
}

impl FaceHost for Links<'_> {
    fn link_counters(&self, face: FaceId) -> LinkCounters {
        let attached = self.faces.get(&face);
        attached.map_or_else(LinkCounters::default, |attached| {
            faces::counters(&attached.link)
        })
    }

    fn request(&mut self, request: FaceRequest) {
        self.requests.push(request);
    }
}

#[derive(Clone, Debug)]
struct ConfiguredRoute {
    prefix: Name,
    endpoint: Endpoint,
    cost: u64,
}

impl NdnRouter {
    /// A router without faces.
    pub fn new(config: NdnRouterConfig, mut rng: SeededRng) -> NdnRouter {
        let forwarder = Forwarder::new(
            config.forwarder.clone(),
            config.wall,
            SeededRng::new(rng.next_word()),
        );
        NdnRouter {
            forwarder,
            config,
            rng,
            faces: BTreeMap::new(),
            ports: BTreeMap::new(),
            asked: BTreeMap::new(),
            next_token: 0,
            to_ask_again: Vec::new(),
            ready: VecDeque::new(),
            timers: TimerQueue::new(),
            port_requests: VecDeque::new(),
            refused_callers: 0,
            routes: Vec::new(),
        }
    }

    /// The forwarding plane, for routes and strategies of the configuration, and to look at.
    pub fn forwarder(&self) -> &Forwarder {
        &self.forwarder
    }

    /// The forwarding plane, to be changed.
    pub fn forwarder_mut(&mut self) -> &mut Forwarder {
        &mut self.forwarder
    }

    /// Callers that were turned away because there were too many faces.
    pub fn refused_callers(&self) -> u64 {
        self.refused_callers
    }

    /// The link of a face, to look at.
    pub fn link(&self, face: FaceId) -> Option<&LinkService> {
        self.faces.get(&face).map(|attached| &attached.link)
    }

    /// The face on a port.
    pub fn face_of(&self, port: PortId) -> Option<FaceId> {
        self.ports.get(&port).copied()
    }

    fn port_up(&mut self, now: Time, port: PortId, info: &PortInfo) {
        let asked = match info.origin {
            PortOrigin::Opened(token) => self.asked.remove(&token),
            _ => None,
        };
        if let Some(face) = asked.as_ref().and_then(|asked| asked.settings.reopened) {
            return self.port_back(now, port, face, info);
        }
        if info.origin.is_caller() && self.faces.len() >= self.config.max_faces {
            self.refused_callers += 1;
            return self.port_requests.push_back(PortRequest::Close(port));
        }
        let (settings, endpoint, request) = match asked {
            Some(asked) => (asked.settings, Some(asked.endpoint), asked.request),
            None => (FaceSettings::unasked(info), None, None),
        };
        let spec = faces::spec(info, &settings);
        let link = faces::link_config(&self.config.link, info, &spec, settings.reliability);
        let link = match settings.device {
            Some(device) => device.of(link),
            None => link,
        };
        let stream = matches!(link.frames, FrameKind::Stream { .. });
        let point_to_point = spec.link_type == LinkType::PointToPoint;
        let on_demand = spec.persistency == Persistency::OnDemand;
        let face = self.forwarder.add_face(now, spec);
        let link = LinkService::new(link, SeededRng::new(self.rng.next_word()));
        let attached = Attached {
            port: Some(port),
            link,
            waiting: false,
            on_demand,
            answers_in_kind: on_demand && point_to_point && !stream,
            last_heard: now,
            deadline: None,
            stream,
            reopen_after: REOPEN,
            port_mtu: info.mtu,
            wanted_mtu: settings.mtu,
            endpoint,
            state_told: now,
        };
        self.faces.insert(face, attached);
        self.ports.insert(port, face);
        if on_demand {
            self.timers.set_earlier(Timer::Idle, now + IDLE_CHECK);
        }
        self.route_configured(face);
        if let Some(request) = request {
            self.forwarder.face_created(now, request, &Ok(face));
        }
    }

    fn port_back(&mut self, now: Time, port: PortId, face: FaceId, info: &PortInfo) {
        let Some(attached) = self.faces.get_mut(&face) else {
            // The face was destroyed meanwhile.
            return self.port_requests.push_back(PortRequest::Close(port));
        };
        attached.port = Some(port);
        attached.reopen_after = REOPEN;
        attached.last_heard = now;
        attached.port_mtu = info.mtu;
        attached.link.set_blocked(false);
        self.ports.insert(port, face);
        self.fit_mtu(face);
        self.forwarder.set_face_up(now, face, true);
        self.wake(face);
    }

    fn port_down(&mut self, now: Time, port: PortId) {
        let Some(face) = self.ports.remove(&port) else {
            return;
        };
        match (self.way_back(face), self.faces.get_mut(&face)) {
            (Some(endpoint), Some(attached)) => {
                attached.port = None;
                attached.endpoint = Some(endpoint);
                attached.link.set_blocked(true);
                self.forwarder.set_face_up(now, face, false);
                self.reopen_later(now, face);
            }
            _ => self.forget(now, face),
        }
    }

    /// What a permanent face is opened to when its port is lost. A peer that called is called
    /// back; a group, or what has no address, cannot be.
    fn way_back(&self, face: FaceId) -> Option<Endpoint> {
        let spec = &self.forwarder.face(face)?.spec;
        if spec.persistency != Persistency::Permanent {
            return None;
        }
        let opened = self.faces.get(&face)?.endpoint.clone();
        opened.or_else(|| {
            let remote: FaceUri = spec.remote_uri.parse().ok()?;
            let local = spec.local_uri.parse().ok();
            (!remote.is_multicast())
                .then(|| endpoint(&remote, local.as_ref()).ok())
                .flatten()
        })
    }

    fn reopen_later(&mut self, now: Time, face: FaceId) {
        let Some(attached) = self.faces.get_mut(&face) else {
            return;
        };
        self.timers
            .set(Timer::Reopen(face), now + attached.reopen_after);
        attached.reopen_after = (attached.reopen_after * 2).min(SLOWEST_REOPEN);
    }

    /// Ends a face; its port, if it has one, is closed by the caller or has gone.
    fn forget(&mut self, now: Time, face: FaceId) {
        self.faces.remove(&face);
        self.timers.cancel(&Timer::Link(face));
        self.timers.cancel(&Timer::Reopen(face));
        self.forwarder.remove_face(now, face);
    }

    fn reopen(&mut self, face: FaceId) {
        let endpoint = self.faces.get(&face).and_then(|it| it.endpoint.clone());
        let spec = self.forwarder.face(face).map(|face| &face.spec);
        if let (Some(endpoint), Some(spec)) = (endpoint, spec) {
            let settings = FaceSettings {
                reopened: Some(face),
                ..FaceSettings::of(spec)
            };
            self.ask(endpoint, settings);
        }
    }

    /// Names that begin with `prefix` go to the face that [`NdnRouter::ask`] opens to `endpoint`,
    /// as soon as there is one.
    pub fn route_to(&mut self, prefix: Name, endpoint: Endpoint, cost: u64) {
        self.routes.push(ConfiguredRoute {
            prefix,
            endpoint,
            cost,
        });
    }

    /// Configured routes to a face that has come up.
    fn route_configured(&mut self, face: FaceId) {
        let endpoint = self.faces.get(&face).and_then(|it| it.endpoint.as_ref());
        let Some(endpoint) = endpoint else {
            return;
        };
        let to_it = self
            .routes
            .iter()
            .filter(|route| route.endpoint == *endpoint);
        for ConfiguredRoute { prefix, cost, .. } in to_it.cloned().collect::<Vec<_>>() {
            let key = RouteKey {
                face,
                origin: RouteOrigin::STATIC,
            };
            let route = Route {
                cost,
                flags: ROUTE_CHILD_INHERIT,
                expires: None,
            };
            if let Err(error) = self.forwarder.register_route(prefix, key, route) {
                tracing::warn!(%error, "a configured route cannot be added");
            }
        }
    }

    /// Has a port opened for a face, for the configuration or for a face that was lost.
    pub fn ask(&mut self, endpoint: Endpoint, settings: FaceSettings) {
        let token = self.expect(endpoint.clone(), settings, None);
        self.request_port(token, endpoint);
    }

    /// A face with these settings is to be on the port that comes up with the token returned. The
    /// caller sees to it that one does: a scenario that connects nodes itself.
    pub fn ask_connected(&mut self, endpoint: Endpoint, settings: FaceSettings) -> PortToken {
        self.expect(endpoint, settings, None)
    }

    fn expect(
        &mut self,
        endpoint: Endpoint,
        settings: FaceSettings,
        request: Option<RequestId>,
    ) -> PortToken {
        let token = PortToken(self.next_token);
        self.next_token += 1;
        let asked = Asked {
            settings,
            endpoint,
            request,
        };
        self.asked.insert(token, asked);
        token
    }

    fn ask_later(&mut self, now: Time, asked: Asked) {
        self.to_ask_again.push(asked);
        self.timers.set_earlier(Timer::AskAgain, now + ASK_AGAIN);
    }

    fn request_port(&mut self, token: PortToken, endpoint: Endpoint) {
        self.port_requests.push_back(PortRequest::Open {
            token,
            label: format!("face to {endpoint}"),
            endpoint,
        });
    }

    fn face_request(&mut self, now: Time, request: FaceRequest) {
        match request {
            FaceRequest::Create {
                request,
                remote,
                local,
                settings,
            } => {
                let configured = self.config.link.reliability;
                let settings = FaceSettings::wished(&settings, configured);
                match endpoint(&remote, local.as_ref()) {
                    Ok(endpoint) => {
                        let token = self.expect(endpoint.clone(), settings, Some(request));
                        self.request_port(token, endpoint);
                    }
                    Err(why) => self.forwarder.face_created(now, request, &Err(why)),
                }
            }
            FaceRequest::Update { face, settings } => {
                if let (Some(mtu), Some(attached)) = (settings.mtu, self.faces.get_mut(&face)) {
                    attached.wanted_mtu = usize::try_from(mtu).ok();
                    self.fit_mtu(face);
                }
                self.face_changed(now, face);
            }
            FaceRequest::Destroy(face) => {
                if let Some(port) = self.faces.get(&face).and_then(|attached| attached.port) {
                    self.ports.remove(&port);
                    self.port_requests.push_back(PortRequest::Close(port));
                }
                self.forget(now, face);
            }
        }
    }

    fn face_changed(&mut self, now: Time, face: FaceId) {
        let (Some(attached), Some(found)) = (self.faces.get_mut(&face), self.forwarder.face(face))
        else {
            return;
        };
        let configured = self.config.link.reliability;
        attached
            .link
            .set_reliability(faces::reliability(configured, &found.spec));
        let persistency = found.spec.persistency;
        let was_on_demand = attached.on_demand;
        attached.on_demand = persistency == Persistency::OnDemand;
        match attached.port {
            // Only a permanent face outlives its port.
            None if persistency != Persistency::Permanent => self.forget(now, face),
            Some(port) if was_on_demand && !attached.on_demand => {
                self.port_requests.push_back(PortRequest::Keep(port));
            }
            _ if attached.on_demand => self.timers.set_earlier(Timer::Idle, now + IDLE_CHECK),
            _ => {}
        }
    }

    /// Frames of a face are as large as its port takes, or less if somebody wants them so.
    fn fit_mtu(&mut self, face: FaceId) {
        if let (Some(attached), Some(found)) =
            (self.faces.get_mut(&face), self.forwarder.face_mut(face))
            && let Some(told) = &mut found.spec.mtu
        {
            let wanted = attached.wanted_mtu.unwrap_or(usize::MAX);
            *told = attached.port_mtu.min(wanted);
            attached.link.set_mtu(*told);
        }
    }

    fn wake(&mut self, face: FaceId) {
        if let Some(attached) = self.faces.get_mut(&face)
            && !attached.waiting
        {
            attached.waiting = true;
            self.ready.push_back(face);
        }
    }

    /// Tells the forwarder of a face's rate, queue and loss, now and then.
    fn note_link_state(&mut self, now: Time, face: FaceId) {
        if let Some(attached) = self.faces.get_mut(&face)
            && now.since(attached.state_told) >= LINK_STATE_INTERVAL
        {
            attached.state_told = now;
            let state = attached.link.state(now);
            self.forwarder.set_link_state(now, face, state);
        }
    }

    /// Keeps the timer of a face's link as the link states it.
    fn note_deadline(&mut self, face: FaceId) {
        let Some(attached) = self.faces.get_mut(&face) else {
            return;
        };
        let deadline = attached.link.poll_timeout().map(|deadline| deadline.at);
        if deadline == attached.deadline {
            return;
        }
        attached.deadline = deadline;
        match deadline {
            Some(at) => self.timers.set(Timer::Link(face), at),
            None => {
                self.timers.cancel(&Timer::Link(face));
            }
        }
    }

    /// Moves what the forwarder has to send to the links, and does what management wants.
    fn pump(&mut self, now: Time) {
        if self.forwarder.has_management_work() {
            let mut links = Links {
                faces: &self.faces,
                requests: Vec::new(),
            };
            self.forwarder.run_management(now, &mut links);
            for request in links.requests {
                self.face_request(now, request);
            }
        }
        while let Some((face, out)) = self.forwarder.poll_send() {
            let Some(attached) = self.faces.get_mut(&face) else {
                continue;
            };
            attached.link.send(now, out.packet, out.header);
            if !attached.waiting {
                attached.waiting = true;
                self.ready.push_back(face);
            }
        }
    }

    fn drop_undelivered(&mut self, now: Time, face: FaceId) {
        let Some(attached) = self.faces.get_mut(&face) else {
            return;
        };
        while let Some(event) = attached.link.poll_event() {
            match event {
                LinkEvent::GaveUp(packet) => self.forwarder.handle_dropped(now, face, &packet),
            }
        }
    }

    fn expire_idle(&mut self, now: Time) {
        let silent = self.config.idle_timeout;
        let mut any_on_demand = false;
        let mut ended = Vec::new();
        for (face, attached) in self.faces.iter().filter(|(_, attached)| attached.on_demand) {
            any_on_demand = true;
            // A stream ends when its program does; datagrams only fall silent.
            if attached.last_heard + silent <= now && !attached.stream {
                ended.extend(attached.port.map(|port| (*face, port)));
            }
        }
        for (face, port) in ended {
            self.ports.remove(&port);
            self.forget(now, face);
            self.port_requests.push_back(PortRequest::Close(port));
        }
        if any_on_demand {
            self.timers.set(Timer::Idle, now + IDLE_CHECK);
        }
    }

    fn handle_frame(&mut self, now: Time, port: PortId, frame: &[u8]) {
        let Some(face) = self.ports.get(&port).copied() else {
            return;
        };
        let Some(attached) = self.faces.get_mut(&face) else {
            return;
        };
        attached.last_heard = now;
        if attached.answers_in_kind && speaks_of_reliability(frame) {
            attached.answers_in_kind = false;
            attached.link.set_reliability(self.config.link.reliability);
        }
        let forwarder = &mut self.forwarder;
        attached.link.handle_frame(now, frame, &mut |packet| {
            forwarder.handle_packet(now, face, packet)
        });
        // An acknowledgement may be due at once.
        if !attached.stream {
            if !attached.waiting {
                attached.waiting = true;
                self.ready.push_back(face);
            }
            // Its deadline is read once it has transmitted.
            self.drop_undelivered(now, face);
        }
    }
}

impl Machine for NdnRouter {
    type Event = core::convert::Infallible;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        let attached = self.ports.get(&port).copied();
        match (event, attached) {
            (PortEvent::Up(info), _) => self.port_up(now, port, &info),
            (PortEvent::Down, _) => self.port_down(now, port),
            (event, Some(face)) => {
                let Some(attached) = self.faces.get_mut(&face) else {
                    return;
                };
                match event {
                    PortEvent::Mtu(mtu) => {
                        attached.port_mtu = mtu;
                        self.fit_mtu(face);
                    }
                    PortEvent::Blocked => attached.link.set_blocked(true),
                    _ => attached.link.set_blocked(false),
                }
                self.wake(face);
            }
            (_, None) => {}
        }
    }

    fn handle_refusal(&mut self, now: Time, token: PortToken, refusal: OpenRefusal) {
        let Some(asked) = self.asked.remove(&token) else {
            return;
        };
        tracing::warn!(endpoint = %asked.endpoint, %refusal, "a face cannot be opened");
        let why = match refusal {
            OpenRefusal::Unsupported(why) => FaceFailure::Unsupported(why),
            OpenRefusal::Failed(why) => FaceFailure::Failed(why),
        };
        match (asked.settings.reopened, asked.request) {
            (Some(face), _) => self.reopen_later(now, face),
            (None, Some(request)) => self.forwarder.face_created(now, request, &Err(why)),
            // A configured face is wanted for good: its peer, or the name service, may be away.
            (None, None) => self.ask_later(now, asked),
        }
    }

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        let Some(face) = self.ports.get(&port).copied() else {
            return;
        };
        let mut batch: SmallVec<[(FaceId, LpPacket<'_>); PACKETS_AT_ONCE]> = SmallVec::new();
        for frame in frames {
            let Some(attached) = self.faces.get_mut(&face) else {
                break;
            };
            let plain = if attached.answers_in_kind && speaks_of_reliability(frame) {
                None
            } else {
                attached.link.handle_plain_frame(frame)
            };
            match plain {
                Some(packet) => {
                    attached.last_heard = now;
                    batch.push((face, packet));
                }
                None => {
                    self.forwarder.handle_packets(now, &batch);
                    batch.clear();
                    self.handle_frame(now, port, frame);
                }
            }
        }
        self.forwarder.handle_packets(now, &batch);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.forwarder.handle_timeout(now);
        let mut pass = self.timers.pass(now);
        while let Some((_, timer)) = pass.next(&mut self.timers) {
            match timer {
                Timer::Link(face) => {
                    if let Some(attached) = self.faces.get_mut(&face) {
                        attached.deadline = None;
                        attached.link.handle_timeout(now);
                    }
                    self.drop_undelivered(now, face);
                    // A link may want to transmit now: its deadline is read when it has, else it
                    // would be due again at once.
                    self.wake(face);
                }
                Timer::Idle => self.expire_idle(now),
                Timer::Reopen(face) => self.reopen(face),
                Timer::AskAgain => {
                    for asked in core::mem::take(&mut self.to_ask_again) {
                        self.ask(asked.endpoint, asked.settings);
                    }
                }
            }
        }
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.pump(now);
        while let Some(face) = self.ready.front().copied() {
            let sent = self.faces.get_mut(&face).and_then(|attached| {
                let port = attached.port?;
                let written = attached.link.poll_transmit(now, max_segments, buffer)?;
                Some(Transmit {
                    port,
                    size: written.size,
                    segment_size: written.segment_size,
                })
            });
            self.note_deadline(face);
            self.note_link_state(now, face);
            match sent {
                // The others take their turn first.
                Some(transmit) => {
                    self.ready.rotate_left(1);
                    return Some(transmit);
                }
                None => {
                    self.ready.pop_front();
                    if let Some(attached) = self.faces.get_mut(&face) {
                        attached.waiting = false;
                    }
                }
            }
        }
        None
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        self.port_requests.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let own = self.timers.next().map(|(at, timer)| {
            let reason = match timer {
                Timer::Link(_) => "link",
                Timer::Idle => "idle faces",
                Timer::Reopen(_) => "face to be opened again",
                Timer::AskAgain => "configured face to be asked for again",
            };
            Deadline::new(at, reason)
        });
        Deadline::earlier(self.forwarder.poll_timeout(), own)
    }
}
