"""What every program here shares: one asyncio run with a deadline, and one line of JSON as the last line of output.

The forwarder's address is python-ndn's own business: NDN_CLIENT_TRANSPORT, else client.conf.
"""

import argparse
import asyncio
import json
import logging
import signal
import sys
import time
import traceback

from ndn.types import InterestCanceled, InterestNack, InterestTimeout, ValidationFailure


class Failed(Exception):
    """What was expected did not happen; the keyword arguments go to the last line."""

    def __init__(self, error, **fields):
        super().__init__(error)
        self.fields = fields


def arguments(description, timeout=10.0):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--timeout", type=float, default=timeout, help="seconds after which the program gives up")
    parser.add_argument("--verbose", action="store_true", help="python-ndn's own log on standard error")
    return parser


BEGAN = time.monotonic()


async def almost(args):
    """Until half a second before --timeout, so that the last line can still tell what happened."""
    await asyncio.sleep(max(0, args.timeout - (time.monotonic() - BEGAN) - 0.5))


def say(**fields):
    print(json.dumps(fields), flush=True)


def run_app(app, args, work):
    """Runs work(app) on a connected application and ends the process: 0 with the object work returned, 1 otherwise."""
    end(args, lambda: on_app(app, work))


async def on_app(app, work):
    working = []

    async def after_start():
        working.append(asyncio.ensure_future(work(app)))
        try:
            await asyncio.wait(working)
        finally:
            app.shutdown()

    # python-ndn's loop takes a cancellation for Ctrl-C and then waits for the work, which must be ended as well:
    # otherwise neither --timeout nor SIGTERM would end a program whose work does not end.
    loop = asyncio.ensure_future(app.main_loop(after_start()))
    try:
        await asyncio.shield(loop)
    except asyncio.CancelledError:
        for task in [*working, loop]:
            task.cancel()
        await asyncio.wait([*working, loop])
        raise
    # An exception of the work is told by the caller, not by python-ndn's own task.
    return working[0].result()


def end(args, make_work):
    logging.basicConfig(level=logging.DEBUG if args.verbose else logging.CRITICAL, stream=sys.stderr)

    async def limited():
        # A test that has seen enough of a producer ends it with SIGTERM; that is no failure of the producer.
        task = asyncio.ensure_future(make_work())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await asyncio.wait_for(task, args.timeout - (time.monotonic() - BEGAN))

    try:
        fields = asyncio.run(limited())
    except Failed as failed:
        finish(False, error=str(failed), **failed.fields)
    except (TimeoutError, asyncio.TimeoutError):
        finish(False, error=f"not done within {args.timeout} s")
    except asyncio.CancelledError:
        finish(True, stopped=True)
    except (InterestNack, InterestTimeout, InterestCanceled, ValidationFailure) as error:
        finish(False, error=type(error).__name__, nack_reason=getattr(error, "reason", None))
    except Exception as error:
        traceback.print_exc()
        finish(False, error=f"{type(error).__name__}: {error}")
    finish(True, **(fields or {}))


def finish(ok, **fields):
    say(ok=ok, **fields)
    sys.exit(0 if ok else 1)
