//! Registrations: refused, unanswered, repeated.

use whimbrel_core::{Time, WallClock};
use whimbrel_ndn_mgmt::{ControlParameters, ControlResponse};
use whimbrel_ndn_packet::{Data, DataRef, DigestSigner, InterestRef};
use whimbrel_transport::register::{
    RegisterFailure, Registrar, RegistrationEvent, RouteParameters,
};
use whimbrel_transport::{PeekOptions, ServiceEvent};

use super::setup::{echo, peek, rng};
use crate::support::{Pair, Path, Side, name, register};

#[test]
fn a_refused_registration_is_told_and_a_silent_one_repeated() {
    let registered = |code: Option<u64>, seconds: u64| {
        let mut pair = Pair::new(
            peek("/none", PeekOptions::default()),
            echo("/a", 1),
            Path::clean(),
            1,
        );
        pair.face(Side::Producer, false);
        pair.registered.lock().unwrap().clear();
        pair.management.set(code);
        pair.face(Side::Producer, true);
        pair.run(Time::from_secs(seconds), |_| false);
        let count = pair.registered.lock().unwrap().len();
        let events: Vec<_> = pair
            .producer_events
            .into_iter()
            .map(|(_, event)| event)
            .collect();
        (count, events)
    };
    let (count, events) = registered(Some(403), 100);
    assert_eq!(count, 1, "what is refused for good is not repeated");
    match &events[..] {
        [
            ..,
            ServiceEvent::Registration(RegistrationEvent::Failed {
                reason,
                retry_in: None,
                prefix,
            }),
        ] => {
            assert_eq!(*prefix, name("/a"));
            assert!(matches!(
                reason,
                RegisterFailure::Response { code: 403, .. }
            ));
            assert!(reason.to_string().contains("said the forwarder"));
        }
        other => panic!("{other:?}"),
    }
    // A command has 4 s, and the waits are 0.5, 1, 2, 4, 8, 16 and 30 s: commands leave at 0, 4.5,
    // 9.5, 15.5, 23.5, 35.5, 55.5 and 89.5 s.
    let (count, events) = registered(None, 100);
    assert_eq!(count, 8, "{events:?}");
    let timeouts = events.iter().filter(|event| {
        matches!(
            event,
            ServiceEvent::Registration(RegistrationEvent::Failed {
                reason: RegisterFailure::Timeout,
                retry_in: Some(_),
                ..
            })
        )
    });
    assert!(timeouts.count() >= 6);
    let (count, _) = registered(Some(503), 10);
    assert!(count > 3, "the forwarder's own trouble may pass: {count}");
}

#[test]
fn routes_are_registered_with_what_the_program_says() {
    let route = RouteParameters {
        cost: Some(10),
        ..RouteParameters::new(name("/r"))
    };
    let mut registrar = Registrar::new(register(), [route.clone()]);
    registrar.handle_face(Time::ZERO, true);
    let first = registrar.poll(Time::ZERO, &mut rng()).unwrap();
    let interest = InterestRef::decode(&first).unwrap();
    let parameters = ControlParameters::from(&route).encode();
    let command = name("/localhost/nfd/rib/register").child_generic(&parameters);
    assert!(command.as_ref().is_prefix_of(interest.name));
    registrar.add(Time::ZERO, RouteParameters::new(name("/s")));
    let second = registrar.poll(Time::ZERO, &mut rng()).unwrap();
    let times = [&first, &second].map(|wire| {
        InterestRef::decode(wire)
            .unwrap()
            .signature_info
            .unwrap()
            .time
    });
    assert!(
        times[1] > times[0],
        "times increase even within a millisecond"
    );
}

#[test]
fn after_a_step_of_the_clock_commands_bear_the_new_time_and_what_was_refused_is_tried_again() {
    let time = |wire: &[u8]| {
        let interest = InterestRef::decode(wire).unwrap();
        interest.signature_info.unwrap().time
    };
    let mut registrar = Registrar::new(register(), [RouteParameters::new(name("/r"))]);
    registrar.handle_face(Time::ZERO, true);
    let ahead = WallClock::new(1_900_000_000_000);
    registrar.set_wall_clock(ahead);
    let first = registrar.poll(Time::ZERO, &mut rng()).unwrap();
    assert_eq!(time(&first), Some(1_900_000_000_000));
    let interest = InterestRef::decode(&first).unwrap();
    let response = ControlResponse::new(403, "outside of the allowed time").encode();
    let data = Data::new(interest.name.to_name(), response).encode(&DigestSigner);
    let data = DataRef::decode(&data).unwrap();
    assert!(registrar.handle_data(Time::from_millis(1), &data));
    assert!(registrar.poll(Time::from_secs(100), &mut rng()).is_none());
    // The clock was an hour ahead and is put right.
    registrar.set_wall_clock(WallClock::new(1_899_996_400_000));
    let again = registrar.poll(Time::from_secs(100), &mut rng()).unwrap();
    assert_eq!(time(&again), Some(1_899_996_500_000));
}
