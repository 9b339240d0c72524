//! Studies of [TCP/ICN]: TCP over proxies and NDN beside plain IP on the same links.

pub(super) mod completion;
pub(super) mod fairness;
pub(super) mod grid;

/// Returns the name of a way, from the sweep, for people.
fn title(by: &str) -> String {
    let mut words: Vec<&str> = by.split('-').collect();
    let first = match words.remove(0) {
        "plain" => "plain IP",
        "basic" => "basic fetching",
        "reliable" => "reliable prefetching",
        "unreliable" => "unreliable prefetching",
        other => other,
    };
    let more = words.into_iter().map(|word| match word {
        "belrp" => ", links that recover",
        "bbr" => ", BBR",
        "both" => ", both directions",
        "1500" => ", frames of 1500 bytes",
        other => other,
    });
    more.fold(first.to_owned(), |all, more| all + more)
}
