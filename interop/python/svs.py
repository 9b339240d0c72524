"""Takes part in State Vector Sync (python-ndn's: version 1), says when it has heard of --peers with --publish items each,
and stays until it is ended.

All participants register the group's prefix; the forwarder must send its Interests to all of them, so its strategy is
set to multicast first. Start the participants at about the same time.
"""

import asyncio

from ndn import appv2, encoding as enc, security as sec
from ndn.app_support import nfd_mgmt
from ndn.app_support.svs import SvsInst

import outcome


def parse():
    parser = outcome.arguments(__doc__, timeout=20.0)
    parser.add_argument("group")
    parser.add_argument("node", help="this participant's name")
    parser.add_argument("--peers", type=int, default=1, help="other participants to hear of")
    parser.add_argument("--publish", type=int, default=3)
    return parser.parse_args()


async def work(app, args):
    group = enc.Name.from_str(args.group)
    _, content, _ = await app.express(
        nfd_mgmt.make_command_v2("strategy-choice", "set", name=group, strategy="/localhost/nfd/strategy/multicast"),
        appv2.pass_all, app_param=b"", signer=sec.DigestSha256Signer(for_interest=True), lifetime=1000)
    chosen = nfd_mgmt.ControlResponse.parse(enc.parse_and_check_tl(memoryview(bytes(content)), 0x65)).status_code
    if not await app.register(group):
        raise outcome.Failed("the registration was refused or not answered")

    sync = SvsInst(group, args.node, lambda _instance: None, sec.DigestSha256Signer(for_interest=True), appv2.pass_all,
                   sync_interval=1.0)
    sync.start(app)
    outcome.say(event="ready", node=args.node)
    own = enc.Name.to_bytes(args.node)
    published = 0
    heard = {}
    while True:
        if published < args.publish:
            sync.new_data()
            published += 1
        heard = {enc.Name.to_str(enc.Name.from_bytes(node)): number for node, number in sync.local_sv.items() if node != own}
        if published == args.publish and len(heard) >= args.peers and all(n >= args.publish for n in heard.values()):
            break
        await asyncio.sleep(0.2)
    outcome.say(event="heard", heard=heard)
    # The others may still miss what this one knows: it stays until it is ended.
    await outcome.almost(args)
    sync.stop()
    return {"published": published, "heard": heard, "strategy_status": chosen}


if __name__ == "__main__":
    args = parse()
    outcome.run_app(appv2.NDNApp(), args, lambda app: work(app, args))
