"""Writes packets made by python-ndn, with what is in them, as test data for crates/ndn-packet: see the README there.

    target/interop/python/bin/python interop/python/generate_vectors.py OUT_DIR

OUT_DIR/keys.json holds the keys; made when missing, so that a second run changes only what is random by nature.
"""

import datetime
import hashlib
import importlib.metadata
import itertools
import json
import os
import sys

from Cryptodome.PublicKey import ECC, RSA
from ndn import encoding as enc, security as sec
from ndn.app_support import nfd_mgmt, security_v2
from ndn.encoding import ndnlp_v2
from ndn.encoding.signer import Signer

import vectors_management
from vectors_management import outer

Component, Name = enc.Component, enc.Name


def make_keys():
    ecdsa, ed25519, rsa = ECC.generate(curve="P-256"), ECC.generate(curve="Ed25519"), RSA.generate(2048)
    return {
        "ecdsa": {"type": 3, "name": "/keys/ecdsa/KEY/%01", "private_pkcs8": der(ecdsa.export_key(format="DER")),
                  "public_spki": der(ecdsa.public_key().export_key(format="DER"))},
        "rsa": {"type": 1, "name": "/keys/rsa/KEY/%02", "private_pkcs8": der(rsa.export_key("DER", pkcs=8)),
                "public_spki": der(rsa.public_key().export_key("DER"))},
        "ed25519": {"type": 5, "name": "/keys/ed25519/KEY/%03",
                    "private_pkcs8": der(ed25519.export_key(format="DER")),
                    "public_spki": der(ed25519.public_key().export_key(format="DER"))},
        "hmac": {"type": 4, "name": "/keys/hmac/KEY/%04", "secret": hashlib.sha256(b"whimbrel").hexdigest()},
    }


def der(octets):
    return bytes(octets).hex()


def signers(keys):
    def private(name):
        return bytes.fromhex(keys[name]["private_pkcs8"])

    return {
        "sha256": sec.DigestSha256Signer(),
        "ecdsa": sec.Sha256WithEcdsaSigner(keys["ecdsa"]["name"], private("ecdsa")),
        "rsa": sec.Sha256WithRsaSigner(keys["rsa"]["name"], private("rsa")),
        "ed25519": sec.Ed25519Signer(keys["ed25519"]["name"], private("ed25519")),
        "hmac": sec.HmacSha256Signer(keys["hmac"]["name"], bytes.fromhex(keys["hmac"]["secret"])),
        "null": sec.NullSigner(),
    }


class Stamped(Signer):
    """Puts time, nonce and sequence number of the caller's choice into a signed Interest."""

    def __init__(self, inner, time=None, nonce=None, sequence=None):
        self.inner, self.time, self.nonce, self.sequence = inner, time, nonce, sequence

    def write_signature_info(self, signature_info):
        self.inner.write_signature_info(signature_info)
        signature_info.signature_time = self.time
        signature_info.signature_nonce = self.nonce
        signature_info.signature_seq_num = self.sequence

    def get_signature_value_size(self):
        return self.inner.get_signature_value_size()

    def write_signature_value(self, wire, contents):
        return self.inner.write_signature_value(wire, contents)


class Vectors:
    def __init__(self):
        self.made = []

    def add(self, kind, ident, wire, **fields):
        self.made.append({"kind": kind, "id": ident, "wire": bytes(wire).hex(), "fields": fields})

    def interest(self, ident, wire, key=None):
        name, param, parameters, sig = enc.parse_interest(wire)
        self.add("interest", ident, wire, name=name_fields(name), can_be_prefix=bool(param.can_be_prefix),
                 must_be_fresh=bool(param.must_be_fresh),
                 forwarding_hint=[Name.to_canonical_uri(hint) for hint in param.forwarding_hint],
                 nonce=param.nonce, lifetime_ms=param.lifetime, hop_limit=param.hop_limit,
                 parameters=None if parameters is None else bytes(parameters).hex(), signature=signature(sig, key))

    def data(self, ident, wire, key=None, kind="data", **more):
        name, meta, content, sig = enc.parse_data(wire)
        self.add(kind, ident, wire, name=name_fields(name), content_type=meta.content_type or 0,
                 freshness_ms=meta.freshness_period,
                 final_block=None if meta.final_block_id is None else bytes(meta.final_block_id).hex(),
                 content=None if content is None else bytes(content).hex(),
                 implicit_sha256=hashlib.sha256(wire).hexdigest(), signature=signature(sig, key), **more)


def signature(sig, key):
    info = sig.signature_info
    if info is None:
        return None
    locator = None
    if info.key_locator is not None:
        if info.key_locator.name:
            locator = {"name": Name.to_canonical_uri(info.key_locator.name)}
        elif info.key_locator.key_digest is not None:
            locator = {"digest": bytes(info.key_locator.key_digest).hex()}
    return {"type": info.signature_type, "key": key, "key_locator": locator,
            "time": info.signature_time, "nonce": uint_hex(info.signature_nonce), "sequence": info.signature_seq_num,
            "signed": b"".join(bytes(part) for part in sig.signature_covered_part).hex(),
            "value": bytes(sig.signature_value_buf or b"").hex()}


def uint_hex(number):
    """A nonce is octets; python-ndn holds it as a number and writes 1, 2, 4 or 8 of them."""
    if number is None:
        return None
    size = next(size for size in (1, 2, 4, 8) if number < 1 << 8 * size)
    return number.to_bytes(size, "big").hex()


def name_fields(name):
    name = Name.normalize(name)
    return {"uri": Name.to_str(name), "canonical_uri": Name.to_canonical_uri(name),
            "components": [[Component.get_type(c), bytes(Component.get_value(c)).hex()] for c in name]}


NAMES = [
    "/", "/a", "/hello/world", "/a/b/c/d/e/f/g/h", "/with%20space/%00%01%FF", "/-._~/AZaz09", "/%21%40%23%24",
    "/32=metadata", "/8=a/32=b", "/65535=x", "/252=a/253=b/255=c/256=d",
    "/f/seg=0", "/f/seg=255", "/f/seg=256", "/f/seg=65535", "/f/seg=65536", "/f/seg=4294967295", "/f/seg=4294967296",
    "/f/seg=18446744073709551615", "/f/off=4000", "/f/v=1", "/f/v=1795299291818", "/f/t=1795299291818000", "/f/seq=0", "/f/seq=77",
    "/sha256digest=" + "01" * 32, "/a/params-sha256=" + "fe" * 32,
    "/" + "x" * 252, "/" + "y" * 253, "/" + "z" * 300,
]


def names(vectors):
    for uri in NAMES:
        name = Name.from_str(uri)
        vectors.add("name", uri if len(uri) < 80 else uri[:20] + f"...{len(uri)}", Name.to_bytes(name), **name_fields(name))
    periods = [Component.from_bytes(b""), Component.from_bytes(b"."), Component.from_bytes(b".."), Component.from_bytes(b"...")]
    for component in periods:
        # URIs of these differ between libraries, so only the octets are given.
        fields = name_fields([component])
        vectors.add("name", f"only periods {len(Component.get_value(component))}", Name.to_bytes([component]),
                    components=fields["components"])


def interests(vectors, keys, signer):
    switches = [("can_be_prefix", True), ("must_be_fresh", True), ("nonce", 0x01020304), ("lifetime", 1000),
                ("hop_limit", 32), ("forwarding_hint", ["/hint/a", "/hint/b/v=1"])]
    for chosen in itertools.product([False, True], repeat=len(switches)):
        param = enc.InterestParam(lifetime=None)
        for (field, value), on in zip(switches, chosen):
            if on:
                setattr(param, field, value)
        ident = "+".join(field for (field, _), on in zip(switches, chosen) if on) or "bare"
        vectors.interest(ident, enc.make_interest("/interest/of/some", param))
    for lifetime in (0, 1, 255, 256, 65535, 65536, 2**32, 2**53 - 1):
        vectors.interest(f"lifetime {lifetime}", enc.make_interest("/i", enc.InterestParam(lifetime=lifetime, nonce=0)))
    for nonce in (0, 1, 0xFFFFFFFF):
        vectors.interest(f"nonce {nonce}", enc.make_interest("/i", enc.InterestParam(lifetime=None, nonce=nonce)))
    for hop_limit in (0, 1, 255):
        vectors.interest(f"hop limit {hop_limit}", enc.make_interest("/i", enc.InterestParam(lifetime=None, hop_limit=hop_limit)))
    for size in (0, 1, 252, 253, 1000):
        vectors.interest(f"{size} octets of parameters",
                         enc.make_interest("/with/parameters", enc.InterestParam(nonce=7), bytes(range(256)) * 4 if size == 1000 else bytes(size)))
    stamps = {"time": 1795299291818, "nonce": 0x0102030405060708, "sequence": 42}
    for key, which in signer.items():
        if key == "null":
            continue
        for chosen in ([], ["time"], ["time", "nonce"], ["sequence"], ["time", "nonce", "sequence"]):
            stamped = Stamped(which, **{field: stamps[field] for field in chosen})
            wire = enc.make_interest("/signed/interest", enc.InterestParam(nonce=7), b"parameters", stamped)
            vectors.interest(f"signed {key} {'+'.join(chosen) or 'bare'}", wire, key)
    command = nfd_mgmt.make_command_v2("rib", "register", name="/my/prefix")
    vectors.interest("command as in 0.3", enc.make_interest(
        command, enc.InterestParam(nonce=7), b"", Stamped(signer["sha256"], 1795299291818, 0x0102030405060708)), "sha256")
    vectors.interest("command as in 0.2", enc.make_interest(
        nfd_mgmt.make_command("rib", "register", name="/my/prefix"), enc.InterestParam(nonce=7)))


def datas(vectors, keys, signer):
    contents = {"none": None, "empty": b"", "some": b"content", "253": bytes(253), "8000": bytes(i % 251 for i in range(8000))}
    for ident, content in contents.items():
        vectors.data(f"content {ident}", enc.make_data("/data/x", enc.MetaInfo(), content, signer["sha256"]), "sha256")
    metas = {
        "freshness": {"freshness_period": 10000}, "freshness 0": {"freshness_period": 0},
        "final block": {"final_block_id": Component.from_segment(300)},
        "link": {"content_type": 1}, "key": {"content_type": 2}, "nack": {"content_type": 3}, "type 1024": {"content_type": 1024},
        "all": {"content_type": 0, "freshness_period": 4294967296, "final_block_id": Component.from_str("last")},
    }
    for ident, meta in metas.items():
        vectors.data(f"meta {ident}", enc.make_data("/data/x/seg=0", enc.MetaInfo(**meta), b"content", signer["sha256"]), "sha256")
    for key, which in signer.items():
        for uri in ("/", "/data/signed", "/data/signed/v=3/seg=9"):
            wire = enc.make_data(uri, enc.MetaInfo(freshness_period=1000), b"signed content", which)
            vectors.data(f"signed {key} {uri}", wire, key)
    # How long an ECDSA signature is varies.
    for i in range(8):
        vectors.data(f"signed ecdsa again {i}", enc.make_data(f"/data/{i}", enc.MetaInfo(), b"", signer["ecdsa"]), "ecdsa")


def certificates(vectors, keys, signer):
    begin = datetime.datetime(2026, 1, 2, 3, 4, 5)
    end = datetime.datetime(2046, 11, 21, 23, 59, 59)
    for key in ("ecdsa", "rsa", "ed25519"):
        spki = bytes.fromhex(keys[key]["public_spki"])
        for ident, issuer, by in ((f"self-signed {key}", "self", key), (f"{key} issued by ecdsa", "issuer", "ecdsa")):
            name, wire = security_v2.new_cert(keys[key]["name"], Component.from_str(issuer), spki, signer[by], begin, end)
            vectors.data(ident, wire, by, kind="certificate", subject_key=key,
                         not_before="20260102T030405", not_after="20461121T235959")
            if ident.startswith("self-signed"):
                safe_bags(vectors, keys, key, wire)


def safe_bags(vectors, keys, key, certificate):
    private = bytes.fromhex(keys[key]["private_pkcs8"])
    passphrase = "correct horse"
    schemes = ["PBKDF2WithHMAC-SHA1AndDES-EDE3-CBC", "PBKDF2WithHMAC-SHA1AndAES128-CBC", "PBKDF2WithHMAC-SHA1AndAES256-CBC"]
    for scheme in schemes:
        if key == "rsa":
            encrypted = RSA.import_key(private).export_key("DER", pkcs=8, passphrase=passphrase, protection=scheme)
        else:
            encrypted = ECC.import_key(private).export_key(format="DER", passphrase=passphrase.encode(), protection=scheme)
        inner, _ = shape_of(certificate)
        bag = security_v2.SafeBag()
        bag.certificate_v2 = inner
        bag.encrypted_key_bag = encrypted
        vectors.add("safe_bag", f"{key} {scheme}", outer(0x80, bag.encode()), key=key, passphrase=passphrase,
                    encryption=scheme, certificate=bytes(certificate).hex())


def shape_of(wire):
    typ, at = enc.parse_tl_num(wire, 0)
    length, more = enc.parse_tl_num(wire, at)
    return bytes(wire[at + more:]), typ


class LpFields(enc.TlvModel):
    """NDNLPv2's fields in the order that forwarders write them; python-ndn's own model lacks some."""

    sequence = enc.UintField(0x51, fixed_len=8)
    frag_index = enc.UintField(0x52)
    frag_count = enc.UintField(0x53)
    pit_token = enc.BytesField(0x62)
    nack = enc.ModelField(0x0320, ndnlp_v2.NetworkNack)
    next_hop_face_id = enc.UintField(0x0330)
    incoming_face_id = enc.UintField(0x032C)
    cache_policy = enc.ModelField(0x0334, ndnlp_v2.CachePolicy)
    congestion_mark = enc.UintField(0x0340)
    acks = enc.RepeatedField(enc.UintField(0x0344, fixed_len=8))
    tx_sequence = enc.UintField(0x0348, fixed_len=8)
    non_discovery = enc.BoolField(0x034C)
    prefix_announcement = enc.BytesField(0x0350)
    fragment = enc.BytesField(0x50)


def lp_packets(vectors, keys, signer):
    interest = bytes(enc.make_interest("/lp/interest", enc.InterestParam(nonce=7)))
    data = bytes(enc.make_data("/lp/interest", enc.MetaInfo(freshness_period=1), b"content", signer["sha256"]))
    announcement = bytes(enc.make_data("/announced/32=PA/v=1/seg=0", enc.MetaInfo(content_type=5), b"\x6d\x02\x0e\x10", signer["sha256"]))

    def add(ident, fragment=interest, **values):
        packet = LpFields()
        for field, value in values.items():
            if field == "nack_reason":
                packet.nack = ndnlp_v2.NetworkNack()
                packet.nack.nack_reason = value
            elif field == "cache_policy":
                packet.cache_policy = ndnlp_v2.CachePolicy()
                packet.cache_policy.cache_policy_type = value
            else:
                setattr(packet, field, value)
        if fragment is not None:
            packet.fragment = fragment
        fields = {field: value.hex() if isinstance(value, bytes) else value for field, value in values.items()}
        if "nack_reason" in values:
            fields["nack"] = True
        vectors.add("lp", ident, outer(0x64, packet.encode()), **fields, fragment=None if fragment is None else fragment.hex())

    add("idle", None)
    add("interest")
    add("data", data)
    for size in (1, 4, 6, 8, 32):
        add(f"token of {size}", pit_token=bytes(range(size)))
    for reason in (None, 0, 50, 100, 150, 999):
        add(f"nack {reason}", nack_reason=reason)
    add("nack with token", nack_reason=150, pit_token=b"\x01\x02")
    for face in (1, 255, 256, 65536, 2**32):
        add(f"next hop {face}", next_hop_face_id=face)
        add(f"incoming face {face}", data, incoming_face_id=face)
    add("no cache", data, cache_policy=1)
    add("congestion", data, congestion_mark=1)
    add("congestion 300", congestion_mark=300)
    add("non-discovery", non_discovery=True)
    add("prefix announcement", data, prefix_announcement=announcement)
    add("frame with sequence", sequence=2**64 - 1)
    add("reliable frame", sequence=10, tx_sequence=99)
    add("acks only", None, acks=[1, 2, 2**63])
    add("acks beside a packet", data, sequence=5, acks=[7], tx_sequence=8)
    half = len(data) // 2
    add("fragment 0 of 2", data[:half], sequence=100, frag_index=0, frag_count=2)
    add("fragment 1 of 2", data[half:], sequence=101, frag_index=1, frag_count=2)
    add("all for an Interest", pit_token=b"\xaa\xbb", next_hop_face_id=5, congestion_mark=2, acks=[3], sequence=9,
        tx_sequence=4, non_discovery=True)
    add("all for Data", data, pit_token=b"\xaa\xbb", incoming_face_id=300, cache_policy=1, congestion_mark=2,
        prefix_announcement=announcement)


def main():
    where = sys.argv[1]
    path = os.path.join(where, "keys.json")
    if not os.path.exists(path):
        with open(path, "w") as file:
            json.dump(make_keys(), file, indent=1)
            file.write("\n")
    with open(path) as file:
        keys = json.load(file)
    signer = signers(keys)
    vectors = Vectors()
    names(vectors)
    interests(vectors, keys, signer)
    datas(vectors, keys, signer)
    certificates(vectors, keys, signer)
    lp_packets(vectors, keys, signer)
    vectors_management.management(vectors)
    out = os.path.join(where, "python-ndn.json")
    with open(out, "w") as file:
        file.write('{"library": "python-ndn", "version": "%s", "vectors": [\n' % importlib.metadata.version("python-ndn"))
        file.write(",\n".join(json.dumps(vector) for vector in vectors.made))
        file.write("\n]}\n")
    print(json.dumps({"ok": True, "vectors": len(vectors.made), "file": out}))


if __name__ == "__main__":
    main()
