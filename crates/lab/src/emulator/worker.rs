//! The thread that moves packets between TUN devices.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use whimbrel_core::SeededRng;
use whimbrel_sim::link::{LinkSpec, LinkSpecError};

use super::packet::PacketPool;
use super::path::Path;
use super::report::{LinkReport, Scheduling};
use super::{Direction, EmulatedLink};
use crate::tun::Tun;

/// Packets read from one device before the others get their turn.
const BATCH: usize = 64;
/// The thread does not sleep for nearer deadlines: sleeping and waking takes longer.
const TOO_SHORT_TO_SLEEP: Duration = Duration::from_micros(20);

pub(super) enum Command {
    Arm(Instant),
    SetUp {
        link: usize,
        up: bool,
    },
    SetSpec {
        link: usize,
        direction: Direction,
        spec: Box<LinkSpec>,
    },
    Report(Sender<Vec<LinkReport>>),
    Stop,
}

pub(super) struct Worker {
    links: Vec<Link>,
    seed: u64,
    pool: PacketPool,
    wake: Arc<OwnedFd>,
    inbox: Receiver<Command>,
    // An announced start that has not come yet.
    arm_at: Option<Instant>,
    scheduling: Scheduling,
}

struct Link {
    name: String,
    ends: [Tun; 2],
    // The n-th path carries packets read at the n-th end to the other end.
    paths: [Path; 2],
}

/// The reason why the loop ends.
enum Ended {
    Asked,
    Failed(io::Error),
}

impl Worker {
    pub(super) fn new(
        links: Vec<EmulatedLink>,
        seed: u64,
        mtu: usize,
        wake: Arc<OwnedFd>,
        inbox: Receiver<Command>,
    ) -> Result<Worker, LinkSpecError> {
        let now = Instant::now();
        let links = links.into_iter().map(
            |EmulatedLink {
                 name,
                 ends,
                 forward,
                 backward,
             }| {
                let forward = Path::new(forward, stream(seed, &name, 0), now)?;
                let backward = Path::new(backward, stream(seed, &name, 1), now)?;
                Ok(Link {
                    name,
                    ends,
                    paths: [forward, backward],
                })
            },
        );
        let links = links.collect::<Result<_, LinkSpecError>>()?;
        let pool = PacketPool::new(mtu);
        Ok(Worker {
            links,
            seed,
            pool,
            wake,
            inbox,
            arm_at: None,
            scheduling: raise_priority(),
        })
    }

    /// Runs until it is told to stop, its owner is gone, or a device fails.
    pub(super) fn run(&mut self) {
        // For each end of each link, true if it may have more to read. The first entry is the
        // wake-up.
        let mut readable = vec![false; 1 + 2 * self.links.len()];
        loop {
            match self.round(&mut readable) {
                Ok(()) => {}
                Err(Ended::Asked) => return,
                Err(Ended::Failed(error)) => {
                    tracing::error!(%error, "the link emulator stops");
                    return;
                }
            }
        }
    }

    fn round(&mut self, readable: &mut [bool]) -> Result<(), Ended> {
        if readable[0] {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.wake, &mut count);
            self.obey()?;
        }
        if self.arm_at.is_some_and(|at| at <= Instant::now()) {
            self.arm()?;
        }
        for (link, readable) in self.links.iter_mut().zip(readable[1..].chunks_mut(2)) {
            for (path, (from, readable)) in link
                .paths
                .iter_mut()
                .zip(link.ends.iter().zip(readable.iter_mut()))
            {
                if *readable {
                    *readable = take_in(path, from, &self.pool).map_err(Ended::Failed)?;
                }
            }
            let [first, second] = &link.ends;
            link.paths[0].deliver(|packet| second.send(packet));
            link.paths[1].deliver(|packet| first.send(packet));
        }
        self.wait(readable).map_err(Ended::Failed)
    }

    fn obey(&mut self) -> Result<(), Ended> {
        loop {
            let now = Instant::now();
            match self.inbox.try_recv() {
                Ok(Command::Arm(at)) => self.arm_at = Some(at),
                Ok(Command::SetUp { link, up }) => {
                    if let Some(link) = self.links.get_mut(link) {
                        link.paths.iter_mut().for_each(|path| path.set_up(now, up));
                    }
                }
                Ok(Command::SetSpec {
                    link,
                    direction,
                    spec,
                }) => {
                    if let Some(link) = self.links.get_mut(link) {
                        link.paths[direction as usize]
                            .set_spec(now, *spec)
                            .map_err(failed)?;
                    }
                }
                Ok(Command::Report(answer)) => {
                    let _ = answer.send(self.links.iter().map(|link| self.report(link)).collect());
                }
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return Err(Ended::Asked),
                Err(TryRecvError::Empty) => return Ok(()),
            }
        }
    }

    fn arm(&mut self) -> Result<(), Ended> {
        let Some(origin) = self.arm_at.take() else {
            return Ok(());
        };
        for link in &mut self.links {
            for (end, path) in link.paths.iter_mut().enumerate() {
                path.arm(origin, stream(self.seed, &link.name, end))
                    .map_err(failed)?;
            }
        }
        Ok(())
    }

    fn report(&self, link: &Link) -> LinkReport {
        let [forward, backward] = &link.paths;
        LinkReport {
            link: link.name.clone(),
            forward: forward.report(),
            backward: backward.report(),
            scheduling: self.scheduling,
        }
    }

    /// Waits for the next packet, command or deadline, and marks the readable devices.
    fn wait(&self, readable: &mut [bool]) -> io::Result<()> {
        let deadlines = self
            .links
            .iter()
            .flat_map(|link| &link.paths)
            .filter_map(Path::next_time);
        let deadline = deadlines.chain(self.arm_at).min();
        let busy = readable[1..].contains(&true);
        let patience = match deadline {
            _ if busy => Some(Duration::ZERO),
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now());
                Some(if left < TOO_SHORT_TO_SLEEP {
                    Duration::ZERO
                } else {
                    left
                })
            }
            None => None,
        };
        let timeout = patience.and_then(|patience| Timespec::try_from(patience).ok());
        let mut polled = Vec::with_capacity(readable.len());
        polled.push(PollFd::new(&*self.wake, PollFlags::IN));
        let ends = self.links.iter().flat_map(|link| &link.ends);
        polled.extend(ends.map(|end| PollFd::new(end, PollFlags::IN)));
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for (polled, readable) in polled.iter().zip(readable) {
            *readable = !polled.revents().is_empty();
        }
        Ok(())
    }
}

/// Reads one batch. Returns true if there may be more.
fn take_in(path: &mut Path, from: &Tun, pool: &PacketPool) -> io::Result<bool> {
    for _ in 0..BATCH {
        let mut packet = pool.take();
        match from.receive(packet.buffer())? {
            None => return Ok(false),
            Some(length) => {
                packet.set_length(length);
                path.offer(Instant::now(), packet);
            }
        }
    }
    Ok(true)
}

fn failed(error: LinkSpecError) -> Ended {
    Ended::Failed(io::Error::other(error))
}

fn stream(seed: u64, link: &str, end: usize) -> SeededRng {
    SeededRng::stream(seed, &format!("link {link} from end {end}"))
}

/// Lets the calling thread run as soon as possible, as far as this process may.
fn raise_priority() -> Scheduling {
    // The default slack would make every timer up to 50 us late.
    if let Err(error) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
        tracing::debug!(%error, "timers keep their slack");
    }
    // The lowest of the real-time priorities: above all ordinary programs, below the kernel's own
    // threads.
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads one `sched_param`; process 0 is the calling thread.
    let real_time = unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters) == 0
    };
    if real_time {
        Scheduling::RealTime
    } else if rustix::process::setpriority_process(None, -10).is_ok() {
        Scheduling::Raised
    } else {
        tracing::debug!("the link emulator runs at ordinary priority");
        Scheduling::Ordinary
    }
}
