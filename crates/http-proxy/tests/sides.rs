//! Both sides over messages that a test carries, with real connections at their ends.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real connections in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

#[path = "../../cli/tests/support/origin.rs"]
mod origin;

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::Response;
use http::header::{CONTENT_LENGTH, HeaderValue};
use origin::{Origin, answer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use whimbrel_client::{Attachment, LocalError};
use whimbrel_core::Guid;
use whimbrel_http_proxy::client::{self, ClientOptions};
use whimbrel_http_proxy::host::HostLine;
use whimbrel_http_proxy::origin::OriginRule;
use whimbrel_http_proxy::plane::{PlaneOptions, PlaneStream, StreamPlane};
use whimbrel_http_proxy::server::{self, PermittedCallers, ServerOptions};
use whimbrel_http_proxy::wire::{BodyFrame, encode_response};
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest};

const CLIENT: Guid = Guid([1; 32]);
const SERVER: Guid = Guid([2; 32]);

/// What carries the messages.
#[derive(Debug, Default)]
struct Wire {
    is_down: AtomicBool,
    bytes: AtomicU64,
}

/// A host of the test: what it takes, and where its events go.
struct End {
    name: Guid,
    taken: mpsc::Receiver<LocalRequest>,
    events: mpsc::Sender<Result<LocalEvent, LocalError>>,
}

fn end(name: Guid, room: usize) -> (HostLine, End) {
    let (requests, taken) = mpsc::channel(room);
    let (events, line) = mpsc::channel(room);
    let line = HostLine {
        requests,
        events: line,
    };
    (
        line,
        End {
            name,
            taken,
            events,
        },
    )
}

async fn carry(
    wire: Arc<Wire>,
    from: Guid,
    mut taken: mpsc::Receiver<LocalRequest>,
    events: mpsc::Sender<Result<LocalEvent, LocalError>>,
) {
    while let Some(request) = taken.recv().await {
        let LocalRequest::Message {
            channel, payload, ..
        } = request
        else {
            continue;
        };
        wire.bytes
            .fetch_add(payload.len() as u64, Ordering::Relaxed);
        if wire.is_down.load(Ordering::Relaxed) {
            continue;
        }
        let event = LocalEvent::Message {
            channel,
            from,
            payload,
        };
        if events.send(Ok(event)).await.is_err() {
            return;
        }
    }
}

struct Sides {
    proxy: SocketAddr,
    wire: Arc<Wire>,
}

async fn start() -> Sides {
    start_with_room(64).await
}

/// Starts both sides, with this many requests or events on their way to and from each host.
async fn start_with_room(room: usize) -> Sides {
    let wire = Arc::<Wire>::default();
    let ((one, left), (other, right)) = (end(CLIENT, room), end(SERVER, room));
    tokio::spawn(carry(
        Arc::clone(&wire),
        left.name,
        left.taken,
        right.events,
    ));
    tokio::spawn(carry(
        Arc::clone(&wire),
        right.name,
        right.taken,
        left.events,
    ));
    let (far, accepted, driver) = StreamPlane::new(Attachment::Once(None), other, options(true));
    tokio::spawn(driver);
    let origins = OriginRule {
        allowed: vec!["127.0.0.1".parse().unwrap()],
        ..OriginRule::default()
    };
    let callers = PermittedCallers::Listed([CLIENT].into());
    tokio::spawn(server::serve(
        accepted,
        far,
        ServerOptions { callers, origins },
    ));
    let (plane, _accepted, driver) = StreamPlane::new(Attachment::Once(None), one, options(false));
    tokio::spawn(driver);
    serve_programs(plane, wire).await
}

fn options(accepts: bool) -> PlaneOptions {
    PlaneOptions {
        channel: 1,
        accepts,
        max_streams: 4096,
        patience: Duration::from_secs(60),
        secret: [9; 32],
    }
}

/// Starts the proxy for programs.
async fn serve_programs(plane: StreamPlane, wire: Arc<Wire>) -> Sides {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let options = ClientOptions {
        server: Some(SERVER),
        find: Arc::new(|_| None),
        cache: 8 << 20,
        stale_after: Duration::from_millis(300),
        keep: Duration::from_secs(100),
    };
    tokio::spawn(client::serve(listener, plane, options));
    Sides { proxy, wire }
}

impl Sides {
    /// Sends these bytes on a connection, and returns all that comes back.
    async fn raw(&self, bytes: &[u8]) -> String {
        let mut program = TcpStream::connect(self.proxy).await.unwrap();
        program.write_all(bytes).await.unwrap();
        let mut seen = Vec::new();
        // A connection that is reset after the answer is as good as a closed one.
        let read = program.read_to_end(&mut seen);
        let _ = tokio::time::timeout(Duration::from_secs(60), read)
            .await
            .unwrap();
        String::from_utf8_lossy(&seen).into_owned()
    }

    /// Asks for a URL with these header lines, each with its line end.
    async fn get(&self, url: &str, headers: &str) -> String {
        let request =
            format!("GET {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        self.raw(request.as_bytes()).await
    }

    fn bytes(&self) -> u64 {
        self.wire.bytes.load(Ordering::Relaxed)
    }
}

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or(answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_answer_crosses_the_link_once() {
    let sides = start().await;
    let body = vec![b'x'; 500_000];
    let origin = Origin::start(move |_, stream| {
        answer(
            stream,
            "200 OK",
            "Cache-Control: max-age=1000\r\nETag: \"1\"\r\n",
            &body,
        );
    });
    let url = origin.url("/a");
    let first = sides.get(&url, "").await;
    assert!(
        first.contains("cache-status: whimbrel; fwd=miss; stored"),
        "{}",
        &first[..300]
    );
    let bytes = sides.bytes();
    assert!(bytes > 500_000);
    let second = sides.get(&url, "").await;
    assert!(
        second.contains("cache-status: whimbrel; hit"),
        "{}",
        &second[..300]
    );
    assert!(second.contains("age: ") && second.len() > 500_000);
    assert_eq!(
        status(&sides.get(&url, "If-None-Match: \"1\"\r\n").await),
        "304"
    );
    assert!(sides.bytes() - bytes < 1000, "{}", sides.bytes() - bytes);
    assert_eq!(origin.asked().len(), 1);
    // The asker wants to be sure.
    sides.get(&url, "Cache-Control: no-cache\r\n").await;
    assert_eq!(origin.asked().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_unknown_length_is_stored_once_it_is_whole() {
    let sides = start().await;
    let origin = Origin::start(|asked, stream| {
        let end = if asked.target == "/whole" {
            "0\r\n\r\n"
        } else {
            ""
        };
        let head =
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=1000\r\nTransfer-Encoding: chunked\r\n\r\n";
        let _ = write!(stream, "{head}5\r\nhello\r\n6\r\n world\r\n{end}");
    });
    for (path, count) in [("/whole", 1), ("/cut", 2)] {
        let before = origin.asked().len();
        for _ in 0..2 {
            let got = sides.get(&origin.url(path), "").await;
            assert_eq!(status(&got), "200", "{got}");
            // The end of the first may come after its answer.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(origin.asked().len() - before, count, "{path}");
    }
    assert!(
        sides
            .get(&origin.url("/whole"), "")
            .await
            .ends_with("hello world")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_personal_or_varies_is_not_given_to_others() {
    let sides = start().await;
    let origin = Origin::start(|asked, stream| {
        let headers = match asked.target.as_str() {
            "/cookie" => "Cache-Control: max-age=1000\r\nSet-Cookie: a=b\r\n",
            "/private" => "Cache-Control: private, max-age=1000\r\n",
            "/no-store" => "Cache-Control: no-store\r\n",
            "/star" => "Cache-Control: max-age=1000\r\nVary: *\r\n",
            "/vary" => "Cache-Control: max-age=1000\r\nVary: Accept-Language\r\n",
            _ => "Cache-Control: max-age=1000\r\n",
        };
        let language = asked
            .headers
            .get("accept-language")
            .cloned()
            .unwrap_or_default();
        answer(stream, "200 OK", headers, language.as_bytes());
    });
    for path in ["/cookie", "/private", "/no-store", "/star"] {
        let before = origin.asked().len();
        for _ in 0..2 {
            sides.get(&origin.url(path), "").await;
        }
        assert_eq!(origin.asked().len() - before, 2, "{path}");
    }
    let before = origin.asked().len();
    for _ in 0..2 {
        sides
            .get(&origin.url("/authorized"), "Authorization: Basic eDp5\r\n")
            .await;
    }
    assert_eq!(origin.asked().len() - before, 2);
    for language in ["de", "en", "de", "en"] {
        let got = sides
            .get(
                &origin.url("/vary"),
                &format!("Accept-Language: {language}\r\n"),
            )
            .await;
        assert!(got.ends_with(language), "{got}");
    }
    assert_eq!(origin.asked().len() - before, 4);
    // The target decides what is asked and stored, not the field.
    let poison = format!(
        "GET {} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        origin.url("/host")
    );
    sides.raw(poison.as_bytes()).await;
    assert_eq!(
        origin.asked().last().unwrap().headers["host"],
        origin.address.to_string()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn several_that_ask_for_one_thing_cause_one_request() {
    let sides = Arc::new(start().await);
    let origin = Origin::start(|_, stream| {
        std::thread::sleep(Duration::from_millis(200));
        answer(
            stream,
            "200 OK",
            "Cache-Control: max-age=1000\r\n",
            &[b'y'; 300_000],
        );
    });
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let (sides, url) = (Arc::clone(&sides), origin.url("/one"));
            tokio::spawn(async move { sides.get(&url, "").await })
        })
        .collect();
    for task in tasks {
        let got = task.await.unwrap();
        assert!(
            got.ends_with(&"y".repeat(1000)) && got.len() > 300_000,
            "{}",
            got.len()
        );
    }
    assert_eq!(origin.asked().len(), 1);
    assert!(sides.bytes() < 400_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_never_answered_does_not_block_its_url() {
    let sides = start().await;
    let is_first = AtomicBool::new(true);
    let origin = Origin::start(move |_, stream| {
        if is_first.swap(false, Ordering::Relaxed) {
            std::thread::sleep(Duration::from_secs(3600));
        }
        answer(stream, "200 OK", "", b"answered");
    });
    let url = origin.url("/");
    let mut given_up = TcpStream::connect(sides.proxy).await.unwrap();
    let request = format!("GET {url} HTTP/1.1\r\nHost: x\r\n\r\n");
    given_up.write_all(request.as_bytes()).await.unwrap();
    while origin.asked().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(given_up);
    let got = sides.get(&url, "").await;
    assert!(got.ends_with("answered"), "{got}");
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_of_requests_hold_for_stored_answers() {
    let sides = start().await;
    let origin = Origin::start(|asked, stream| {
        let date = "Tue, 02 Jan 2024 00:00:00 GMT";
        let headers = match asked.target.as_str() {
            "/tag" => "ETag: W/\"b\"\r\n".to_owned(),
            "/strong" => "ETag: \"a\"\r\n".to_owned(),
            _ => format!("Last-Modified: {date}\r\n"),
        };
        let headers = format!("Cache-Control: max-age=1000\r\n{headers}");
        answer(stream, "200 OK", &headers, b"body");
    });
    for path in ["/tag", "/date"] {
        assert_eq!(status(&sides.get(&origin.url(path), "").await), "200");
    }
    let since = |day| format!("If-Modified-Since: {day} Jan 2024 00:00:00 GMT\r\n");
    for (path, headers, expected) in [
        ("/tag", "If-None-Match: \"a\", \"b\"\r\n", "304"),
        (
            "/tag",
            "If-None-Match: \"a\"\r\nIf-None-Match: W/\"b\"\r\n",
            "304",
        ),
        ("/tag", "If-None-Match: *\r\n", "304"),
        ("/tag", "If-None-Match: \"c\"\r\n", "200"),
        ("/date", &*since("Wed, 03"), "304"),
        ("/date", &*since("Mon, 01"), "200"),
    ] {
        let got = sides.get(&origin.url(path), headers).await;
        assert_eq!(status(&got), expected, "{path} {headers} {got}");
        assert!(got.contains("whimbrel; hit"), "{got}");
    }
    // A server that takes one tag only gets one.
    let headers = "If-None-Match: \"a\"\r\nCache-Control: no-cache\r\n";
    sides.get(&origin.url("/strong"), "").await;
    sides.get(&origin.url("/strong"), headers).await;
    assert_eq!(origin.asked()[3].headers["if-none-match"], "\"a\"");
    // Whether it is still the same one only its server knows.
    assert_eq!(origin.asked().len(), 4);
    let headers = "If-Match: \"a\"\r\n";
    sides.get(&origin.url("/tag"), headers).await;
    assert_eq!(origin.asked().len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_answer_is_given_while_the_far_side_is_away() {
    let sides = start().await;
    let origin = Origin::start(|asked, stream| match asked.headers.get("if-none-match") {
        Some(_) => answer(stream, "304 Not Modified", "ETag: \"1\"\r\n", b""),
        None => {
            let control = match asked.target.as_str() {
                "/strict" => "Cache-Control: max-age=0, must-revalidate\r\nETag: \"1\"\r\n",
                _ => "Cache-Control: max-age=0\r\nETag: \"1\"\r\n",
            };
            answer(stream, "200 OK", control, b"news");
        }
    });
    let url = origin.url("/news");
    assert!(sides.get(&url, "").await.ends_with("news"));
    let confirmed = sides.get(&url, "").await;
    assert!(
        confirmed.contains("fwd-status=304") && confirmed.ends_with("news"),
        "{confirmed}"
    );
    sides.wire.is_down.store(true, Ordering::Relaxed);
    let stale = sides.get(&url, "").await;
    assert!(stale.ends_with("news"), "{stale}");
    assert!(
        stale.contains("age: ") && stale.contains("warning: 111"),
        "{stale}"
    );
    sides.wire.is_down.store(false, Ordering::Relaxed);
    // One that must not be given stale waits.
    let strict = origin.url("/strict");
    sides.get(&strict, "").await;
    sides.wire.is_down.store(true, Ordering::Relaxed);
    let waiting = sides.get(&strict, "");
    tokio::pin!(waiting);
    assert!(
        tokio::time::timeout(Duration::from_secs(1), &mut waiting)
            .await
            .is_err()
    );
    sides.wire.is_down.store(false, Ordering::Relaxed);
    assert!(waiting.await.contains("fwd-status=304"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_its_program_gives_up_is_answered_when_the_link_returns() {
    let sides = start().await;
    let origin = Origin::start(|_, stream| {
        answer(stream, "200 OK", "Cache-Control: max-age=1000\r\n", b"late")
    });
    sides.wire.is_down.store(true, Ordering::Relaxed);
    let url = origin.url("/later");
    let given_up = tokio::time::timeout(Duration::from_secs(1), sides.get(&url, "")).await;
    assert!(given_up.is_err());
    let page = sides.get("http://proxy.whimbrel/", "").await;
    assert!(
        page.contains("No request waits"),
        "not listed so soon: {page}"
    );
    sides.wire.is_down.store(false, Ordering::Relaxed);
    while origin.asked().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let got = sides.get(&url, "").await;
    assert!(got.ends_with("late"), "{got}");
    assert_eq!(origin.asked().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn shapes_of_request_smuggling_are_refused() {
    let sides = start().await;
    let origin = Origin::start(|_, stream| answer(stream, "200 OK", "", b"ok"));
    let url = origin.url("/");
    let two = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    let shapes = [
        format!(
            "POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"
        ),
        format!("POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello"),
        format!("POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 6\r\n\r\nhello"),
        format!(
            "POST {url} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n{two}"
        ),
        format!("POST {url} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n{two}"),
        format!("GET {url} HTTP/1.1\r\nHost: x\r\nBad Name: 1\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\nHost : x\r\n\r\n"),
        format!("GET {url}\r\nX: y HTTP/1.1\r\nHost: x\r\n\r\n"),
        "GET http://user@127.0.0.1/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(),
        "GET ftp://127.0.0.1/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(),
        "GET /etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(),
        "CONNECT 127.0.0.1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
    ];
    for shape in shapes {
        let got = sides.raw(shape.as_bytes()).await;
        assert!(
            got.is_empty() || status(&got).starts_with('4'),
            "{shape:?}: {got}"
        );
    }
    assert!(origin.asked().is_empty(), "{:?}", origin.asked());
    // Both lengths: the chunks count, the other is not passed on, and nothing is left over.
    let both = format!(
        "POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n{two}"
    );
    sides.raw(both.as_bytes()).await;
    for asked in origin.asked() {
        assert!(!asked.target.contains("smuggled"), "{asked:?}");
        assert!(
            !(asked.headers.contains_key("content-length")
                && asked.headers.contains_key("transfer-encoding"))
        );
        assert!(asked.body.is_empty(), "{asked:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bombs_of_headers_are_refused() {
    let sides = start().await;
    let origin = Origin::start(|asked, stream| match asked.target.as_str() {
        "/many" => {
            let headers: String = (0..1000)
                .map(|number| format!("X-{number}: 1\r\n"))
                .collect();
            answer(stream, "200 OK", &headers, b"ok");
        }
        "/long" => answer(
            stream,
            "200 OK",
            &format!("X: {}\r\n", "y".repeat(1 << 20)),
            b"ok",
        ),
        _ => answer(stream, "200 OK", "", b"ok"),
    });
    let long = format!("X: {}\r\n", "y".repeat(1 << 20));
    let many: String = (0..2000)
        .map(|number| format!("X-{number}: 1\r\n"))
        .collect();
    for headers in [long, many] {
        let got = sides.get(&origin.url("/"), &headers).await;
        assert!(got.is_empty() || status(&got).starts_with('4'), "{got}");
    }
    assert!(origin.asked().is_empty());
    for path in ["/many", "/long"] {
        let got = sides.get(&origin.url(path), "").await;
        assert_eq!(status(&got), "502", "{path}: {got}");
    }
    assert_eq!(status(&sides.get(&origin.url("/"), "").await), "200");
}

#[tokio::test(flavor = "multi_thread")]
async fn unusual_heads_pass() {
    let sides = start().await;
    let origin = Origin::start(|asked, stream| {
        let headers: String = match asked.target.as_str() {
            "/many" => (0..200).map(|at| format!("X-{at}: 1\r\n")).collect(),
            _ => "Folded: one\r\n  two\r\nSpaced : three\r\n".to_owned(),
        };
        answer(stream, "200 OK", &headers, b"ok");
    });
    let got = sides.get(&origin.url("/many"), "").await;
    assert!(got.contains("x-199: 1\r\n") && got.ends_with("ok"), "{got}");
    let got = sides.get(&origin.url("/odd"), "").await;
    let fields = ["folded: one", "two\r\n", "spaced: three\r\n"];
    assert!(fields.iter().all(|it| got.contains(it)), "{got}");
    assert!(!got.contains("\r\n "), "{got}");
    // A head that programs may send and the other side does not take.
    let long = format!("X: {}\r\n", "y".repeat(70_000));
    let got = sides.get(&origin.url("/odd"), &long).await;
    assert_eq!(status(&got), "431", "{got}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_lies_about_its_length_is_visibly_broken() {
    let sides = start().await;
    let origin = Origin::start(|asked, stream| {
        let head = match asked.target.as_str() {
            "/short" => "Cache-Control: max-age=1000\r\nContent-Length: 100\r\n\r\nonly this",
            "/long" => "Cache-Control: max-age=1000\r\nContent-Length: 4\r\n\r\nthis and more",
            "/cut" => "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            "/two" => "Content-Length: 4\r\nContent-Length: 9\r\n\r\nthis and more",
            _ => "Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n",
        };
        let _ = write!(stream, "HTTP/1.1 200 OK\r\n{head}");
    });
    for _ in 0..2 {
        let short = sides.get(&origin.url("/short"), "").await;
        assert!(
            short.contains("content-length: 100") && !short.contains("stored; hit"),
            "{short}"
        );
        // What has arrived is passed on.
        assert!(short.len() < 400 && short.ends_with("only this"), "{short}");
        let long = sides.get(&origin.url("/long"), "").await;
        assert!(long.ends_with("\r\n\r\nthis"), "{long}");
        for path in ["/cut", "/bad"] {
            let got = sides.get(&origin.url(path), "").await;
            assert!(!got.ends_with("0\r\n\r\n"), "{path}: {got}");
            assert_eq!(got.contains("hello"), path == "/cut", "{path}: {got}");
        }
        let two = sides.get(&origin.url("/two"), "").await;
        assert_ne!(status(&two), "200", "{two}");
    }
    // The broken one was not stored; the cut-down one was.
    let asked = |path: &str| origin.asked().iter().filter(|it| it.target == path).count();
    assert_eq!(asked("/short"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_answer_ends_with_its_reader() {
    let sides = start().await;
    let (ended, has_ended) = std::sync::mpsc::channel();
    let origin = Origin::start(move |_, stream| {
        let _ = write!(stream, "HTTP/1.1 200 OK\r\n\r\n");
        let piece = vec![b'z'; 64 << 10];
        let mut sent = 0u64;
        while stream.write_all(&piece).is_ok() {
            sent += piece.len() as u64;
        }
        let _ = ended.send(sent);
    });
    let mut program = TcpStream::connect(sides.proxy).await.unwrap();
    let request = format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", origin.url("/"));
    program.write_all(request.as_bytes()).await.unwrap();
    let mut some = vec![0; 200_000];
    program.read_exact(&mut some).await.unwrap();
    // A reader that stops holds its server up.
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(program);
    let sent = tokio::task::spawn_blocking(move || has_ended.recv_timeout(Duration::from_secs(60)));
    let sent = sent.await.unwrap().unwrap();
    assert!(sent < 64 << 20, "{sent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_continues_after_an_outage() {
    let sides = Arc::new(start().await);
    let body: Vec<u8> = (0..8u32 << 18).flat_map(u32::to_be_bytes).collect();
    let sent = body.clone();
    let origin = Origin::start(move |_, stream| answer(stream, "200 OK", "", &sent));
    let mut program = TcpStream::connect(sides.proxy).await.unwrap();
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        origin.url("/")
    );
    program.write_all(request.as_bytes()).await.unwrap();
    let mut seen = vec![0; 100_000];
    program.read_exact(&mut seen).await.unwrap();
    sides.wire.is_down.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(2)).await;
    sides.wire.is_down.store(false, Ordering::Relaxed);
    program.read_to_end(&mut seen).await.unwrap();
    assert!(seen.ends_with(&body));
    assert_eq!(origin.asked().len(), 1);
}

/// A server side that answers one request with a content that nobody serves, and is never heard again.
async fn vanish_after_head(mut accepted: mpsc::UnboundedReceiver<PlaneStream>, wire: Arc<Wire>) {
    let (_reader, mut writer) = accepted.recv().await.unwrap().split();
    let mut head = Response::new(());
    let length = HeaderValue::from_static("100000");
    head.headers_mut().insert(CONTENT_LENGTH, length);
    writer.queue(encode_response(&head).unwrap());
    let body = BodyFrame::Content {
        name: Guid([7; 32]),
        length: 100_000,
    };
    writer.queue(body.encode().unwrap());
    writer.send().await.unwrap();
    writer.acknowledged().await.unwrap();
    wire.is_down.store(true, Ordering::Relaxed);
    core::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_ends_when_its_server_side_is_gone_with_the_content() {
    let wire = Arc::<Wire>::default();
    let ((one, left), (other, right)) = (end(CLIENT, 64), end(SERVER, 64));
    tokio::spawn(carry(Arc::clone(&wire), CLIENT, left.taken, right.events));
    tokio::spawn(carry(Arc::clone(&wire), SERVER, right.taken, left.events));
    let (_far, accepted, driver) = StreamPlane::new(Attachment::Once(None), other, options(true));
    tokio::spawn(driver);
    let patience = Duration::from_secs(3);
    let impatient = PlaneOptions {
        patience,
        ..options(false)
    };
    let (plane, _accepted, driver) = StreamPlane::new(Attachment::Once(None), one, impatient);
    tokio::spawn(driver);
    tokio::spawn(vanish_after_head(accepted, Arc::clone(&wire)));
    let sides = serve_programs(plane, wire).await;
    let got = sides.get("http://192.0.2.1/", "").await;
    assert_eq!(status(&got), "200");
    assert!(got.ends_with("\r\n\r\n"), "{got}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rest_of_an_answer_is_asked_for_when_its_server_closes_too_early() {
    let sides = start().await;
    let body: Vec<u8> = (0..1u32 << 16).flat_map(u32::to_be_bytes).collect();
    let sent = body.clone();
    let origin = Origin::start(move |asked, stream| {
        let length = sent.len();
        let range = asked
            .headers
            .get("range")
            .and_then(|range| range.strip_prefix("bytes="));
        let Some(from) = range.and_then(|range| range.strip_suffix('-')?.parse::<usize>().ok())
        else {
            let head =
                format!("HTTP/1.1 200 OK\r\nETag: \"7\"\r\nContent-Length: {length}\r\n\r\n");
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(&sent[..length / 2]);
            return;
        };
        assert_eq!(asked.headers["if-range"], "\"7\"");
        let headers = format!("Content-Range: bytes {from}-{}/{length}\r\n", length - 1);
        answer(stream, "206 Partial Content", &headers, &sent[from..]);
    });
    let mut program = TcpStream::connect(sides.proxy).await.unwrap();
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        origin.url("/")
    );
    program.write_all(request.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    program.read_to_end(&mut seen).await.unwrap();
    assert!(seen.ends_with(&body));
    assert_eq!(origin.asked().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_connections_are_served_at_once() {
    // A host may take a request only when its events are read: neither side may wait for the other.
    let sides = Arc::new(start_with_room(1).await);
    let origin =
        Origin::start(|asked, stream| answer(stream, "200 OK", "", asked.target.as_bytes()));
    let tasks: Vec<_> = (0..300)
        .map(|number| {
            let (sides, url) = (Arc::clone(&sides), origin.url(&format!("/{number}")));
            tokio::spawn(async move { sides.get(&url, "").await })
        })
        .collect();
    for (number, task) in tasks.into_iter().enumerate() {
        let got = task.await.unwrap();
        assert!(got.ends_with(&format!("/{number}")), "{got}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_answered_early_ends_well() {
    let sides = start().await;
    let origin = Origin::start(|_, stream| answer(stream, "200 OK", "", b"ok"));
    // Refused by the server side before its body has come.
    let body = vec![b'b'; 3 << 20];
    let head = format!(
        "POST http://10.9.8.7/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut program = TcpStream::connect(sides.proxy).await.unwrap();
    program.write_all(head.as_bytes()).await.unwrap();
    let (mut from, mut to) = program.into_split();
    let writing = tokio::spawn(async move { to.write_all(&body).await.is_ok() });
    let mut seen = Vec::new();
    let _ = from.read_to_end(&mut seen).await;
    let seen = String::from_utf8_lossy(&seen);
    assert_eq!(status(&seen), "403", "{seen}");
    let _ = writing.await;
    assert_eq!(status(&sides.get(&origin.url("/"), "").await), "200");
}
