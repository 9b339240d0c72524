//! The interface for NDN programs in Rust, against a real router, with NDN's own tools at the other end.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

#[path = "../../node/examples/ndn_copy.rs"]
mod ndn_copy;
#[path = "../../node/examples/ndn_time.rs"]
mod ndn_time;
use std::fs;
use std::time::Duration;

use crate::support::ndn::Router;
use crate::support::{PATIENCE, noise};
use whimbrel_ndn_packet::Name;
use whimbrel_node::ndn::face::{NdnFace, NdnFaceError};
use whimbrel_transport::{Answer, FetchOptions, PeekOptions};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn attach(router: &Router) -> NdnFace {
    let uri = format!("unix://{}", router.path("nfd.sock").display());
    NdnFace::attach(Some(&uri)).unwrap()
}

#[test]
fn programs_express_serve_fetch_and_publish() {
    let router = Router::start();
    let [here, there] = [(), ()].map(|()| attach(&router));

    // A prefix, and a longer one of the same program.
    let _time = ndn_time::serve_time(&there, name("/example")).unwrap();
    let signer = there.signer();
    let quiet = there.serve(name("/example/quiet"), |_| Answer::Silence);
    let _quiet = quiet.unwrap().wait().unwrap();
    let greet = there.serve(name("/example/greet"), move |interest| {
        signer.data(interest.name.to_name(), "hello", Duration::ZERO)
    });
    let _greet = greet.unwrap().wait().unwrap();
    let ask = |text: &str, lifetime| {
        let options = PeekOptions {
            lifetime,
            ..PeekOptions::default()
        };
        here.express(name(text), options).unwrap().wait()
    };
    let data = ask("/example/greet/me", PATIENCE).unwrap();
    assert_eq!(data.name(), name("/example/greet/me"));
    assert_eq!(data.content(), "hello");
    let millis = ask("/example/now", PATIENCE).unwrap().content();
    let millis = String::from_utf8_lossy(&millis).into_owned();
    assert!(millis.trim().parse::<u64>().unwrap() > 1_500_000_000_000);
    let silence = ask("/example/quiet/x", Duration::from_millis(200));
    assert!(matches!(silence, Err(NdnFaceError::TimedOut(_))));
    let nowhere = ask("/nowhere", PATIENCE).unwrap_err();
    assert!(
        nowhere
            .to_string()
            .contains("/nowhere was answered with a Nack"),
        "{nowhere}"
    );

    // Objects: published here, fetched by a program and by NDN's own tool, and the other way round.
    let film = noise(3 << 20, 4);
    let [from, to] = ["from", "to"].map(|file| router.path(file));
    fs::write(&from, &film).unwrap();
    let published = ndn_copy::put(&there, name("/example/film"), &from).unwrap();
    assert_eq!(
        ndn_copy::get(&here, name("/example/film"), &to).unwrap(),
        film.len() as u64
    );
    assert!(fs::read(&to).unwrap() == film);
    let whole = here.fetch(name("/example/film"), FetchOptions::default());
    assert!(whole.unwrap().wait().unwrap() == film);
    let copy = router.path("copy");
    router.prints(&["ndn", "get", "/example/film", "-o", copy.to_str().unwrap()]);
    assert!(fs::read(&copy).unwrap() == film);

    // What is dropped is served no longer, and the face still works.
    drop(published);
    let options = FetchOptions {
        retries: Some(0),
        lifetime: Duration::from_millis(300),
        ..FetchOptions::default()
    };
    let gone = here.fetch(name("/example/quiet/film"), options).unwrap();
    assert!(matches!(gone.wait(), Err(NdnFaceError::Fetch(_))));
    assert_eq!(
        ask("/example/greet/again", PATIENCE).unwrap().content(),
        "hello"
    );
}

#[test]
fn calls_are_awaited_in_any_runtime() {
    let router = Router::start();
    let [here, there] = [(), ()].map(|()| attach(&router));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let served = there
            .publish_bytes(name("/a"), &b"alpha"[..])
            .unwrap()
            .await
            .unwrap();
        let fetch = |text| here.fetch(name(text), FetchOptions::default()).unwrap();
        assert_eq!(fetch("/a").await.unwrap(), "alpha");
        // A call that is dropped ends its operation.
        drop(fetch("/a"));
        drop(served);
    });
}

#[test]
fn a_face_without_a_forwarder_is_an_error_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let uri = format!("unix://{}/nfd.sock", folder.path().display());
    let error = NdnFace::attach(Some(&uri))
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(error.contains("whimbrel router run"), "{error}");
}
