"""Watches a folder and pushes each new file to a host, which may be away: routers store files until it returns.

    python push_folder.py FOLDER RECEIVER-NAME [SOCKET]
"""

import asyncio
import sys
from pathlib import Path

import whimbrel

#: Seconds between two looks at the folder.
INTERVAL = 0.5


def stamp_of(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


async def push(host: whimbrel.Host, path: Path, receiver: str) -> None:
    try:
        upload = await host.send_file(receiver, path)
        stored = await upload.outcome()
        where = f"{stored} bytes wait for the receiver" if stored else "on its way"
        print(f"{path.name}: the network has it, {where}", flush=True)
    except (whimbrel.WhimbrelError, OSError) as error:
        print(f"{path.name}: {error}", file=sys.stderr, flush=True)


async def watch(folder: Path, receiver: str, socket: str | None) -> None:
    seen: dict[Path, tuple[int, int]] = {}
    pushed: dict[Path, tuple[int, int]] = {}
    async with whimbrel.attach(socket) as host, asyncio.TaskGroup() as pushes:
        while True:
            for path in folder.iterdir():
                if not path.is_file() or path.name.startswith("."):
                    continue
                stamp = stamp_of(path)
                # Only what has not changed since the last look is whole.
                if seen.get(path) == stamp and pushed.get(path) != stamp:
                    pushed[path] = stamp
                    pushes.create_task(push(host, path, receiver))
                seen[path] = stamp
            await asyncio.sleep(INTERVAL)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    try:
        asyncio.run(watch(Path(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) == 4 else None))
    except KeyboardInterrupt:
        pass
