//! Valid and invalid FaceUris.

use super::*;
use proptest::prelude::*;

fn canonical(text: &str) -> String {
    text.parse::<FaceUri>()
        .map_or_else(|error| format!("error: {error}"), |uri| uri.to_string())
}

#[test]
fn what_people_write_becomes_what_nfd_writes() {
    for (written, expected) in [
        ("udp://192.0.2.1", "udp4://192.0.2.1:6363"),
        ("udp4://192.0.2.1:6363/", "udp4://192.0.2.1:6363"),
        ("udp://224.0.23.170", "udp4://224.0.23.170:56363"),
        ("udp://[2001:DB8:0:0::1]", "udp6://[2001:db8::1]:6363"),
        ("udp6://[fe80::1%25eth0]:7000", "udp6://[fe80::1%eth0]:7000"),
        ("udp://[::ffff:192.0.2.1]:1", "udp4://192.0.2.1:1"),
        ("tcp://127.0.0.1", "tcp4://127.0.0.1:6363"),
        ("tcp6://[::1]:6363", "tcp6://[::1]:6363"),
        ("ether://[1:0:5E:0:17:AA]", "ether://[01:00:5e:00:17:aa]"),
        (
            "ether://[2:0:5e:10:0:7%eth0]",
            "ether://[02:00:5e:10:00:07%eth0]",
        ),
        ("ip://192.0.2.1", "ip4://192.0.2.1"),
        ("ip://[2001:DB8::1]/", "ip6://[2001:db8::1]"),
        ("ip6://[fe80::1%25eth0]", "ip6://[fe80::1%eth0]"),
        ("ip://router.example.net", "ip://router.example.net"),
        ("dev://eth0.100/", "dev://eth0.100"),
        ("udp4+dev://wlan0:56363", "udp4+dev://wlan0:56363"),
        ("unix:///run/nfd/nfd.sock", "unix:///run/nfd/nfd.sock"),
        ("fd://7", "fd://7"),
        ("ws://127.0.0.1", "ws://127.0.0.1:9696"),
        ("ws://[::]:9696", "ws://[::]:9696"),
        ("ws://[fe80::1%eth0]/x", "ws://[fe80::1%eth0]:9696/x"),
        ("wss://example.net/ws/", "wss://example.net:443/ws/"),
        ("wsclient://127.0.0.1:40000", "wsclient://127.0.0.1:40000"),
        ("udp://router.example.net", "udp://router.example.net"),
        ("tcp6://router.example.net:1", "tcp6://router.example.net:1"),
        ("internal://", "internal://"),
        ("contentstore://", "contentstore://"),
        ("null://", "null://"),
    ] {
        assert_eq!(canonical(written), expected, "{written}");
        assert_eq!(canonical(expected), expected);
    }
}

#[test]
fn what_is_no_face_uri_is_refused_with_what_to_do() {
    for text in [
        "",
        "192.0.2.1",
        "udp:/192.0.2.1",
        "udp4://",
        "ip://192.0.2.1:253",
        "ip4://[2001:db8::1]",
        "ip6://[fe80::1]",
        "ether://[02:00:5e:10:00:07%]",
        "ether://[02:00:5e:10:00:07%a b]",
        "udp4://192.0.2.1:",
        "udp4://192.0.2.1:65536",
        "udp4://192.0.2.1:+1",
        "udp4://192.0.2.1/path",
        "udp4://[2001:db8::1]",
        "udp6://192.0.2.1",
        "udp6://[192.0.2.1]",
        "udp6://2001:db8::1",
        "udp6://[2001:db8::1",
        "udp6://[2001:db8::1]x",
        "udp6://[fe80::1]:6363",
        "tcp4://224.0.23.170",
        "udp://a b",
        "ether://01:00:5e:00:17:aa",
        "ether://[01:00:5e:00:17]",
        "ether://[01:00:5e:00:17:+a]",
        "ether://[001:00:5e:00:17:aa]",
        "dev://",
        "dev://eth0:1",
        "dev://eth0/x",
        "unix://",
        "unix:///",
        "unix://host/path",
        "fd://",
        "fd://x",
        "fd://7/x",
        "ws://",
        "ws://a b/",
        "ws://[fe80::1]",
        "wsclient://name:1",
        "internal://x",
        "quic://192.0.2.1",
        "udp44://192.0.2.1",
    ] {
        assert!(
            text.parse::<FaceUri>().is_err(),
            "{text} gave {}",
            canonical(text)
        );
    }
}

#[test]
fn scope_is_local_for_unix_and_tcp_loopback_only() {
    for (uri, local) in [
        ("unix:///run/nfd/nfd.sock", true),
        ("fd://7", true),
        ("tcp4://127.0.0.1:1", true),
        ("tcp6://[::1]:1", true),
        ("wsclient://127.0.0.1:1", true),
        ("udp4://127.0.0.1:1", false),
        ("tcp4://192.0.2.1:1", false),
        ("ws://127.0.0.1:9696", false),
        ("ether://[01:00:5e:00:17:aa]", false),
    ] {
        let expected = if local { Scope::Local } else { Scope::NonLocal };
        assert_eq!(uri.parse::<FaceUri>().unwrap().scope(), expected, "{uri}");
    }
}

#[test]
fn a_host_name_becomes_canonical_once_its_address_is_known() {
    let named: FaceUri = "udp6://router.example.net:7".parse().unwrap();
    assert!(!named.is_canonical());
    assert_eq!(
        named
            .resolved("2001:db8::1".parse().unwrap())
            .unwrap()
            .to_string(),
        "udp6://[2001:db8::1]:7"
    );
    let other_family = named.resolved("192.0.2.1".parse().unwrap());
    assert!(matches!(other_family, Err(FaceUriError::Family { .. })));
}

proptest! {
    #[test]
    fn any_text_parses_or_is_refused_and_the_canonical_form_is_stable(text in "(udp|tcp|ws|ether|dev|fd|unix)[46]?(\\+dev)?://[\\[a-f0-9:.%\\]/+]{0,30}|\\PC{0,40}") {
        if let Ok(uri) = text.parse::<FaceUri>() {
            let written = uri.to_string();
            prop_assert_eq!(written.parse::<FaceUri>(), Ok(uri));
        }
    }
}
