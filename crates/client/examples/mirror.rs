//! Mirrors the files of a folder to another host.
//!
//! One side publishes the files and sends a list of their names to the other, which fetches what it does not have. The list is
//! sent again when a file changes; what is not in it stays at the mirror.
//!
//! ```sh
//! mirror copy FOLDER               # prints the name of its host
//! mirror publish FOLDER NAME       # NAME is what the other side has printed
//! ```
//!
//! `WHIMBREL_SOCKET` names the socket of the host daemon. With `--once` both end when the mirror has everything.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "an example that watches a real folder"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use whimbrel_client::{
    Client, ContentSource, GetOptions, Guid, OfferRule, OfferVerdict, Publication, SendOptions,
};

/// Pause between two looks at the folder.
const INTERVAL: Duration = Duration::from_millis(500);
/// The name of a list, by which a mirror knows it.
const LIST_NAME: &str = "mirror.list";
/// The longest list that a mirror accepts, in bytes.
const MAX_LIST: u64 = 1 << 20;

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let once = arguments.iter().any(|argument| argument == "--once");
    arguments.retain(|argument| argument != "--once");
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["copy", folder] => copy(&Client::attach()?, Path::new(folder), once),
        ["publish", folder, name] => {
            publish(&Client::attach()?, Path::new(folder), name.parse()?, once)
        }
        _ => Err("mirror copy FOLDER | mirror publish FOLDER NAME".into()),
    }
}

/// Publishes the files, and tells the mirror of them when something has changed.
pub(crate) fn publish(client: &Client, folder: &Path, mirror: Guid, once: bool) -> Outcome {
    let mut published: BTreeMap<String, Publication> = BTreeMap::new();
    let mut told = String::new();
    loop {
        for path in files_of(folder)? {
            let name = name_of(&path)?;
            // A file that changes while it is hashed is published at the next look.
            let Ok(source) = ContentSource::of_file(&path) else {
                continue;
            };
            let is_known = published
                .get(&name)
                .is_some_and(|it| it.content() == source.content());
            if !is_known {
                published.insert(name, client.publish(source)?);
            }
        }
        let lines = published
            .iter()
            .map(|(name, it)| format!("{} {name}\n", it.content()));
        let list: String = lines.collect();
        if list != told {
            for publication in published.values() {
                publication.announced().wait()?;
            }
            let source = ContentSource::of_bytes(list.clone().into(), LIST_NAME);
            let options = SendOptions {
                until_delivered: true,
                ..SendOptions::default()
            };
            client.send(mirror, source, options)?.outcome().wait()?;
            println!("the mirror has {} files", published.len());
            told = list;
        }
        if once {
            return Ok(());
        }
        std::thread::sleep(INTERVAL);
    }
}

/// Fetches the files of each list that is sent.
pub(crate) fn copy(client: &Client, folder: &Path, once: bool) -> Outcome {
    println!("{}", client.name()?.wait()?);
    let rule = OfferRule {
        max_size: Some(MAX_LIST),
        ..OfferRule::default()
    };
    let mut inbox = client.inbox(rule)?;
    loop {
        let offer = inbox.next_offer().wait()?;
        if offer.offer().content.file_name != LIST_NAME {
            offer.refuse(OfferVerdict::NotAccepted)?;
            continue;
        }
        let mut download = offer.accept()?;
        let mut list = Vec::new();
        while let Some(piece) = download.next_piece().wait()? {
            list.extend_from_slice(&piece.data);
        }
        for line in String::from_utf8(list)?.lines() {
            let Some((content, name)) = line.split_once(' ') else {
                continue;
            };
            let (content, path) = (content.parse()?, place_of(folder, name)?);
            if ContentSource::of_file(&path).is_ok_and(|source| source.content() == content) {
                continue;
            }
            let options = GetOptions {
                in_order: false,
                ..GetOptions::default()
            };
            let length = client.get(content, options)?.to_file(&path)?.wait()?;
            println!("{name}: {length} bytes");
        }
        // The other side may end now.
        download.settle(OfferVerdict::Received);
        if once {
            // The last word is on its way when the host has answered another question.
            client.status()?.wait()?;
            return Ok(());
        }
    }
}

fn files_of(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let paths = entries.into_iter().map(|entry| entry.path());
    Ok(paths
        .filter(|path| path.is_file() && name_of(path).is_ok_and(|name| !name.starts_with('.')))
        .collect())
}

fn name_of(path: &Path) -> Result<String, Box<dyn Error>> {
    let name = path.file_name().and_then(|name| name.to_str());
    Ok(name.ok_or("a file's name is not UTF-8")?.to_owned())
}

/// Returns the place of a file. A name of another machine must not lead out of the folder.
fn place_of(folder: &Path, name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let is_plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
    match is_plain {
        true => Ok(folder.join(name)),
        false => Err(format!("the list has a name that is none of a file: {name:?}").into()),
    }
}
