use core::time::Duration;
use whimbrel_lab::*;
use whimbrel_sim::link::*;
#[test]
fn debug() {
    let w = LinkSpec { delay: Duration::from_millis(1), ..LinkSpec::new(25_000_000, Duration::from_millis(1)) };
    let fig7 = Fig7::new(Duration::from_millis(50), w);
    let mut world = SimulatedFig7::new(&fig7, SimulatedFig7Options::default(), 1);
    let content = RepeatingContent::new(10<<20, 1);
    let name = content.name();
    world.publish(content);
    let t = world.get(name);
    for step in [50,100,200,400,800,1600,3200,6000u64,8000] {
        world.run_until(whimbrel_core::Time::from_millis(2000+step));
        println!("--- {step} ms received {}", world.received(t));
        for n in 0..4 {
            let node = world.nodes[n];
            world.sim.with_node(node, |m, now| {
                if let Some(h) = m.host() { let mut s = h.status(now); s.links.iter_mut().for_each(|l| { println!("   N{} {}: sent {} bw {} rtt {:?} win {} out {} wait {} inflight {} cap {}", n+1, l.up, l.hop.data_sent, l.hop.bandwidth, l.hop.rtt, l.hop.window, l.hop.outstanding, l.chunks_waiting, l.hop.inflight, l.hop.inflight_cap)}); s.links.clear(); println!("{}", serde_json::to_string(&s).unwrap()); }
                if let Some(h) = m.router() { let mut s = h.status(now); s.links.iter_mut().for_each(|l| { println!("   N{} {}: sent {} resent {} bw {} rtt {:?} win {} out {} wait {} inflight {} cap {}", n+1, l.up, l.hop.data_sent, l.hop.data_resent, l.hop.bandwidth, l.hop.rtt, l.hop.window, l.hop.outstanding, l.chunks_waiting, l.hop.inflight, l.hop.inflight_cap)}); s.links.clear(); println!("{}", serde_json::to_string(&s).unwrap()); }
            });
        }
    }
}
