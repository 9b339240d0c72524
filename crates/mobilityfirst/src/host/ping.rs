//! Echoes: answering them, and sending them for local programs.

use std::collections::BTreeMap;

use whimbrel_core::Guid;

use super::effects::{Action, Effects, Located};
use super::{App, Way};
use crate::local::LocalEvent;
use crate::wire::{Echo, NetworkHeader};

/// Bound of the requests that await an answer; the oldest is forgotten to make room.
const MAX_AWAITED: usize = 4096;
/// Bound of the padding of one request, in bytes.
const MAX_PADDING: usize = 32 * 1024;

/// A program's request for an echo.
#[derive(Clone, Copy, Debug)]
pub(super) struct EchoRequest {
    pub(super) app: App,
    pub(super) request: u32,
    pub(super) to: Guid,
}

/// Echo requests whose answers are awaited.
#[derive(Debug)]
pub(super) struct AwaitedEchoes {
    awaited: BTreeMap<u64, EchoRequest>,
    next_id: u64,
}

impl AwaitedEchoes {
    pub(super) fn new(first_id: u64) -> AwaitedEchoes {
        // The upper half is random, so that answers to an earlier run of this host match nothing.
        AwaitedEchoes {
            awaited: BTreeMap::new(),
            next_id: first_id & !0xffff_ffff,
        }
    }

    pub(super) fn forget(&mut self, app: App) {
        self.awaited.retain(|_, ping| ping.app != app);
    }
}

impl AwaitedEchoes {
    /// Sends an echo request for a program.
    pub(super) fn send(
        &mut self,
        ping: EchoRequest,
        sequence: u32,
        padding: u16,
        effects: &mut Effects,
    ) {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        if self.awaited.len() >= MAX_AWAITED {
            self.awaited.pop_first();
        }
        self.awaited.insert(id, ping);
        let echo = Echo {
            reply: false,
            id,
            sequence,
            padding: vec![0; usize::from(padding).min(MAX_PADDING)],
        };
        effects.push(Action::Echo {
            way: Way::Uplink,
            to: Located::anywhere(ping.to),
            echo,
        });
    }

    /// Answers a request, or hands an answer to the program that waits for it.
    pub(super) fn handle_echo(
        &mut self,
        way: Way,
        header: &NetworkHeader,
        echo: Echo,
        effects: &mut Effects,
    ) {
        let from = header.source;
        if !echo.reply {
            let echo = Echo {
                reply: true,
                ..echo
            };
            return effects.push(Action::Echo {
                way,
                to: Located::source_of(header),
                echo,
            });
        }
        match self.awaited.get(&echo.id).copied() {
            Some(EchoRequest { app, request, to }) if to == from => {
                self.awaited.remove(&echo.id);
                let sequence = echo.sequence;
                effects.tell(
                    app,
                    LocalEvent::Pong {
                        request,
                        sequence,
                        from,
                    },
                );
            }
            _ => effects.drop("unawaited-echo"),
        }
    }
}
