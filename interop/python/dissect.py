"""Decodes every NDN packet of a capture with python-ndn: is each well-formed in another library's eyes?

tshark takes the capture apart (UDP, TCP or Ethernet); this decodes what they carried. Ends with 1 if a packet cannot be
decoded or a digest is wrong. With --list a line for each packet first.
"""

import asyncio
import subprocess

from ndn import encoding as enc, security as sec

import outcome


def parse():
    parser = outcome.arguments(__doc__, timeout=60.0)
    parser.add_argument("capture")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


def payloads(capture):
    fields = ["-e", "udp.payload", "-e", "tcp.payload", "-e", "data.data"]
    done = subprocess.run(["tshark", "-r", capture, "-T", "fields", "-E", "separator=,", *fields],
                          capture_output=True, text=True, check=True)
    streams = bytearray()
    for line in done.stdout.splitlines():
        udp, tcp, data = (line.split(",") + ["", "", ""])[:3]
        if tcp:
            streams += bytes.fromhex(tcp)
        elif udp or data:
            yield bytes.fromhex(udp or data)
    if streams:
        yield bytes(streams)


def packets(octets):
    at = 0
    while at < len(octets) and octets[at]:
        _, type_size = enc.parse_tl_num(octets, at)
        length, length_size = enc.parse_tl_num(octets, at + type_size)
        end = at + type_size + length_size + length
        if end > len(octets):
            raise ValueError("the packet is cut off")
        yield octets[at:end]
        at = end


async def decode(wire):
    typ, _ = enc.parse_tl_num(wire)
    if typ == enc.LpTypeNumber.LP_PACKET:
        value = enc.parse_and_check_tl(wire, typ)
        if any(kind == enc.LpTypeNumber.FRAG_COUNT for kind in types_in(value)):
            return {"type": "fragment"}
        packet = enc.parse_lp_packet_v2(wire)
        if packet.fragment is None:
            return {"type": "idle"}
        inner = await decode(bytes(packet.fragment))
        nack = {"nack": packet.nack.nack_reason} if packet.nack is not None else {}
        token = {"pit_token": bytes(packet.pit_token).hex()} if packet.pit_token is not None else {}
        return {"lp": True, **nack, **token, **inner}
    if typ == enc.TypeNumber.INTEREST:
        name, _, parameters, sig = enc.parse_interest(wire)
        if parameters is not None and not await sec.params_sha256_checker(name, sig):
            raise ValueError("the parameters' digest is wrong")
        return {"type": "Interest", "name": enc.Name.to_str(name)}
    name, _, content, sig = enc.parse_data(wire)
    if sig.signature_info is not None and sig.signature_info.signature_type == 0:
        if not await sec.sha256_digest_checker(name, sig):
            raise ValueError("the digest is wrong")
    return {"type": "Data", "name": enc.Name.to_str(name), "bytes": len(content or b"")}


def types_in(value):
    at = 0
    while at < len(value):
        typ, type_size = enc.parse_tl_num(value, at)
        length, length_size = enc.parse_tl_num(value, at + type_size)
        yield typ
        at += type_size + length_size + length


async def work(args):
    counts, wrong = {}, []
    for octets in payloads(args.capture):
        try:
            for wire in packets(octets):
                shown = await decode(wire)
                counts[shown["type"]] = counts.get(shown["type"], 0) + 1
                if args.list:
                    outcome.say(**shown)
        except (ValueError, IndexError, enc.DecodeError) as error:
            wrong.append(f"{type(error).__name__}: {error}: {octets[:64].hex()}")
    if wrong or not counts:
        raise outcome.Failed("not all could be decoded" if wrong else "there is no NDN in it", counts=counts, wrong=wrong[:20])
    return {"counts": counts}


if __name__ == "__main__":
    args = parse()
    outcome.end(args, lambda: work(args))
