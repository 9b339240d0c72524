//! Keys that travel, and generated traffic.

use std::fs;

use serde_json::Value;

use crate::support::ndn::Router;

#[test]
fn keys_survive_export_and_import_in_a_safe_bag() {
    let router = Router::start();
    let passphrase = router.path("passphrase");
    fs::write(&passphrase, "correct horse\n").unwrap();
    let wrong = router.path("wrong");
    fs::write(&wrong, "battery staple\n").unwrap();
    let (passphrase, wrong) = (passphrase.to_str().unwrap(), wrong.to_str().unwrap());
    for typ in ["ecdsa", "rsa", "ed25519"] {
        let identity = format!("/journey/{typ}");
        let key = router.json(&["key", "gen", &identity, "--type", typ])["key"]
            .as_str()
            .unwrap()
            .to_owned();
        let bag = router.path(&format!("{typ}.safebag"));
        let bag = bag.to_str().unwrap();
        router.prints(&[
            "key",
            "export",
            &identity,
            "-o",
            bag,
            "--passphrase-file",
            passphrase,
        ]);
        let elsewhere = router.path(&format!("{typ}-elsewhere"));
        let elsewhere = elsewhere.to_str().unwrap();
        let import = |phrase| {
            [
                "key",
                "import",
                bag,
                "--passphrase-file",
                phrase,
                "--keychain",
                elsewhere,
            ]
        };
        let (code, errors) = router.fails(&import(wrong));
        assert!(
            code == 2 && errors.contains("passphrase"),
            "{code} {errors}"
        );
        assert_eq!(router.prints(&import(passphrase)).trim(), key);
        let there = router.json(&["key", "show", &identity, "--keychain", elsewhere]);
        assert_eq!(there, router.json(&["key", "show", &identity]));
    }
    let listed = router.prints(&["key", "list"]);
    assert!(
        listed.contains("* /journey/ecdsa\n  * /journey/ecdsa/KEY/"),
        "{listed}"
    );
    assert!(listed.contains("  /journey/rsa\n"), "{listed}");
    router.prints(&["key", "default", "/journey/rsa"]);
    assert!(router.prints(&["key", "list"]).contains("* /journey/rsa\n"));
    router.prints(&["key", "delete", "/journey/rsa"]);
    assert!(!router.prints(&["key", "list"]).contains("/journey/rsa"));
    assert_eq!(router.fails(&["key", "delete", "/journey/rsa"]).0, 2);
}

#[test]
fn generated_traffic_is_answered_by_rules() {
    let router = Router::start();
    let (server, client) = (router.path("server.conf"), router.path("client.conf"));
    fs::write(
        &server,
        "Name=/traffic/A\nContent=hello\n\nName=/traffic/B\nContentBytes=100\nSigningInfo=digest\n",
    )
    .unwrap();
    fs::write(
        &client,
        "TrafficPercentage=60\nName=/traffic/A\nNameAppendSequenceNumber=1\nExpectedContent=hello\n#\n\
         TrafficPercentage=40\nName=/traffic/B\nNameAppendBytes=4\n",
    )
    .unwrap();
    let server = router.producer(&["ndn", "traffic", "server", server.to_str().unwrap()]);
    server.await_json(|value| value["event"] == "registered");
    let arguments = [
        "ndn",
        "traffic",
        "client",
        client.to_str().unwrap(),
        "-c",
        "50",
        "-i",
        "1",
        "--json",
    ];
    let out = router.prints(&arguments);
    let summaries: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["event"] == "summary")
        .collect();
    let sum = |key: &str| {
        summaries
            .iter()
            .map(|line| line[key].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(
        (
            summaries.len(),
            sum("sent"),
            sum("received"),
            sum("inconsistent")
        ),
        (2, 50, 50, 0),
        "{out}"
    );
}

#[test]
fn an_unknown_key_of_traffic_is_named_before_what_it_should_have_been_is_missed() {
    let router = Router::start();
    let file = router.path("traffic.conf");
    for (role, text, expected) in [
        ("client", "Nam=/a\n", "'Nam'; did you mean 'Name'?"),
        ("server", "Nam=/a\n", "'Nam'; did you mean 'Name'?"),
        (
            "server",
            "Name=/a\nContentByte=5\n",
            "line 2: unknown key 'ContentByte'; did you mean 'ContentBytes'?",
        ),
        ("server", "Content=hello\n", "this block has no Name"),
    ] {
        fs::write(&file, text).unwrap();
        let (code, errors) = router.fails(&["ndn", "traffic", role, file.to_str().unwrap()]);
        assert!(code == 2 && errors.contains(expected), "{errors}");
    }
}
