//! Loads of Interests at a rate.

use std::sync::Arc;
use std::time::Duration;

use whimbrel_core::{SeededRng, Time};
use whimbrel_sim::{AnyMachine, NodeId};
use whimbrel_transport::{AppFace, EchoProducer};

use super::build::load_name;
use super::{World, WorldEvent};
use crate::LabError;
use crate::cbr::{CbrConsumer, CbrEvent, CbrStats, PlaceholderSigner};
use crate::scenario::load::Kind;
use crate::scenario::run::{Exchanges, Run};

/// FreshnessPeriod of the Data; no Interest asks for fresh Data only.
const FRESHNESS: Duration = Duration::from_millis(100);

/// A consumer of one load.
pub(super) struct Exchange {
    pub(super) load: usize,
    pub(super) receiver: usize,
    /// `None` until the load starts.
    pub(super) consumer: Option<NodeId>,
    begin: Time,
    delay: Duration,
    last: Time,
    pub(super) finished: bool,
}

impl World<'_> {
    /// Adds producers, and consumers that start when their loads do.
    pub(super) fn begin(&mut self, origin: Time) -> Result<(), LabError> {
        for (load, known) in self.plan.loads.iter().enumerate() {
            let Kind::Requests(requests) = &known.kind else {
                continue;
            };
            let name = load_name(&known.name);
            let label = format!("producer {load}");
            let producer = EchoProducer::echo(
                name.clone(),
                requests.payload,
                FRESHNESS,
                Arc::new(PlaceholderSigner),
                None,
                SeededRng::stream(self.seed, &label),
            );
            let program = AnyMachine::new(AppFace::new(producer), |_| WorldEvent::Nothing);
            let program = self.sim.add_node(&label, program);
            self.serve_name(known.from, name, program)?;
            for receiver in &known.to {
                let begin = origin + known.start;
                self.exchanges.push(Exchange {
                    load,
                    receiver: *receiver,
                    consumer: None,
                    begin,
                    delay: Duration::ZERO,
                    last: begin,
                    finished: false,
                });
            }
            self.consume_due()?;
        }
        Ok(())
    }

    /// Starts the consumers whose time has come.
    pub(super) fn consume_due(&mut self) -> Result<(), LabError> {
        let plan = self.plan;
        for index in 0..self.exchanges.len() {
            let Exchange {
                load,
                receiver,
                begin,
                ref consumer,
                ..
            } = self.exchanges[index];
            let known = &plan.loads[load];
            let Kind::Requests(requests) = &known.kind else {
                continue;
            };
            if consumer.is_some() || begin > self.sim.now() {
                continue;
            }
            let label = match known.to.as_slice() {
                [_] => format!("consumer {load}"),
                _ => format!("consumer {load} {receiver}"),
            };
            let rng = SeededRng::stream(self.seed, &label);
            let consumer = CbrConsumer::new(requests.consumer(load_name(&known.name)), rng);
            let program = AnyMachine::new(AppFace::new(consumer), WorldEvent::Cbr);
            let program = self.sim.add_node(&label, program);
            self.attach(program, receiver)?;
            self.exchanges[index].consumer = Some(program);
        }
        Ok(())
    }

    /// Returns the start of the next consumer.
    pub(super) fn next_consumer(&self) -> Option<Time> {
        let waiting = self
            .exchanges
            .iter()
            .filter(|known| known.consumer.is_none());
        waiting.map(|known| known.begin).min()
    }

    pub(super) fn handle_exchange(&mut self, node: NodeId, event: CbrEvent) -> bool {
        let of = |known: &&mut Exchange| known.consumer == Some(node);
        let Some(exchange) = self.exchanges.iter_mut().find(of) else {
            return false;
        };
        match event {
            CbrEvent::Exchanged(exchanged) => {
                exchange.delay += exchanged.answered.since(exchanged.first_sent);
                exchange.last = exchanged.answered;
                let (load, receiver) = (exchange.load, exchange.receiver);
                self.observer.exchanged(load, receiver, &exchanged);
                return false;
            }
            CbrEvent::Finished(_) => exchange.finished = true,
        }
        exchange.finished
    }

    pub(super) fn add_exchanges(&self, run: &mut Run) {
        for exchange in &self.exchanges {
            let load = &self.plan.loads[exchange.load];
            let consumer = exchange.consumer.map(|node| self.sim.node(node));
            let face = consumer.and_then(|node| node.get::<AppFace<CbrConsumer>>());
            let stats = face.map_or(CbrStats::default(), |face| *face.application().stats());
            let exchanges = Exchanges {
                answered: stats.answered,
                retransmissions: stats.retransmissions,
                delay: exchange.delay.as_secs_f64(),
                last: exchange.last.since(exchange.begin).as_secs_f64(),
                finished: exchange.finished,
            };
            run.add_exchanges(&self.plan.network, load, exchange.receiver, &exchanges);
        }
    }
}
