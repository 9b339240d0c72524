//! The forwarder and the link services of its faces, as one machine.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;
use whimbrel_core::{
    Deadline, Machine, PortEvent, PortId, PortInfo, PortKind, PortRequest, SeededRng, Time,
    TimerQueue, Transmit, WallClock,
};
use whimbrel_forwarder::mgmt::{FaceFailure, FaceHost, FaceRequest, LinkCounters, RequestId};
use whimbrel_forwarder::rib::{Route, RouteKey};
use whimbrel_forwarder::{FaceId, FaceUri, Forwarder, ForwarderConfig, LinkType, Persistency};
use whimbrel_link::ndnlp::{ADAPTIVE_HELLO, FrameKind, LinkEvent, LinkService, LinkServiceConfig};
use whimbrel_ndn_mgmt::{ROUTE_CHILD_INHERIT, RouteOrigin};

use whimbrel_ndn_packet::{LpPacket, Name, types};

use super::faces::{self, FaceSettings};

/// Packets that are put together on the stack before they go to the forwarder; drivers hand in
/// about as many.
const PACKETS_AT_ONCE: usize = 32;
/// How often faces are looked at that nobody configured, for having been silent too long.
const IDLE_CHECK: Duration = Duration::from_secs(5);
/// Pause before a lost permanent face is opened again; doubles up to [`SLOWEST_REOPEN`].
const REOPEN: Duration = Duration::from_secs(1);
const SLOWEST_REOPEN: Duration = Duration::from_secs(60);

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

/// What the machine wants of the program around it.
#[derive(Debug)]
pub enum NdnEvent {
    /// A socket is to be opened; its port's label is to be [`faces::label_of`] the request. If it
    /// cannot be, [`NdnRouter::open_failed`] is to be called.
    Open(Wanted),
    /// The caller on this port is to stay, however long it is silent.
    Keep(PortId),
}

/// A socket for a face that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Names the request.
    pub request: RequestId,
    /// The other end, canonical.
    pub remote: FaceUri,
    /// This end, where it matters.
    pub local: Option<FaceUri>,
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
}

/// True for a frame with a number to be acknowledged, or with the announcement of the adaptive
/// profile.
fn speaks_of_reliability(frame: &[u8]) -> bool {
    frame.first() == Some(&(types::LP_PACKET as u8))
        && LpPacket::decode(frame, true).is_ok_and(|packet| {
            packet
                .fields()
                .any(|(typ, _)| typ == types::LP_TX_SEQUENCE || typ == ADAPTIVE_HELLO)
        })
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Timer {
    Link(FaceId),
    Idle,
    Reopen(FaceId),
}

/// A whole NDN router but its sockets.
pub struct NdnRouter {
    forwarder: Forwarder,
    config: NdnRouterConfig,
    rng: SeededRng,
    faces: BTreeMap<FaceId, Attached>,
    ports: BTreeMap<PortId, FaceId>,
    /// Faces that management or the configuration asked for, until their port is up.
    asked: BTreeMap<RequestId, FaceSettings>,
    /// Faces whose links may have something to send.
    ready: VecDeque<FaceId>,
    timers: TimerQueue<Timer>,
    events: VecDeque<NdnEvent>,
    port_requests: VecDeque<PortRequest>,
    refused_callers: u64,
    last_own_request: u64,
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
    remote: String,
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
            ready: VecDeque::new(),
            timers: TimerQueue::new(),
            events: VecDeque::new(),
            port_requests: VecDeque::new(),
            refused_callers: 0,
            last_own_request: u64::MAX,
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

    /// A socket that [`NdnEvent::Open`] asked for cannot be opened.
    pub fn open_failed(&mut self, now: Time, request: RequestId, why: FaceFailure) {
        let Some(settings) = self.asked.remove(&request) else {
            return;
        };
        tracing::warn!(?why, "a face cannot be opened");
        match settings.reopened {
            Some(face) => self.reopen_later(now, face),
            None => self.forwarder.face_created(now, request, &Err(why)),
        }
    }

    fn port_up(&mut self, now: Time, port: PortId, info: &PortInfo) {
        let request = faces::request_of(&info.label);
        let asked = request.and_then(|request| self.asked.remove(&request));
        if let Some(face) = asked.as_ref().and_then(|settings| settings.reopened) {
            return self.port_back(now, port, face, info);
        }
        if info.kind == PortKind::Caller && self.faces.len() >= self.config.max_faces {
            self.refused_callers += 1;
            return self.port_requests.push_back(PortRequest::Close(port));
        }
        let settings = asked.unwrap_or_else(|| FaceSettings::unasked(info));
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
        attached.link.set_mtu(info.mtu);
        attached.link.set_blocked(false);
        self.ports.insert(port, face);
        self.forwarder.set_face_up(now, face, true);
        self.wake(face);
    }

    fn port_down(&mut self, now: Time, port: PortId) {
        let Some(face) = self.ports.remove(&port) else {
            return;
        };
        let permanent = self
            .forwarder
            .face(face)
            .is_some_and(|face| face.spec.persistency == Persistency::Permanent);
        match self.faces.get_mut(&face) {
            Some(attached) if permanent => {
                attached.port = None;
                attached.link.set_blocked(true);
                self.forwarder.set_face_up(now, face, false);
                self.reopen_later(now, face);
            }
            Some(_) => self.forget(now, face),
            None => {}
        }
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
        let Some(spec) = self.forwarder.face(face).map(|face| face.spec.clone()) else {
            return;
        };
        let Ok(remote) = spec.remote_uri.parse() else {
            return;
        };
        let settings = FaceSettings {
            reopened: Some(face),
            ..FaceSettings::of(&spec)
        };
        // An address that the system chose is chosen again; an interface was the user's choice.
        let local = spec
            .local_uri
            .parse()
            .ok()
            .filter(|uri| matches!(uri, FaceUri::Dev(_)));
        self.ask(remote, local, settings);
    }

    /// Names that begin with `prefix` go to the face whose other end is `remote`, as soon as there
    /// is one.
    pub fn route_to(&mut self, prefix: Name, remote: String, cost: u64) {
        self.routes.push(ConfiguredRoute {
            prefix,
            remote,
            cost,
        });
    }

    /// Configured routes to a face that has come up.
    fn route_configured(&mut self, face: FaceId) {
        let Some(remote) = self.forwarder.face(face).map(|face| &face.spec.remote_uri) else {
            return;
        };
        let to_it = self.routes.iter().filter(|route| route.remote == *remote);
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

    /// Has a socket opened, for the configuration or for a face that was lost.
    pub fn ask(
        &mut self,
        remote: FaceUri,
        local: Option<FaceUri>,
        settings: FaceSettings,
    ) -> RequestId {
        // Management counts its requests upwards.
        self.last_own_request -= 1;
        let request = RequestId(self.last_own_request);
        self.asked.insert(request, settings);
        self.events.push_back(NdnEvent::Open(Wanted {
            request,
            remote,
            local,
        }));
        request
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
                self.asked
                    .insert(request, FaceSettings::wished(&settings, configured));
                self.events.push_back(NdnEvent::Open(Wanted {
                    request,
                    remote,
                    local,
                }));
            }
            FaceRequest::Update { face, .. } => self.face_changed(face),
            FaceRequest::Destroy(face) => {
                if let Some(port) = self.faces.get(&face).and_then(|attached| attached.port) {
                    self.ports.remove(&port);
                    self.port_requests.push_back(PortRequest::Close(port));
                }
                self.forget(now, face);
            }
        }
    }

    fn face_changed(&mut self, face: FaceId) {
        let (Some(attached), Some(found)) = (self.faces.get_mut(&face), self.forwarder.face(face))
        else {
            return;
        };
        let configured = self.config.link.reliability;
        attached
            .link
            .set_reliability(faces::reliability(configured, &found.spec));
        if let Some(mtu) = found.spec.mtu {
            attached.link.set_mtu(mtu);
        }
        let stays = found.spec.persistency != Persistency::OnDemand;
        if attached.on_demand && stays {
            attached.on_demand = false;
            self.events.extend(attached.port.map(NdnEvent::Keep));
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
}

impl Machine for NdnRouter {
    type Event = NdnEvent;

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
                    PortEvent::Mtu(mtu) => attached.link.set_mtu(mtu),
                    PortEvent::Blocked => attached.link.set_blocked(true),
                    _ => attached.link.set_blocked(false),
                }
                self.wake(face);
            }
            (_, None) => {}
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
        while let Some((_, timer)) = self.timers.pop_due(now) {
            match timer {
                Timer::Link(face) => {
                    if let Some(attached) = self.faces.get_mut(&face) {
                        attached.deadline = None;
                        attached.link.handle_timeout(now);
                    }
                    self.drop_undelivered(now, face);
                    // A link may want to transmit now: its deadline is read when it has, else it
                    // would be due again at once, and this loop would never end.
                    self.wake(face);
                }
                Timer::Idle => self.expire_idle(now),
                Timer::Reopen(face) => self.reopen(face),
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

    fn poll_event(&mut self) -> Option<NdnEvent> {
        self.events.pop_front()
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
            };
            Deadline::new(at, reason)
        });
        Deadline::earlier(self.forwarder.poll_timeout(), own)
    }
}
