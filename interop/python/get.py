"""Fetches segmented content, finding its version by RDR metadata; prints its SHA-256."""

import asyncio
import hashlib

from ndn import appv2, encoding as enc
from ndn.types import InterestNack, InterestTimeout

import credentials
import outcome

METADATA = enc.Component.from_str("32=metadata")


def parse():
    parser = outcome.arguments(__doc__, timeout=30.0)
    parser.add_argument("name")
    parser.add_argument("--discover", choices=["metadata", "prefix", "none"], default="metadata",
                        help="prefix: by an Interest for NAME with CanBePrefix; none: NAME has its version")
    parser.add_argument("--window", type=int, default=8)
    parser.add_argument("--retries", type=int, default=5)
    parser.add_argument("--lifetime", type=int, default=1000, help="milliseconds")
    parser.add_argument("--sha256", help="what must come out")
    parser.add_argument("--output", metavar="FILE")
    credentials.add_verifier_argument(parser, "--verify")
    return parser.parse_args()


class Fetch:
    def __init__(self, app, args):
        self.app = app
        self.args = args
        self.verify = credentials.verifier(args.verify)
        self.retried = 0

    async def express(self, name, **options):
        for attempt in range(self.args.retries + 1):
            try:
                return await self.app.express(name, self.verify, lifetime=self.args.lifetime, **options)
            except (InterestTimeout, InterestNack):
                if attempt == self.args.retries:
                    raise
                self.retried += 1

    async def versioned_name(self):
        base = enc.Name.from_str(self.args.name)
        if self.args.discover == "none":
            return base
        if self.args.discover == "metadata":
            _, content, _ = await self.express(base + [METADATA], can_be_prefix=True, must_be_fresh=True)
            return enc.Name.from_bytes(content)
        name, _, _ = await self.express(base, can_be_prefix=True, must_be_fresh=True)
        if enc.Component.get_type(name[-1]) != enc.Component.TYPE_SEGMENT:
            raise outcome.Failed("what answered is no segment", name=enc.Name.to_str(name))
        return list(name[:-1])

    async def segment(self, name, number):
        async with self.gate:
            _, content, context = await self.express(name + [enc.Component.from_segment(number)])
        return bytes(content or b""), context["meta_info"].final_block_id

    async def content(self, name):
        self.gate = asyncio.Semaphore(self.args.window)
        first, final = await self.segment(name, 0)
        if final is None:
            raise outcome.Failed("segment 0 names no last segment")
        last = enc.Component.to_number(final)
        rest = await asyncio.gather(*(self.segment(name, number) for number in range(1, last + 1)))
        return b"".join([first] + [content for content, _ in rest]), last + 1


async def work(app, args):
    fetch = Fetch(app, args)
    name = await fetch.versioned_name()
    content, segments = await fetch.content(name)
    if args.output:
        with open(args.output, "wb") as file:
            file.write(content)
    fields = {"name": enc.Name.to_str(name), "bytes": len(content), "segments": segments,
              "sha256": hashlib.sha256(content).hexdigest(), "retried": fetch.retried}
    if args.sha256 is not None and fields["sha256"] != args.sha256:
        raise outcome.Failed("the content differs", **fields)
    return fields


if __name__ == "__main__":
    args = parse()
    outcome.run_app(appv2.NDNApp(), args, lambda app: work(app, args))
