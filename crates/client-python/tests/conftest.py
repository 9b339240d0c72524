"""Two real hosts on one router with a name server, on the loopback interface.

The program is the one that WHIMBREL names, or else target/debug/whimbrel.
"""

import json
import os
import queue
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

PROGRAM = os.environ.get("WHIMBREL") or str(
    Path(__file__).parents[3] / "target" / "debug" / "whimbrel"
)
#: Seconds; far above what anything takes on a machine that is not overloaded.
PATIENCE = 120


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Daemon:
    """A process that prints lines of JSON, and does not outlive the tests."""

    def __init__(self, *arguments: str) -> None:
        environment = {**os.environ, "WHIMBREL_SOCKET": "", "WHIMBREL_KNOWN_PEERS": ""}
        self.process = subprocess.Popen(
            [PROGRAM, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment, text=True
        )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line)

    def await_line(self, wanted) -> dict:
        until = time.monotonic() + PATIENCE
        while True:
            line = self.lines.get(timeout=max(0.01, until - time.monotonic()))
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if wanted(value):
                return value

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Network:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names, callers = free_port(), free_port()
        self.router_at = f"127.0.0.1:{callers}"
        self.daemons = {}
        self.daemons["names"] = Daemon(
            "gnrs", "serve", "--json", "--listen", f"127.0.0.1:{names}",
            "--store", str(folder / "names"), "--socket", str(folder / "names.sock"),
        )
        self.daemons["names"].await_line(lambda line: "links" in line)
        config = self.config(
            "router",
            f'[router]\nname_servers = ["127.0.0.1:{names}"]\n'
            f'[[link]]\nlabel = "callers"\nbind = "{self.router_at}"\nlisten = true\n',
        )
        self.start("router", "router", config)
        for index in (0, 1):
            self.start_host(index)
        for index in (0, 1):
            self.await_registered(index)

    def config(self, name: str, text: str) -> Path:
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        return path

    def start(self, kind: str, name: str, config: Path) -> None:
        daemon = Daemon(
            kind, "run", "--json", "--config", str(config), "--key", str(self.folder / f"{name}.pem"),
            "--socket", str(self.folder / f"{name}.sock"),
        )
        daemon.await_line(lambda line: "guid" in line)
        self.daemons[name] = daemon

    def start_host(self, index: int) -> None:
        config = self.config(
            f"host-{index}",
            '[host]\nnack_timeout = "1 s"\n[[link]]\nlabel = "access"\nbind = "127.0.0.1:0"\n'
            f'remote = "{self.router_at}"\n',
        )
        self.start("host", f"host-{index}", config)

    def kill_host(self, index: int) -> None:
        self.daemons.pop(f"host-{index}").kill()

    def socket(self, index: int) -> str:
        return str(self.folder / f"host-{index}.sock")

    def status(self, index: int) -> dict:
        command = [PROGRAM, "host", "status", "--json", "--socket", self.socket(index)]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def await_registered(self, index: int) -> None:
        until = time.monotonic() + PATIENCE
        while not self.status(index)["registered"]:
            assert time.monotonic() < until
            time.sleep(0.02)

    def stop(self) -> None:
        for daemon in self.daemons.values():
            daemon.kill()


@pytest.fixture(scope="session")
def network(tmp_path_factory):
    network = Network(tmp_path_factory.mktemp("network"))
    yield network
    network.stop()
