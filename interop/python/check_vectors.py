"""Decodes what NDNts made (OUT_DIR/ndnts.json) with python-ndn and verifies its signatures: do the two agree?"""

import asyncio
import json
import os
import sys

from ndn import encoding as enc, security as sec

import generate_vectors
import outcome


async def signed_well(sig, key, keys):
    if key in (None, "null"):
        return True
    if key == "sha256":
        return sig.signature_info.signature_type == 0 and await sec.sha256_digest_checker([], sig)
    of = {"ecdsa": sec.EccChecker, "rsa": sec.RsaChecker, "ed25519": sec.Ed25519Checker, "hmac": sec.HmacChecker}[key]
    bits = bytes.fromhex(keys[key].get("public_spki") or keys[key]["secret"])
    return of._verify(bits, sig)


def difference(mine, theirs, path=""):
    """Where two objects differ, in the fields that both have."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        found = (difference(mine[field], theirs[field], f"{path}.{field}") for field in mine.keys() & theirs.keys())
        return next((where for where in found if where), None)
    return None if mine == theirs else f"{path}: {mine!r} is not {theirs!r}"


def main():
    where = sys.argv[1]
    with open(os.path.join(where, "keys.json")) as file:
        keys = json.load(file)
    with open(os.path.join(where, "ndnts.json")) as file:
        vectors = json.load(file)["vectors"]
    checked, wrong = 0, []
    for vector in vectors:
        wire, fields, mine = bytes.fromhex(vector["wire"]), vector["fields"], generate_vectors.Vectors()
        kind = vector["kind"]
        key = (fields.get("signature") or {}).get("key")
        if kind == "interest":
            mine.interest("", wire, key)
            sig = enc.parse_interest(wire)[3]
        elif kind in ("data", "certificate", "prefix_announcement"):
            mine.data("", wire, key)
            sig = enc.parse_data(wire)[3]
        elif kind == "name":
            mine.made.append({"fields": generate_vectors.name_fields(enc.Name.from_bytes(wire))})
            sig = None
        else:
            continue
        checked += 1
        theirs = dict(fields)
        if kind == "name" and any(set(bytes.fromhex(value)) <= {0x2E} for _, value in fields["components"]):
            # Of components of periods only, python-ndn writes URIs that are not those of the specification.
            del theirs["uri"]
        problem = difference(mine.made[0]["fields"], theirs)
        if sig is not None and not asyncio.run(signed_well(sig, key, keys)):
            problem = "the signature does not verify"
        if problem:
            wrong.append(f"{kind} {vector['id']}: {problem}")
    outcome.finish(not wrong, checked=checked, wrong=wrong)


if __name__ == "__main__":
    main()
