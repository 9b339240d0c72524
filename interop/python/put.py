"""Serves content of --size pseudo-random octets, or --file, in segments with RDR metadata; prints its SHA-256.

Names as ndn-cxx's and NDNts's tools use them: NAME/32=metadata/v=/seg=0 answers the question for the version,
NAME/v=VERSION/seg=0... is the content. Prints {"event": "ready"}, then serves until SIGTERM or --timeout.
"""

import hashlib
import random

from ndn import appv2, encoding as enc
from ndn.utils import timestamp

import credentials
import outcome

METADATA = enc.Component.from_str("32=metadata")


def parse():
    parser = outcome.arguments(__doc__, timeout=60.0)
    parser.add_argument("name")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--size", type=int, default=100_000)
    source.add_argument("--file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--segment-size", type=int, default=4000)
    parser.add_argument("--freshness", type=int, default=10000, help="milliseconds")
    credentials.add_signer_argument(parser, "--sign")
    return parser.parse_args()


def content_of(args):
    if args.file:
        with open(args.file, "rb") as file:
            return file.read()
    return random.Random(args.seed).randbytes(args.size)


async def work(app, args):
    content = content_of(args)
    size = args.segment_size
    count = max(1, -(-len(content) // size))
    last = enc.Component.from_segment(count - 1)
    version = enc.Component.from_version(timestamp())
    base = enc.Name.from_str(args.name)
    signer = credentials.signer(args.sign)
    answered = 0

    def on_interest(name, _parameters, reply, context):
        nonlocal answered
        rest = name[len(base):]
        if not rest or rest[0] == METADATA:
            meta_name = base + [METADATA, enc.Component.from_version(timestamp()), enc.Component.from_segment(0)]
            # Any question may be answered by a metadata packet that is not older than this.
            reply(app.make_data(meta_name, enc.Name.to_bytes(base + [version]), signer, freshness_period=10,
                                final_block_id=enc.Component.from_segment(0)))
        elif rest[0] == version:
            segment = 0 if len(rest) == 1 else enc.Component.to_number(rest[1])
            if segment >= count:
                return
            reply(app.make_data(base + [version, enc.Component.from_segment(segment)],
                                content[segment * size:(segment + 1) * size], signer,
                                freshness_period=args.freshness, final_block_id=last))
        answered += 1

    app.attach_handler(base, on_interest)
    if not await app.register(base):
        raise outcome.Failed("the registration was refused or not answered")
    outcome.say(event="ready", name=args.name, bytes=len(content), segments=count,
                sha256=hashlib.sha256(content).hexdigest())
    await outcome.almost(args)
    return {"answered": answered}


if __name__ == "__main__":
    args = parse()
    with credentials.home_for(args.sign):
        outcome.run_app(appv2.NDNApp(), args, lambda app: work(app, args))
