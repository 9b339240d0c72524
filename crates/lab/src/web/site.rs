//! Pages of the model as a browser loads them: documents, scripts and pictures, whose paths are `/site/SET/PAGE/OBJECT`.
//!
//! A script is an object that names others, and a picture one that names none. Each is padded to its size, or is
//! larger if the names in it need more.

use std::fmt::Write as _;

use bytes::Bytes;

use super::pages::WebPage;

/// The first part of the paths.
const PREFIX: &str = "site";
/// What a document does: it counts what has arrived, and says so in its title when all has.
const COUNT: &str = r#"<!doctype html><title>objects</title><link rel="icon" href="data:,"><script>
var loaded = 0;
function picture(number) {
  const it = new Image();
  it.onload = () => { loaded += 1; };
  it.src = number;
}
function script(number) {
  const it = document.createElement("script");
  it.src = number;
  document.documentElement.append(it);
}
addEventListener("load", () => {
  const [entry] = performance.getEntriesByType("navigation");
  const time = performance.now().toFixed(1);
  document.title = "loaded " + loaded + " over " + entry.nextHopProtocol + " in " + time + " ms";
});
</script>"#;
const PICTURE: [&str; 2] = [
    r#"<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><!--"#,
    "--></svg>",
];

/// Returns the path of a page's document.
pub fn document_path(set: u64, page: usize) -> String {
    format!("/{PREFIX}/{set}/{page}/0")
}

/// Returns the type and octets of an object; `None` for another path, or if there is no such object.
pub(super) fn object_at(path: &str) -> Option<(&'static str, Bytes)> {
    let mut parts = path.trim_start_matches('/').split('/');
    if parts.next() != Some(PREFIX) {
        return None;
    }
    let set = parts.next()?.parse().ok()?;
    let page = WebPage::draw(set, parts.next()?.parse().ok()?);
    let object = parts.next()?.parse::<usize>().ok()?;
    let size = page.objects.get(object)?.size as usize;
    let names_others = |object| page.named_by(object).next().is_some();
    let mut text = String::new();
    let (kind, ends) = match (object, names_others(object)) {
        (0, _) => ("text/html", [COUNT, "-->"]),
        (_, true) => ("text/javascript", ["loaded += 1;", ""]),
        (_, false) => ("image/svg+xml", PICTURE),
    };
    text += ends[0];
    if object == 0 {
        text += "<script>";
    }
    for named in page.named_by(object) {
        let call = if names_others(named) {
            "script"
        } else {
            "picture"
        };
        // Writing to a text does not fail.
        let _ = write!(text, "{call}({named});");
    }
    text += match object {
        0 => "</script><!--",
        _ if names_others(object) => "//",
        _ => "",
    };
    let filling = size.saturating_sub(text.len() + ends[1].len());
    text.extend(std::iter::repeat_n('x', filling));
    text += ends[1];
    Some((kind, text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_of_a_page_is_named_once_by_the_one_before() {
        let page = WebPage::draw(7, 3);
        let mut named = Vec::new();
        for (number, object) in page.objects.iter().enumerate() {
            let path = document_path(7, 3).replace("/3/0", &format!("/3/{number}"));
            let (kind, body) = object_at(&path).unwrap();
            let text = String::from_utf8(body.to_vec()).unwrap();
            let own = text.strip_prefix(COUNT).unwrap_or(&text);
            let calls = own.split(['(', ')']).filter_map(|it| it.parse().ok());
            let calls: Vec<usize> = calls.collect();
            assert_eq!(calls, page.named_by(number).collect::<Vec<_>>());
            assert_eq!(kind == "image/svg+xml", calls.is_empty());
            let size = object.size as usize;
            assert!(text.len() == size || text.len() > size && !text.contains("xx"));
            named.extend(calls);
        }
        named.sort_unstable();
        assert!(named.into_iter().eq(1..page.objects.len()));
        for odd in ["/site/7/3/9999", "/7/3/0", "/site/x/3/0", "/site/7/3"] {
            assert!(object_at(odd).is_none(), "{odd}");
        }
    }
}
