//! Both sides of the HTTP proxy, and what programs get through them.

use std::process::{Command, Stdio};

use super::{Network, Running, whimbrel};

/// Both sides of the proxy, on the hosts of a network: the client side at host 1.
pub(crate) struct Web {
    sides: Vec<Running>,
    /// The URL of the proxy.
    pub(crate) proxy: String,
    /// The names of the hosts of the client and the server side.
    pub(crate) names: [String; 2],
}

/// Returns a client side, the URL of its proxy, and the name of its host.
fn client_side(socket: &str, of_server: &str, more: &[&str]) -> (Running, String, String) {
    let mut command = whimbrel();
    command.args(["http-proxy", "client", "--json", "--socket", socket]);
    command.args(["--listen", "127.0.0.1:0", "--to", of_server]);
    let client = Running::start(command.args(more));
    let line = client.await_json(|line| line["event"] == "listening");
    let text = |key: &str| line[key].as_str().unwrap().to_owned();
    let (proxy, name) = (text("proxy"), text("name"));
    (client, proxy, name)
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
        let (client, proxy, name) = client_side(&socket(1), &of_server, of_client);
        Web {
            sides: vec![client, server],
            proxy,
            names: [name, of_server],
        }
    }

    /// Starts a further client side at a host with this socket; programs use that one from now on.
    pub(crate) fn use_another(&mut self, socket: &str) {
        let (client, proxy, name) = client_side(socket, &self.names[1], &[]);
        self.sides.push(client);
        (self.proxy, self.names[0]) = (proxy, name);
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
