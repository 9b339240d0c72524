//! Links between hosts, emulated in real time.
//!
//! An emulated link is two TUN devices, one in each host, and one `whimbrel_sim` link direction
//! each way between them: the very model that the simulator runs in virtual time. One thread serves
//! all links of a topology. It wakes when a packet arrives or is due, and runs with real-time
//! priority where that is permitted.

mod packet;
mod path;
mod report;
mod worker;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};
use whimbrel_sim::link::LinkSpec;

use crate::{LabError, tun::Tun};

pub use report::{DirectionReport, LinkReport, Scheduling};
use worker::{Command, Worker};

/// One of the two directions of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the first named host to the second.
    Forward,
    /// From the second named host to the first.
    Backward,
}

/// A link to emulate.
#[derive(Debug)]
pub struct EmulatedLink {
    /// For reports; the link's random streams depend on this name.
    pub name: String,
    /// The interfaces at its first and its second end.
    pub ends: [Tun; 2],
    /// The model from the first end to the second.
    pub forward: LinkSpec,
    /// The model from the second end to the first.
    pub backward: LinkSpec,
}

/// A running emulator. Dropping it stops it, and the interfaces at the ends of its links vanish.
///
/// Until [`Emulator::arm`] is called, links have their rates, delays and losses, but no outage and
/// no change of their schedules takes place.
#[derive(Debug)]
pub struct Emulator {
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Emulator {
    /// Starts to emulate `links`. Every random draw comes from `seed`. `mtu` is the largest packet
    /// in bytes.
    pub fn start(links: Vec<EmulatedLink>, seed: u64, mtu: usize) -> Result<Emulator, LabError> {
        for link in &links {
            for spec in [&link.forward, &link.backward] {
                validate(&link.name, spec)?;
            }
        }
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|error| LabError::system("create an eventfd")(error.into()))?;
        let wake = Arc::new(wake);
        let (commands, inbox) = channel();
        let worker_wake = wake.clone();
        let thread = std::thread::Builder::new()
            .name("link-emulator".to_owned())
            .spawn(
                move || match Worker::new(links, seed, mtu, worker_wake, inbox) {
                    Ok(mut worker) => worker.run(),
                    Err(error) => tracing::error!(%error, "the link emulator cannot start"),
                },
            )
            .map_err(LabError::system("start a thread"))?;
        Ok(Emulator {
            commands,
            wake,
            thread: Some(thread),
        })
    }

    /// Makes `start` (now or soon) the origin of every link's schedule of outages and changes. At
    /// that moment each link also starts over with fresh random streams and zeroed counters, so
    /// that each run sees the same; packets that are under way arrive as they would have, without
    /// being counted.
    pub fn arm(&self, start: Instant) -> Result<(), LabError> {
        self.send(Command::Arm(start))
    }

    /// Cuts both directions of the link number `link` (in the order given to [`Emulator::start`]),
    /// or restores them. A schedule of outages goes on beside this.
    pub fn set_outage(&self, link: usize, out: bool) -> Result<(), LabError> {
        self.send(Command::SetUp { link, up: !out })
    }

    /// Replaces the model of one direction of a link, from now on and for later runs. Times in its
    /// schedule count from the last [`Emulator::arm`].
    pub fn set_spec(
        &self,
        link: usize,
        direction: Direction,
        spec: &LinkSpec,
    ) -> Result<(), LabError> {
        validate(&format!("number {link}"), spec)?;
        self.send(Command::SetSpec {
            link,
            direction,
            spec: Box::new(spec.clone()),
        })
    }

    /// Returns the counters of each link since the last [`Emulator::arm`], in the order given to
    /// [`Emulator::start`].
    pub fn report(&self) -> Result<Vec<LinkReport>, LabError> {
        let (answer, answered) = channel();
        self.send(Command::Report(answer))?;
        answered.recv().map_err(|_| stopped())
    }

    fn send(&self, command: Command) -> Result<(), LabError> {
        self.commands.send(command).map_err(|_| stopped())?;
        // Fails only when the counter is full, and then the thread is being woken already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        Ok(())
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn stopped() -> LabError {
    LabError::EmulatorStopped("its thread has ended; the log says why".to_owned())
}

fn validate(name: &str, spec: &LinkSpec) -> Result<(), LabError> {
    spec.validate()
        .map_err(|error| LabError::BadTopology(format!("link '{name}': {error}")))
}
