"""Expresses Interests and says what came back: Data, a Nack, or nothing."""

import asyncio
import hashlib

from ndn import appv2, encoding as enc
from ndn.types import InterestNack, InterestTimeout

import credentials
import outcome


def parse():
    parser = outcome.arguments(__doc__)
    parser.add_argument("name")
    parser.add_argument("--expect", choices=["data", "nack", "timeout"], default="data")
    parser.add_argument("--content", help="the content the Data must have, as text")
    parser.add_argument("--count", type=int, default=1, help="Interests, for NAME/0, NAME/1 ... when above 1")
    parser.add_argument("--at-once", action="store_true", help="express all before waiting for any")
    parser.add_argument("--can-be-prefix", action="store_true")
    parser.add_argument("--must-be-fresh", action="store_true")
    parser.add_argument("--lifetime", type=int, default=2000, help="milliseconds")
    parser.add_argument("--hop-limit", type=int)
    parser.add_argument("--nonce", type=int)
    parser.add_argument("--forwarding-hint", action="append", default=[], metavar="NAME")
    parser.add_argument("--parameters", help="ApplicationParameters, as text; the Interest is then signed")
    credentials.add_signer_argument(parser, "--sign")
    credentials.add_verifier_argument(parser, "--verify")
    return parser.parse_args()


async def express_one(app, args, name):
    options = {"can_be_prefix": args.can_be_prefix, "must_be_fresh": args.must_be_fresh, "lifetime": args.lifetime}
    for field in ("hop_limit", "nonce"):
        if getattr(args, field) is not None:
            options[field] = getattr(args, field)
    if args.forwarding_hint:
        options["forwarding_hint"] = [enc.Name.from_str(hint) for hint in args.forwarding_hint]
    if args.parameters is not None:
        options["app_param"] = args.parameters.encode()
        options["signer"] = credentials.signer(args.sign, for_interest=True)
    try:
        data_name, content, context = await app.express(name, credentials.verifier(args.verify), **options)
    except InterestNack as nack:
        return {"result": "nack", "nack_reason": nack.reason}
    except InterestTimeout:
        return {"result": "timeout"}
    content = bytes(content) if content is not None else b""
    meta = context["meta_info"]
    return {
        "result": "data",
        "name": enc.Name.to_str(data_name),
        "content": content.decode(errors="replace")[:200],
        "content_bytes": len(content),
        "content_sha256": hashlib.sha256(content).hexdigest(),
        "freshness_ms": meta.freshness_period,
        "final_block": enc.Component.to_str(meta.final_block_id) if meta.final_block_id else None,
        "signature_type": context["sig_ptrs"].signature_info.signature_type,
    }


async def work(app, args):
    base = enc.Name.from_str(args.name)
    names = [base] if args.count == 1 else [base + [enc.Component.from_str(str(i))] for i in range(args.count)]
    if args.at_once:
        answers = await asyncio.gather(*(express_one(app, args, name) for name in names))
    else:
        answers = [await express_one(app, args, name) for name in names]
    counts = {kind: sum(a["result"] == kind for a in answers) for kind in ("data", "nack", "timeout")}
    fields = {**answers[-1], "counts": counts}
    if counts[args.expect] != len(names):
        raise outcome.Failed(f"expected {args.expect}", **fields)
    if args.content is not None and any(a["content"] != args.content for a in answers):
        raise outcome.Failed("the content differs", **fields)
    return fields


if __name__ == "__main__":
    args = parse()
    with credentials.home_for(args.sign):
        outcome.run_app(appv2.NDNApp(), args, lambda app: work(app, args))
