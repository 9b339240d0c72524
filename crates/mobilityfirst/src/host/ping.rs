//! Echoes: answering them, and sending them for local programs.

use std::collections::BTreeMap;

use whimbrel_core::Guid;

use super::{App, Host, Way};
use crate::chunk::Chunk;
use crate::local::LocalEvent;
use crate::wire::{Echo, ServiceId, UpperProtocol};

/// Requests whose answer is awaited; the oldest is forgotten to make room.
const MAX_AWAITED: usize = 4096;
/// Padding of one request, in bytes.
const MAX_PADDING: usize = 32 * 1024;

/// Echo requests whose answers are awaited.
#[derive(Debug)]
pub(super) struct Pings {
    awaited: BTreeMap<u64, (App, u32, Guid)>,
    next_id: u64,
}

impl Pings {
    pub(super) fn new(first_id: u64) -> Pings {
        // The upper half is random, so that answers to an earlier run of this host match nothing.
        Pings {
            awaited: BTreeMap::new(),
            next_id: first_id & !0xffff_ffff,
        }
    }

    pub(super) fn forget(&mut self, app: App) {
        self.awaited.retain(|_, (owner, _, _)| *owner != app);
    }
}

impl Host {
    pub(super) fn send_ping(
        &mut self,
        app: App,
        request: u32,
        to: Guid,
        sequence: u32,
        padding: u16,
    ) {
        let id = self.pings.next_id;
        self.pings.next_id = self.pings.next_id.wrapping_add(1);
        if self.pings.awaited.len() >= MAX_AWAITED {
            self.pings.awaited.pop_first();
        }
        self.pings.awaited.insert(id, (app, request, to));
        let padding = vec![0; usize::from(padding).min(MAX_PADDING)];
        self.send_echo(
            Way::Uplink,
            to,
            Guid::NONE,
            &Echo {
                reply: false,
                id,
                sequence,
                padding,
            },
        );
    }

    pub(super) fn handle_echo(&mut self, way: Way, chunk: &Chunk, echo: Echo) {
        let (from, address) = (chunk.header.source, chunk.header.source_address);
        if !echo.reply {
            return self.send_echo(
                way,
                from,
                address,
                &Echo {
                    reply: true,
                    ..echo
                },
            );
        }
        match self.pings.awaited.get(&echo.id).copied() {
            Some((app, request, to)) if to == from => {
                self.pings.awaited.remove(&echo.id);
                self.tell(
                    app,
                    LocalEvent::Pong {
                        request,
                        sequence: echo.sequence,
                        from,
                    },
                );
            }
            _ => self.counters.drop("unawaited-echo"),
        }
    }

    fn send_echo(&mut self, way: Way, to: Guid, address: Guid, echo: &Echo) {
        let header = self.header(way, ServiceId::UNICAST, UpperProtocol::Echo, to, address);
        let mut head = Vec::new();
        echo.encode(&mut head);
        if !self.send_message(way, header, head) {
            self.counters.drop("no-router");
        }
    }
}
