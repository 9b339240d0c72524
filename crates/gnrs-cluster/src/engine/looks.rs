//! Looks at the cluster: which node has what, and how full they are.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;
use tokio::time::{sleep, timeout};
use whimbrel_gnrs::store::Usage;

use super::{Engine, Event, PAUSE, lock};
use crate::connections::Fault;
use crate::keys;
use crate::topology::{NodeAddress, Topology, said, text};

/// How often the cluster is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Nodes that are asked for their view.
const ASKED: usize = 6;
/// Bytes of a record on the engine, by which the room left is told.
const RECORD_BYTES: u64 = 400;

impl Engine {
    pub(super) async fn keep_looking(self: Arc<Self>) {
        loop {
            if timeout(LOOK, self.look.notified()).await.is_ok() {
                sleep(PAUSE).await;
            }
            // The next look may succeed.
            let _ = self.look_once().await;
        }
    }

    /// Asks nodes how they see the cluster, and takes the newest view.
    pub(super) async fn look_once(self: &Arc<Self>) -> Result<(), Fault> {
        let old = lock(&self.topology).clone();
        let mut asked: Vec<NodeAddress> =
            old.primaries.iter().map(|it| it.address.clone()).collect();
        asked.truncate(ASKED);
        asked.extend(self.config.address.nodes.iter().take(ASKED).cloned());
        asked.extend(old.replicas.iter().take(ASKED).cloned());
        let mut seen = BTreeSet::new();
        asked.retain(|address| seen.insert(address.clone()));
        let (views, mut fault) = self.views(&asked).await;
        let newest = views
            .into_iter()
            .max_by_key(|view| (view.works, view.epoch));
        let Some(view) = newest else {
            self.count(|status| {
                status.works = false;
                status.primaries.values_mut().for_each(|it| *it = false);
            });
            let none = || Fault::Unreachable("no node answers".into());
            return Err(fault.take().unwrap_or_else(none));
        };
        if view.works && view.uncovered() == 0 {
            lock(&self.replay).prune(Instant::now());
        }
        let moved = view.moved_since(&old);
        *lock(&self.topology) = view.clone();
        if !moved.is_empty() {
            let set: BTreeSet<u16> = moved.iter().copied().collect();
            lock(&self.told_on).retain(|name, _| !set.contains(&keys::slot(name)));
            let lost = lock(&self.replay).of(|slot| set.contains(&slot));
            self.clone().write_again(lost);
            self.shared.tell(Event::Moved(moved));
        }
        self.measure(&view).await;
        Ok(())
    }

    async fn views(&self, asked: &[NodeAddress]) -> (Vec<Topology>, Option<Fault>) {
        let (mut views, mut fault) = (Vec::new(), None);
        let answers = asked.iter().map(|address| self.view_of(address));
        for answer in join_all(answers).await {
            match answer {
                Ok(view) => views.push(view),
                // What lasts is worth telling.
                Err(why) if matches!(fault, None | Some(Fault::Unreachable(_))) => {
                    fault = Some(why)
                }
                Err(_) => {}
            }
        }
        (views, fault)
    }

    async fn view_of(&self, address: &NodeAddress) -> Result<Topology, Fault> {
        let link = self.connections.to(address).await?;
        let mut pipe = redis::pipe();
        pipe.cmd("CLUSTER").arg("SLOTS").cmd("CLUSTER").arg("INFO");
        let answers = link.pipeline(&pipe, 0, 2).await;
        let answers = answers.map_err(|error| {
            let fault = Fault::of(&error);
            if matches!(fault, Fault::Unreachable(_)) {
                self.connections.lose(&link);
            }
            fault
        })?;
        let view = match &answers[..] {
            [slots, info] => text(info).and_then(|info| Topology::read(slots, &info, address)),
            _ => None,
        };
        view.ok_or_else(|| Fault::Engine("it is no node of a cluster".into()))
    }

    /// Notes how full the primaries are.
    async fn measure(&self, view: &Topology) {
        let asked = view.primaries.iter().map(|primary| async {
            let link = self.connections.to(&primary.address).await.ok()?;
            let mut pipe = redis::pipe();
            pipe.cmd("DBSIZE").cmd("INFO").arg("memory");
            let answers = link.pipeline(&pipe, 0, 2).await.ok()?;
            let [Value::Int(records), info] = &answers[..] else {
                return None;
            };
            let info = text(info)?;
            let number = |name| said(&info, name)?.parse::<u64>().ok();
            Some((
                *records as u64,
                number("used_memory")?,
                number("maxmemory")?,
            ))
        });
        let answers = join_all(asked).await;
        let (mut records, mut bytes, mut max_bytes) = (0, 0, Some(0));
        for (of, used, max) in answers.iter().flatten() {
            records += of;
            bytes += used;
            max_bytes = max_bytes.filter(|_| *max > 0).map(|sum| sum + max);
        }
        let names = view.primaries.iter();
        let names = names.map(|it| format!("{}:{}", it.address.0, it.address.1));
        let kept = lock(&self.replay);
        let (kept, dropped) = (kept.len(), kept.dropped);
        self.count(|status| {
            status.primaries = names.zip(answers.iter().map(Option::is_some)).collect();
            status.replicas = view.replicas.len();
            status.works = view.works;
            status.uncovered_slots = view.uncovered();
            (status.records, status.bytes, status.max_bytes) = (records, bytes, max_bytes);
            (status.kept_writes, status.kept_writes_dropped) = (kept, dropped);
        });
        let free = max_bytes.map(|max| max.saturating_sub(bytes) / RECORD_BYTES);
        *lock(&self.shared.usage) = Usage {
            records: usize::try_from(records).unwrap_or(usize::MAX),
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            free: free.map_or(usize::MAX / 2, |free| {
                usize::try_from(free).unwrap_or(usize::MAX / 2)
            }),
        };
    }
}

/// Waits for all of some futures.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<_> = futures.map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = pending.iter().map(|_| None).collect();
    core::future::poll_fn(|context| {
        let mut all = true;
        for (future, done) in pending.iter_mut().zip(&mut done) {
            if done.is_none() {
                match future.as_mut().poll(context) {
                    core::task::Poll::Ready(output) => *done = Some(output),
                    core::task::Poll::Pending => all = false,
                }
            }
        }
        match all {
            true => core::task::Poll::Ready(()),
            false => core::task::Poll::Pending,
        }
    })
    .await;
    done.into_iter().flatten().collect()
}
