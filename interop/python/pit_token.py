"""Sends Interests in NDNLPv2 packets with PIT tokens, as NDN-DPDK and NDNts do, and looks for the tokens in what comes back.

A raw connection to NDN_CLIENT_TRANSPORT: python-ndn encodes and decodes, its application is not used. Something must
answer under NAME.
"""

import asyncio
import secrets

from ndn import client_conf, encoding as enc
from ndn.encoding import ndnlp_v2
from ndn.utils import gen_nonce

import outcome

TOKEN_SIZES = (1, 4, 6, 8, 16, 32)


def parse():
    parser = outcome.arguments(__doc__)
    parser.add_argument("name")
    parser.add_argument("--expect", choices=["data", "nack"], default="data")
    return parser.parse_args()


def wrapped(token, interest):
    packet = ndnlp_v2.LpPacket()
    packet.lp_packet = ndnlp_v2.LpPacketValue()
    packet.lp_packet.pit_token = token
    packet.lp_packet.fragment = interest
    return packet.encode()


async def work(args):
    face = client_conf.default_face(client_conf.read_client_conf()["transport"])
    arrived = asyncio.Queue()

    async def on_packet(typ, wire):
        await arrived.put((typ, bytes(wire)))

    face.callback = on_packet
    await face.open()
    running = asyncio.ensure_future(face.run())
    sent = {}
    for i, size in enumerate(TOKEN_SIZES):
        name = enc.Name.from_str(f"{args.name}/{secrets.token_hex(4)}/{i}")
        token = secrets.token_bytes(size)
        sent[enc.Name.to_str(name)] = token
        face.send(wrapped(token, enc.make_interest(name, enc.InterestParam(nonce=gen_nonce(), lifetime=4000))))
    # One without a token: its answer must not have one.
    plain = enc.Name.from_str(f"{args.name}/{secrets.token_hex(4)}/plain")
    sent[enc.Name.to_str(plain)] = None
    face.send(enc.make_interest(plain, enc.InterestParam(nonce=gen_nonce(), lifetime=4000)))

    wrong = []
    for _ in range(len(sent)):
        typ, wire = await arrived.get()
        token, nack = None, False
        if typ == ndnlp_v2.LpTypeNumber.LP_PACKET:
            packet = enc.parse_lp_packet_v2(wire)
            token = None if packet.pit_token is None else bytes(packet.pit_token)
            nack = packet.nack is not None
            wire = bytes(packet.fragment)
        name = enc.parse_interest(wire)[0] if nack else enc.parse_data(wire)[0]
        uri = enc.Name.to_str(name)
        wanted = sent.pop(uri, b"?")
        if token != wanted:
            wrong.append(f"{uri}: token {token and token.hex()} for {wanted and wanted.hex()}")
        if nack != (args.expect == "nack"):
            wrong.append(f"{uri}: {'a Nack' if nack else 'Data'}")
    running.cancel()
    face.shutdown()
    if wrong or sent:
        raise outcome.Failed("tokens differ", wrong=wrong, unanswered=list(sent))
    return {"tokens": list(TOKEN_SIZES)}


if __name__ == "__main__":
    args = parse()
    outcome.end(args, lambda: work(args))
