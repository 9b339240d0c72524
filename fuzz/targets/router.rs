//! A live router and a live host that a hostile neighbour, a hostile name server and a hostile
//! program talk to.
//!
//! The input is a list of frames: port u8, length u16, bytes; between two frames 10 ms pass.
#![no_main]

use core::time::Duration;

use libfuzzer_sys::fuzz_target;
use whimbrel_core::{
    Machine, Medium, PortEvent, PortId, PortInfo, PortOrigin, SeededRng, Time, WallClock,
};
use whimbrel_gnrs::KeyPair;
use whimbrel_link::HopConfig;
use whimbrel_mobilityfirst::host::{Host, HostConfig};
use whimbrel_mobilityfirst::local::greeting;
use whimbrel_mobilityfirst::router::{ProxyPolicy, Router, RouterConfig, store::StoreLimits};

fn drive(machine: &mut impl Machine, mut data: &[u8]) {
    // A neighbour, the name server, a program, and somebody who calls.
    let origins = [
        PortOrigin::Configured(1),
        PortOrigin::Configured(0),
        PortOrigin::Local,
        PortOrigin::Accepted(0),
    ];
    for (port, origin) in origins.into_iter().enumerate() {
        let info = PortInfo {
            label: String::new(),
            origin,
            mtu: 1472,
            peer: String::new(),
            medium: Medium::default(),
        };
        machine.handle_port(Time::ZERO, PortId(port as u32), PortEvent::Up(info));
    }
    // Without it, nothing that the program says is looked at.
    machine.handle_frames(Time::ZERO, PortId(2), &[&greeting()]);
    let (mut now, mut buffer) = (Time::ZERO, Vec::new());
    while let [port, high, low, rest @ ..] = data {
        let len = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (frame, rest) = rest.split_at(len);
        data = rest;
        now += Duration::from_millis(10);
        machine.handle_frames(now, PortId(u32::from(*port % 4)), &[frame]);
        machine.handle_timeout(now);
        buffer.clear();
        while machine.poll_transmit(now, 8, &mut buffer).is_some() && buffer.len() < 1 << 20 {}
        while machine.poll_event().is_some() {}
    }
}

fuzz_target!(|data: &[u8]| {
    let keys = KeyPair::from_secret(&[1; 32]);
    let guid = keys.guid();
    let config = RouterConfig {
        guid,
        wall: WallClock::new(1_767_225_600_000),
        hop: HopConfig::plain(&keys, [1; 32], 1472),
        buffer_packets: 1024,
        store: StoreLimits {
            total: 1 << 20,
            per_flow: 1 << 19,
            cache: 1 << 18,
            lifetime: Duration::from_secs(60),
        },
        routes: Vec::new(),
        default_route: None,
        split: Default::default(),
        name_servers: vec![0],
        proxy: ProxyPolicy::default(),
    };
    drive(&mut Router::new(config, SeededRng::new(1)), data);
    let config = HostConfig::new(keys, WallClock::new(1_767_225_600_000));
    drive(&mut Host::new(config, SeededRng::new(1)), data);
});
