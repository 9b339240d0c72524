//! The host stack, which local programs attach to.
//!
//! The parts, each with its own state:
//!
//! | part | owns |
//! |---|---|
//! | `Access` | the links, those by which the host sends, the division of what it sends |
//! | `Registration` | the binding to access routers, announcements, memberships and services |
//! | `Downloads` | contents that programs fetch or accept |
//! | `Uploads` | contents that programs offer and send, and their receivers |
//! | `OfferedContents` | contents that others offer, until a program decides |
//! | `Messages`, `AwaitedEchoes` | short messages; echoes |
//! | `Programs` | the events that wait for programs |
//!
//! A part pushes as an `effects::Action` what is to happen beyond its state. [`Host`] dispatches events to the
//! parts, and carries their actions out. End-to-end recovery is "parsimonious" [MFTP §3.2.2]: hops are reliable,
//! so the receiver asks only when chunks have been missing for long.

mod access;
mod attach;
mod catalogue;
mod clocks;
mod config;
mod delivery;
mod download;
mod effects;
mod holds;
mod inbox;
pub mod interfaces;
mod managing;
mod memberships;
mod messages;
mod ping;
mod programs;
mod received;
mod sending;
mod services;
mod shares;
mod status;
mod upload;

use bytes::Bytes;
use whimbrel_core::{
    Deadline, Guid, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, SeededRng,
    Time, TimerQueue, Transmit, WallClock,
};
use whimbrel_link::Pacing;

use crate::links::callers::CallersStatus;
use crate::links::{ChunkToSend, LEFT_OVER, LinkEvent, MAX_TURNS};
use crate::local::{LocalEvent, LocalRequest, ReadChunk};
use crate::taken::MIN_GUARD;
use crate::wire::{ServiceId, Transport};
use access::Access;
use attach::{Registration, Terms};
use catalogue::Offer;
pub use clocks::ClockDifference;
pub use config::HostConfig;
use download::{DownloadLimits, Downloads};
use effects::{Effects, Located};
use inbox::OfferedContents;
pub use interfaces::LinkPolicy;
use messages::{Messages, ProgramMessage};
use ping::{AwaitedEchoes, EchoRequest};
use programs::Programs;
pub use status::{DownloadStatus, GroupStatus, HostCounters, HostStatus, InboxStatus, PushStatus};
use upload::Uploads;

/// A local program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum App {
    /// Behind a Unix socket.
    Port(PortId),
    /// In this process, with a number of its choice.
    Inner(u32),
}

/// An event for a program in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEvent {
    /// The program's number.
    pub app: u32,
    /// The event.
    pub event: LocalEvent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Renewal,
    Announcements,
    Download(u64),
    Uploads,
    Interfaces,
    Offers,
}

/// The way by which a chunk leaves this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// By the preferred router that answers, or to the host that this one was told to ask.
    Uplink,
    /// Back to the inbound peer on this port, whatever name it claims: a name in a greeting or a
    /// header proves nothing, so what is sent to that name by the uplink is independent of it.
    Caller(PortId),
}

/// A MobilityFirst host as a state machine, which connects parts that own their state.
pub struct Host {
    guid: Guid,
    access: Access,
    registration: Registration,
    downloads: Downloads,
    uploads: Uploads,
    inbox: OfferedContents,
    pings: AwaitedEchoes,
    messages: Messages,
    programs: Programs,
    timers: TimerQueue<Timer>,
    // Set if work was left over in `drain`.
    left_over: Option<Time>,
    effects: Effects,
}

impl Host {
    /// Returns a host without ports. `rng` is its only source of randomness.
    pub fn new(config: HostConfig, mut rng: SeededRng) -> Host {
        let guid = config.keys.guid();
        let access = Access::new(&config, &mut rng);
        let terms = Terms {
            keys: config.keys,
            binding_lifetime: config.binding_lifetime,
            announcement_lifetime: config.announcement_lifetime,
        };
        let limits = DownloadLimits {
            content: config.content_limit,
            transfers: config.max_transfers,
            nack_timeout: config.nack_timeout,
            buffer_packets: config.buffer_packets,
            window: config.window,
        };
        Host {
            guid,
            access,
            registration: Registration::new(terms, config.wall),
            downloads: Downloads::new(limits, &mut rng),
            uploads: Uploads::new(guid, config.max_transfers, &mut rng)
                .with_nack_routers(config.nack_routers),
            inbox: OfferedContents::new(guid, config.buffer_packets),
            pings: AwaitedEchoes::new(rng.next_word()),
            messages: Messages::new(rng.next_word()),
            programs: Programs::default(),
            timers: TimerQueue::new(),
            left_over: None,
            effects: Effects::default(),
        }
    }

    /// Sets the pacing of the hops of link `number` that come up from now on, in place of the
    /// configured one.
    pub fn set_pacing(&mut self, number: u32, pacing: Pacing) {
        self.access.links.set_pacing(number, pacing);
    }

    /// The hops of link `number` that come up from now on do not encrypt.
    pub fn set_plain(&mut self, number: u32) {
        self.access.links.set_plain(number);
    }

    /// Returns the host's GUID.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// Replaces the wall clock after a step of the system's, and signs all records anew.
    pub fn set_wall_clock(&mut self, now: Time, wall: WallClock) {
        self.registration.set_wall_clock(wall);
        self.renew(now);
        self.drain(now);
    }

    /// Handles a request of a program in this process; [`Machine::poll_event`] returns its outcome.
    pub fn request(&mut self, now: Time, app: u32, request: LocalRequest) {
        self.handle_request(now, App::Inner(app), request);
    }

    /// Stops or resumes events for a program in this process, as a blocked socket does for other
    /// programs.
    pub fn set_blocked(&mut self, app: u32, blocked: bool) {
        self.note_blocked(App::Inner(app), blocked);
    }

    /// Removes a program in this process: cancels its requests and withdraws its contents.
    pub fn leave(&mut self, app: u32) {
        self.programs.forget_inner(app);
        self.forget_app(App::Inner(app));
    }

    fn note_blocked(&mut self, app: App, blocked: bool) {
        self.programs.set_blocked(app, blocked);
        if self.programs.is_ready(app) {
            self.downloads.refill(app, &mut self.effects);
            self.carry_out();
        }
    }

    fn handle_request(&mut self, now: Time, app: App, request: LocalRequest) {
        let effects = &mut self.effects;
        match request {
            LocalRequest::Get(get) => {
                let uplink = self.access.uplink();
                self.downloads
                    .start_download(now, app, &get, None, &uplink, effects)
            }
            LocalRequest::GetFrom { caller, get } => {
                let caller = Some(caller).filter(|it| self.access.port_of_caller(it).is_some());
                let uplink = self.access.uplink_to(caller);
                self.downloads
                    .start_download(now, app, &get, caller, &uplink, effects);
            }
            LocalRequest::Cancel { request } => {
                self.downloads.cancel_download(app, request, effects)
            }
            LocalRequest::Consumed { request } => {
                self.downloads.note_consumed(app, request, effects)
            }
            LocalRequest::Publish(publish, options) => {
                let offer = Offer {
                    app,
                    publish,
                    options,
                };
                self.uploads.contents.publish(now, offer, effects);
            }
            LocalRequest::Withdraw { content } => {
                self.uploads.contents.withdraw(app, content, effects);
            }
            LocalRequest::ReadDone { read, chunk } => self.finish_read(now, app, read, chunk),
            LocalRequest::Ping {
                request,
                destination,
                sequence,
                padding,
            } => {
                let ping = EchoRequest {
                    app,
                    request,
                    to: destination,
                };
                self.pings.send(ping, sequence, padding, effects);
            }
            LocalRequest::Message {
                channel,
                destination,
                delivery,
                payload,
            } => {
                let to = delivery.address(destination);
                let message = ProgramMessage {
                    to,
                    channel,
                    delivery,
                    payload,
                };
                self.messages.send(app, message, effects);
            }
            LocalRequest::Listen { channel } => self.messages.listen(app, channel, effects),
            LocalRequest::Send(send) => self.send_content(now, app, &send),
            LocalRequest::Delegate { content, is_on } => {
                self.uploads.delegations.set(app, content, is_on, effects)
            }
            LocalRequest::TakeOffers => self.inbox.listen(app, effects),
            LocalRequest::Attach { key } => {
                let keys = whimbrel_gnrs::KeyPair::from_secret(&key.0);
                self.registration.attach_service(app, keys, effects);
            }
            LocalRequest::Join { admission, change } => {
                (self.registration).set_membership(now, app, admission, change, effects)
            }
            LocalRequest::Members { request, group } => {
                (self.registration.memberships()).ask(app, request, &group, effects)
            }
            LocalRequest::Accept(accept) => self.accept_offer(now, app, &accept),
            LocalRequest::Settle {
                id,
                content,
                verdict,
            } => self.inbox.settle(id, content, verdict, effects),
            LocalRequest::Names { request, prefix } => {
                let names = self.names_beginning(&prefix);
                self.effects.tell(app, LocalEvent::Names { request, names });
            }
            LocalRequest::Interfaces { request, change } => {
                let status = self.manage_interfaces(now, &change);
                self.effects.tell_status(app, request, &status);
            }
            LocalRequest::Callers { request, change } => {
                let status = CallersStatus::manage(&mut self.access.links.neighbours, now, &change);
                self.effects.tell_status(app, request, &status);
            }
            LocalRequest::Status { request } => {
                let status = self.status(now);
                self.effects.tell_status(app, request, &status);
            }
        }
        self.carry_out();
    }

    /// Sends a chunk that a program has read, or keeps it until a router answers.
    fn finish_read(&mut self, now: Time, app: App, read: u64, chunk: Option<ReadChunk>) {
        let ready = self
            .uploads
            .finish_read(now, app, read, chunk, &mut self.effects);
        let Some(ready) = ready else { return };
        let (key, index) = (ready.key, ready.index);
        if !self.send_data(ready) {
            self.uploads.send_later(key, index);
        }
    }

    fn forget_app(&mut self, app: App) {
        let effects = &mut self.effects;
        self.downloads.forget_downloads_of(app, effects);
        self.uploads.forget_contents_of(app, effects);
        self.pings.forget(app);
        self.messages.forget(app);
        self.inbox.forget(app);
        self.registration.forget_services_of(app);
        self.carry_out();
    }

    /// Drains hop events until the hops are quiet, and sends what there is room for.
    ///
    /// As in a router, what is left after [`MAX_TURNS`] waits for the driver's next round.
    fn drain(&mut self, now: Time) {
        self.left_over = None;
        let mut turns = 0..MAX_TURNS;
        while turns.next().is_some() {
            if let Some(event) = self.access.links.poll_event(now) {
                self.handle_link_event(now, event);
                self.carry_out();
                continue;
            }
            let sent = self.send_announcements(now) || self.read_ahead(now);
            self.carry_out();
            if !sent {
                return;
            }
        }
        self.effects.counters.left_over += 1;
        self.left_over = Some(now);
    }

    fn send_announcements(&mut self, now: Time) -> bool {
        if !self.registration.has_to_announce() {
            return false;
        }
        let (catalogue, effects) = (self.uploads.contents.catalogue(), &mut self.effects);
        (self.registration).send_announcements(now, &self.access, catalogue, effects)
    }

    fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        use LinkEvent::{Down, Responsive, Unresponsive, Up};
        if let Up { port, .. } | Unresponsive(port) | Responsive(port) | Down(port, _) = &event
            && self.access.has(*port)
        {
            self.review_interfaces(now);
        }
        match event {
            LinkEvent::Up { port, new_run, .. } if self.access.has(port) => {
                self.registration.forget_challenge(port, new_run);
                if let Some(router) = self.access.links.neighbour(port).filter(|_| new_run) {
                    self.uploads.note_forgotten(&router);
                }
                let uplink = self.access.uplink();
                self.downloads
                    .resume_transfers(now, &uplink, &mut self.effects);
            }
            // An inbound peer asks when it wants something.
            LinkEvent::Up { .. } => {}
            LinkEvent::Restarted(port, handed) if self.access.has(port) => {
                // The receivers know which chunks of this host's uploads are missing.
                for handed in handed {
                    let service = match handed.is_for_group {
                        true => ServiceId::DELAY_TOLERANT.with(ServiceId::MULTICAST),
                        false => ServiceId::DELAY_TOLERANT,
                    };
                    let (request_id, notice) = (handed.request_id, handed.into_lost());
                    let at = Located::anywhere(notice.destination);
                    let lost = Transport::Lost(notice);
                    self.effects.send_about(request_id, service, at, lost);
                }
            }
            // An inbound peer that restarts has forgotten its requests.
            LinkEvent::Restarted(..) => {}
            LinkEvent::Received { port, bytes, room } => self.handle_chunk(now, port, &bytes, room),
            // A host forwards nothing.
            LinkEvent::Credit { .. } | LinkEvent::Pace { .. } => {}
            LinkEvent::Delivered(carried, chunk) => {
                self.effects.counters.chunks_sent += 1;
                if let Some(chunk) = chunk
                    && let Some(data) = chunk.data()
                {
                    let way = self.access.way_back(carried.port);
                    let link = self.access.links.at(carried.port);
                    let guard = link.map_or(MIN_GUARD, |link| link.repeat_guard(chunk.size()));
                    let uploads = &mut self.uploads;
                    let effects = &mut self.effects;
                    uploads.note_delivered(now, way, &chunk.header, &data, guard, effects);
                }
            }
            LinkEvent::TooLarge(port, outgoing) => {
                let way = self.access.way_back(port);
                self.uploads
                    .upload_too_large(now, way, &outgoing.chunk, &mut self.effects)
            }
            LinkEvent::Moved { from, to } => {
                self.access.links.follow(now, from, to);
                let (from, to) = (Way::Caller(from), Way::Caller(to));
                self.uploads.move_uploads(from, to);
                self.messages.note_caller_moved(from, Some(to));
            }
            // If another router answers, the host is bound to that one alone, so that chunks stored
            // for it come by that way.
            LinkEvent::Unresponsive(_) => self.note_lost_router(now),
            LinkEvent::Responsive(port) if self.access.has(port) => {
                self.renew_if_changed(now);
                let uplink = self.access.uplink();
                self.downloads
                    .resume_transfers(now, &uplink, &mut self.effects);
            }
            LinkEvent::Responsive(_) => {}
            LinkEvent::Stranded(chunks) => self.send_again(chunks),
            LinkEvent::Down(port, _) if self.access.forget_caller(port) => {
                self.uploads.forget_uploads_to(Way::Caller(port));
                self.messages.note_caller_moved(Way::Caller(port), None);
            }
            LinkEvent::Down(port, returned) => {
                self.registration.forget_challenge(port, false);
                self.note_lost_router(now);
                self.carry_out();
                // Another link takes the chunks. Without one, content waits with its program, and
                // the rest is left to end-to-end recovery.
                self.send_again(returned);
            }
        }
    }

    fn send_again(&mut self, chunks: Vec<ChunkToSend>) {
        for outgoing in chunks {
            let (header, data) = (outgoing.chunk.header.clone(), outgoing.chunk.data());
            if self.access.send(Way::Uplink, outgoing.chunk, None) {
                continue;
            }
            match data {
                Some(data) => self.uploads.take_back(Way::Uplink, &header, &data),
                None => self.effects.drop("no-router"),
            }
        }
    }

    fn note_lost_router(&mut self, now: Time) {
        self.renew_if_changed(now);
        let uplink = self.access.uplink();
        self.downloads.note_connectivity(&uplink, &mut self.effects);
    }

    fn renew_if_changed(&mut self, now: Time) {
        let effects = &mut self.effects;
        (self.registration).renew_if_changed(now, &self.access, effects);
        self.move_transfers();
    }

    fn renew(&mut self, now: Time) {
        (self.registration).renew(now, &self.access, &mut self.effects);
        self.move_transfers();
    }

    /// After the record, so that the router knows the host before chunks come there for it.
    fn move_transfers(&mut self) {
        if self.registration.take_moved() && !self.access.may_be_several() {
            self.downloads.move_transfers(&mut self.effects);
        }
    }
}

impl Machine for Host {
    type Event = HostEvent;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        match &event {
            PortEvent::Up(info) if info.origin.is_local() => self.programs.attach(port),
            PortEvent::Down if self.programs.has(port) => {
                self.programs.detach(port);
                self.forget_app(App::Port(port));
            }
            PortEvent::Blocked | PortEvent::Writable if self.programs.has(port) => {
                let blocked = matches!(event, PortEvent::Blocked);
                self.note_blocked(App::Port(port), blocked);
            }
            _ if self.programs.has(port) => {}
            _ => {
                if matches!(&event, PortEvent::Up(info) if info.origin.is_caller()) {
                    self.access.note_caller(port);
                }
                self.access.links.handle_port(now, port, &event);
                // Before its first frame: it may be one that is off.
                if matches!(event, PortEvent::Up(_)) && self.access.has(port) {
                    self.review_interfaces(now);
                }
            }
        }
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        for frame in frames {
            if self.access.links.has(port) {
                self.access.links.handle_frame(now, port, frame);
            } else if self.programs.accept_request(port, frame) {
                match LocalRequest::decode(&Bytes::copy_from_slice(frame)) {
                    Ok(request) => self.handle_request(now, App::Port(port), request),
                    Err(_) => self.effects.drop("local-request"),
                }
            } else if self.programs.is_refused(port) {
                self.effects.drop("local-version");
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.access.links.handle_timeout(now);
        let mut pass = self.timers.pass(now);
        while let Some((_, timer)) = pass.next(&mut self.timers) {
            let effects = &mut self.effects;
            match timer {
                Timer::Renewal => self.renew(now),
                Timer::Announcements => self.registration.renew_announcements(now, effects),
                Timer::Download(id) => {
                    let uplink = self.access.uplink_to(self.downloads.caller_of(id));
                    self.downloads
                        .check_download(now, id, &uplink, &mut self.effects);
                }
                Timer::Uploads => self.uploads.check_uploads(now, effects),
                Timer::Interfaces => self.review_interfaces(now),
                Timer::Offers => {
                    for sender in self.inbox.held() {
                        self.hold_if_filled(now, sender, inbox::HOLD_AGAIN);
                    }
                }
            }
            self.carry_out();
        }
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.drain(now);
        if let Some(transmit) = self.programs.poll_transmit(buffer) {
            return Some(transmit);
        }
        self.access.links.poll_transmit(now, max_segments, buffer)
    }

    fn poll_event(&mut self) -> Option<HostEvent> {
        self.programs.poll_inner()
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        self.access.links.poll_port_request()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let own = self.timers.next().map(|(at, timer)| {
            Deadline::new(
                at,
                match timer {
                    Timer::Renewal => "renew the binding",
                    Timer::Announcements => "renew an announcement",
                    Timer::Download(_) => "ask for missing chunks",
                    Timer::Uploads => "check paused and idle uploads",
                    Timer::Interfaces => "look at what has crossed the links",
                    Timer::Offers => "hold back what nobody has accepted",
                },
            )
        });
        let left_over = self.left_over.map(|at| Deadline::new(at, LEFT_OVER));
        Deadline::earlier(
            left_over,
            Deadline::earlier(self.access.links.poll_timeout(), own),
        )
    }
}
