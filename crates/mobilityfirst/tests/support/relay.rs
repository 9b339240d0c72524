//! A node between two neighbours that each take for the other: it sees each chunk, and may keep it back or
//! answer it.

use core::convert::Infallible;

use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, SeededRng, Time,
    Transmit,
};
use whimbrel_link::HopConfig;
use whimbrel_mobilityfirst::chunk::Chunk;
use whimbrel_mobilityfirst::links::{ChunkToSend, LinkEvent, Links};

/// What becomes of a chunk.
pub(crate) enum Verdict {
    /// It goes to the other neighbour.
    Pass,
    /// It ends here, and these go back to where it came from.
    Answer(Vec<Chunk>),
}

/// Decides on each chunk.
pub(crate) type Watch = Box<dyn FnMut(&Chunk) -> Verdict>;

struct Side {
    links: Links,
    port: Option<PortId>,
}

/// The node. The port that comes up first is that of its first side.
pub(crate) struct Relay {
    sides: [Side; 2],
    watch: Watch,
}

impl Relay {
    /// `hops` are those of the neighbours that it is taken for on each side.
    pub(crate) fn new(hops: [HopConfig; 2], watch: Watch) -> Relay {
        let side = |hop| Side {
            links: Links::new(hop, 4096, SeededRng::new(77)),
            port: None,
        };
        Relay {
            sides: hops.map(side),
            watch,
        }
    }

    fn side_of(&mut self, port: PortId) -> Option<&mut Side> {
        self.sides.iter_mut().find(|side| side.port == Some(port))
    }

    /// Passes on what has come.
    fn carry(&mut self, now: Time) {
        let mut is_quiet = false;
        while !is_quiet {
            is_quiet = true;
            for (at, other) in [(0, 1), (1, 0)] {
                let Some(event) = self.sides[at].links.poll_event(now) else {
                    continue;
                };
                is_quiet = false;
                let LinkEvent::Received { bytes, room, .. } = event else {
                    continue;
                };
                let chunk = Chunk::decode(&bytes).expect("a chunk");
                match (self.watch)(&chunk) {
                    Verdict::Pass => self.sides[other].send(chunk, room),
                    Verdict::Answer(answers) => {
                        let side = &mut self.sides[at];
                        answers
                            .into_iter()
                            .for_each(|it| side.send(it, Default::default()));
                    }
                }
            }
        }
    }
}

impl Side {
    fn send(&mut self, chunk: Chunk, room: whimbrel_link::Room) {
        let outgoing = ChunkToSend {
            chunk,
            room,
            from: None,
            origin: None,
            order: None,
            until: None,
        };
        if let Some(port) = self.port {
            assert!(self.links.enqueue(port, outgoing).is_ok());
        }
    }
}

impl Machine for Relay {
    type Event = Infallible;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        if self.side_of(port).is_none()
            && let Some(side) = self.sides.iter_mut().find(|side| side.port.is_none())
        {
            side.port = Some(port);
        }
        if let Some(side) = self.side_of(port) {
            side.links.handle_port(now, port, &event);
        }
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        if let Some(side) = self.side_of(port) {
            frames
                .iter()
                .for_each(|frame| side.links.handle_frame(now, port, frame));
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        for side in &mut self.sides {
            side.links.handle_timeout(now);
        }
    }

    fn poll_transmit(&mut self, now: Time, most: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
        self.carry(now);
        let [first, second] = &mut self.sides;
        let transmit = first.links.poll_transmit(now, most, buffer);
        transmit.or_else(|| second.links.poll_transmit(now, most, buffer))
    }

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let [first, second] = &self.sides;
        Deadline::earlier(first.links.poll_timeout(), second.links.poll_timeout())
    }
}
