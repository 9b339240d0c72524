//! Authorisation of commands, and protection against replays.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rand::SeedableRng;
use rand::rngs::ChaCha20Rng;
use whimbrel_core::Time;
use whimbrel_forwarder::mgmt::{
    Anchors, CommandPolicy, CommandRefusal, CommandVerifier, LocalCommands, ManagementConfig,
    Privileges, RemoteRegistration, SignedCommand,
};
use whimbrel_forwarder::{FaceId, FaceSpec};
use whimbrel_ndn_mgmt::ControlParameters;
use whimbrel_ndn_mgmt::client::{self, Stamp, Target};
use whimbrel_ndn_packet::{
    Certificate, CertificateDraft, Component, DigestSigner, Interest, InterestRef, KeySigner,
    KeyType, Name, PrefixAnnouncement, PrefixAnnouncementRef, PrivateKey, SignatureInfo, Signer,
    ValidityPeriod,
};

use super::router::{Router, START_MILLIS, name, of_name, parameters};

/// A key with its certificate and signer.
struct Person {
    signer: KeySigner,
    certificate: Certificate,
}

impl Person {
    fn new(who: &str, typ: KeyType) -> Person {
        let seed = who.bytes().map(u64::from).sum();
        let key = PrivateKey::generate(typ, &mut ChaCha20Rng::seed_from_u64(seed)).unwrap();
        let now = START_MILLIS / 1_000;
        let validity = ValidityPeriod {
            not_before: now - 10,
            not_after: now + 5_000,
        };
        let key_name = name(&format!("/{who}/KEY/1"));
        let draft = CertificateDraft::new(
            key_name.clone(),
            Component::generic(&b"self"[..]),
            1,
            validity,
        );
        Person {
            signer: key.signer(key_name),
            certificate: draft.self_sign(&key).unwrap(),
        }
    }
}

impl Signer for Person {
    fn info(&self) -> SignatureInfo {
        self.signer.info()
    }

    fn sign(&self, portions: &[&[u8]]) -> Vec<u8> {
        self.signer.sign(portions)
    }
}

/// Returns a person who may run every command.
fn operator() -> Person {
    Person::new("operator", KeyType::EcdsaP256)
}

/// Returns a person who may register.
fn tenant() -> Person {
    Person::new("tenant", KeyType::Ed25519)
}

fn stranger() -> Person {
    Person::new("stranger", KeyType::Ed25519)
}

fn strict() -> Router {
    let policy = CommandPolicy {
        local: LocalCommands::RequireSignature,
        remote: RemoteRegistration::RequireSignature,
    };
    let mut router = Router::with(ManagementConfig {
        policy,
        ..ManagementConfig::default()
    });
    let mut anchors = Anchors::new();
    anchors.add(operator().certificate, Privileges::All);
    anchors.add(
        tenant().certificate,
        Privileges::Modules(BTreeSet::from(["rib".to_owned()])),
    );
    router.forwarder.set_command_verifier(Box::new(anchors));
    router
}

fn signed(
    target: Target,
    verb: &str,
    wanted: &ControlParameters,
    key: &dyn Signer,
    stamp: Stamp,
) -> Vec<u8> {
    let (module, verb) = verb.split_once('/').unwrap();
    client::command(target, module, verb, wanted, key, stamp)
}

/// Returns the status of the response.
fn status(router: &mut Router, from: FaceId, interest: &[u8]) -> u64 {
    let data = router.ask(from, interest).expect("an answer");
    client::response(&data).unwrap().status_code
}

#[test]
fn only_known_keys_may_command_where_signatures_are_required() {
    let mut router = strict();
    let program = router.program();
    let mut send = |verb: &str, key: &dyn Signer| {
        let stamp = router.stamp();
        let wanted = if verb == "cs/config" {
            parameters()
        } else {
            of_name("/a")
        };
        let interest = signed(Target::Local, verb, &wanted, key, stamp);
        status(&mut router, program, &interest)
    };
    assert_eq!(send("rib/register", &operator()), 200);
    assert_eq!(send("cs/config", &operator()), 200);
    assert_eq!(send("rib/unregister", &tenant()), 200);
    assert_eq!(send("cs/config", &tenant()), 403, "not this module");
    assert_eq!(send("rib/register", &stranger()), 403);
    assert_eq!(
        send("rib/register", &DigestSigner),
        403,
        "a digest does not authenticate its sender"
    );
    assert!(router.next_hops("/a").is_empty());
}

/// Anchors that count how often a signature is verified.
struct Counting {
    anchors: Anchors,
    verified: Arc<AtomicU64>,
}

impl CommandVerifier for Counting {
    fn verify_command(
        &self,
        unix_millis: u64,
        module: &str,
        command: &SignedCommand<'_>,
    ) -> Result<Name, CommandRefusal> {
        self.verified.fetch_add(1, Relaxed);
        self.anchors.verify_command(unix_millis, module, command)
    }

    fn verify_announcement(
        &self,
        unix_millis: u64,
        announcement: &PrefixAnnouncementRef<'_>,
    ) -> Result<Name, CommandRefusal> {
        self.verified.fetch_add(1, Relaxed);
        (self.anchors).verify_announcement(unix_millis, announcement)
    }
}

#[test]
fn wrong_signatures_cost_little_and_keep_no_known_neighbour_out() {
    let mut router = strict();
    let mut anchors = Anchors::new();
    anchors.add(operator().certificate, Privileges::All);
    let verified = Arc::new(AtomicU64::new(0));
    router.forwarder.set_command_verifier(Box::new(Counting {
        anchors,
        verified: verified.clone(),
    }));
    // A key of another that goes by the operator's name.
    let impostor = PrivateKey::generate(KeyType::Ed25519, &mut ChaCha20Rng::seed_from_u64(99));
    let impostor = impostor.unwrap().signer(name("/operator/KEY/1"));
    let register = |router: &mut Router, from, key: &dyn Signer| {
        let stamp = router.stamp();
        let interest = signed(
            Target::Neighbour,
            "rib/register",
            &of_name("/a"),
            key,
            stamp,
        );
        status(router, from, &interest)
    };
    let known = router.neighbour(1);
    assert_eq!(register(&mut router, known, &operator()), 200);
    let hostile = router.neighbour(2);
    for _ in 0..1_000 {
        assert_eq!(register(&mut router, hostile, &impostor), 403);
    }
    assert_eq!(verified.load(Relaxed), 1 + 32);
    // Sources are cheap to forge.
    for host in 0..1_000 {
        let forged = router.neighbour(host as u8);
        assert_eq!(register(&mut router, forged, &impostor), 403);
    }
    let before = verified.load(Relaxed);
    assert!(before < 300, "{before} signatures verified");
    // A program that comes while they do is not kept out.
    let program = router.program();
    let stamp = router.stamp();
    let local = signed(
        Target::Local,
        "rib/register",
        &of_name("/b"),
        &operator(),
        stamp,
    );
    assert_eq!(status(&mut router, program, &local), 200);
    let before = before + 1;
    assert_eq!(register(&mut router, known, &operator()), 200);
    router.now += Duration::from_secs(1);
    let newcomer = router.neighbour(3);
    assert_eq!(register(&mut router, newcomer, &operator()), 200);
    assert_eq!(verified.load(Relaxed), before + 2);
}

#[test]
fn no_key_is_known_without_a_verifier() {
    let policy = CommandPolicy {
        local: LocalCommands::RequireSignature,
        ..CommandPolicy::default()
    };
    let mut router = Router::with(ManagementConfig {
        policy,
        ..ManagementConfig::default()
    });
    let program = router.program();
    let stamp = router.stamp();
    let interest = signed(
        Target::Local,
        "rib/register",
        &of_name("/a"),
        &operator(),
        stamp,
    );
    assert_eq!(status(&mut router, program, &interest), 403);
}

#[test]
fn a_changed_command_is_refused_where_signatures_are_needed_and_counted_where_not() {
    for (mut router, key, changed_status, wrong_digests) in [
        (strict(), &operator() as &dyn Signer, 403, 0),
        (Router::new(), &DigestSigner, 200, 1),
    ] {
        let program = router.program();
        let stamp = router.stamp();
        let interest = client::command_in_name(
            Target::Local,
            "rib",
            "register",
            &of_name("/victim"),
            key,
            stamp,
        );
        let at = interest
            .windows(6)
            .position(|window| window == b"victim")
            .unwrap();
        let mut changed = interest.clone();
        changed[at] ^= 1;
        assert_eq!(status(&mut router, program, &changed), changed_status);
        assert_eq!(status(&mut router, program, &interest), 200);
        let counters = router.forwarder.management_counters();
        assert_eq!(counters.wrong_digests, wrong_digests);
    }
}

/// Returns the same command with another nonce of the Interest, as in a replay of a recorded
/// command.
fn replayed(interest: &[u8]) -> Vec<u8> {
    InterestRef::decode(interest)
        .unwrap()
        .with_nonce([9, 9, 9, 9])
}

#[test]
fn a_recorded_command_is_not_carried_out_again() {
    for (mut router, key) in [
        (strict(), &operator() as &dyn Signer),
        (Router::new(), &DigestSigner),
    ] {
        let (program, other) = (router.program(), router.program());
        let (first, second) = (router.stamp(), router.stamp());
        let older =
            client::command_in_name(Target::Local, "rib", "register", &of_name("/a"), key, first);
        let newer = signed(Target::Local, "rib/register", &of_name("/a"), key, second);
        for interest in [&older, &newer] {
            assert_eq!(status(&mut router, program, interest), 200);
        }
        router.forwarder.remove_face(router.now, program);
        // The responses have left the content store.
        router.now += Duration::from_secs(10);
        router
            .forwarder
            .cs_mut()
            .erase(Name::root().as_ref(), usize::MAX);
        for interest in [&older, &newer] {
            assert_eq!(status(&mut router, other, &replayed(interest)), 403);
            assert!(router.next_hops("/a").is_empty());
        }
    }
}

#[test]
fn a_repeated_command_gets_its_response_again_and_is_carried_out_once() {
    let mut router = Router::new();
    let program = router.program();
    let interest = router.interest("rib/register", &of_name("/a"));
    assert_eq!(status(&mut router, program, &interest), 200);
    let again = InterestRef::decode(&interest)
        .unwrap()
        .with_nonce([9, 9, 9, 9]);
    assert_eq!(
        status(&mut router, program, &again),
        200,
        "from the content store, while it is fresh"
    );
    assert_eq!(router.forwarder.management_counters().commands, 1);
}

#[test]
fn the_same_command_without_time_and_nonce_is_carried_out_each_time() {
    let mut router = Router::new();
    let program = router.program();
    let bare = |verb: &str, nonce: u8| {
        let name = Target::Local
            .name("rib", verb)
            .child_generic(&of_name("/a").encode());
        Interest {
            nonce: Some([nonce; 4]),
            ..Interest::new(name)
        }
        .encode()
    };
    for round in 0..3 {
        assert_eq!(
            status(&mut router, program, &bare("register", 2 * round)),
            200
        );
        assert_eq!(router.next_hops("/a").len(), 1);
        assert_eq!(
            status(&mut router, program, &bare("unregister", 2 * round + 1)),
            200
        );
        assert_eq!(
            router.next_hops("/a").len(),
            0,
            "in round {round} the response came from a cache"
        );
    }
}

#[test]
fn a_keyed_command_must_carry_a_recent_time() {
    let mut router = strict();
    let program = router.program();
    router.now = Time::from_secs(1_000);
    for (away, code) in [
        (-121_000i64, 403),
        (-119_000, 200),
        (119_000, 200),
        (122_000, 403),
    ] {
        let stamp = Stamp {
            time: router.unix_millis().saturating_add_signed(away),
            ..router.stamp()
        };
        let interest = signed(
            Target::Local,
            "rib/register",
            &of_name("/a"),
            &operator(),
            stamp,
        );
        assert_eq!(status(&mut router, program, &interest), code, "{away} ms");
    }
    let mut timeless = Interest::new(
        Target::Local
            .name("rib", "register")
            .child_generic(&of_name("/a").encode()),
    );
    timeless.nonce = Some([1; 4]);
    let interest = timeless.encode_signed(&operator(), &operator().info());
    assert_eq!(status(&mut router, program, &interest), 403);
}

#[test]
fn a_burst_of_a_thousand_commands_of_one_millisecond_is_carried_out() {
    for (mut router, key) in [
        (strict(), &operator() as &dyn Signer),
        (Router::new(), &DigestSigner),
    ] {
        let program = router.program();
        for number in 0..1_000 {
            let stamp = router.stamp();
            let wanted = of_name(&format!("/burst/{number}"));
            let interest = signed(Target::Local, "rib/register", &wanted, key, stamp);
            router.hand_in(program, &interest);
        }
        router.work();
        let mut carried_out = 0;
        while let Some(data) = router.receive(program) {
            assert!(client::response(&data).unwrap().is_success());
            carried_out += 1;
        }
        assert_eq!((carried_out, router.forwarder.rib().len()), (1_000, 1_000));
    }
}

fn from_neighbour(
    router: &mut Router,
    verb: &str,
    wanted: &ControlParameters,
    key: &dyn Signer,
) -> Vec<u8> {
    let stamp = router.stamp();
    signed(Target::Neighbour, verb, wanted, key, stamp)
}

#[test]
fn a_neighbour_registers_at_its_own_face_if_it_has_a_key() {
    let mut router = strict();
    let (neighbour, other) = (router.neighbour(1), router.neighbour(2));
    let own = of_name("/site/a");
    let interest = from_neighbour(&mut router, "rib/register", &own, &tenant());
    assert_eq!(status(&mut router, neighbour, &interest), 200);
    assert_eq!(router.next_hops("/site/a"), [(neighbour.0, 0)]);
    let interest = from_neighbour(&mut router, "rib/register", &own, &stranger());
    assert_eq!(status(&mut router, neighbour, &interest), 403);
    let of_other = ControlParameters {
        face_id: Some(other.0),
        ..of_name("/site/b")
    };
    let interest = from_neighbour(&mut router, "rib/register", &of_other, &tenant());
    assert_eq!(status(&mut router, neighbour, &interest), 403);
    let interest = from_neighbour(&mut router, "rib/unregister", &own, &tenant());
    assert_eq!(status(&mut router, neighbour, &interest), 200);
    assert!(router.forwarder.rib().is_empty());
}

#[test]
fn a_neighbour_has_no_other_command_and_none_unless_configured() {
    let mut router = strict();
    let neighbour = router.neighbour(1);
    for verb in [
        "cs/config",
        "faces/destroy",
        "strategy-choice/unset",
        "fib/add-nexthop",
    ] {
        let wanted = ControlParameters {
            face_id: Some(neighbour.0),
            ..parameters()
        };
        let interest = from_neighbour(&mut router, verb, &wanted, &operator());
        assert_eq!(router.ask(neighbour, &interest), None, "{verb}");
    }
    let mut list = Interest::new(Target::Neighbour.name("rib", "list"));
    (list.can_be_prefix, list.nonce) = (true, Some([1; 4]));
    assert_eq!(
        router.ask(neighbour, &list.encode()),
        None,
        "and gets no routes"
    );

    let mut router = Router::new();
    let neighbour = router.neighbour(1);
    let interest = from_neighbour(&mut router, "rib/register", &of_name("/a"), &DigestSigner);
    assert_eq!(router.ask(neighbour, &interest), None);
    let stamp = router.stamp();
    let interest = signed(
        Target::Local,
        "rib/register",
        &of_name("/a"),
        &DigestSigner,
        stamp,
    );
    assert_eq!(
        router.ask(neighbour, &interest),
        None,
        "/localhost does not cross a link"
    );
    assert!(router.forwarder.rib().is_empty());
}

#[test]
fn a_page_in_a_browser_on_this_machine_registers_for_itself_and_commands_nothing_else() {
    let mut router = Router::new();
    let page = |address: &str| FaceSpec {
        web_origin: Some("https://app.example".into()),
        ..FaceSpec::new(format!("wsclient://{address}:5000"), "ws://127.0.0.1:9696")
    };
    let (here, elsewhere) = (page("127.0.0.1"), page("192.0.2.7"));
    let here = router.forwarder.add_face(router.now, here);
    let elsewhere = router.forwarder.add_face(router.now, elsewhere);
    let register = from_neighbour(
        &mut router,
        "rib/register",
        &of_name("/page"),
        &DigestSigner,
    );
    assert_eq!(status(&mut router, here, &register), 200);
    let other = ControlParameters {
        face_id: Some(elsewhere.0),
        ..of_name("/other")
    };
    let for_another = from_neighbour(&mut router, "rib/register", &other, &DigestSigner);
    assert_eq!(status(&mut router, here, &for_another), 403);
    let create = ControlParameters {
        uri: Some("udp4://192.0.2.9:6363".into()),
        ..ControlParameters::default()
    };
    let create_face = from_neighbour(&mut router, "faces/create", &create, &DigestSigner);
    assert_eq!(router.ask(here, &create_face), None);
    let from_afar = from_neighbour(
        &mut router,
        "rib/register",
        &of_name("/afar"),
        &DigestSigner,
    );
    assert_eq!(router.ask(elsewhere, &from_afar), None);
}

#[test]
fn a_digest_suffices_where_any_neighbour_may_register() {
    let policy = CommandPolicy {
        remote: RemoteRegistration::AcceptAny,
        ..CommandPolicy::default()
    };
    let mut router = Router::with(ManagementConfig {
        policy,
        ..ManagementConfig::default()
    });
    let neighbour = router.neighbour(1);
    let interest = from_neighbour(&mut router, "rib/register", &of_name("/a"), &DigestSigner);
    assert_eq!(status(&mut router, neighbour, &interest), 200);
    let program = router.program();
    let taken = of_name("/localhop/nfd/rib");
    assert_eq!(
        router.refused(program, "rib/register", &taken),
        403,
        "the router serves it"
    );
}

#[test]
fn a_key_is_named_by_itself_or_by_its_certificate_and_commands_until_it_expires() {
    let mut router = strict();
    let program = router.program();
    let key = PrivateKey::generate(KeyType::EcdsaP256, &mut ChaCha20Rng::seed_from_u64(5)).unwrap();
    let seed = "operator".bytes().map(u64::from).sum();
    let same_key =
        PrivateKey::generate(KeyType::EcdsaP256, &mut ChaCha20Rng::seed_from_u64(seed)).unwrap();
    let by_certificate = same_key.signer(operator().certificate.name().clone());
    let send = |router: &mut Router, signer: &dyn Signer| {
        let stamp = router.stamp();
        let interest = signed(Target::Local, "rib/register", &of_name("/a"), signer, stamp);
        status(router, program, &interest)
    };
    assert_eq!(send(&mut router, &by_certificate), 200);
    let impostor = key.signer(operator().certificate.name().clone());
    assert_eq!(
        send(&mut router, &impostor),
        403,
        "another key under the same name"
    );
    router.now = Time::from_secs(6_000);
    assert_eq!(
        send(&mut router, &by_certificate),
        403,
        "the certificate has expired"
    );
}

#[test]
fn an_announcement_needs_a_key_that_may_register() {
    let mut router = strict();
    let neighbour = router.neighbour(1);
    let mut announce = |announcer: &dyn Signer, sender: &dyn Signer| {
        let announcement = PrefixAnnouncement {
            prefix: name("/site/a"),
            version: 1,
            expiration: Duration::from_secs(60),
            validity: None,
        };
        let stamp = router.stamp();
        let interest = client::announce(
            Target::Neighbour,
            &announcement.encode(announcer),
            sender,
            stamp,
        );
        status(&mut router, neighbour, &interest)
    };
    assert_eq!(announce(&stranger(), &tenant()), 403);
    assert_eq!(announce(&DigestSigner, &tenant()), 403);
    assert_eq!(announce(&tenant(), &stranger()), 403);
    assert_eq!(announce(&tenant(), &operator()), 200);
    assert_eq!(router.next_hops("/site/a"), [(neighbour.0, 2_048)]);
}
