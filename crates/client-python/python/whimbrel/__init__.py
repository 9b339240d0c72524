"""Publish, get, send and receive contents by name through a Whimbrel host, with asyncio.

    async with whimbrel.attach() as host:
        data = await host.get(name)

``whimbrel.sync`` has the same calls, blocking. Cancelling a task cancels its transfer. Transfers and
publications continue when the host daemon restarts.
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

#: An object whose bytes are sent or published. Read-only objects are not copied.
Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Options:
    """Options of transfers and messages. ``None`` leaves an option unspecified."""

    #: The chunk size in bytes: a power of two from 16 KiB to 4 MiB.
    chunk_size: int | None = None
    #: "nack", "ack" or "dont-care".
    reliability: str | None = None
    #: How long a chunk may be missing before it is requested again, in seconds.
    nack_timeout: float | None = None
    #: How long a router may store chunks that it cannot forward: "default", "never" or a time such as "2 h".
    storage: str | None = None
    #: "default", "unicast", "multihoming", "anycast" or "multicast".
    service: str | None = None
    #: Whether the access router is to keep copies of published or sent content and serve them.
    delegate: bool = False


@dataclass(frozen=True)
class Progress:
    """The progress of a fetched content."""

    bytes: int
    #: The content's length in bytes, once known.
    length: int | None
    #: The file name that the source suggests. It must not be used as a path.
    file_name: str
    is_complete: bool


@dataclass(frozen=True)
class Transfer:
    """A transfer of this program."""

    #: "get" or "send".
    kind: str
    content: str
    bytes: int
    length: int | None


@dataclass(frozen=True)
class Message:
    """A message of a channel."""

    #: The name that the sender claims, without proof.
    sender: str
    data: bytes


class Download:
    """A fetched content: an async iterator over its bytes. Leaving its context ends the transfer."""

    def __init__(self, native: _native.NativeDownload) -> None:
        self._native = native

    async def read(self) -> bytes:
        """Returns all bytes. They are in memory: bound them with ``limit``."""
        return await self._native.bytes()

    async def to_file(self, path: str | os.PathLike[str]) -> int:
        """Writes all bytes to a file, which appears at ``path`` when it is complete. Returns the length in bytes."""
        return await self._native.to_file(os.fspath(path))

    def progress(self) -> Progress | None:
        """Returns the progress; ``None`` once the transfer is over."""
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
    """A content that is sent to a receiver."""

    def __init__(self, native: _native.NativeUpload) -> None:
        self._native = native

    async def outcome(self) -> int:
        """Waits until the first router or, with ``until_delivered``, the receiver has all bytes. Returns the
        number of bytes that routers store because the receiver is away. Raises :class:`RefusedError`."""
        return await self._native.outcome()

    def progress(self) -> tuple[int, int] | None:
        """Returns the number of bytes that the first router has taken, and how many of these routers store."""
        return self._native.progress()

    def cancel(self) -> None:
        """Ends the transfer. Bytes that the network has taken are still delivered."""
        self._native.cancel()


class Publication:
    """A published content. Leaving its context withdraws it."""

    def __init__(self, native: _native.NativePublication) -> None:
        self._native = native

    @property
    def name(self) -> str:
        """The content's name: 64 hexadecimal digits."""
        return self._native.name

    async def announced(self) -> None:
        """Waits until the content is registered with the name service, so that others can find it."""
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
    """A content offered by a sender. Unless it is accepted or refused, the host offers it to its next inbox."""

    def __init__(self, native: _native.NativeOffer) -> None:
        self._native = native
        #: The sender's name, proven by a signature.
        self.sender: str = native.sender
        self.content: str = native.content
        self.length: int = native.length
        #: The file name that the sender suggests. It must not be used as a path.
        self.file_name: str = native.file_name

    def accept(self) -> Download:
        """Accepts the content. The sender is told of the delivery when all bytes have been read."""
        return Download(self._native.accept())

    def refuse(self, reason: str = "not-accepted") -> None:
        """Refuses the content. ``reason`` is "not-accepted", "too-long", "inbox-full" or "unusable"."""
        self._native.refuse(reason)


class Host:
    """A connection of this program to its host."""

    def __init__(self, native: _native.NativeHost) -> None:
        self._native = native

    @property
    def is_connected(self) -> bool:
        """True while the host daemon is connected."""
        return self._native.is_connected()

    async def name(self) -> str:
        """Returns the host's name, the destination for others that send to it."""
        return await self._native.name()

    async def status(self) -> str:
        """Returns the host's status as JSON."""
        return await self._native.status()

    async def ping(self, name: str) -> str:
        """Sends an echo request to a name. Returns the name of the node that answers."""
        return await self._native.ping(name)

    async def get(
        self, name: str, *, limit: int | None = None, options: Options | None = None
    ) -> bytes:
        """Returns the bytes of a content. Raises :class:`TooLongError` if it has more than ``limit`` bytes."""
        return await Download(self._native.get(name, limit, options)).read()

    def download(
        self, name: str, *, limit: int | None = None, options: Options | None = None
    ) -> Download:
        """Fetches a content piece by piece, or to a file."""
        return Download(self._native.get(name, limit, options))

    async def publish(
        self, data: Buffer, file_name: str = "", *, options: Options | None = None
    ) -> Publication:
        """Publishes bytes. ``file_name`` is a suggestion to receivers."""
        return Publication(
            await asyncio.to_thread(self._native.publish, data, file_name, options)
        )

    async def publish_file(
        self, path: str | os.PathLike[str], *, options: Options | None = None
    ) -> Publication:
        """Publishes a file, which is read again for each receiver and must not change."""
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
        """Sends bytes to a host that has not requested them. Routers store them while the receiver is away."""
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
        """Sends a file to a host; see :meth:`send`."""
        return Upload(
            await asyncio.to_thread(
                self._native.send_file, destination, os.fspath(path), options, until_delivered
            )
        )

    async def inbox(
        self, *, senders: Iterable[str] | None = None, max_size: int | None = None
    ) -> AsyncIterator[Offer]:
        """Iterates over offers. Those of other ``senders``, or longer than ``max_size`` bytes, are refused."""
        inbox = self._native.inbox(None if senders is None else list(senders), max_size)
        while True:
            yield Offer(await inbox.next_offer())

    def message(
        self, destination: str, channel: int, data: Buffer, *, options: Options | None = None
    ) -> None:
        """Sends at most 32,768 bytes to the programs that listen to a channel at a host. A message arrives at most once
        and is not acknowledged. Of the options only storage and service apply."""
        self._native.message(destination, channel, data, options)

    async def attach_service(self, key_file: str | os.PathLike[str]) -> str:
        """Attaches the host under the name of a key in addition to its own, until the program detaches. Anycast to that
        name reaches the nearest host attached under it. Returns the name once it is registered with the name
        service."""
        return await self._native.attach_service(os.fspath(key_file))

    async def join_group(self, admission: str) -> str:
        """Makes this host a member of a group. ``admission`` is the text that ``whimbrel group admit`` prints. A
        membership outlasts the program. Returns the group's name, the destination for the service "multicast"."""
        return await self._native.join_group(admission)

    async def leave_group(self, admission: str) -> str:
        """Ends the host's membership of a group. Returns the group's name."""
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
        """Returns the transfers of this program."""
        return [Transfer(*transfer) for transfer in self._native.transfers()]

    def detach(self) -> None:
        """Withdraws all publications and ends all transfers with an error."""
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
    """Attaches to the host daemon on ``socket``, by default to this user's or else the system's. If the daemon
    goes away, transfers fail after ``reconnect_for`` seconds."""
    path = None if socket is None else os.fspath(socket)
    return Host(_native.NativeHost(path, reconnect_for, False))
