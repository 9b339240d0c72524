"""NFD management through python-ndn's models.

status   fetches every dataset and prints what it decodes to
walk     creates a face, routes over it, chooses a strategy, changes the cache, takes all back, checking each step in
         the datasets; also commands that must be refused, with the codes NFD answers
burst    --count registrations at once, then as many unregistrations
replay   a registration, its unregistration, then the very registration again: the route must not come back
"""

import asyncio

from ndn import appv2, encoding as enc
from ndn.app_support import nfd_mgmt
from ndn.utils import gen_nonce

import credentials
import outcome

DATASETS = {
    "status/general": nfd_mgmt.GeneralStatus,
    "faces/list": nfd_mgmt.FaceStatusMsg,
    "fib/list": nfd_mgmt.FibStatus,
    "rib/list": nfd_mgmt.RibStatus,
    "cs/info": nfd_mgmt.CsInfo,
    "strategy-choice/list": nfd_mgmt.StrategyChoiceMsg,
}
STRATEGY = "/localhost/nfd/strategy/multicast"
ORIGIN_STATIC = 255


def parse():
    parser = outcome.arguments(__doc__, timeout=30.0)
    parser.add_argument("what", choices=["status", "walk", "burst", "replay"])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--face-uri", default="udp4://127.0.0.1:36363", help="walk creates a face to it; nothing need listen")
    credentials.add_signer_argument(parser, "--sign")
    return parser.parse_args()


class Management:
    def __init__(self, app, args):
        self.app = app
        self.signer = credentials.signer(args.sign, for_interest=True)
        self.steps = []

    async def command(self, module, verb, **parameters):
        name = nfd_mgmt.make_command_v2(module, verb, **parameters)
        _, content, _ = await self.app.express(name, appv2.pass_all, app_param=b"", signer=self.signer, lifetime=3000)
        return answer_of(content)

    async def dataset(self, name, *parameters):
        """All segments of the newest version, asked for without a signature as nfdc does."""
        base = enc.Name.from_str("/localhost/nfd/" + name) + list(parameters)
        found, content, context = await self.app.express(
            base, appv2.pass_all, can_be_prefix=True, must_be_fresh=True, lifetime=3000)
        if content is not None and len(content) and content[0] == 0x65:
            raise outcome.Failed(f"{name} was refused", **answer_of(content))
        wire = bytes(content or b"")
        kinds = [enc.Component.get_type(component) for component in found[-2:]]
        if kinds != [enc.Component.TYPE_VERSION, enc.Component.TYPE_SEGMENT]:
            raise outcome.Failed(f"{name} has no version and segment", name=enc.Name.to_str(found))
        final = context["meta_info"].final_block_id
        last = enc.Component.to_number(final) if final is not None else 0
        for segment in range(1, last + 1):
            _, content, _ = await self.app.express(
                list(found[:-1]) + [enc.Component.from_segment(segment)], appv2.pass_all, lifetime=3000)
            wire += bytes(content)
        if name == "cs/info":
            # python-ndn's model has what is inside the dataset's one element.
            wire = bytes(enc.parse_and_check_tl(memoryview(wire), 0x80))
        return DATASETS.get(name, nfd_mgmt.FaceStatusMsg).parse(wire), last + 1

    def check(self, step, ok, **fields):
        self.steps.append({"step": step, "ok": bool(ok), **fields})

    def result(self):
        wrong = [step["step"] for step in self.steps if not step["ok"]]
        if wrong:
            raise outcome.Failed("wrong: " + ", ".join(wrong), steps=self.steps)
        return {"steps": self.steps}


def answer_of(content):
    answer = nfd_mgmt.ControlResponse.parse(enc.parse_and_check_tl(memoryview(bytes(content)), 0x65))
    body = plain(answer.body) if answer.body is not None else None
    return {"status": answer.status_code, "text": answer.status_text, "body": body}


def plain(value):
    """python-ndn's models as what JSON can hold."""
    if isinstance(value, enc.TlvModel):
        present = [(field, getattr(value, field.name)) for field in value._encoded_fields]
        return {field.name: enc.Name.to_str(held) if isinstance(field, enc.NameField) else plain(held)
                for field, held in present if held is not None}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    return getattr(value, "name", value)


async def status(management):
    fields = {}
    for name in DATASETS:
        message, segments = await management.dataset(name)
        fields[name] = plain(message)
        fields[name + " segments"] = segments
    return {"datasets": fields}


def uint_filter(face_id):
    wanted = nfd_mgmt.FaceQueryFilter()
    wanted.face_query_filter = nfd_mgmt.FaceQueryFilterValue()
    wanted.face_query_filter.face_id = face_id
    return enc.Component.from_bytes(wanted.encode())


def routes_of(rib, name):
    return [route for entry in rib.entries if enc.Name.to_str(entry.name) == name for route in entry.routes]


async def walk(management, args):
    command, dataset, check = management.command, management.dataset, management.check
    prefix = "/interop/python/walk"

    made = await command("faces", "create", uri=args.face_uri)
    face = (made["body"] or {}).get("face_id")
    check("a face is created", made["status"] == 200 and face, **made)
    again = await command("faces", "create", uri=args.face_uri)
    check("a face that is there already is told with its id", again["status"] == 409
          and (again["body"] or {}).get("face_id") == face, **again)
    message, _ = await dataset("faces/query", uint_filter(face))
    check("the query finds the face", [f.uri for f in message.face_status] == [args.face_uri])

    done = await command("faces", "update", face_id=face, flags=4, mask=4)
    check("congestion marking is switched on", done["status"] == 200, **done)

    done = await command("rib", "register", name=prefix, face_id=face, cost=7, origin=ORIGIN_STATIC, flags=1)
    check("a route is registered", done["status"] == 200 and done["body"]["cost"] == 7, **done)
    rib, _ = await dataset("rib/list")
    routes = routes_of(rib, prefix)
    check("the RIB has the route", [(r.face_id, r.cost, r.origin) for r in routes] == [(face, 7, ORIGIN_STATIC)])
    fib, _ = await dataset("fib/list")
    hops = [hop for entry in fib.entries if enc.Name.to_str(entry.name) == prefix for hop in entry.next_hop_records]
    check("the FIB has the next hop", [(hop.face_id, hop.cost) for hop in hops] == [(face, 7)])

    done = await command("strategy-choice", "set", name=prefix, strategy=STRATEGY)
    check("a strategy is chosen", done["status"] == 200, **done)
    chosen, _ = await dataset("strategy-choice/list")
    names = {enc.Name.to_str(c.name): enc.Name.to_str(c.strategy.name) for c in chosen.strategy_choices}
    check("the choice is listed", names.get(prefix, "").startswith(STRATEGY), strategy=names.get(prefix))
    check("the root has a strategy", "/" in names, strategy=names.get("/"))
    done = await command("strategy-choice", "unset", name=prefix)
    check("the choice is taken back", done["status"] == 200, **done)
    chosen, _ = await dataset("strategy-choice/list")
    check("the choice is gone", prefix not in [enc.Name.to_str(c.name) for c in chosen.strategy_choices])

    before, _ = await dataset("cs/info")
    done = await command("cs", "config", capacity=12345)
    check("the cache is configured", done["status"] == 200 and done["body"]["capacity"] == 12345, **done)
    await asyncio.sleep(1.1)  # the dataset asked for above stays fresh for up to a second
    info, _ = await dataset("cs/info")
    check("the cache's capacity is told", info.capacity == 12345, capacity=info.capacity)
    await command("cs", "config", capacity=before.capacity)

    done = await command("rib", "unregister", name=prefix, face_id=face, origin=ORIGIN_STATIC)
    check("the route is taken back", done["status"] == 200, **done)
    await asyncio.sleep(1.1)
    rib, _ = await dataset("rib/list")
    check("the route is gone", not routes_of(rib, prefix))

    gone = await command("faces", "destroy", face_id=face)
    check("the face is destroyed", gone["status"] == 200, **gone)
    refused = await command("rib", "register", name=prefix, face_id=face, cost=7)
    check("no route over a face that is gone", refused["status"] == 410, **refused)
    refused = await command("strategy-choice", "set", name=prefix, strategy="/localhost/nfd/strategy/no-such")
    check("no strategy that does not exist", refused["status"] == 404, **refused)
    refused = await command("rib", "register", cost=7)
    check("no route without a name", refused["status"] == 400, **refused)
    refused = await command("faces", "create", uri="udp4://not an address")
    check("no face to nonsense", refused["status"] in (400, 406), **refused)
    return management.result()


async def burst(management, args):
    loop = asyncio.get_running_loop()
    times = []
    for verb in ("register", "unregister"):
        began = loop.time()
        answers = await asyncio.gather(*(management.command("rib", verb, name=f"/interop/python/burst/{i}")
                                         for i in range(args.count)))
        times.append(round(1000 * (loop.time() - began)))
        accepted = sum(answer["status"] == 200 for answer in answers)
        management.check(f"all {verb}ed", accepted == args.count, accepted=accepted)
    return {**management.result(), "milliseconds": times}


async def replay(management, args):
    prefix = enc.Name.from_str("/interop/python/replay")
    name = nfd_mgmt.make_command_v2("rib", "register", name=prefix)
    statuses = []
    wire = None
    for step in ("register", "unregister", "register again"):
        if step == "unregister":
            statuses.append((await management.command("rib", "unregister", name=prefix))["status"])
            continue
        parameter = enc.InterestParam(nonce=gen_nonce(), lifetime=1500)
        if wire is None:
            wire, final = enc.make_interest(name, parameter, b"", management.signer, need_final_name=True)
        else:
            # What the first one's answer may still be cached for.
            await asyncio.sleep(1.2)
        try:
            _, content, _ = await management.app.express_raw_interest(
                final, parameter, with_new_nonce(wire), appv2.pass_all)
            statuses.append(answer_of(content)["status"])
        except Exception as error:  # an Interest refused without an answer is refused too
            statuses.append(type(error).__name__)
    await asyncio.sleep(1.2)
    rib, _ = await management.dataset("rib/list")
    management.check("the route did not come back", not routes_of(rib, enc.Name.to_str(prefix)), statuses=statuses)
    return management.result()


def with_new_nonce(wire):
    """The Nonce is not signed, so who replays a command can change it."""
    wire = bytearray(wire)
    at = wire.index(b"\x0a\x04")
    wire[at + 2:at + 6] = gen_nonce().to_bytes(4, "big")
    return bytes(wire)


async def work(app, args):
    management = Management(app, args)
    if args.what == "status":
        return await status(management)
    return await {"walk": walk, "burst": burst, "replay": replay}[args.what](management, args)


if __name__ == "__main__":
    args = parse()
    with credentials.home_for(args.sign):
        outcome.run_app(appv2.NDNApp(), args, lambda app: work(app, args))
