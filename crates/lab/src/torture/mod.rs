//! Random faults upon networks of hosts, routers and name servers, on the test bed
//! ([`whimbrel_sim::testbed`]).
//!
//! The promises: what was acknowledged is delivered, once and intact; when the faults
//! end, every transfer that is still wanted completes; learned ways form no loop; then the memory of every
//! node is as it was before. A [`Schedule`] is drawn from a seed and run on a network of hosts and routers, or
//! on an NDN site, where nothing may be pending at a router in the end; a schedule that
//! breaks a promise is shrunk to the acts that matter.

use core::time::Duration;

use whimbrel_core::Time;
use whimbrel_sim::testbed::Fault;

mod agenda;
mod batch;
mod features;
mod library;
mod ndn;
mod pushes;
mod schedule;
mod transfers;
mod verdict;
mod world;

use agenda::{Again, Agenda};
pub use batch::{Broken, run_batch};
pub use features::Features;
pub use schedule::{Act, Layout, Schedule};
pub use verdict::{Breach, Report};
use world::World;

/// A network on which a schedule runs, with a program on each of its hosts.
trait Victim: Sized {
    fn hosts(&self) -> usize;

    fn now(&self) -> Time;

    fn agenda(&mut self) -> &mut Agenda;

    fn report(&mut self) -> &mut Report;

    /// Advances time to `end`, and checks the events of programs.
    fn run_until(&mut self, end: Time) -> Result<(), Breach>;

    /// Has a host's program request a content, after `repeated` vain attempts.
    fn ask(&mut self, host: usize, content: usize, repeated: u64);

    /// Cancels the oldest request of a host. Returns false if there is none.
    fn cancel(&mut self, host: usize) -> bool;

    /// Has a host's program stop or resume reading.
    fn pause(&mut self, host: usize, paused: bool);

    /// Has a program stop or resume reading one of its downloads.
    fn stall(&mut self, host: usize, which: usize);

    /// Has a host's program send a content to another host, which has not asked for it. Does nothing where
    /// there is no such thing.
    fn push(&mut self, push: pushes::PushAct, delegated: bool);

    /// Has a host's program send a content to the group of all hosts. Does nothing where there is none.
    fn push_to_all(&mut self, from: usize, content: usize);

    fn strike(&mut self, fault: Fault);

    /// Ends all faults, and checks that all transfers end.
    fn conclude(self) -> Result<Report, Breach>;

    /// Advances time, and repeats requests when they are due.
    fn run_for(&mut self, duration: Duration) -> Result<(), Breach> {
        let end = self.now() + duration;
        while let Some((at, again)) = self.agenda().take(end) {
            self.run_until(at)?;
            self.ask(again.host, again.content, again.repeated);
        }
        self.run_until(end)
    }

    /// Performs one act of a schedule.
    fn perform(&mut self, act: &Act) -> Result<(), Breach> {
        let hosts = self.hosts();
        let host = |number: u8| usize::from(number) % hosts;
        match *act {
            Act::Get {
                host: number,
                content,
            } => {
                self.report().requests += 1;
                let content = usize::from(content) % library::contents().len();
                self.ask(host(number), content, 0);
            }
            Act::Cancel { host: number } => {
                if self.cancel(host(number)) {
                    self.report().abandoned += 1;
                }
            }
            Act::Pause {
                host: number,
                paused,
            } => self.pause(host(number), paused),
            Act::Stall {
                host: number,
                which,
            } => self.stall(host(number), which.into()),
            Act::Push {
                host: number,
                to,
                content,
                delegated,
            } => {
                let from = host(number);
                let push = pushes::PushAct {
                    from,
                    to: (from + 1 + usize::from(to) % (hosts - 1).max(1)) % hosts,
                    content: usize::from(content) % library::contents().len(),
                };
                self.push(push, delegated);
            }
            Act::PushToAll {
                host: number,
                content,
            } => {
                let content = usize::from(content) % library::contents().len();
                self.push_to_all(host(number), content);
            }
            Act::Fault(fault) => self.strike(fault),
        }
        self.run_until(self.now())
    }
}
