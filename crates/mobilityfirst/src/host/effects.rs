//! Actions of the parts of a host: each part owns its state, and the host carries out what goes
//! beyond it.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::{Guid, PortId, Time};
use whimbrel_link::Room;

use super::{App, HostCounters, Timer, Way};
use crate::local::{Delivery, LocalChunk, LocalEvent};
use crate::wire::{Control, Echo, NetworkHeader, ServiceId, Transport};

/// The state of a host's uplink.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uplink {
    /// True if a router answers.
    pub(super) is_up: bool,
    /// The router to which the host sends.
    pub(super) router: Option<Guid>,
    /// The shortest round trip to it, once measured.
    pub(super) round_trip: Option<Duration>,
    /// True while it is new, and its rate is being found out.
    pub(super) is_measuring: bool,
}

/// A node, and its network address: the router that it is attached to; [`Guid::NONE`] if that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Located {
    pub(super) name: Guid,
    pub(super) address: Guid,
}

impl Located {
    /// A name that the network locates.
    pub(super) fn anywhere(name: Guid) -> Located {
        let address = Guid::NONE;
        Located { name, address }
    }

    /// Returns the sender of a chunk.
    pub(super) fn source_of(header: &NetworkHeader) -> Located {
        Located {
            name: header.source,
            address: header.source_address,
        }
    }

    /// A router, which is its own address.
    pub(super) fn router(name: Guid) -> Located {
        let address = name;
        Located { name, address }
    }
}

/// How the network is to treat a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Treatment {
    pub(super) service: ServiceId,
    /// How long a router may store it.
    pub(super) lifetime_ms: Option<u32>,
    /// Whether its flow is divided among this host's links; `None` leaves it to the policy.
    pub(super) divides: Option<bool>,
    /// The routers with copies that a request may pass.
    pub(super) nack_routers: Option<u8>,
}

impl Treatment {
    /// Returns what a program has chosen, for a message of this service.
    pub(super) fn new(delivery: Delivery, service: ServiceId) -> Treatment {
        Treatment {
            service: delivery.service(service),
            lifetime_ms: delivery.lifetime_ms(),
            divides: delivery.divides(),
            nack_routers: None,
        }
    }
}

impl From<ServiceId> for Treatment {
    fn from(service: ServiceId) -> Treatment {
        Treatment {
            service,
            lifetime_ms: None,
            divides: None,
            nack_routers: None,
        }
    }
}

/// An action that a part of the host cannot carry out itself.
#[derive(Debug)]
pub(super) enum Action {
    /// Send a transport message.
    Send {
        way: Way,
        treatment: Treatment,
        to: Located,
        /// The id of the request that the message is, or that it answers or speaks of.
        request_id: Option<u64>,
        message: Transport,
    },
    /// Send a program's message, which holds room until it has left.
    SendMessage {
        way: Way,
        treatment: Treatment,
        to: Guid,
        message: Transport,
        room: Room,
    },
    /// Send an echo.
    Echo { way: Way, to: Located, echo: Echo },
    /// Send a control message to the router on a port.
    Control(PortId, Control),
    /// Tell a router that this host was attached to, by way of another one, that it has left.
    Leave(Guid, Control),
    /// Ask the router for the members of a group.
    AskMembers(Guid),
    /// Ask the routers to send nothing of this sender's flow for a time; without one the flow is free.
    HoldBack(Guid, Duration),
    /// Announce a content.
    Announce(Guid),
    /// Withdraw the announcements of contents.
    Withdraw(Vec<Guid>),
    /// Tell a program.
    Tell(App, LocalEvent),
    /// Give a program a chunk, and hold its load until the program has it.
    HandOver(App, LocalChunk, Room),
    /// Set a timer, in place of an earlier setting.
    Set(Timer, Time),
    /// Set a timer unless it fires earlier already.
    SetEarlier(Timer, Time),
    /// Cancel a timer.
    Cancel(Timer),
}

/// Actions in the order in which they are carried out, and counters.
#[derive(Debug, Default)]
pub(super) struct Effects {
    actions: VecDeque<Action>,
    pub(super) counters: HostCounters,
}

impl Effects {
    pub(super) fn push(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    pub(super) fn next(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Counts a drop.
    pub(super) fn drop(&mut self, reason: &'static str) {
        self.counters.drop(reason);
    }

    /// Sends a transport message about a request by the uplink.
    pub(super) fn send_about(
        &mut self,
        request_id: Option<u64>,
        treatment: impl Into<Treatment>,
        to: Located,
        message: Transport,
    ) {
        self.push(Action::Send {
            way: Way::Uplink,
            treatment: treatment.into(),
            to,
            request_id,
            message,
        });
    }

    pub(super) fn control(&mut self, port: PortId, control: Control) {
        self.push(Action::Control(port, control));
    }

    pub(super) fn announce(&mut self, content: Guid) {
        self.push(Action::Announce(content));
    }

    pub(super) fn withdraw(&mut self, contents: Vec<Guid>) {
        self.push(Action::Withdraw(contents));
    }

    pub(super) fn tell(&mut self, app: App, event: LocalEvent) {
        self.push(Action::Tell(app, event));
    }

    /// Tells a program what it has asked for.
    pub(super) fn tell_status(&mut self, app: App, request: u32, status: &impl serde::Serialize) {
        let json = serde_json::to_string(status).unwrap_or_default();
        self.tell(app, LocalEvent::Status { request, json });
    }

    pub(super) fn hand_over(&mut self, app: App, chunk: LocalChunk, load: Room) {
        self.push(Action::HandOver(app, chunk, load));
    }

    pub(super) fn set(&mut self, timer: Timer, at: Time) {
        self.push(Action::Set(timer, at));
    }

    pub(super) fn set_earlier(&mut self, timer: Timer, at: Time) {
        self.push(Action::SetEarlier(timer, at));
    }

    pub(super) fn cancel(&mut self, timer: Timer) {
        self.push(Action::Cancel(timer));
    }
}
