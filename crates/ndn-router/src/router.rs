//! The forwarder and the link services of its faces, as one machine.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Arc;

use smallvec::SmallVec;
use whimbrel_core::{
    Deadline, Endpoint, Machine, OpenRefusal, PortEvent, PortId, PortInfo, PortOrigin, PortRequest,
    PortToken, SeededRng, Time, Transmit, WallClock,
};
use whimbrel_forwarder::mgmt::{FaceFailure, FaceRequest};
use whimbrel_forwarder::rib::{Route, RouteKey};
use whimbrel_forwarder::{FaceId, Forwarder, ForwarderConfig, LinkType, Persistency};
use whimbrel_link::ndnlp::{FrameKind, LinkService, LinkServiceConfig};
use whimbrel_ndn_mgmt::{FaceUri, ROUTE_CHILD_INHERIT, RouteOrigin};
use whimbrel_ndn_packet::{LpPacket, Name};

use crate::admission::{Admission, Room};
use crate::attached::{Attached, Links, Table};
use crate::caller::Caller;
use crate::endpoint::endpoint;
use crate::faces::{self, FaceSettings};
use crate::gate::NewcomerGate;
use crate::idle::Idle;
use crate::opening::{Asked, Opening};

/// Packets that are collected on the stack before they go to the forwarder; drivers pass in about
/// as many.
const PACKETS_AT_ONCE: usize = 32;

/// The configuration of an [`NdnRouter`].
pub struct NdnRouterConfig {
    /// Of the forwarding plane.
    pub forwarder: ForwarderConfig,
    /// Of every face's link, unless its own settings override it.
    pub link: LinkServiceConfig,
    /// Accepted faces end after this silence.
    pub idle_timeout: Duration,
    /// Maximum of faces. Inbound peers have shares of them by kind: half for those that send
    /// datagrams, a quarter for those at the other end of a stream, and the rest for programs of
    /// this machine. Beyond these, a face that is silent gives way, or the newcomer is refused.
    pub max_faces: usize,
    /// Maximum of octets that wait in the queues of all faces together, beside one packet for each.
    /// A queue may hold as many as are left of them.
    pub max_queued: usize,
    /// The relation of [`Time`] to Unix time.
    pub wall: WallClock,
}

/// A whole NDN router without its sockets.
pub struct NdnRouter {
    forwarder: Forwarder,
    config: NdnRouterConfig,
    rng: SeededRng,
    table: Table,
    opening: Opening,
    idle: Idle,
    admission: Admission,
    refused_callers: u64,
    evicted_callers: u64,
    kept_out: Arc<AtomicU64>,
    routes: Vec<ConfiguredRoute>,
}

#[derive(Clone, Debug)]
struct ConfiguredRoute {
    prefix: Name,
    endpoint: Endpoint,
    cost: u64,
}

impl NdnRouter {
    /// Returns a router without faces.
    pub fn new(config: NdnRouterConfig, mut rng: SeededRng) -> NdnRouter {
        let forwarder = Forwarder::new(
            config.forwarder.clone(),
            config.wall,
            SeededRng::new(rng.next_word()),
        );
        NdnRouter {
            forwarder,
            rng,
            table: Table::new(config.max_queued),
            opening: Opening::default(),
            idle: Idle::new(config.idle_timeout),
            admission: Admission::new(config.max_faces),
            config,
            refused_callers: 0,
            evicted_callers: 0,
            kept_out: Arc::default(),
            routes: Vec::new(),
        }
    }

    /// Returns the forwarding plane, read-only.
    pub fn forwarder(&self) -> &Forwarder {
        &self.forwarder
    }

    /// The forwarding plane, mutable: for configured routes and strategies.
    pub fn forwarder_mut(&mut self) -> &mut Forwarder {
        &mut self.forwarder
    }

    /// Inbound peers that were refused because there were too many faces.
    pub fn refused_callers(&self) -> u64 {
        self.refused_callers
    }

    /// The gate of a UDP listener of this router.
    pub fn gate(&self) -> NewcomerGate {
        NewcomerGate::new(Arc::clone(&self.kept_out))
    }

    /// Datagrams of unknown senders that the gates dropped.
    pub fn kept_out(&self) -> u64 {
        self.kept_out.load(Ordering::Relaxed)
    }

    /// Inbound peers whose faces gave way to others.
    pub fn evicted_callers(&self) -> u64 {
        self.evicted_callers
    }

    /// Octets that wait in the queues of all faces.
    pub fn queued_octets(&self) -> usize {
        self.table.queued()
    }

    /// Returns the link of a face, read-only.
    pub fn link(&self, face: FaceId) -> Option<&LinkService> {
        self.table.get(face).map(|attached| &attached.link)
    }

    /// Returns the face on a port.
    pub fn face_of(&self, port: PortId) -> Option<FaceId> {
        self.table.face_of(port)
    }

    fn port_up(&mut self, now: Time, port: PortId, info: &PortInfo) {
        let asked = match info.origin {
            PortOrigin::Opened(token) => self.opening.answered(token),
            _ => None,
        };
        if let Some(face) = asked.as_ref().and_then(|asked| asked.settings.reopened) {
            return self.port_back(now, port, face, info);
        }
        let caller = Caller::of(info);
        if caller.is_some_and(|caller| !self.make_room(now, caller)) {
            self.refused_callers += 1;
            return self.opening.request(PortRequest::Close(port));
        }
        let (settings, endpoint, request) = match asked {
            Some(asked) => (asked.settings, Some(asked.endpoint), asked.request),
            None => (FaceSettings::unasked(info), None, None),
        };
        let spec = faces::spec(info, &settings, endpoint.as_ref());
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
        let mut attached = Attached::new(now, port, info.mtu, link);
        attached.stream = stream;
        attached.on_demand = on_demand;
        attached.wanted_mtu = settings.mtu;
        attached.endpoint = endpoint;
        attached.caller = caller;
        if let Some(caller) = caller {
            self.admission.add(caller);
        }
        if on_demand && point_to_point && !stream {
            attached.answer_in_kind();
        }
        self.table.insert(face, attached);
        if on_demand {
            self.idle.watch(now);
        }
        self.route_configured(face);
        if let Some(request) = request {
            self.forwarder.face_created(now, request, &Ok(face));
        }
    }

    /// Returns true if there is room for an inbound peer, perhaps because another gave way.
    fn make_room(&mut self, now: Time, caller: Caller) -> bool {
        let Room::After { same_network } = self.admission.room(caller, self.table.len()) else {
            return true;
        };
        let rib = self.forwarder.rib();
        let has_routes = |face| rib.routes_of(face) > 0;
        let (admission, table) = (&mut self.admission, &self.table);
        match admission.victim(now, caller, same_network, table, has_routes) {
            Some(face) => {
                self.close(now, face);
                self.evicted_callers += 1;
                true
            }
            None => false,
        }
    }

    fn port_back(&mut self, now: Time, port: PortId, face: FaceId, info: &PortInfo) {
        if self.table.get(face).is_none() {
            // The face was destroyed meanwhile.
            return self.opening.request(PortRequest::Close(port));
        }
        self.opening.forget(face);
        self.table.connect(now, face, port, info.mtu);
        self.fit_mtu(face);
        self.forwarder.set_face_up(now, face, true);
        self.table.wake(face);
    }

    fn port_down(&mut self, now: Time, port: PortId) {
        let Some(face) = self.table.face_of(port) else {
            return;
        };
        match self.way_back(face) {
            Some(endpoint) => {
                self.table.disconnect(face, endpoint);
                self.forwarder.set_face_up(now, face, false);
                self.opening.reopen_later(now, face);
            }
            None => {
                self.forget(now, face);
            }
        }
    }

    /// Returns the endpoint for reopening a permanent face when its port is lost. An inbound peer
    /// is connected to; this is impossible for a group, or a peer without an address.
    fn way_back(&self, face: FaceId) -> Option<Endpoint> {
        let spec = &self.forwarder.face(face)?.spec;
        if spec.persistency != Persistency::Permanent {
            return None;
        }
        let opened = self.table.get(face)?.endpoint.clone();
        opened.or_else(|| {
            let remote: FaceUri = spec.remote_uri.parse().ok()?;
            let local = spec.local_uri.parse().ok();
            (!remote.is_multicast())
                .then(|| endpoint(&remote, local.as_ref()).ok())
                .flatten()
        })
    }

    /// Removes a face; returns its port.
    fn forget(&mut self, now: Time, face: FaceId) -> Option<PortId> {
        self.opening.forget(face);
        self.forwarder.remove_face(now, face);
        if let Some(caller) = self.table.get(face).and_then(|it| it.caller) {
            self.admission.remove(caller);
        }
        self.table.remove(face)
    }

    /// Removes a face and closes its port.
    fn close(&mut self, now: Time, face: FaceId) {
        if let Some(port) = self.forget(now, face) {
            self.opening.request(PortRequest::Close(port));
        }
    }

    fn reopen(&mut self, face: FaceId) {
        let endpoint = self.table.get(face).and_then(|it| it.endpoint.clone());
        let spec = self.forwarder.face(face).map(|face| &face.spec);
        if let (Some(endpoint), Some(spec)) = (endpoint, spec) {
            let settings = FaceSettings {
                reopened: Some(face),
                ..FaceSettings::of(spec)
            };
            self.ask(endpoint, settings);
        }
    }

    /// Adds a route for `prefix` to the face that [`NdnRouter::ask`] opens to `endpoint`, as soon
    /// as it exists.
    pub fn route_to(&mut self, prefix: Name, endpoint: Endpoint, cost: u64) {
        self.routes.push(ConfiguredRoute {
            prefix,
            endpoint,
            cost,
        });
    }

    /// Adds the configured routes of a face that has come up.
    fn route_configured(&mut self, face: FaceId) {
        let endpoint = self.table.get(face).and_then(|it| it.endpoint.as_ref());
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

    /// Requests a port for a face, for the configuration or for a lost face.
    pub fn ask(&mut self, endpoint: Endpoint, settings: FaceSettings) {
        self.opening.ask(Asked {
            settings,
            endpoint,
            request: None,
        });
    }

    /// Expects a face with these settings on the port that comes up with the returned token. The
    /// caller must provide that port: a scenario that connects nodes itself.
    pub fn ask_connected(&mut self, endpoint: Endpoint, settings: FaceSettings) -> PortToken {
        self.opening.expect(Asked {
            settings,
            endpoint,
            request: None,
        })
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
                    Ok(endpoint) => self.opening.ask(Asked {
                        settings,
                        endpoint,
                        request: Some(request),
                    }),
                    Err(why) => self.forwarder.face_created(now, request, &Err(why)),
                }
            }
            FaceRequest::Update { face, settings } => {
                if let (Some(mtu), Some(attached)) = (settings.mtu, self.table.get_mut(face)) {
                    attached.wanted_mtu = usize::try_from(mtu).ok();
                    self.fit_mtu(face);
                }
                self.face_changed(now, face);
            }
            FaceRequest::Destroy(face) => self.close(now, face),
        }
    }

    fn face_changed(&mut self, now: Time, face: FaceId) {
        let (Some(attached), Some(found)) = (self.table.get_mut(face), self.forwarder.face(face))
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
            None if persistency != Persistency::Permanent => self.close(now, face),
            Some(port) if was_on_demand && !attached.on_demand => {
                self.opening.request(PortRequest::Keep(port));
            }
            _ if attached.on_demand => self.idle.watch(now),
            _ => {}
        }
    }

    /// Sets the frame size of a face to that of its port, or a smaller one if wanted; it is smaller
    /// still if the path takes less.
    fn fit_mtu(&mut self, face: FaceId) {
        if let (Some(attached), Some(found)) =
            (self.table.get_mut(face), self.forwarder.face_mut(face))
            && let Some(told) = &mut found.spec.mtu
        {
            let wanted = attached.wanted_mtu.unwrap_or(usize::MAX);
            attached.link.set_mtu(attached.port_mtu.min(wanted));
            *told = attached.link.mtu();
        }
    }

    /// Moves packets from the forwarder to the links, and carries out management's requests.
    fn pump(&mut self, now: Time) {
        if self.forwarder.has_management_work() {
            let mut links = Links {
                table: &self.table,
                requests: Vec::new(),
            };
            self.forwarder.run_management(now, &mut links);
            for request in links.requests {
                self.face_request(now, request);
            }
        }
        while let Some((face, out)) = self.forwarder.poll_send() {
            self.table.send(now, face, out);
        }
    }
}

impl Machine for NdnRouter {
    type Event = core::convert::Infallible;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        match (event, self.table.face_of(port)) {
            (PortEvent::Up(info), _) => self.port_up(now, port, &info),
            (PortEvent::Down, _) => self.port_down(now, port),
            (event, Some(face)) => {
                let Some(attached) = self.table.get_mut(face) else {
                    return;
                };
                match event {
                    PortEvent::Mtu(mtu) => {
                        attached.port_mtu = mtu;
                        self.fit_mtu(face);
                    }
                    PortEvent::Refused | PortEvent::Carrier(_) | PortEvent::Ecn { .. } => {}
                    PortEvent::Blocked => attached.link.set_blocked(true),
                    _ => attached.link.set_blocked(false),
                }
                self.table.wake(face);
            }
            (_, None) => {}
        }
    }

    fn handle_refusal(&mut self, now: Time, token: PortToken, refusal: OpenRefusal) {
        let Some(asked) = self.opening.answered(token) else {
            return;
        };
        tracing::warn!(endpoint = %asked.endpoint, %refusal, "a face cannot be opened");
        let why = match refusal {
            OpenRefusal::Unsupported(why) => FaceFailure::Unsupported(why),
            OpenRefusal::NotPermitted(why) | OpenRefusal::Failed(why) => FaceFailure::Failed(why),
        };
        match (asked.settings.reopened, asked.request) {
            (Some(face), _) if self.table.get(face).is_some() => {
                self.opening.reopen_later(now, face);
            }
            // The face was destroyed meanwhile.
            (Some(_), _) => {}
            (None, Some(request)) => self.forwarder.face_created(now, request, &Err(why)),
            // A configured face is retried for ever: its peer, or the name service, may be away.
            (None, None) => self.opening.ask_later(now, asked),
        }
    }

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        let Some(face) = self.table.face_of(port) else {
            return;
        };
        let reliability = self.config.link.reliability;
        let mut batch: SmallVec<[(FaceId, LpPacket<'_>); PACKETS_AT_ONCE]> = SmallVec::new();
        for frame in frames {
            let Some(attached) = self.table.get_mut(face) else {
                break;
            };
            match attached.plain_packet(now, frame) {
                Some(packet) => batch.push((face, packet)),
                None => {
                    self.forwarder.handle_packets(now, &batch);
                    batch.clear();
                    let forwarder = &mut self.forwarder;
                    self.table
                        .handle_frame(now, face, frame, reliability, forwarder);
                }
            }
        }
        self.forwarder.handle_packets(now, &batch);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.forwarder.handle_timeout(now);
        self.table.handle_timeout(now, &mut self.forwarder);
        for face in self.idle.handle_timeout(now, &self.table) {
            self.close(now, face);
        }
        for face in self.opening.handle_timeout(now) {
            self.reopen(face);
        }
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.pump(now);
        self.table
            .poll_transmit(now, max_segments, buffer, &mut self.forwarder)
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        self.opening.poll_request()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let faces = Deadline::earlier(self.table.poll_timeout(), self.idle.poll_timeout());
        let own = Deadline::earlier(faces, self.opening.poll_timeout());
        Deadline::earlier(self.forwarder.poll_timeout(), own)
    }
}
