//! One direction of an emulated link: the simulator's model and the clock that it runs by.

use std::io;
use std::time::Instant;

use whimbrel_core::{SeededRng, Time};
use whimbrel_sim::link::{LinkDirection, LinkSpec, LinkSpecError};

use super::packet::Packet;
use super::report::{DirectionReport, Lateness};

pub(super) struct Path {
    spec: LinkSpec,
    current: ClockedModel,
    // The model from before the schedule began: it takes no more packets and delivers those it has.
    retired: Option<ClockedModel>,
    armed: bool,
    refused: u64,
    lateness: Lateness,
}

struct ClockedModel {
    origin: Instant,
    model: LinkDirection<Packet>,
}

impl ClockedModel {
    fn time(&self, now: Instant) -> Time {
        Time::ZERO + now.saturating_duration_since(self.origin)
    }

    fn next_time(&self) -> Option<Instant> {
        self.origin
            .checked_add(self.model.next_time()?.since(Time::ZERO))
    }
}

impl Path {
    /// Returns a path whose schedule has not begun.
    pub(super) fn new(spec: LinkSpec, rng: SeededRng, now: Instant) -> Result<Path, LinkSpecError> {
        let model = LinkDirection::new(&unscheduled(&spec), rng)?;
        let current = ClockedModel { origin: now, model };
        Ok(Path {
            spec,
            current,
            retired: None,
            armed: false,
            refused: 0,
            lateness: Lateness::default(),
        })
    }

    /// Starts anew with the schedule's origin at `origin`.
    pub(super) fn arm(&mut self, origin: Instant, rng: SeededRng) -> Result<(), LinkSpecError> {
        let mut model = LinkDirection::new(&self.spec, rng)?;
        model.set_up(Time::ZERO, self.current.model.is_up());
        self.retired = Some(std::mem::replace(
            &mut self.current,
            ClockedModel { origin, model },
        ));
        self.armed = true;
        self.refused = 0;
        self.lateness = Lateness::default();
        Ok(())
    }

    pub(super) fn set_up(&mut self, now: Instant, up: bool) {
        let time = self.current.time(now);
        self.current.model.set_up(time, up);
    }

    pub(super) fn set_spec(&mut self, now: Instant, spec: LinkSpec) -> Result<(), LinkSpecError> {
        let time = self.current.time(now);
        let effective = if self.armed {
            spec.clone()
        } else {
            unscheduled(&spec)
        };
        self.current.model.set_spec(time, &effective)?;
        self.spec = spec;
        Ok(())
    }

    pub(super) fn offer(&mut self, now: Instant, packet: Packet) {
        let time = self.current.time(now);
        self.current.model.enqueue(time, packet);
    }

    /// Passes every packet that is due to `send`.
    pub(super) fn deliver(&mut self, send: impl Fn(&[u8]) -> io::Result<()>) {
        if let Some(retired) = &mut self.retired {
            while let Some(packet) = retired.model.poll(retired.time(Instant::now())) {
                // Packets from before this run change none of its counters.
                let _ = send(packet.as_ref());
            }
            if retired.model.next_time().is_none() {
                self.retired = None;
            }
        }
        loop {
            let due = self.current.next_time();
            let now = Instant::now();
            let time = self.current.time(now);
            let Some(packet) = self.current.model.poll(time) else {
                return;
            };
            if send(packet.as_ref()).is_err() {
                self.refused += 1;
            }
            if let Some(due) = due {
                self.lateness.add(now.saturating_duration_since(due));
            }
        }
    }

    /// Returns the time at which [`Path::deliver`] is due next.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let retired = self.retired.as_ref().and_then(ClockedModel::next_time);
        [retired, self.current.next_time()]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn report(&self) -> DirectionReport {
        DirectionReport::new(self.current.model.stats(), self.refused, &self.lateness)
    }
}

/// Returns the behaviour of a link before a run starts its schedule.
fn unscheduled(spec: &LinkSpec) -> LinkSpec {
    LinkSpec {
        outages: Vec::new(),
        changes: Vec::new(),
        ..spec.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use whimbrel_sim::link::Outage;

    use super::*;
    use crate::emulator::packet::PacketPool;

    fn deliver(path: &mut Path) -> Vec<u8> {
        let delivered = RefCell::new(Vec::new());
        path.deliver(|packet| {
            delivered.borrow_mut().push(packet[0]);
            Ok(())
        });
        delivered.into_inner()
    }

    fn packet(pool: &PacketPool, mark: u8) -> Packet {
        let mut packet = pool.take();
        packet.buffer()[0] = mark;
        packet.set_length(1);
        packet
    }

    #[test]
    fn an_outage_waits_until_the_schedule_is_armed() {
        let outage = Outage::Once {
            start: Duration::ZERO,
            duration: Duration::from_secs(3600),
        };
        let spec = LinkSpec {
            outages: vec![outage],
            ..LinkSpec::default()
        };
        let (pool, now) = (PacketPool::new(4), Instant::now());
        let mut path = Path::new(spec, SeededRng::new(1), now).unwrap();
        path.offer(now, packet(&pool, 1));
        assert_eq!(deliver(&mut path), [1]);
        path.arm(now, SeededRng::new(1)).unwrap();
        path.offer(now, packet(&pool, 2));
        assert!(deliver(&mut path).is_empty());
        let report = path.report();
        assert_eq!(
            (report.offered, report.dropped_outage, report.delivered),
            (1, 1, 0)
        );
    }

    #[test]
    fn packets_under_way_when_a_run_starts_arrive_uncounted() {
        let spec = LinkSpec {
            delay: Duration::from_millis(20),
            ..LinkSpec::default()
        };
        let (pool, now) = (PacketPool::new(4), Instant::now());
        let mut path = Path::new(spec, SeededRng::new(1), now).unwrap();
        path.offer(now, packet(&pool, 1));
        path.arm(now, SeededRng::new(1)).unwrap();
        path.offer(now, packet(&pool, 2));
        let mut delivered = Vec::new();
        while let Some(next) = path.next_time() {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            delivered.extend(deliver(&mut path));
        }
        delivered.sort_unstable();
        assert_eq!(delivered, [1, 2]);
        assert_eq!((path.report().offered, path.report().delivered), (1, 1));
        assert!(path.retired.is_none());
    }

    #[test]
    fn a_link_that_was_cut_stays_cut_when_a_run_starts() {
        let (pool, now) = (PacketPool::new(4), Instant::now());
        let mut path = Path::new(LinkSpec::default(), SeededRng::new(1), now).unwrap();
        path.set_up(now, false);
        path.arm(now, SeededRng::new(1)).unwrap();
        path.offer(now, packet(&pool, 1));
        assert!(deliver(&mut path).is_empty());
        path.set_up(Instant::now(), true);
        path.offer(Instant::now(), packet(&pool, 2));
        assert_eq!(deliver(&mut path), [2]);
    }
}
