"""Programs at a Whimbrel host: publish, get, send and receive contents by name, in asyncio.

    async with whimbrel.attach() as host:
        data = await host.get(name)

``whimbrel.sync`` has the same calls, blocking. Cancelling a task cancels its transfer. When the host daemon restarts,
everything continues.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from types import TracebackType

from . import _native
from ._native import (
    FailedError,
    HostError,
    OverError,
    RefusedError,
    TooLongError,
    WhimbrelError,
)

__all__ = [
    "Download",
    "FailedError",
    "Host",
    "HostError",
    "Message",
    "Offer",
    "Options",
    "OverError",
    "Progress",
    "Publication",
    "RefusedError",
    "TooLongError",
    "Transfer",
    "Upload",
    "WhimbrelError",
    "attach",
]

#: An object whose bytes are sent or published. Read-only ones are not copied.
Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Options:
    """How a content is fetched, published or sent, and a message is sent. ``None`` leaves an option open."""

    #: The chunk size in bytes: a power of two from 16 KiB to 4 MiB.
    chunk_size: int | None = None
    #: "nack", "ack" or "dont-care".
    reliability: str | None = None
    #: Seconds for which a chunk may be missing before it is requested again.
    nack_timeout: float | None = None
    #: How long a router may store what it cannot forward: "default", "never" or a time such as "2 h".
    storage: str | None = None
    #: "default", "unicast", "multihoming", "anycast" or "multicast".
    service: str | None = None
    #: The access router keeps copies of what is published or sent, and answers for them.
    delegate: bool = False


@dataclass(frozen=True)
class Progress:
    """How far a fetched content is."""

    bytes: int
    #: The content's length in bytes, once known.
    length: int | None
    #: The name that its source suggests, which must not be used as a path.
    file_name: str
    is_complete: bool


@dataclass(frozen=True)
class Transfer:
    """A transfer of the program."""

    #: "get" or "send".
    kind: str
    content: str
    bytes: int
    length: int | None


@dataclass(frozen=True)
class Message:
    """A message of a channel."""

    #: The sender's claim of its name, without proof.
    sender: str
    data: bytes


class Download:
    """A content that is fetched. An async iterator over its bytes; leaving its context ends the transfer."""

    def __init__(self, native: _native.NativeDownload) -> None:
        self._native = native

    async def read(self) -> bytes:
        """Returns all bytes."""
        return await self._native.bytes()

    async def to_file(self, path: str | os.PathLike[str]) -> int:
        """Writes all bytes to a file, which is at ``path`` once it is whole. Returns the length."""
        return await self._native.to_file(os.fspath(path))

    def progress(self) -> Progress | None:
        """Returns how far it is."""
        progress = self._native.progress()
        return progress and Progress(*progress)

    def cancel(self) -> None:
        """Ends the transfer."""
        self._native.cancel()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while (piece := await self._native.next_piece()) is not None:
                yield piece[1]
            self._native.settle()
        finally:
            self._native.cancel()

    async def __aenter__(self) -> Download:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()


class Upload:
    """A content that is sent."""

    def __init__(self, native: _native.NativeUpload) -> None:
        self._native = native

    async def outcome(self) -> int:
        """Returns once the first router or, with ``until_delivered``, the receiver has everything. The result is the
        number of bytes that routers store because the receiver is away."""
        return await self._native.outcome()

    def progress(self) -> tuple[int, int] | None:
        """Returns the bytes that the first router has taken and, of these, those that routers store."""
        return self._native.progress()

    def cancel(self) -> None:
        """Ends the transfer; what the network has taken is still delivered."""
        self._native.cancel()


class Publication:
    """A published content, until it is withdrawn or its context is left."""

    def __init__(self, native: _native.NativePublication) -> None:
        self._native = native

    @property
    def name(self) -> str:
        """The name by which others get it."""
        return self._native.name

    async def announced(self) -> None:
        """Returns once others can find it."""
        await self._native.announced()

    def withdraw(self) -> None:
        """Ends the publication."""
        self._native.withdraw()

    async def __aenter__(self) -> Publication:
        await self.announced()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.withdraw()


class Offer:
    """A content that a sender offers. Without a decision it is offered again to the host's next inbox."""

    def __init__(self, native: _native.NativeOffer) -> None:
        self._native = native
        #: The sender's name, proven by a signature.
        self.sender: str = native.sender
        self.content: str = native.content
        self.length: int = native.length
        #: The name that the sender suggests, which must not be used as a path.
        self.file_name: str = native.file_name

    def accept(self) -> Download:
        """Receives the content. The sender is told when all of it has been read."""
        return Download(self._native.accept())

    def refuse(self, reason: str = "not-accepted") -> None:
        """Refuses it: "not-accepted", "too-long", "inbox-full" or "unusable"."""
        self._native.refuse(reason)


class Host:
    """A program that is attached to its host."""

    def __init__(self, native: _native.NativeHost) -> None:
        self._native = native

    @property
    def is_connected(self) -> bool:
        """True while the host daemon is there."""
        return self._native.is_connected()

    async def name(self) -> str:
        """Returns the host's name, by which others send to its programs."""
        return await self._native.name()

    async def status(self) -> str:
        """Returns the host's report as JSON."""
        return await self._native.status()

    async def ping(self, name: str) -> str:
        """Sends an echo request to a name; returns the name of the node that answers."""
        return await self._native.ping(name)

    async def get(
        self, name: str, *, limit: int | None = None, options: Options | None = None
    ) -> bytes:
        """Returns the bytes of a content, of at most ``limit``."""
        return await Download(self._native.get(name, limit, options)).read()

    def download(
        self, name: str, *, limit: int | None = None, options: Options | None = None
    ) -> Download:
        """Fetches a content in pieces, or to a file."""
        return Download(self._native.get(name, limit, options))

    async def publish(
        self, data: Buffer, file_name: str = "", *, options: Options | None = None
    ) -> Publication:
        """Publishes bytes. ``file_name`` is suggested to those who get them."""
        return Publication(
            await asyncio.to_thread(self._native.publish, data, file_name, options)
        )

    async def publish_file(
        self, path: str | os.PathLike[str], *, options: Options | None = None
    ) -> Publication:
        """Publishes a file, which must not change meanwhile."""
        return Publication(
            await asyncio.to_thread(self._native.publish_file, os.fspath(path), options)
        )

    async def send(
        self,
        destination: str,
        data: Buffer,
        file_name: str = "",
        *,
        options: Options | None = None,
        until_delivered: bool = False,
    ) -> Upload:
        """Sends bytes to a host. Routers store them while the receiver is away."""
        return Upload(
            await asyncio.to_thread(
                self._native.send, destination, data, file_name, options, until_delivered
            )
        )

    async def send_file(
        self,
        destination: str,
        path: str | os.PathLike[str],
        *,
        options: Options | None = None,
        until_delivered: bool = False,
    ) -> Upload:
        """Sends a file to a host."""
        return Upload(
            await asyncio.to_thread(
                self._native.send_file, destination, os.fspath(path), options, until_delivered
            )
        )

    async def inbox(
        self, *, senders: Iterable[str] | None = None, max_size: int | None = None
    ) -> AsyncIterator[Offer]:
        """Iterates over what others send. Offers of other senders, and longer ones, are refused."""
        inbox = self._native.inbox(None if senders is None else list(senders), max_size)
        while True:
            yield Offer(await inbox.next_offer())

    def message(
        self, destination: str, channel: int, data: Buffer, *, options: Options | None = None
    ) -> None:
        """Sends at most 32 KiB to those that listen to a channel at a host. They arrive at most once. Of the options
        the storage and the service count."""
        self._native.message(destination, channel, data, options)

    async def attach_service(self, key_file: str | os.PathLike[str]) -> str:
        """Attaches the host by the name of a key beside its own, until the program detaches. What others send to that
        name with the service "anycast" reaches the nearest host that is attached by it. Returns the name, once the
        name service knows of it."""
        return await self._native.attach_service(os.fspath(key_file))

    async def join_group(self, admission: str) -> str:
        """Joins a group with this host, by the text that ``whimbrel group admit`` prints. A membership outlasts the
        program. Returns the group's name, to which others send with the service "multicast"."""
        return await self._native.join_group(admission)

    async def leave_group(self, admission: str) -> str:
        """Leaves a group. Returns its name."""
        return await self._native.leave_group(admission)

    async def listen(self, channel: int) -> AsyncIterator[Message]:
        """Iterates over the messages of a channel."""
        reader = self._native.listen(channel)
        try:
            while True:
                yield Message(*await reader.next_message())
        finally:
            reader.close()

    def transfers(self) -> list[Transfer]:
        """Returns the program's transfers."""
        return [Transfer(*transfer) for transfer in self._native.transfers()]

    def detach(self) -> None:
        """Withdraws what is published, and ends all transfers with an error."""
        self._native.detach()

    async def __aenter__(self) -> Host:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.detach()


def attach(socket: str | os.PathLike[str] | None = None, *, reconnect_for: float = 60.0) -> Host:
    """Attaches to the host daemon on ``socket``, or to this user's or the system's. While it is away, transfers wait for
    ``reconnect_for`` seconds before they fail."""
    path = None if socket is None else os.fspath(socket)
    return Host(_native.NativeHost(path, reconnect_for, False))
