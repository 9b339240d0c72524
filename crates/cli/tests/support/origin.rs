//! A small server of the web, and what programs see of it through the proxies.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use super::{Network, Running, whimbrel};

/// A request that has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Names in small letters.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// A server that answers each request on a connection of its own.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Origin {
    /// `answer` writes the whole answer.
    pub(crate) fn start(answer: impl Fn(&Asked, &mut TcpStream) + Send + Sync + 'static) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, answer) = (Arc::default(), Arc::new(answer));
        let list: Arc<Mutex<Vec<Asked>>> = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (list, answer) = (Arc::clone(&list), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let mut stream = stream;
                    if let Some(request) = read_request(&stream) {
                        list.lock().unwrap().push(request.clone());
                        answer(&request, &mut stream);
                    }
                });
            }
        });
        Origin { address, asked }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn read_request(stream: &TcpStream) -> Option<Asked> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let mut body = Vec::new();
    if let Some(length) = headers.get("content-length") {
        body = vec![0; length.parse().ok()?];
        reader.read_exact(&mut body).ok()?;
    } else if headers.contains_key("transfer-encoding") {
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let mut piece = vec![0; usize::from_str_radix(line.trim(), 16).ok()? + 2];
            reader.read_exact(&mut piece).ok()?;
            if piece.len() == 2 {
                break;
            }
            body.extend_from_slice(&piece[..piece.len() - 2]);
        }
    }
    Some(Asked {
        method,
        target,
        headers,
        body,
    })
}

/// Writes an answer with these header lines, each with its line end.
pub(crate) fn answer(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body);
}

/// Both sides of the proxy, on the hosts of a network: the client side at host 1.
pub(crate) struct Web {
    pub(crate) client: Running,
    pub(crate) server: Running,
    /// The URL of the proxy.
    pub(crate) proxy: String,
    /// The names of the hosts of the client and the server side.
    pub(crate) names: [String; 2],
}

impl Web {
    /// The server side may ask this machine.
    pub(crate) fn start(network: &Network) -> Web {
        Web::with(
            network,
            &["--from", "anyone", "--allow", "127.0.0.0/8"],
            &[],
        )
    }

    pub(crate) fn with(network: &Network, of_server: &[&str], of_client: &[&str]) -> Web {
        let socket = |index: usize| network.host_socket(index).display().to_string();
        let mut command = whimbrel();
        command.args(["http-proxy", "server", "--json", "--socket", &socket(0)]);
        let server = Running::start(command.args(of_server));
        let line = server.await_json(|line| line["event"] == "listening");
        let of_server = line["name"].as_str().unwrap().to_owned();
        let mut command = whimbrel();
        command.args(["http-proxy", "client", "--json", "--socket", &socket(1)]);
        command.args(["--listen", "127.0.0.1:0", "--to", &of_server]);
        let client = Running::start(command.args(of_client));
        let line = client.await_json(|line| line["event"] == "listening");
        Web {
            client,
            server,
            proxy: line["proxy"].as_str().unwrap().to_owned(),
            names: [line["name"].as_str().unwrap().to_owned(), of_server],
        }
    }

    /// A curl that uses the proxy.
    pub(crate) fn curl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("curl");
        command
            .args([
                "-sS",
                "--max-time",
                "120",
                "--noproxy",
                "",
                "-x",
                &self.proxy,
            ])
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    /// Returns what curl prints.
    pub(crate) fn fetch(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.curl(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {errors}");
        output.stdout
    }

    /// Returns the text that curl prints.
    pub(crate) fn text(&self, arguments: &[&str]) -> String {
        String::from_utf8_lossy(&self.fetch(arguments)).into_owned()
    }
}
