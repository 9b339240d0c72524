"""The blocking twin."""

import os
import signal
import threading
import time

import pytest
import whimbrel
import whimbrel.sync
from conftest import PATIENCE

MIB = 1 << 20


@pytest.fixture
def ends(network):
    with (
        whimbrel.sync.attach(network.socket(0), reconnect_for=PATIENCE) as here,
        whimbrel.sync.attach(network.socket(1), reconnect_for=PATIENCE) as there,
    ):
        yield here, there


def test_publish_get_and_pieces(ends, tmp_path):
    here, there = ends
    data = os.urandom(2 * MIB + 3)
    with there.publish(data, "noise") as published:
        assert here.get(published.name) == data
        assert b"".join(here.download(published.name)) == data
        assert here.download(published.name).to_file(tmp_path / "to") == len(data)
    assert (tmp_path / "to").read_bytes() == data


def test_send_receive_message_and_ping(ends):
    here, there = ends
    inbox = there.inbox()
    received = []

    def receive():
        offer = next(inbox)
        received.append(offer.accept().read())

    thread = threading.Thread(target=receive)
    thread.start()
    upload = here.send(there.name(), b"some bytes", "name", until_delivered=True)
    assert upload.outcome() == 0
    thread.join(PATIENCE)
    assert received == [b"some bytes"]
    assert here.ping(there.name()) == there.name()


def test_ctrl_c_ends_a_call_and_its_transfer(ends):
    here, there = ends
    main = threading.main_thread().ident
    with there.publish(os.urandom(64 * MIB)) as published:
        threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            for _ in here.download(published.name):
                time.sleep(0.2)
        until = time.monotonic() + PATIENCE
        while here.transfers():
            assert time.monotonic() < until
            time.sleep(0.01)
        threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            next(there.listen(5))


def test_misuse_is_an_exception(ends):
    here, _ = ends
    for call in (
        lambda: here.get("not a name"),
        lambda: here.get(""),
        lambda: here.ping("0" * 63),
        lambda: here.message("07" * 32, 1, bytes(40_000)),
        lambda: here.send("0", b""),
        lambda: next(here.inbox(senders=["x"])),
        lambda: whimbrel.sync.attach(reconnect_for=-1),
        lambda: whimbrel.sync.attach(reconnect_for=float("nan")),
    ):
        with pytest.raises((ValueError, whimbrel.WhimbrelError)):
            call()
    for call in (
        lambda: here.publish("text"),
        lambda: here.publish(None),
        lambda: here.message("07" * 32, -1, b""),
        lambda: here.get(5),
    ):
        with pytest.raises((TypeError, OverflowError)):
            call()
    with pytest.raises(BufferError):
        # Of other than bytes.
        here.publish(memoryview(bytes(8)).cast("d"))
