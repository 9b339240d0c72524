//! The store on a cluster of Debian's redis-server: the suite of all stores, and its own faults.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test with real processes"
)]

mod servers;
#[path = "../../gnrs/tests/suite/mod.rs"]
mod suite;

use std::time::{Duration, Instant};

use servers::{Cluster, Security};
use suite::{Bench, EPOCH, binding, keys, provider, put, visible};
use whimbrel_core::Guid;
use whimbrel_gnrs::store::{Outcome, PutResult, Refusal, Reply, Request, StoreEvent};
use whimbrel_gnrs::{Record, RecordKey, Store, StoreError};
use whimbrel_gnrs_cluster::{ClusterConfig, ClusterStore};

const LONG: u64 = 3_600_000;

fn config(cluster: &Cluster) -> ClusterConfig {
    ClusterConfig {
        max_providers: suite::LIMITS.max_providers,
        ..ClusterConfig::new(cluster.address().parse().unwrap())
    }
}

fn open(config: ClusterConfig) -> ClusterStore {
    ClusterStore::open(config, || {}).unwrap()
}

struct OnCluster(Cluster);

impl Bench for OnCluster {
    type Store = ClusterStore;

    const KEEPS_NETWORKS: bool = true;

    fn empty(&mut self) -> ClusterStore {
        self.0.on_all(&["FLUSHALL"]);
        open(config(&self.0))
    }

    fn restart(&mut self, store: ClusterStore) -> ClusterStore {
        drop(store);
        open(config(&self.0))
    }
}

#[test]
fn the_cluster_store_passes_the_suite() {
    suite::run(&mut OnCluster(Cluster::start(3, 0, &[])), 40);
}

/// The slot of a name, as the store has it.
fn slot(name: &Guid) -> u16 {
    u16::from_be_bytes([name.0[0], name.0[1]]) % 16_384
}

/// Asks until a store is as it should be.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            since.elapsed() < Duration::from_secs(60),
            "not in time: {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn read(store: &mut ClusterStore, name: Guid) -> Result<Vec<Record>, StoreError> {
    match suite::ask(store, EPOCH, Request::Read(name)) {
        Reply::Read(records) => records,
        other => panic!("{other:?}"),
    }
}

fn put_one(store: &mut ClusterStore, record: &Record) -> Result<PutResult, StoreError> {
    let results = put(store, EPOCH, std::slice::from_ref(record));
    results.map(|mut results| results.remove(0))
}

#[test]
fn a_watched_name_changes_here_when_another_server_stores_it() {
    let cluster = Cluster::start(3, 0, &[]);
    let (mut here, mut there) = (open(config(&cluster)), open(config(&cluster)));
    let name = keys(1).guid();
    here.follow(name);
    assert_eq!(read(&mut here, name), Ok(vec![]));
    let mut heard = |version: u64, there: &mut ClusterStore| {
        let record = binding(1, version, LONG);
        assert!(put_one(there, &record).unwrap().is_ok());
        let event = suite::next_event(&mut here, EPOCH);
        assert_eq!(event, StoreEvent::Changed(RecordKey::binding(name)));
        assert_eq!(here.get(&RecordKey::binding(name)), Some(record));
    };
    heard(1, &mut there);
    heard(2, &mut there);
    // Its connections end: it subscribes again, and misses nothing.
    cluster.on_all(&["CLIENT", "KILL", "TYPE", "normal"]);
    cluster.on_all(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    heard(3, &mut there);
    heard(4, &mut there);
}

#[test]
fn a_name_in_use_is_at_hand_and_is_told_of_changes() {
    let cluster = Cluster::start(1, 0, &[]);
    let (mut here, mut there) = (open(config(&cluster)), open(config(&cluster)));
    let name = keys(1).guid();
    assert!(put_one(&mut there, &binding(1, 1, LONG)).unwrap().is_ok());
    let is_at_hand = |here: &ClusterStore| here.visit(&name, EPOCH, &mut |_| true);
    read(&mut here, name).unwrap();
    assert!(!is_at_hand(&here), "read once");
    read(&mut here, name).unwrap();
    assert!(is_at_hand(&here), "in use");
    let newer = binding(1, 2, LONG);
    assert!(put_one(&mut there, &newer).unwrap().is_ok());
    until("it is told", || {
        assert_eq!(here.poll(EPOCH), None, "nobody follows it");
        here.get(&RecordKey::binding(name))
            .filter(|it| *it == newer)
    });
    // A provider that gave way is not at hand any longer.
    let content = suite::CONTENT;
    (1..=3).for_each(|seed| drop(put_one(&mut there, &provider(seed, 1, LONG))));
    (0..2).for_each(|_| drop(read(&mut here, content)));
    assert_eq!(visible(&mut here, EPOCH, content).len(), 3);
    let mut other: whimbrel_gnrs::store::Put = provider(9, 1, LONG).into();
    other.network = Some(7);
    let stored = suite::put_from(&mut there, EPOCH, vec![other]);
    assert_eq!(stored, Ok(vec![Ok(Outcome::Created)]));
    until("it is told", || {
        here.poll(EPOCH);
        let mut signers = Vec::new();
        here.visit(&content, EPOCH, &mut |record| {
            signers.push(record.signer());
            true
        });
        (signers.len() == 3 && signers.contains(&keys(9).guid())).then_some(())
    });
}

/// Stores names until the replica of one of them has missed a write that was acknowledged, and lets it
/// take the place of the primary. Returns the name's versions that are left.
fn version_after_failover(max_replayed: usize) -> u64 {
    let mut cluster = Cluster::start(3, 1, &[]);
    let mut store = open(ClusterConfig {
        max_replayed,
        ..config(&cluster)
    });
    let name = keys(1).guid();
    assert_eq!(
        put_one(&mut store, &binding(1, 1, LONG)),
        Ok(Ok(Outcome::Created))
    );
    let (primary, replicas) = cluster.of_slot(slot(&name), 0);
    let replica = replicas[0];
    cluster.until("it is copied", |it| {
        let size = |number: usize| it.ask(number, &["DBSIZE"]);
        size(replica) == size(primary)
    });
    // The replica does not hear of the second version: that is lost with the primary.
    cluster.stop(replica, true);
    cluster.until("it hears nothing", |it| {
        it.ask(primary, &["CLIENT", "KILL", "TYPE", "replica"]);
        it.ask(primary, &["INFO", "replication"])
            .contains("connected_slaves:0")
    });
    assert_eq!(
        put_one(&mut store, &binding(1, 2, LONG)),
        Ok(Ok(Outcome::Stored))
    );
    cluster.kill(primary);
    cluster.stop(replica, false);
    let mut other = open(config(&cluster));
    cluster.until("the replica takes over", |it| {
        it.ask(replica, &["ROLE"]).starts_with("master")
    });
    let version = until("the cluster answers for the name", || {
        let records = read(&mut other, name).ok()?;
        records
            .first()
            .map(Record::version)
            .filter(|it| *it == 2 || max_replayed == 0)
    });
    until("it is counted", || {
        let restored = store.engine().unwrap().restored;
        ((restored > 0) == (max_replayed > 0)).then_some(())
    });
    version
}

#[test]
fn an_acknowledged_record_survives_a_failover_that_loses_it() {
    assert_eq!(version_after_failover(1_000), 2);
    assert_eq!(
        version_after_failover(0),
        1,
        "without the writes that are kept"
    );
}

#[test]
fn no_acknowledged_update_is_missing_after_a_primary_is_killed_under_load() {
    let mut cluster = Cluster::start(3, 1, &[]);
    let mut store = open(config(&cluster));
    let mut acknowledged = std::collections::BTreeMap::new();
    let (mut version, mut killed) = (0, None);
    let mut failed = 0;
    let end = until("it is killed and replaced", || {
        version += 1;
        let batch: Vec<Record> = (0..20).map(|seed| binding(seed, version, LONG)).collect();
        match put(&mut store, EPOCH, &batch) {
            Ok(results) => {
                for (record, result) in batch.iter().zip(results) {
                    match result {
                        Ok(_) => drop(acknowledged.insert(record.subject(), version)),
                        Err(Refusal::Busy) => failed += 1,
                        Err(other) => panic!("{other}"),
                    }
                }
            }
            Err(StoreError::Busy(_)) => failed += 20,
            Err(other) => panic!("{other}"),
        }
        if version == 20 {
            let (primary, replicas) = cluster.of_slot(slot(&keys(1).guid()), 0);
            cluster.kill(primary);
            killed = Some(replicas[0]);
        }
        let replica = killed?;
        let role = cluster.ask(replica, &["ROLE"]);
        role.starts_with("master").then_some(version)
    });
    assert!(end > 20);
    let mut other = open(config(&cluster));
    for (name, version) in acknowledged {
        until("no acknowledged update is missing", || {
            let records = read(&mut other, name).ok()?;
            (records.first()?.version() >= version).then_some(())
        });
    }
    let _ = failed;
}

#[test]
fn names_of_other_primaries_go_on_while_one_is_stopped() {
    let cluster = Cluster::start(3, 0, &[]);
    let mut store = open(config(&cluster));
    let stopped = cluster.of_slot(slot(&keys(1).guid()), 0).0;
    let other = (2..50).find(|seed| cluster.of_slot(slot(&keys(*seed).guid()), 0).0 != stopped);
    let other = other.unwrap();
    for seed in [1, other] {
        assert_eq!(
            put_one(&mut store, &binding(seed, 1, LONG)),
            Ok(Ok(Outcome::Created))
        );
    }
    cluster.stop(stopped, true);
    let fault = put_one(&mut store, &binding(1, 2, LONG)).unwrap_err();
    assert!(matches!(fault, StoreError::Busy(_)), "{fault}");
    assert!(matches!(
        read(&mut store, keys(1).guid()),
        Err(StoreError::Busy(_))
    ));
    assert_eq!(
        read(&mut store, keys(other).guid()),
        Ok(vec![binding(other, 1, LONG)])
    );
    assert_eq!(
        put_one(&mut store, &binding(other, 2, LONG)),
        Ok(Ok(Outcome::Stored))
    );
    cluster.stop(stopped, false);
    until("it goes on", || {
        put_one(&mut store, &binding(1, 3, LONG)).ok()?.ok()
    });
}

#[test]
fn names_in_use_go_on_while_the_cluster_is_down_and_what_it_lost_is_restored() {
    let mut cluster = Cluster::start(3, 0, &[]);
    let mut store = open(config(&cluster));
    let (name, record) = (keys(1).guid(), binding(1, 1, LONG));
    assert_eq!(put_one(&mut store, &record), Ok(Ok(Outcome::Created)));
    assert_eq!(
        put_one(&mut store, &binding(2, 1, LONG)),
        Ok(Ok(Outcome::Created))
    );
    (0..2).for_each(|_| drop(read(&mut store, name)));
    (0..3).for_each(|number| cluster.kill(number));
    assert_eq!(visible(&mut store, EPOCH, name), vec![record.clone()]);
    until("it is answered without the cluster", || {
        assert_eq!(visible(&mut store, EPOCH, name), vec![record.clone()]);
        (store.engine().unwrap().answered_without > 0).then_some(())
    });
    let fault = put_one(&mut store, &binding(1, 2, LONG)).unwrap_err();
    assert!(matches!(fault, StoreError::Busy(_)), "{fault}");
    assert!(matches!(
        read(&mut store, keys(2).guid()),
        Err(StoreError::Busy(_))
    ));
    // They have kept nothing.
    (0..3).for_each(|number| cluster.revive(number));
    let mut other = open(config(&cluster));
    until("all is there again", || {
        store.poll(EPOCH);
        let both = [1, 2].map(|seed| read(&mut other, keys(seed).guid()));
        (both == [Ok(vec![record.clone()]), Ok(vec![binding(2, 1, LONG)])]).then_some(())
    });
}

#[test]
fn a_full_cluster_is_busy_and_takes_records_when_it_has_room() {
    let cluster = Cluster::start(3, 0, &["--maxmemory-policy", "noeviction"]);
    let mut store = open(config(&cluster));
    assert_eq!(
        put_one(&mut store, &binding(1, 1, LONG)),
        Ok(Ok(Outcome::Created))
    );
    cluster.on_all(&["CONFIG", "SET", "maxmemory", "1000"]);
    for seed in [1, 2] {
        let fault = put_one(&mut store, &binding(seed, 2, LONG)).unwrap_err();
        assert!(fault.to_string().contains("no memory left"), "{fault}");
    }
    assert_eq!(
        read(&mut store, keys(1).guid()),
        Ok(vec![binding(1, 1, LONG)])
    );
    until("its fill is known", || {
        (store.usage().free == 0).then_some(())
    });
    cluster.on_all(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(
        put_one(&mut store, &binding(2, 3, LONG)),
        Ok(Ok(Outcome::Created))
    );
}

/// Writes a value under the key of a binding, as a stranger with access to the engine may.
fn forge(cluster: &Cluster, record: &Record, head: &str, bytes: &[u8]) {
    let name = record.subject();
    let (primary, _) = cluster.of_slot(slot(&name), 0);
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|it| format!("\\x{it:02x}")).collect() };
    let port = cluster.nodes[primary].port;
    let keys = cluster.ask(primary, &["KEYS", "*"]);
    let tag = keys
        .lines()
        .find_map(|it| Some(it.trim_matches('"').split_once('}')?.0.to_owned()));
    let key = format!("\"{}}}n{}\"", tag.unwrap(), hex(&name.0));
    let line = format!("SET {key} \"{head}{}\"\n", hex(bytes));
    let mut child = std::process::Command::new("redis-cli")
        .args(["-p", &port.to_string()])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), line.as_bytes()).unwrap();
    let said = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "OK");
}

#[test]
fn records_that_are_no_owners_are_not_believed_and_give_way() {
    let cluster = Cluster::start(1, 0, &[]);
    let mut store = open(config(&cluster));
    let (name, record) = (keys(1).guid(), binding(1, 1, LONG));
    let head = |version: u64| format!("{version:020}{:020}", EPOCH + LONG);
    let mut forged = binding(1, 9, LONG).as_bytes().to_vec();
    *forged.last_mut().unwrap() ^= 1;
    let of_another = binding(2, 9, LONG);
    let values: [(u64, &[u8]); 4] = [
        (9, &forged),
        (9, of_another.as_bytes()),
        (9, b"a shopping list"),
        // The owner's own, filed under a version that it does not have.
        (u64::MAX, record.as_bytes()),
    ];
    for (round, (version, bytes)) in (2..).zip(values) {
        assert!(put_one(&mut store, &binding(1, round, LONG)).is_ok());
        forge(&cluster, &record, &head(version), bytes);
        let mut fresh = open(config(&cluster));
        let believed = read(&mut fresh, name).unwrap();
        assert!(
            believed.is_empty() || believed == vec![record.clone()],
            "{believed:?}"
        );
        let mine = binding(1, round, LONG);
        assert!(put_one(&mut fresh, &mine).unwrap().is_ok(), "{round}");
        assert_eq!(read(&mut fresh, name), Ok(vec![mine]));
        assert!(fresh.engine().unwrap().forged > 0);
        cluster.on_all(&["FLUSHALL"]);
    }
}

#[test]
fn a_cluster_that_is_not_for_this_server_is_refused_at_the_start() {
    let security = Security {
        password: Some("secret"),
        tls: false,
    };
    let cluster = Cluster::secured(1, security);
    drop(open(config(&cluster)));
    for address in ["redis://wrong@", "redis://"] {
        let node = format!("{address}127.0.0.1:{}", cluster.nodes[0].port);
        let wrong = ClusterConfig::new(node.parse().unwrap());
        let fault = ClusterStore::open(wrong, || {}).unwrap_err();
        assert!(
            fault.to_string().contains("refuses this user or password"),
            "{fault}"
        );
    }
    cluster.ask(0, &["SET", "whimbrel-gnrs-format", "2"]);
    let fault = ClusterStore::open(config(&cluster), || {}).unwrap_err();
    assert_eq!(fault, StoreError::Format(2));
}

#[test]
fn a_primary_that_is_cut_off_writes_and_nothing_of_it_is_lost() {
    let cluster = Cluster::apart(3, 1);
    let mut store = open(config(&cluster));
    let name = keys(1).guid();
    let first = put_one(&mut store, &binding(1, 1, LONG));
    assert_eq!(first, Ok(Ok(Outcome::Created)));
    let (primary, replicas) = cluster.of_slot(slot(&name), 0);
    let replica = replicas[0];
    cluster.until("it is copied", |it| {
        let size = |number: usize| it.ask(number, &["DBSIZE"]);
        size(replica) == size(primary)
    });
    cluster.cut_off(primary, true);
    // The minority does not know yet that it is one.
    let second = put_one(&mut store, &binding(1, 2, LONG));
    assert_eq!(second, Ok(Ok(Outcome::Stored)));
    cluster.until("the majority chooses the replica", |it| {
        it.ask(replica, &["ROLE"]).starts_with("master")
    });
    let mut other = open(ClusterConfig {
        address: cluster.address_of(replica).parse().unwrap(),
        ..config(&cluster)
    });
    let version = |store: &mut ClusterStore| Some(read(store, name).ok()?.first()?.version());
    until("the majority has what the minority wrote", || {
        version(&mut other).filter(|it| *it == 2)
    });
    // Writes go to the majority from now on.
    until("the name can be written", || {
        put_one(&mut store, &binding(1, 3, LONG)).ok()?.ok()
    });
    cluster.cut_off(primary, false);
    cluster.until("the former primary gives way", |it| {
        it.ask(primary, &["ROLE"]).starts_with("slave")
    });
    let mut fresh = open(config(&cluster));
    until("nothing is lost", || {
        version(&mut fresh).filter(|it| *it == 3)
    });
    assert!(store.engine().unwrap().restored > 0);
}

#[test]
fn records_are_kept_over_tls_and_a_strange_certificate_is_refused() {
    let security = Security {
        password: Some("secret"),
        tls: true,
    };
    let cluster = Cluster::secured(3, security);
    let with = |root: Option<&[u8]>| ClusterConfig {
        root_certificates: root.map(<[u8]>::to_vec),
        ..config(&cluster)
    };
    let root = std::fs::read(cluster.root_certificate()).unwrap();
    let mut store = open(with(Some(&root)));
    for seed in 1..=10 {
        let stored = put_one(&mut store, &binding(seed, 1, LONG));
        assert_eq!(stored, Ok(Ok(Outcome::Created)), "{seed}");
        let found = read(&mut store, keys(seed).guid());
        assert_eq!(found, Ok(vec![binding(seed, 1, LONG)]));
    }
    // The system's certificates sign none of these nodes: nothing is said to them.
    let mut other = open(with(None));
    let fault = read(&mut other, keys(1).guid()).unwrap_err();
    assert!(matches!(fault, StoreError::Busy(_)), "{fault}");
}
