"""The calls of ``whimbrel``, blocking. Ctrl-C ends a call, and its transfer.

    with whimbrel.sync.attach() as host:
        data = host.get(name)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from . import Buffer, Message, Options, Progress, Transfer, _native

__all__ = ["Download", "Host", "Offer", "Publication", "Upload", "attach"]


class Download:
    """A content that is fetched. An iterator over its bytes; leaving its context ends the transfer."""

    def __init__(self, native: _native.NativeDownload) -> None:
        self._native = native

    def read(self) -> bytes:
        """Returns all bytes."""
        return self._native.bytes()

    def to_file(self, path: str | os.PathLike[str]) -> int:
        """Writes all bytes to a file, which is at ``path`` once it is whole. Returns the length."""
        return self._native.to_file(os.fspath(path))

    def progress(self) -> Progress | None:
        """Returns how far it is."""
        progress = self._native.progress()
        return progress and Progress(*progress)

    def cancel(self) -> None:
        """Ends the transfer."""
        self._native.cancel()

    def __iter__(self) -> Iterator[bytes]:
        try:
            while (piece := self._native.next_piece()) is not None:
                yield piece[1]
            self._native.settle()
        finally:
            self._native.cancel()

    def __enter__(self) -> Download:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()


class Upload:
    """A content that is sent."""

    def __init__(self, native: _native.NativeUpload) -> None:
        self._native = native

    def outcome(self) -> int:
        """Returns once the first router or, with ``until_delivered``, the receiver has everything. The result is the
        number of bytes that routers store because the receiver is away."""
        return self._native.outcome()

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

    def announced(self) -> None:
        """Returns once others can find it."""
        self._native.announced()

    def withdraw(self) -> None:
        """Ends the publication."""
        self._native.withdraw()

    def __enter__(self) -> Publication:
        self.announced()
        return self

    def __exit__(self, *_: object) -> None:
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

    def name(self) -> str:
        """Returns the host's name, by which others send to its programs."""
        return self._native.name()

    def status(self) -> str:
        """Returns the host's report as JSON."""
        return self._native.status()

    def ping(self, name: str) -> str:
        """Sends an echo request to a name; returns the name of the node that answers."""
        return self._native.ping(name)

    def get(
        self, name: str, *, limit: int | None = None, options: Options | None = None
    ) -> bytes:
        """Returns the bytes of a content, of at most ``limit``."""
        return Download(self._native.get(name, limit, options)).read()

    def download(
        self, name: str, *, limit: int | None = None, options: Options | None = None
    ) -> Download:
        """Fetches a content in pieces, or to a file."""
        return Download(self._native.get(name, limit, options))

    def publish(
        self, data: Buffer, file_name: str = "", *, options: Options | None = None
    ) -> Publication:
        """Publishes bytes. ``file_name`` is suggested to those who get them."""
        return Publication(self._native.publish(data, file_name, options))

    def publish_file(
        self, path: str | os.PathLike[str], *, options: Options | None = None
    ) -> Publication:
        """Publishes a file, which must not change meanwhile."""
        return Publication(self._native.publish_file(os.fspath(path), options))

    def send(
        self,
        destination: str,
        data: Buffer,
        file_name: str = "",
        *,
        options: Options | None = None,
        until_delivered: bool = False,
    ) -> Upload:
        """Sends bytes to a host. Routers store them while the receiver is away."""
        native = self._native.send(destination, data, file_name, options, until_delivered)
        return Upload(native)

    def send_file(
        self,
        destination: str,
        path: str | os.PathLike[str],
        *,
        options: Options | None = None,
        until_delivered: bool = False,
    ) -> Upload:
        """Sends a file to a host."""
        path = os.fspath(path)
        return Upload(self._native.send_file(destination, path, options, until_delivered))

    def inbox(
        self, *, senders: Iterable[str] | None = None, max_size: int | None = None
    ) -> Iterator[Offer]:
        """Iterates over what others send. Offers of other senders, and longer ones, are refused."""
        inbox = self._native.inbox(None if senders is None else list(senders), max_size)
        while True:
            yield Offer(inbox.next_offer())

    def message(
        self, destination: str, channel: int, data: Buffer, *, options: Options | None = None
    ) -> None:
        """Sends at most 32 KiB to those that listen to a channel at a host. They arrive at most once. Of the options
        the storage and the service count."""
        self._native.message(destination, channel, data, options)

    def attach_service(self, key_file: str | os.PathLike[str]) -> str:
        """Attaches the host by the name of a key beside its own, until the program detaches. What others send to that
        name with the service "anycast" reaches the nearest host that is attached by it. Returns the name, once the
        name service knows of it."""
        return self._native.attach_service(os.fspath(key_file))

    def join_group(self, admission: str) -> str:
        """Joins a group with this host, by the text that ``whimbrel group admit`` prints. A membership outlasts the
        program. Returns the group's name, to which others send with the service "multicast"."""
        return self._native.join_group(admission)

    def leave_group(self, admission: str) -> str:
        """Leaves a group. Returns its name."""
        return self._native.leave_group(admission)

    def listen(self, channel: int) -> Iterator[Message]:
        """Iterates over the messages of a channel."""
        reader = self._native.listen(channel)
        try:
            while True:
                yield Message(*reader.next_message())
        finally:
            reader.close()

    def transfers(self) -> list[Transfer]:
        """Returns the program's transfers."""
        return [Transfer(*transfer) for transfer in self._native.transfers()]

    def detach(self) -> None:
        """Withdraws what is published, and ends all transfers with an error."""
        self._native.detach()

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()


def attach(socket: str | os.PathLike[str] | None = None, *, reconnect_for: float = 60.0) -> Host:
    """Attaches to the host daemon on ``socket``, or to this user's or the system's. While it is away, transfers wait for
    ``reconnect_for`` seconds before they fail."""
    path = None if socket is None else os.fspath(socket)
    return Host(_native.NativeHost(path, reconnect_for, True))
