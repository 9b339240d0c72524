//! Loads that fetch files: requested in time, served, and measured as they arrive.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use whimbrel_core::{Guid, SeededRng, Time, WallClock};
use whimbrel_mobilityfirst::host::HostEvent;
use whimbrel_mobilityfirst::local::{
    ContentOffer, Get, LocalChunk, LocalEvent, LocalRequest, OfferId, Publish, TransferOptions,
};
use whimbrel_mobilityfirst::wire::ContentKind;
use whimbrel_ndn_packet::{DigestSigner, Name};
use whimbrel_node::NodeEvent;
use whimbrel_sim::tcp::{FetchId, SenderSample, ServerStats, TcpEvent};
use whimbrel_sim::{AnyMachine, NodeId};
use whimbrel_transport::serve::{ProducerOptions, SegmentResponder};
use whimbrel_transport::{
    AppFace, FetchEvent, FetchOptions, Fetcher, RegisterOptions, Service, WindowKind,
    WindowOptions, register::Registrar,
};

use super::build::{address, load_name};
use super::pushes;
use super::{World, WorldEvent};
use crate::rivals::raaqm;
use crate::scenario::Plan;
use crate::scenario::load::{Kind, Load, Pipeline, Plane};
use crate::scenario::multipath::SeveralPaths;
use crate::scenario::run::{Run, Schedule};
use crate::simulated::{ORIGIN_UNIX_MS, RepeatingContent};
use crate::transfer::SAMPLE_INTERVAL;
use crate::{LabError, TransferMeter, TransferRecord};

const SERVER_APP: u32 = 1;
const CLIENT_APP: u32 = 2;
/// Who tells a host how to use its links.
pub(super) const USER_APP: u32 = 3;
/// Bounds of the bytes and the number of contents that are published before they are requested: an
/// announcement takes a round trip to the name server.
const AHEAD: u64 = 16 << 20;
const MAX_AHEAD: u64 = 16;
/// Bytes of a full segment, in which windows are counted.
const SEGMENT: f64 = 1460.0;

/// The progress of one receiver of one load.
pub(super) struct Asked {
    load: usize,
    receiver: usize,
    schedule: Schedule,
    /// The number of requested files.
    count: usize,
    /// The number of files that ended.
    ended: usize,
}

impl Asked {
    pub(super) fn all(plan: &Plan, seed: u64) -> Vec<Asked> {
        let loads = plan.loads.iter().enumerate();
        let receivers = loads.flat_map(|(load, known)| {
            let schedule = Schedule::of(known, seed);
            let receivers = schedule.map(|schedule| {
                known.to.iter().map(move |receiver| Asked {
                    load,
                    receiver: *receiver,
                    schedule: schedule.clone(),
                    count: 0,
                    ended: 0,
                })
            });
            receivers.into_iter().flatten()
        });
        receivers.collect()
    }

    pub(super) fn is_endless(&self) -> bool {
        self.schedule.is_endless()
    }

    pub(super) fn is_done(&self) -> bool {
        self.schedule
            .total()
            .is_none_or(|total| self.ended >= total)
    }
}

/// One file on its way.
pub(super) struct Transfer {
    /// Index of its [`Asked`].
    asked: usize,
    started: Time,
    meter: TransferMeter,
    record: Option<TransferRecord>,
    /// Since the run's origin.
    next_sample: Duration,
    by: By,
    /// The accepted offer of a pushed content.
    offer: Option<OfferId>,
}

/// The source of its events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Content(Guid),
    /// Sent to this node without a request.
    Push(Guid, usize),
    Program,
    Tcp(NodeId, Ipv4Addr, FetchId),
}

impl World<'_> {
    /// Publishes the contents that are requested first.
    pub(super) fn publish_first(&mut self) -> Result<(), LabError> {
        for index in 0..self.asked.len() {
            let Asked { load, receiver, .. } = self.asked[index];
            if matches!(self.plan.loads[load].kind, Kind::Push(_)) {
                self.request(receiver, CLIENT_APP, LocalRequest::TakeOffers);
            }
            if self.plan.loads[load].is_for_group() {
                let join = pushes::join(&self.plan.loads[load]);
                self.request(receiver, CLIENT_APP, join);
            }
            let first = self.asked[index].schedule.at.len();
            self.publish(index, first)?;
        }
        Ok(())
    }

    /// Publishes the contents of a receiver's load below number `end` and some more, as far as they
    /// exist.
    fn publish(&mut self, asked: usize, end: usize) -> Result<(), LabError> {
        let Asked { load, schedule, .. } = &self.asked[asked];
        let (load, size) = (*load, schedule.size);
        let ahead = (AHEAD / size.max(1)).clamp(1, MAX_AHEAD) as usize;
        let end = schedule.total().unwrap_or(usize::MAX).min(end + ahead);
        if self.plan.loads[load].plane == Plane::Tcp {
            return Ok(());
        }
        // Contents are published in order, so all below the last one are there.
        let mut known = self.contents.range((load, 0)..=(load, usize::MAX));
        let begin = known.next_back().map_or(0, |((_, number), _)| number + 1);
        for number in begin..end {
            let seed = ((load as u64) << 32 | number as u64) + 1;
            let content = RepeatingContent::new(size, seed);
            self.contents.insert((load, number), content.clone());
            self.serve(load, number, &content)?;
        }
        Ok(())
    }

    /// Serves again what a node served before its restart.
    pub(super) fn serve_again(&mut self, node: usize) {
        let loads = &self.plan.loads;
        let published = self
            .contents
            .iter()
            .filter(|((load, _), _)| loads[*load].from == node && is_announced(&loads[*load]));
        let published: Vec<Publish> = published.map(|(_, content)| publish(content)).collect();
        for publish in published {
            let publish = LocalRequest::Publish(publish, TransferOptions::default());
            self.request(node, SERVER_APP, publish);
        }
        for (at, name, port) in self.served.clone() {
            if at == node {
                self.ndn_route(node, &name, port, 0);
            }
        }
    }

    /// Adds a producer to a node and routes its name to it.
    pub(super) fn serve_name(
        &mut self,
        node: usize,
        name: Name,
        producer: NodeId,
    ) -> Result<(), LabError> {
        let port = self.attach(producer, node)?;
        self.ndn_route(node, &name, port, 0);
        self.served.push((node, name, port));
        Ok(())
    }

    fn serve(
        &mut self,
        load: usize,
        number: usize,
        content: &RepeatingContent,
    ) -> Result<(), LabError> {
        let known = &self.plan.loads[load];
        if matches!(known.kind, Kind::Push(_)) {
            return Ok(());
        }
        if known.plane == Plane::MobilityFirst {
            let publish = LocalRequest::Publish(publish(content), TransferOptions::default());
            self.request(known.from, SERVER_APP, publish);
            return Ok(());
        }
        if known.content.is_none() {
            for node in known.sources() {
                self.serve_ndn(load, number, node, content)?;
            }
        }
        Ok(())
    }

    fn serve_ndn(
        &mut self,
        load: usize,
        number: usize,
        node: usize,
        content: &RepeatingContent,
    ) -> Result<(), LabError> {
        let known = &self.plan.loads[load];
        let wall = WallClock::new(ORIGIN_UNIX_MS);
        let name = load_name(&known.name).child_generic(number.to_string().as_bytes());
        let options = ProducerOptions::new(wall, self.sim.now());
        let responder = SegmentResponder::new(
            name.clone(),
            content.segments(known.segment),
            Arc::new(DigestSigner),
            options,
        );
        let label = match node == known.from {
            true => format!("producer {} {number}", known.name),
            false => format!("producer {} {number} {node}", known.name),
        };
        let service = Service::new(
            responder,
            Registrar::new(RegisterOptions::new(wall), []),
            SeededRng::stream(self.seed, &label),
        );
        let program = AnyMachine::new(AppFace::new(service), |_| WorldEvent::Nothing);
        let program = self.sim.add_node(&label, program);
        self.serve_name(node, name, program)
    }

    pub(super) fn request(&mut self, node: usize, app: u32, request: LocalRequest) {
        self.stack(node, |stack, now| {
            let host = stack
                .planes
                .mobility_first
                .as_mut()
                .and_then(|node| node.host());
            if let Some(host) = host {
                host.request(now, app, request);
            }
        });
    }

    /// Requests the files that are due.
    pub(super) fn ask_due(&mut self, origin: Time) -> Result<(), LabError> {
        for index in 0..self.asked.len() {
            while self
                .due(index, origin)
                .is_some_and(|at| at <= self.sim.now())
            {
                self.ask(index)?;
            }
        }
        Ok(())
    }

    /// Returns the time of the next request for a file.
    pub(super) fn next_ask(&self, origin: Time) -> Option<Time> {
        (0..self.asked.len())
            .filter_map(|index| self.due(index, origin))
            .min()
    }

    /// Returns the time at which a receiver requests its next file; `None` if it never does or
    /// waits for another file first.
    fn due(&self, index: usize, origin: Time) -> Option<Time> {
        let asked = &self.asked[index];
        let start = origin + self.plan.loads[asked.load].start;
        match asked.schedule.at.get(asked.count) {
            Some(at) => Some(start + Duration::from_secs_f64(*at)),
            None => {
                let left = asked
                    .schedule
                    .total()
                    .is_none_or(|total| asked.count < total);
                let free = asked.count - asked.ended < asked.schedule.at.len();
                (left && free && asked.schedule.then != Some(0)).then(|| self.sim.now())
            }
        }
    }

    fn ask(&mut self, index: usize) -> Result<(), LabError> {
        let plan = self.plan;
        let (load, receiver, number) = {
            let asked = &mut self.asked[index];
            asked.count += 1;
            (asked.load, asked.receiver, asked.count - 1)
        };
        let known = &plan.loads[load];
        self.publish(index, number + 1)?;
        let started = self.sim.now();
        let meter = TransferMeter::new(self.epoch + started.since(Time::ZERO));
        let request = self.transfers.len() as u32;
        let content = self
            .contents
            .get(&(load, number))
            .map(RepeatingContent::name);
        let by = match (known.plane, content) {
            (Plane::MobilityFirst, Some(content)) if matches!(known.kind, Kind::Push(_)) => {
                By::Push(content, receiver)
            }
            (Plane::MobilityFirst, Some(content)) => By::Content(content),
            (Plane::Ndn, _) => {
                self.fetcher(load, receiver, number)?;
                By::Program
            }
            _ => {
                let (server, size) = (address(known.from), self.asked[index].schedule.size);
                let fetch = self.stack(receiver, |stack, now| {
                    let client = stack.planes.tcp_clients.get_mut(&server)?;
                    Some(match known.duplex {
                        true => client.exchange(now, size),
                        false => client.fetch(now, size),
                    })
                });
                By::Tcp(
                    self.nodes[receiver],
                    server,
                    fetch.unwrap_or(FetchId(usize::MAX)),
                )
            }
        };
        // Before the request: the answer may come at once.
        self.transfers.push(Transfer {
            asked: index,
            started,
            meter,
            record: None,
            next_sample: Duration::ZERO,
            by,
            offer: None,
        });
        match by {
            By::Content(content) => {
                let get = get_of(known, request, content);
                self.request(receiver, CLIENT_APP, LocalRequest::Get(get));
            }
            // All members get what is sent to the first one.
            By::Push(..) if known.is_for_group() && known.to.first() != Some(&receiver) => {}
            By::Push(..) => {
                if let Some(content) = self.contents.get(&(load, number)) {
                    let send = pushes::send(known, receiver, request, publish(content));
                    self.request(known.from, SERVER_APP, LocalRequest::Send(send));
                }
            }
            By::Program | By::Tcp(..) => {}
        }
        Ok(())
    }

    /// A content is offered to a node: it is accepted once.
    fn handle_offer(&mut self, node: usize, offer: &ContentOffer) -> Result<(), LabError> {
        let by = By::Push(offer.content.content, node);
        let Some(index) = self.transfers.iter().position(|known| known.by == by) else {
            return Ok(());
        };
        let load = self.asked[self.transfers[index].asked].load;
        let transfer = &mut self.transfers[index];
        if transfer.offer.replace(offer.id).is_some() {
            let what = format!(
                "{} was offered to its receiver twice",
                offer.content.content
            );
            return Err(LabError::Simulated(what));
        }
        let get = get_of(&self.plan.loads[load], index as u32, offer.content.content);
        self.request(node, CLIENT_APP, pushes::accept(offer.id, get));
        Ok(())
    }

    /// A pushed content has come: its sender is told.
    fn settle(&mut self, node: usize, index: usize) {
        let transfer = &self.transfers[index];
        if let (By::Push(content, _), Some(offer)) = (transfer.by, transfer.offer) {
            self.request(node, CLIENT_APP, pushes::received(offer, content));
        }
    }

    fn fetcher(&mut self, load: usize, receiver: usize, number: usize) -> Result<(), LabError> {
        let known = &self.plan.loads[load];
        let name = load_name(known.content_name()).child_generic(number.to_string().as_bytes());
        let label = format!("consumer {} {number} {receiver}", known.name);
        let mut rng = SeededRng::stream(self.seed, &label);
        let defaults = FetchOptions::default();
        let kind = match known.pipeline {
            _ if known.multipath.is_some() => known
                .multipath
                .as_ref()
                .map_or(defaults.window.kind, SeveralPaths::window),
            Pipeline::Cubic => defaults.window.kind,
            Pipeline::Aimd => WindowKind::AIMD,
            Pipeline::Raaqm => raaqm(rng.next_word()),
        };
        let options = FetchOptions {
            retries: None,
            first_segments: known.segments,
            multipath: known.multipath.as_ref().map(SeveralPaths::options),
            lost_after: known
                .multipath
                .map(|several| several.lost_after)
                .filter(|data| *data > 0),
            path_seed: match known.multipath {
                Some(_) => rng.next_word(),
                None => defaults.path_seed,
            },
            window: WindowOptions {
                kind,
                ..defaults.window
            },
            ..defaults
        };
        let fetcher = Fetcher::new(name, options, rng, self.sim.now());
        let program = AnyMachine::new(AppFace::new(fetcher), WorldEvent::Fetch);
        let program = self.sim.add_node(&label, program);
        self.fetchers.insert(program, self.transfers.len());
        self.attach(program, receiver)?;
        Ok(())
    }

    pub(super) fn handle_host(
        &mut self,
        now: Time,
        node: NodeId,
        event: NodeEvent,
    ) -> Result<bool, LabError> {
        let NodeEvent::Host(HostEvent { event, .. }) = event else {
            return Ok(false);
        };
        let at = self
            .nodes
            .iter()
            .position(|known| *known == node)
            .unwrap_or_default();
        match event {
            LocalEvent::Read {
                read,
                content,
                index,
                chunk_log2,
            } => {
                let known = self.contents.values().find(|known| known.name() == content);
                let chunk = known.and_then(|content| content.read(index, chunk_log2));
                self.request(at, SERVER_APP, LocalRequest::ReadDone { read, chunk });
            }
            LocalEvent::Chunk(chunk) => {
                self.check(&chunk)?;
                self.arrived(chunk.request as usize, now, chunk.data.len());
                let request = chunk.request;
                self.request(at, CLIENT_APP, LocalRequest::Consumed { request });
            }
            LocalEvent::Offered(offer) => self.handle_offer(at, &offer)?,
            LocalEvent::Complete { request, .. } => {
                self.end(request as usize, now, true);
                self.settle(at, request as usize);
                return Ok(true);
            }
            LocalEvent::Pong {
                request, sequence, ..
            } => return Ok(self.handle_pong(now, request, sequence)),
            // What is missing is not sent again.
            LocalEvent::Failed { request, .. } | LocalEvent::Incomplete { request, .. } => {
                self.end(request as usize, now, false);
                return Ok(true);
            }
            _ => {}
        }
        Ok(false)
    }

    pub(super) fn handle_fetch(&mut self, now: Time, node: NodeId, event: FetchEvent) -> bool {
        let Some(index) = self.fetchers.get(&node).copied() else {
            return false;
        };
        match event {
            FetchEvent::Segment { content, .. } => {
                self.arrived(index, now, content.len());
                self.sample(index, now, node);
            }
            // Also while a segment that is missing holds up the others.
            FetchEvent::Progress(_) => self.sample(index, now, node),
            FetchEvent::Done(_) => self.end(index, now, true),
            FetchEvent::Failed { .. } => self.end(index, now, false),
            _ => return false,
        }
        self.transfers[index].record.is_some()
    }

    /// Shows a consumer to the observer, if that is due.
    fn sample(&mut self, index: usize, now: Time, node: NodeId) {
        let Some(interval) = self.observer.samples() else {
            return;
        };
        let at = now.since(self.origin);
        let transfer = &mut self.transfers[index];
        if at < transfer.next_sample {
            return;
        }
        transfer.next_sample = at + interval;
        let Asked { load, receiver, .. } = self.asked[transfer.asked];
        let face = self.sim.node(node).get::<AppFace<Fetcher>>();
        if let Some(stats) = face.map(|face| face.application().stats()) {
            self.observer.sampled(load, receiver, at, &stats);
        }
    }

    pub(super) fn handle_tcp(
        &mut self,
        now: Time,
        node: NodeId,
        server: Ipv4Addr,
        event: TcpEvent,
    ) -> bool {
        let (TcpEvent::Completed(id) | TcpEvent::Failed(id)) = event;
        let of = |transfer: &Transfer| transfer.by == By::Tcp(node, server, id);
        let Some(index) = self.transfers.iter().position(of) else {
            return false;
        };
        self.take_goodput(index, now);
        self.end(index, now, matches!(event, TcpEvent::Completed(_)));
        true
    }

    /// Takes over the measurements of TCP's client.
    fn take_goodput(&mut self, index: usize, now: Time) {
        let transfer = &mut self.transfers[index];
        let By::Tcp(node, server, id) = transfer.by else {
            return;
        };
        let stack = self.sim.node(node).get::<super::Stack>();
        let client = stack.and_then(|stack| stack.planes.tcp_clients.get(&server));
        let Some(fetch) = client.and_then(|client| client.get(id)) else {
            return;
        };
        let begin = self.epoch + fetch.started.since(Time::ZERO);
        let end = fetch.completed.unwrap_or(now).since(fetch.started);
        let mut at = SAMPLE_INTERVAL;
        for bytes in fetch.goodput.bytes() {
            if *bytes > 0 {
                transfer.meter.arrived(begin + at.min(end), *bytes);
            }
            at += SAMPLE_INTERVAL;
        }
    }

    /// Checks that a delivered chunk has the content's bytes.
    fn check(&self, chunk: &LocalChunk) -> Result<(), LabError> {
        let (By::Content(content) | By::Push(content, _)) =
            self.transfers[chunk.request as usize].by
        else {
            return Ok(());
        };
        let known = self.contents.values().find(|known| known.name() == content);
        let start = u64::from(chunk.index) << chunk.chunk_log2;
        let end = start + chunk.data.len() as u64;
        match known.is_none_or(|known| known.bytes(start, end) == chunk.data) {
            true => Ok(()),
            false => Err(LabError::Simulated(format!(
                "chunk {} of {content} was handed over with other bytes",
                chunk.index
            ))),
        }
    }

    /// Returns the counters and samples of a TCP server of a single file: it does not distinguish
    /// files.
    fn sender(&self, server: Ipv4Addr) -> Option<(ServerStats, &[SenderSample])> {
        let of = |known: &&Transfer| matches!(known.by, By::Tcp(_, at, _) if at == server);
        let mut served = self.transfers.iter().filter(of);
        let (Some(_), None) = (served.next(), served.next()) else {
            return None;
        };
        let mut nodes = self.nodes.iter().enumerate();
        let (_, node) = nodes.find(|(node, _)| address(*node) == server)?;
        let stack = self.sim.node(*node).get::<super::Stack>()?;
        let server = stack.planes.tcp_server.as_deref()?;
        Some((server.stats(), server.samples()))
    }

    fn arrived(&mut self, index: usize, now: Time, bytes: usize) {
        let at = self.epoch + now.since(Time::ZERO);
        let transfer = &mut self.transfers[index];
        transfer.meter.arrived(at, bytes as u64);
        let Asked { load, receiver, .. } = self.asked[transfer.asked];
        let at = now.since(self.origin);
        self.observer.arrived(load, receiver, at, bytes as u64);
    }

    fn end(&mut self, index: usize, now: Time, completed: bool) {
        let at = self.epoch + now.since(Time::ZERO);
        let transfer = &mut self.transfers[index];
        if transfer.record.is_none() {
            transfer.record = Some(transfer.meter.clone().finish(at, completed));
            self.asked[transfer.asked].ended += 1;
        }
    }

    pub(super) fn add_files(&mut self, run: &mut Run, origin: Time) {
        let now = self.sim.now();
        for index in 0..self.transfers.len() {
            if self.transfers[index].record.is_none() {
                self.take_goodput(index, now);
            }
        }
        let end = self.epoch + now.since(Time::ZERO);
        for (index, asked) in self.asked.iter().enumerate() {
            let load = &self.plan.loads[asked.load];
            let start = origin + load.start;
            let of = self
                .transfers
                .iter()
                .filter(|transfer| transfer.asked == index);
            let files = of.map(|transfer| {
                let cut_off = || transfer.meter.clone().finish(end, false);
                let mut record = transfer.record.clone().unwrap_or_else(cut_off);
                // The same run leaves the same files, whenever it is run.
                record.started_unix_ms =
                    ORIGIN_UNIX_MS + transfer.started.since(Time::ZERO).as_millis() as u64;
                if let By::Tcp(_, server, _) = transfer.by
                    && let Some((sender, samples)) = self.sender(server)
                {
                    record.sender = since(transfer.started, samples);
                    record.retransmitted_segments = Some(sender.retransmitted_segments);
                    record.retransmitted_bytes = Some(sender.retransmitted_bytes);
                }
                (transfer.started.since(start).as_secs_f64(), record)
            });
            let files = files.collect();
            run.add_files(
                &self.plan.network,
                load,
                asked.receiver,
                files,
                asked.schedule.total(),
            );
        }
    }
}

/// Returns a sender's samples with their times counted from the request.
fn since(started: Time, samples: &[SenderSample]) -> Vec<crate::SenderSample> {
    let samples = samples.iter().map(|sample| crate::SenderSample {
        at: sample.at.since(started).as_secs_f64(),
        window: sample.flight as f64 / SEGMENT,
        timeout: sample.timeout.as_secs_f64(),
        retransmitted: sample.retransmitted,
    });
    samples.collect()
}

/// Returns true if the contents of a load are announced.
fn is_announced(load: &Load) -> bool {
    load.plane == Plane::MobilityFirst && !matches!(load.kind, Kind::Push(_))
}

fn get_of(load: &Load, request: u32, content: Guid) -> Get {
    Get {
        request,
        content,
        options: load.options(),
        in_order: false,
        credit: 8,
        resume: bytes::Bytes::new(),
    }
}

fn publish(content: &RepeatingContent) -> Publish {
    Publish {
        content: content.name(),
        content_len: content.len(),
        kind: ContentKind::File,
        file_name: String::from("content"),
    }
}
