//! The neighbours that may send chunks of any source.

use core::time::Duration;

use whimbrel_core::{Guid, PortOrigin};
use whimbrel_link::HopConfig;

use super::hostile::{control, keys, record};
use super::tests::{Net, config, data, port};
use super::{NextHop, Route, RouterConfig};
use crate::links::NameRule;
use crate::wire::{Control, ServiceId};

const SECOND: Duration = Duration::from_secs(1);
/// The client that is attached at the router, and its port.
const CLIENT: u8 = 2;

fn hop(number: u8, calls: bool) -> HopConfig {
    HopConfig {
        calls,
        ..HopConfig::sealed(&keys(number), [number; 32], 1472)
    }
}

/// Returns a router with an encrypted link to the address where the neighbour with the keys 1 answers,
/// and an attached client. `routes` and `rule` are what the configuration says of the neighbour.
fn net(routes: Vec<Route>, rule: Option<NameRule>) -> Net {
    let router = RouterConfig {
        guid: keys(9).guid(),
        hop: hop(9, true),
        routes,
        ..config()
    };
    let origins = [PortOrigin::Configured(0), PortOrigin::Accepted(0)];
    let hops = vec![hop(1, false), hop(CLIENT, true)];
    let mut net = Net::with_hops(hops, &origins, router);
    let client = keys(CLIENT).guid();
    net.with_router(|it, _| {
        rule.inspect(|rule| it.set_name_rule(0, *rule));
        assert!(it.binding.attachments.insert(client, port(2), 1));
    });
    net
}

/// Returns how many chunks reach the client that the neighbour sends in the name of the host with the
/// keys 3.
fn arrived(net: &mut Net) -> usize {
    let mut chunk = data(ServiceId::UNICAST, keys(CLIENT).guid(), 0, 1000);
    chunk.header.source = keys(3).guid();
    net.send(1, chunk);
    net.run(SECOND / 2);
    net.received(2).len()
}

#[test]
fn a_neighbour_configured_by_address_alone_is_not_believed_for_others() {
    let mut net = net(Vec::new(), Some(NameRule::FirstProven(None)));
    assert_eq!(net.with_router(|it, _| it.proven_names().len()), 1);
    assert_eq!(arrived(&mut net), 0);
    // It is asked, as routers that call are, and speaks for the hosts whose records name it.
    let record = record(&keys(3), keys(1).guid(), 0);
    let vouch = Control::Vouch { record };
    net.send(1, control(keys(1).guid(), &vouch));
    net.run(SECOND / 2);
    assert_eq!(net.received(2).len(), 1);
}

#[test]
fn a_neighbour_whose_name_the_configuration_gives_is_believed() {
    let name = keys(1).guid();
    assert_eq!(
        arrived(&mut net(Vec::new(), Some(NameRule::Given(name)))),
        1
    );
    let far = Guid([77; 32]);
    let route = Route::new(far, NextHop::Neighbour(name));
    assert_eq!(arrived(&mut net(vec![route], None)), 1);
    let by_label = Route::new(far, NextHop::Link(0));
    assert_eq!(arrived(&mut net(vec![by_label], None)), 0);
}
