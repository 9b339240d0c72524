//! `names`: aliases in the place of names, and directories that others have signed.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test with real processes"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Network, finished, whimbrel};
use serde_json::Value;

/// A user's own directory of names.
struct User {
    folder: tempfile::TempDir,
}

impl User {
    fn new() -> User {
        User {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = whimbrel();
        command.env("WHIMBREL_NAMES", self.path("names.json"));
        command.args(words);
        command
    }

    fn run(&self, words: &[&str]) -> (i32, String, String) {
        finished(&mut self.command(words))
    }

    fn done(&self, words: &[&str]) -> String {
        let (code, out, err) = self.run(words);
        assert_eq!(code, 0, "{words:?}: {err}");
        out + &err
    }

    /// What a refused command says.
    fn refused(&self, words: &[&str]) -> String {
        let (code, _, err) = self.run(words);
        assert_eq!(code, 2, "{words:?}: {err}");
        err
    }
}

fn digits(byte: u8) -> String {
    format!("{byte:02x}").repeat(32)
}

#[test]
fn an_alias_is_given_listed_and_taken_away() {
    let user = User::new();
    user.done(&["names", "add", "ship-7", &digits(7)]);
    let listed = user.done(&["names", "list"]);
    assert!(
        listed.contains(&format!("ship-7  {}", digits(7))),
        "{listed}"
    );
    let listed: Value = serde_json::from_str(&user.done(&["names", "list", "--json"])).unwrap();
    assert_eq!(listed["aliases"]["ship-7"]["name"], digits(7).as_str());
    let mode = fs::metadata(user.path("names.json")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    user.done(&["names", "remove", "ship-7"]);
    let gone = user.refused(&["names", "remove", "ship-7"]);
    assert!(gone.contains("no name has the alias ship-7"), "{gone}");
}

#[test]
fn an_alias_that_could_mislead_is_refused_with_the_reason() {
    let user = User::new();
    user.done(&["names", "add", "ship-1", &digits(1)]);
    for (alias, why) in [
        ("cafe", "first digits of a name"),
        ("ship 7", "U+0020"),
        ("Ship-7", "U+0053"),
        ("\u{455}hip-7", "U+0455"),
        ("7-ships", "begins with a letter"),
        ("ship-1", "stands for"),
        ("ship-l", "looks like ship-1"),
    ] {
        let said = user.refused(&["names", "add", alias, &digits(2)]);
        assert!(said.contains(why), "{alias}: {said}");
    }
    let unknown = user.refused(&["ping", "shp-1"]);
    assert!(unknown.contains("did you mean 'ship-1'?"), "{unknown}");
    // Another user could have changed what an alias stands for.
    let open = fs::Permissions::from_mode(0o666);
    fs::set_permissions(user.path("names.json"), open).unwrap();
    let foreign = user.refused(&["ping", "ship-1"]);
    assert!(foreign.contains("chmod"), "{foreign}");
}

#[test]
fn a_signed_directory_is_taken_over_and_its_signer_pinned() {
    let (harbour, user, other) = (User::new(), User::new(), User::new());
    let file = harbour.path("harbour.names");
    let path = |file: &Path| file.to_str().unwrap().to_owned();
    harbour.done(&["names", "add", "ship-7", &digits(7)]);
    harbour.done(&["names", "add", "shore", &digits(9)]);
    let told = harbour.done(&["names", "export", &path(&file)]);
    let signer = told.trim().rsplit(' ').next().unwrap().to_owned();
    user.done(&["names", "add", "shore", &digits(1)]);
    let (code, out, err) = user.run(&["names", "import", &path(&file)]);
    assert_eq!(code, 9, "one alias is not taken over: {err}");
    assert!(out.contains("added ship-7"), "{out}");
    assert!(err.contains(&signer) && err.contains("pinned"), "{err}");
    assert!(err.contains("shore stands for"), "{err}");

    // Another signer is not believed, until the user says so.
    other.done(&["names", "add", "ship-8", &digits(8)]);
    let stranger = other.path("stranger.names");
    other.done(&["names", "export", &path(&stranger)]);
    let said = user.refused(&["names", "import", &path(&stranger)]);
    assert!(said.contains("--signer"), "{said}");
    let flag = said.split("--signer ").nth(1).unwrap();
    let its_signer = flag.split('`').next().unwrap();
    user.done(&["names", "import", &path(&stranger), "--signer", its_signer]);

    // The first signer's next version; and a file that somebody has changed.
    harbour.done(&["names", "remove", "ship-7"]);
    harbour.done(&["names", "remove", "shore"]);
    harbour.done(&["names", "add", "ship-9", &digits(5)]);
    harbour.done(&["names", "export", &path(&file)]);
    let (code, out, err) = user.run(&["names", "import", "--json", &path(&file)]);
    assert_eq!(code, 0, "{err}");
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&told["added"][0], &told["removed"][0]),
        (&"ship-9".into(), &"ship-7".into())
    );
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(&digits(5), &digits(6))).unwrap();
    let forged = user.refused(&["names", "import", &path(&file)]);
    assert!(forged.contains("signature does not match"), "{forged}");
    // A file that is something else is not overwritten.
    fs::write(&file, "a letter").unwrap();
    user.refused(&["names", "export", &path(&file)]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "a letter");
}

#[test]
fn commands_take_and_show_an_alias_in_the_place_of_a_name() {
    let (user, network) = (User::new(), Network::start(None));
    let (host, router) = (network.guid_of("host-1"), network.guid_of("router-1"));
    user.done(&["names", "add", "ship-7", &host]);
    user.done(&["names", "add", "mast", &router]);
    let mut ping = user.command(&["ping", "-c", "1", "ship-7", "--socket"]);
    let (code, out, err) = finished(ping.arg(network.host_socket(0)));
    assert_eq!(code, 0, "{err}");
    assert!(out.contains(&format!("{host} (ship-7)")), "{out}");
    let server = format!("127.0.0.1:{}", network.ports[0]);
    let found = user.done(&["gnrs", "lookup", "ship-7", "--server", &server]);
    assert!(found.contains(&format!("{host} (ship-7)")), "{found}");
    assert!(found.contains(&format!("at {router} (mast)")), "{found}");
    let status = user.command(&["router", "status", "--socket"]);
    let mut status = status;
    let (code, out, err) = finished(status.arg(network.router_socket(1)));
    assert_eq!(code, 0, "{err}");
    assert!(out.contains(&format!("{router} (mast)")), "{out}");

    // A content, too.
    let path = network.path("film");
    fs::write(&path, b"a few bytes").unwrap();
    let (_serving, names) = network.serve(&[&path]);
    user.done(&["names", "add", "film", &names[0]]);
    let copy = network.path("copy");
    let mut get = user.command(&["get", "film", "--timeout", "100 s", "--socket"]);
    let (code, _, err) = finished(get.arg(network.host_socket(0)).arg("-o").arg(&copy));
    assert_eq!(code, 0, "{err}");
    assert_eq!(fs::read(&copy).unwrap(), b"a few bytes");
}
