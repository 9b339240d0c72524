//! Handles, and what is kept for each.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use whimbrel_client::{ContentOffer, ContentPiece, Guid, HostDriver, OfferVerdict};

use crate::code::Fault;
use crate::code::whimbrel_code::*;

/// A handle of a program that is attached to a host; 0 is no handle.
#[allow(non_camel_case_types, reason = "a name of the C interface")]
pub type whimbrel = u64;

/// Offers that a program may have taken without a decision; the oldest are forgotten, and stay open at the host.
const MAX_OFFERS: usize = 1024;

/// A program at its host.
pub(crate) struct Program {
    pub(crate) driver: HostDriver,
    /// What was taken of a transfer and not read yet.
    pub(crate) rest: BTreeMap<u32, ContentPiece>,
    /// Offers without a decision.
    pub(crate) offers: VecDeque<ContentOffer>,
    /// Offers that are received, by the transfer's number.
    pub(crate) accepted: BTreeMap<u32, ContentOffer>,
    /// The question for the host's name, and the name once it is known.
    pub(crate) name_question: Option<u32>,
    pub(crate) name: Option<Guid>,
}

impl Program {
    pub(crate) fn new(driver: HostDriver) -> Program {
        Program {
            driver,
            rest: BTreeMap::new(),
            offers: VecDeque::new(),
            accepted: BTreeMap::new(),
            name_question: None,
            name: None,
        }
    }

    pub(crate) fn keep_offer(&mut self, offer: ContentOffer) {
        if self.offers.len() >= MAX_OFFERS {
            self.offers.pop_front();
        }
        self.offers.push_back(offer);
    }

    /// Removes an offer that was taken and has no decision.
    pub(crate) fn decide_offer(
        &mut self,
        sender: Guid,
        number: u64,
    ) -> Result<ContentOffer, Fault> {
        let at = self
            .offers
            .iter()
            .position(|it| it.id.sender == sender && it.id.number == number);
        at.and_then(|at| self.offers.remove(at)).ok_or_else(|| {
            Fault::new(
                WHIMBREL_OVER,
                "the offer was already accepted or refused, or is not one of this program's",
            )
        })
    }

    /// All bytes of a transfer were read: the sender of an offered content is told.
    pub(crate) fn note_read(&mut self, number: u32) {
        if let Some(offer) = self.accepted.remove(&number) {
            self.driver.session().settle(&offer, OfferVerdict::Received);
            self.driver.flush();
        }
    }
}

/// The programs of this process.
struct Registry {
    last: u64,
    programs: BTreeMap<u64, Arc<Mutex<Program>>>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    last: 0,
    programs: BTreeMap::new(),
});

/// The process whose programs they are. A forked one must not wait for a lock that no thread of it holds.
static PROCESS: AtomicU32 = AtomicU32::new(0);

fn forked() -> Fault {
    let text =
        "the handle belongs to the process that this one was forked from: attach in this process";
    Fault::new(WHIMBREL_FORKED, text)
}

fn registry() -> Result<MutexGuard<'static, Registry>, Fault> {
    if PROCESS.load(Ordering::Relaxed) != std::process::id() {
        return Err(match PROCESS.load(Ordering::Relaxed) {
            0 => closed(),
            _ => forked(),
        });
    }
    Ok(REGISTRY.lock().unwrap_or_else(PoisonError::into_inner))
}

fn closed() -> Fault {
    Fault::new(
        WHIMBREL_CLOSED,
        "the handle is closed, or was never opened: attach first",
    )
}

/// Opens a handle.
pub(crate) fn open(driver: HostDriver) -> Result<whimbrel, Fault> {
    let process = std::process::id();
    let mut registry = match PROCESS.swap(process, Ordering::Relaxed) {
        before if before == process => REGISTRY.lock().unwrap_or_else(PoisonError::into_inner),
        before => {
            // In a forked process another thread of its parent may have held the lock.
            let Ok(mut registry) = REGISTRY.try_lock() else {
                PROCESS.store(before, Ordering::Relaxed);
                return Err(forked());
            };
            registry.programs.clear();
            registry
        }
    };
    registry.last += 1;
    let handle = registry.last;
    registry
        .programs
        .insert(handle, Arc::new(Mutex::new(Program::new(driver))));
    Ok(handle)
}

/// Closes a handle.
pub(crate) fn close(handle: whimbrel) -> Result<(), Fault> {
    let program = registry()?.programs.remove(&handle).ok_or_else(closed)?;
    // Another thread may be in a call with it, which fails then.
    let mut program = program.lock().unwrap_or_else(PoisonError::into_inner);
    program.driver.detach();
    Ok(())
}

/// Returns the program of a handle.
pub(crate) fn program_of(handle: whimbrel) -> Result<Arc<Mutex<Program>>, Fault> {
    registry()?
        .programs
        .get(&handle)
        .cloned()
        .ok_or_else(closed)
}

/// Calls `act` with the program of a handle that can still ask its host.
pub(crate) fn with<T>(
    handle: whimbrel,
    act: impl FnOnce(&mut Program) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let program = program_of(handle)?;
    let mut program = program.lock().unwrap_or_else(PoisonError::into_inner);
    program.driver.check()?;
    act(&mut program)
}
