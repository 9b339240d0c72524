"""Registers a prefix and answers Interests until --answers are answered, or SIGTERM, or --timeout.

Prints {"event": "ready"} once the forwarder has accepted the registration.
"""

import asyncio

from ndn import app as appv1
from ndn import appv2, encoding as enc
from ndn.app_support import nfd_mgmt
from ndn.app_support.keychain_register import attach_keychain_register

import credentials
import outcome


def parse():
    parser = outcome.arguments(__doc__, timeout=60.0)
    parser.add_argument("prefix")
    parser.add_argument("--register", metavar="NAME", help="register this instead, as for a forwarding hint")
    parser.add_argument("--content", default="hello", help="text; {name} is the Interest's name, {parameters} what came with it")
    parser.add_argument("--suffix", default="", help="components put after the Interest's name, as when CanBePrefix is tried")
    parser.add_argument("--size", type=int, help="content of this many octets instead")
    parser.add_argument("--freshness", type=int, default=10000, help="milliseconds")
    parser.add_argument("--delay", type=float, default=0, help="seconds to wait before an answer")
    parser.add_argument("--nack", type=int, metavar="REASON", help="answer with network Nacks")
    parser.add_argument("--silent", action="store_true", help="answer nothing")
    parser.add_argument("--answers", type=int, help="end after this many")
    parser.add_argument("--api", choices=["v1", "v2"], default="v2",
                        help="python-ndn's two interfaces: v1 registers with commands signed as in packet format 0.2")
    parser.add_argument("--command-sign", default="digest", metavar="digest|keychain",
                        help="how the registration is signed; keychain makes an ECDSA key and serves its certificate")
    credentials.add_signer_argument(parser, "--sign")
    return parser.parse_args()


class Answers:
    def __init__(self, args):
        self.args = args
        self.count = 0
        self.enough = asyncio.Event()
        self.signer = credentials.signer(args.sign)

    def data(self, name, parameters):
        args = self.args
        text = args.content.replace("{name}", enc.Name.to_str(name))
        text = text.replace("{parameters}", bytes(parameters).decode() if parameters is not None else "")
        content = bytes(args.size) if args.size is not None else text.encode()
        name = list(name) + (enc.Name.from_str(args.suffix) if args.suffix else [])
        return appv2.NDNApp.make_data(name, content, self.signer, freshness_period=args.freshness)

    def counted(self):
        self.count += 1
        if self.args.answers is not None and self.count >= self.args.answers:
            # What was just written must still leave the socket.
            asyncio.get_running_loop().call_later(0.2, self.enough.set)


def lp_with_token(fields, pit_token):
    if pit_token is not None:
        fields.pit_token = pit_token
    packet = enc.ndnlp_v2.LpPacket()
    packet.lp_packet = fields
    return packet.encode()


async def serve_v2(app, args, answers):
    def on_interest(name, parameters, reply, context):
        async def respond():
            await asyncio.sleep(args.delay)
            if args.nack is not None:
                nack = enc.ndnlp_v2.LpPacketValue()
                nack.nack = enc.ndnlp_v2.NetworkNack()
                nack.nack.nack_reason = args.nack
                nack.fragment = context["raw_packet"]
                app.face.send(lp_with_token(nack, context["pit_token"]))
            elif not args.silent:
                reply(answers.data(name, parameters))
            answers.counted()

        asyncio.create_task(respond())

    app.attach_handler(args.prefix, on_interest, validator=appv2.pass_all)
    name = enc.Name.from_str(args.register or args.prefix)
    if args.command_sign == "keychain":
        attach_keychain_register(appv2.NDNApp.default_keychain(), app)
        # Answering for its certificate needs a route of its own, which python-ndn asks for in the background.
        await asyncio.sleep(0.3)
        _, content, _ = await app.express(
            nfd_mgmt.make_command_v2("rib", "register", app.face, name=name), appv2.pass_all, app_param=b"",
            signer=credentials.signer("keychain", for_interest=True), lifetime=2000)
        answer = enc.parse_and_check_tl(memoryview(bytes(content)), 0x65)
        answer = nfd_mgmt.ControlResponse.parse(answer)
        if answer.status_code != 200:
            raise outcome.Failed("the registration was refused", status=answer.status_code, text=answer.status_text)
    elif not await app.register(name):
        raise outcome.Failed("the registration was refused or not answered")


async def serve_v1(app, args, answers):
    def on_interest(name, _param, parameters):
        if not args.silent:
            app.put_raw_packet(answers.data(name, parameters))
        answers.counted()

    app.set_interest_filter(enc.Name.from_str(args.prefix), on_interest)
    if not await app.register(enc.Name.from_str(args.register or args.prefix), None):
        raise outcome.Failed("the registration was refused or not answered")


async def work(app, args):
    answers = Answers(args)
    await (serve_v1 if args.api == "v1" else serve_v2)(app, args, answers)
    outcome.say(event="ready", prefix=args.prefix)
    await asyncio.wait([asyncio.ensure_future(answers.enough.wait()), asyncio.ensure_future(outcome.almost(args))],
                       return_when=asyncio.FIRST_COMPLETED)
    if args.answers is not None and answers.count < args.answers:
        raise outcome.Failed("too few Interests came", answered=answers.count)
    return {"answered": answers.count}


if __name__ == "__main__":
    args = parse()
    # The first interface wants a key chain whatever it signs with.
    with credentials.home_for(args.sign, args.command_sign, always=args.api == "v1"):
        app = appv1.NDNApp() if args.api == "v1" else appv2.NDNApp()
        outcome.run_app(app, args, lambda app: work(app, args))
