//! What the parts of a host want done beyond their own state.

use whimbrel_link::Room;

use super::effects::{Action, Located, Treatment};
use super::{Host, Way};
use crate::chunk::Chunk;
use crate::local::LocalEvent;
use crate::wire::{Control, Credit, Flow, ServiceId, UpperProtocol};

impl Host {
    /// Carries out the actions of the parts until there are none left.
    pub(super) fn carry_out(&mut self) {
        while let Some(action) = self.effects.next() {
            match action {
                // A receiver that misses it asks again.
                Action::Send {
                    way,
                    treatment,
                    to,
                    request_id,
                    message,
                } => {
                    let way = self.way_to(way, &to.name);
                    (self.access).send_transport(way, treatment, to, request_id, &message);
                }
                Action::SendMessage {
                    way,
                    treatment,
                    to,
                    message,
                    room,
                } => {
                    let way = self.way_to(way, &to);
                    let Treatment {
                        service, divides, ..
                    } = treatment;
                    let (upper, to) = (UpperProtocol::Transport, Located::anywhere(to));
                    let mut header = self.access.header(way, service, upper, to);
                    header.extensions.lifetime_ms = treatment.lifetime_ms;
                    let chunk = Chunk::of_transport(header, &message);
                    self.access.send_holding(way, chunk, divides, &room);
                }
                Action::Echo { way, to, echo } => {
                    let (service, upper) = (ServiceId::UNICAST, UpperProtocol::Echo);
                    let header = self.access.header(way, service, upper, to);
                    if !(self.access).send(way, Chunk::of_echo(header, &echo), None) {
                        self.effects.drop("no-router");
                    }
                }
                Action::Control(port, control) => self.access.send_control(port, &control),
                Action::Leave(router, control) => {
                    let (service, upper) = (ServiceId::UNICAST, UpperProtocol::Control);
                    let to = Located::router(router);
                    let header = self.access.header(Way::Uplink, service, upper, to);
                    // If it is lost, the router learns of it from silence.
                    let chunk = Chunk::of_control(header, &control);
                    self.access.send(Way::Uplink, chunk, None);
                }
                Action::AskMembers(group) => {
                    if let Some(port) = self.access.port_by(Way::Uplink) {
                        self.access
                            .send_control(port, &Control::AskMembers { group });
                    }
                }
                Action::HoldBack(sender, lease) => {
                    let credit = Credit {
                        flow: Flow::offered(sender, self.guid),
                        octets: 0,
                        spare: false,
                        lease,
                    };
                    for branch in self.access.hops(Way::Uplink).iter() {
                        (self.access).send_control(branch.port, &Control::Credit(credit));
                    }
                }
                Action::Announce(content) => self.registration.announce(content),
                Action::Withdraw(contents) => self.registration.withdraw_announcements(contents),
                Action::Tell(app, event) => {
                    if !self.programs.tell(app, event, Room::default()) {
                        self.effects.drop("local-report");
                    }
                }
                // A chunk is no report, so it is not dropped.
                Action::HandOver(app, chunk, load) => {
                    self.programs.tell(app, LocalEvent::Chunk(chunk), load);
                }
                Action::Set(timer, at) => self.timers.set(timer, at),
                Action::SetEarlier(timer, at) => self.timers.set_earlier(timer, at),
                Action::Cancel(timer) => {
                    self.timers.cancel(&timer);
                }
            }
        }
    }

    /// What a download says to an inbound peer goes to that one; no router knows where it is.
    fn way_to(&self, way: Way, to: &whimbrel_core::Guid) -> Way {
        match way {
            Way::Uplink if self.downloads.asks_caller(to) => {
                (self.access.port_of_caller(to)).map_or(way, Way::Caller)
            }
            way => way,
        }
    }
}
