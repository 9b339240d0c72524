"""Each row of the table in docs/programs.md, between two real hosts: in asyncio, in its debug mode."""

import asyncio
import os
import subprocess
import sys
from functools import wraps
from pathlib import Path

import pytest
import whimbrel
from conftest import PATIENCE, PROGRAM

MIB = 1 << 20


def in_a_loop(test):
    """Runs a test in a loop of its own. In debug mode asyncio reports what blocks it or is never awaited."""

    @wraps(test)
    def run(*arguments, **named):
        asyncio.run(asyncio.wait_for(test(*arguments, **named), PATIENCE), debug=True)

    return run


@pytest.fixture
def ends(network):
    with_sockets = [whimbrel.attach(network.socket(index), reconnect_for=PATIENCE) for index in (0, 1)]
    yield with_sockets
    for host in with_sockets:
        host.detach()


@in_a_loop
async def test_attach_and_name(network, ends):
    here, there = ends
    assert await here.name() == network.status(0)["guid"]
    assert await there.name() in await there.status()
    with pytest.raises(whimbrel.HostError, match="no daemon answers on /nowhere/host.sock"):
        whimbrel.attach("/nowhere/host.sock")


@in_a_loop
async def test_publish_and_get_bytes(ends):
    here, there = ends
    data = os.urandom(3 * MIB + 5)
    mutable = bytearray(data[:1000])
    for what in (data, memoryview(data)[5:], mutable, b""):
        async with await there.publish(what, "noise") as published:
            assert await here.get(published.name) == bytes(what)
    # A copy was published, so that the program may change its own.
    published = await there.publish(mutable)
    mutable[0] ^= 1
    await published.announced()
    assert await here.get(published.name) == data[:1000]


@in_a_loop
async def test_publish_and_get_a_file(ends, tmp_path):
    here, there = ends
    source, target = tmp_path / "from", tmp_path / "to"
    source.write_bytes(os.urandom(2 * MIB))
    async with await there.publish_file(source) as published:
        assert await here.download(published.name).to_file(target) == 2 * MIB
    assert target.read_bytes() == source.read_bytes()
    with pytest.raises(OSError, match="cannot read"):
        await there.publish_file(tmp_path / "missing")
    with pytest.raises(OSError, match="is not a file"):
        await there.publish_file(tmp_path)


@in_a_loop
async def test_get_in_pieces(ends):
    here, there = ends
    data = os.urandom(5 * MIB)
    async with await there.publish(data, "pieces") as published:
        download = here.download(published.name)
        collected = b""
        async for piece in download:
            collected += piece
            assert download.progress().file_name == "pieces"
        assert collected == data
        with pytest.raises(whimbrel.OverError):
            download.progress()


@in_a_loop
async def test_get_what_nobody_has(ends):
    here, there = ends
    with pytest.raises(whimbrel.FailedError, match="check the name"):
        await here.get("07" * 32)
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        await here.get("07")
    async with await there.publish(os.urandom(MIB)) as published:
        with pytest.raises(whimbrel.TooLongError, match="1048576 bytes long and the limit is 1000"):
            await here.get(published.name, limit=1000)


@in_a_loop
async def test_cancel_a_transfer(network, ends):
    here, there = ends
    async with await there.publish(os.urandom(64 * MIB)) as published:
        task = asyncio.create_task(here.get(published.name))
        while not here.transfers() or here.transfers()[0].bytes == 0:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while here.transfers():
            await asyncio.sleep(0.01)
        while network.status(0)["transfers"]:
            await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(here.get(published.name), 0.001)
        async with here.download(published.name) as download:
            async for _ in download:
                break


@in_a_loop
async def test_send_and_receive(ends):
    here, there = ends
    data = os.urandom(2 * MIB + 1)
    inbox = there.inbox()
    next_offer = asyncio.create_task(anext(inbox))
    upload = await here.send(await there.name(), data, "report", until_delivered=True)
    offer = await next_offer
    assert (offer.sender, offer.length, offer.file_name) == (await here.name(), len(data), "report")
    assert await offer.accept().read() == data
    assert await upload.outcome() == 0
    with pytest.raises(whimbrel.OverError):
        offer.accept()


@in_a_loop
async def test_refuse_by_rule_and_by_hand(ends):
    here, there = ends
    inbox = there.inbox(senders=[await here.name()], max_size=1000)
    next_offer = asyncio.create_task(anext(inbox))
    await asyncio.sleep(0)
    receiver = await there.name()
    long = await here.send(receiver, os.urandom(1001), "long", until_delivered=True)
    with pytest.raises(whimbrel.RefusedError, match="longer than the receiver accepts"):
        await long.outcome()
    short = await here.send(receiver, os.urandom(1000), "short", until_delivered=True)
    offer = await next_offer
    with pytest.raises(ValueError, match="reason is"):
        offer.refuse("because")
    offer.refuse("unusable")
    with pytest.raises(whimbrel.RefusedError, match="the receiver cannot use it"):
        await short.outcome()


@in_a_loop
async def test_message_a_channel(ends):
    here, there = ends
    messages = there.listen(77)
    received = asyncio.create_task(anext(messages))
    while not received.done():
        here.message(await there.name(), 77, b"on my way")
        await asyncio.wait([received], timeout=0.2)
    assert received.result() == whimbrel.Message(await here.name(), b"on my way")
    await messages.aclose()
    with pytest.raises(ValueError, match="at most 32768 bytes"):
        here.message(await there.name(), 77, bytes(40_000))


@in_a_loop
async def test_ping_a_name(ends):
    here, there = ends
    assert await here.ping(await there.name()) == await there.name()


@in_a_loop
async def test_choose_how_contents_travel(ends):
    here, there = ends
    data = os.urandom(100_000)
    chosen = {"chunk_size": 16_384, "reliability": "ack", "nack_timeout": 2.0}
    at_source = whimbrel.Options(**chosen, storage="1 h", service="unicast", delegate=True)
    here_options = whimbrel.Options(**chosen, storage="never", service="multihoming")
    async with await there.publish(data, options=at_source) as published:
        pieces = [piece async for piece in here.download(published.name, options=here_options)]
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= 16_384
    inbox = there.inbox()
    next_offer = asyncio.create_task(anext(inbox))
    sent = whimbrel.Options(**chosen, storage="2 h")
    upload = await here.send(await there.name(), data, options=sent, until_delivered=True)
    assert await (await next_offer).accept().read() == data
    await upload.outcome()
    for wrong in ("chunk_size", "reliability", "storage", "service"):
        value = 1000 if wrong == "chunk_size" else "best"
        with pytest.raises(ValueError, match=wrong):
            await here.get("07" * 32, options=whimbrel.Options(**{wrong: value}))


@in_a_loop
async def test_reach_services_and_groups(network, ends, tmp_path):
    here, there = ends

    def run(*words):
        done = subprocess.run([PROGRAM, *words], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    name = run("id", "new", "service")
    run("group", "create", "team")
    assert await there.attach_service(tmp_path / "service") == name
    messages = there.listen(78)
    received = asyncio.create_task(anext(messages))
    nearest = whimbrel.Options(service="anycast")
    while not received.done():
        here.message(name, 78, b"to the nearest", options=nearest)
        await asyncio.wait([received], timeout=0.2)
    assert received.result().data == b"to the nearest"
    await messages.aclose()
    admission = run("group", "admit", "team", "anyone")
    group = await there.join_group(admission)
    assert await there.leave_group(admission) == group
    with pytest.raises(whimbrel.FailedError, match="not for this host"):
        await there.join_group(run("group", "admit", "team", name))
    with pytest.raises(ValueError, match="is not an admission signed by a group"):
        await there.join_group("00")


@in_a_loop
async def test_continue_after_the_host_restarts(network, ends):
    here, there = ends
    data = os.urandom(32 * MIB)
    async with await there.publish(data) as published:
        collected = b""
        async for piece in here.download(published.name):
            if not collected:
                await asyncio.to_thread(network.kill_host, 0)
                while here.is_connected:
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(network.start_host, 0)
            collected += piece
        assert collected == data
    await asyncio.to_thread(network.await_registered, 0)


@in_a_loop
async def test_detach_ends_everything(network):
    async with whimbrel.attach(network.socket(0)) as host:
        waiting = asyncio.create_task(host.get("07" * 32))
        await asyncio.sleep(0)
    with pytest.raises((whimbrel.OverError, whimbrel.FailedError)):
        await waiting
    with pytest.raises(whimbrel.OverError, match="attach again"):
        await host.status()


@in_a_loop
async def test_many_at_once(ends):
    here, there = ends
    contents = [os.urandom(100_000 + number) for number in range(40)]
    published = await asyncio.gather(*(there.publish(data) for data in contents))
    await asyncio.gather(*(one.announced() for one in published))
    assert await asyncio.gather(*(here.get(one.name) for one in published)) == contents


def test_a_forked_process_attaches_anew(network, ends):
    here, _ = ends
    child = os.fork()
    if child == 0:
        try:
            here.transfers()
            here.message("07" * 32, 1, b"")
        except whimbrel.OverError as error:
            os._exit(0 if "attach in this process" in str(error) else 2)
        os._exit(3)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@in_a_loop
async def test_the_folder_watcher_of_the_example_pushes_new_files(network, ends, tmp_path):
    _, there = ends
    example = Path(__file__).parents[1] / "examples" / "push_folder.py"
    command = [sys.executable, str(example), str(tmp_path), await there.name(), network.socket(0)]
    watcher = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        inbox = there.inbox()
        (tmp_path / "new.txt").write_bytes(b"a new file")
        offer = await anext(inbox)
        assert offer.file_name == "new.txt"
        assert await offer.accept().read() == b"a new file"
    finally:
        watcher.kill()
        watcher.wait()
