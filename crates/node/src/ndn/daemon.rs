//! An NDN router behind real sockets, from a configuration.

use std::sync::mpsc;

use whimbrel_core::SeededRng;
use whimbrel_io::{Clock, EventLoop, LoopHandle};
use whimbrel_ndn_router::NdnRouter;

use super::open::{NdnLoop, NdnOpened, open_listeners};
use crate::compose;
use crate::config::NdnPlan;
use crate::metrics::{self, Source};
use crate::run::{StartError, random_number};

/// An NDN router on a thread of its own.
#[derive(Debug)]
pub struct NdnThread {
    opened: NdnOpened,
    handle: LoopHandle<NdnRouter>,
    thread: std::thread::JoinHandle<Result<(), StartError>>,
}

impl NdnThread {
    /// Starts the router of `plan`. It ends at SIGINT or SIGTERM, or by [`NdnThread::stop`].
    pub fn start(plan: NdnPlan) -> Result<NdnThread, StartError> {
        let (started, outcome) = mpsc::channel();
        let metrics = plan.metrics;
        // The loop cannot be sent to another thread, so it is made on its own.
        let run = move || {
            let (mut event_loop, opened) = prepare(plan)?;
            event_loop.stop_on_signals()?;
            let _ = started.send((event_loop.handle(), opened));
            event_loop.run(|_, _, never| match never {})?;
            Ok(())
        };
        let no_thread = |source| StartError::System {
            what: "thread",
            source,
        };
        let thread = std::thread::Builder::new()
            .name("ndn".into())
            .spawn(run)
            .map_err(no_thread)?;
        match outcome.recv() {
            Ok((handle, mut opened)) => {
                if let Some(address) = metrics {
                    match metrics::serve(address, vec![Source::ndn(handle.clone())]) {
                        Ok(local) => opened.metrics = Some(local),
                        Err(error) => {
                            handle.stop();
                            let _ = joined(thread);
                            return Err(error);
                        }
                    }
                }
                Ok(NdnThread {
                    opened,
                    handle,
                    thread,
                })
            }
            // It has ended without a report; its result has the reason.
            Err(mpsc::RecvError) => Err(joined(thread)
                .err()
                .unwrap_or_else(|| no_thread(std::io::Error::other("it ended at once")))),
        }
    }

    /// Returns the opened sockets.
    pub fn opened(&self) -> &NdnOpened {
        &self.opened
    }

    /// Returns a handle, for metrics and inspection.
    pub fn handle(&self) -> LoopHandle<NdnRouter> {
        self.handle.clone()
    }

    /// Tells it to stop; [`NdnThread::wait`] waits for it.
    pub fn stop(&self) {
        self.handle.stop();
    }

    /// Waits until it has ended.
    pub fn wait(self) -> Result<(), StartError> {
        joined(self.thread)
    }
}

fn joined(thread: std::thread::JoinHandle<Result<(), StartError>>) -> Result<(), StartError> {
    thread.join().unwrap_or_else(|_| {
        // A panic has been reported by its thread.
        Err(StartError::System {
            what: "NDN router",
            source: std::io::Error::other("its thread has panicked"),
        })
    })
}

/// Returns a loop with all sockets open, which has requested its configured faces.
fn prepare(plan: NdnPlan) -> Result<(NdnLoop, NdnOpened), StartError> {
    let clock = Clock::start();
    let rng = SeededRng::new(random_number()?);
    let router = compose::ndn_router(&plan, clock.wall_clock(), rng);
    let mut event_loop = EventLoop::new(clock, router)?;
    event_loop.follow_wall_clock(|router: &mut NdnRouter, _, wall| {
        router.forwarder_mut().set_wall_clock(wall);
    });
    let opened = open_listeners(&mut event_loop, &plan)?;
    let router = event_loop.machine_mut();
    let forwarder = router.forwarder_mut();
    forwarder.set_channels(opened.channels());
    forwarder.set_command_verifier(Box::new(plan.anchors));
    for (endpoint, settings) in plan.faces {
        router.ask(endpoint, settings);
    }
    for (prefix, endpoint, cost) in plan.routes {
        router.route_to(prefix, endpoint, cost);
    }
    Ok((event_loop, opened))
}
