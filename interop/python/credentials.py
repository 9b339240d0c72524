"""Signers and verifiers named on the command line, and a throw-away key chain made by python-ndn's own pyndnsec.

digest                SHA-256 only
hmac:HEX              a shared key
keychain              an ECDSA key, made with its certificate for this run (see `home_for`)
"""

import contextlib
import os
import subprocess
import sys
import tempfile

from ndn import appv2, encoding as enc, security as sec
from ndn.security import HmacChecker
from ndn.types import ValidResult

HMAC_KEY_NAME = "/interop/KEY/hmac"


def add_signer_argument(parser, flag):
    parser.add_argument(flag, default="digest", metavar="digest|hmac:HEX|keychain")


def add_verifier_argument(parser, flag):
    parser.add_argument(flag, default="digest", metavar="none|digest|hmac:HEX|FILE of a certificate")


class TimedKeyChainSigner(enc.Signer):
    """A key chain's signer that also puts time and nonce into a signed Interest, which python-ndn's does not."""

    def __init__(self, inner):
        self.inner = inner
        self.stamp = sec.DigestSha256Signer(for_interest=True)

    def write_signature_info(self, signature_info):
        self.stamp.write_signature_info(signature_info)
        self.inner.write_signature_info(signature_info)

    def get_signature_value_size(self):
        return self.inner.get_signature_value_size()

    def write_signature_value(self, wire, contents):
        return self.inner.write_signature_value(wire, contents)


def signer(which, for_interest=False):
    if which == "digest":
        return sec.DigestSha256Signer(for_interest=for_interest)
    if which.startswith("hmac:"):
        made = sec.HmacSha256Signer(HMAC_KEY_NAME, bytes.fromhex(which[5:]))
    elif which == "keychain":
        made = appv2.NDNApp.default_keychain().get_signer({})
    else:
        raise ValueError(f"no signer is called {which}")
    return TimedKeyChainSigner(made) if for_interest else made


def as_valid_result(check):
    """python-ndn's checkers answer with a bool; its second application interface wants a ValidResult."""

    async def validator(name, sig, _context):
        return ValidResult.PASS if await check(name, sig) else ValidResult.FAIL

    return validator


def verifier(which):
    if which == "none":
        return appv2.pass_all
    if which == "digest":
        return as_valid_result(digest_if_digest)
    if which.startswith("hmac:"):
        return as_valid_result(HmacChecker.from_key(HMAC_KEY_NAME, bytes.fromhex(which[5:])))
    with open(which, "rb") as file:
        certificate = file.read()
    return as_valid_result(certificate_checker(certificate))


async def digest_if_digest(name, sig):
    """Checks a digest; a signature by a key that nobody named here is not looked at."""
    if sig.signature_info is None or sig.signature_info.signature_type != 0:
        return True
    return await sec.sha256_digest_checker(name, sig)


def certificate_checker(certificate):
    from ndn.app_support.security_v2 import parse_certificate
    from Cryptodome.PublicKey import ECC

    spki = bytes(parse_certificate(certificate).content)
    try:
        curve = ECC.import_key(spki).curve
    except ValueError:
        return sec.RsaChecker.from_cert(certificate)
    return (sec.Ed25519Checker if curve == "Ed25519" else sec.EccChecker).from_cert(certificate)


@contextlib.contextmanager
def home_for(*signers, always=False):
    """A temporary HOME with a key chain in it if one of the signers needs one."""
    with tempfile.TemporaryDirectory() as home:
        if always or "keychain" in signers:
            keychain_home(home, "/interop/python")
        yield


def keychain_home(home, identity, key_type="e"):
    """Makes $home/.ndn with one identity, by the commands a person would use; the process then lives in it."""
    os.environ["HOME"] = home
    for command in (["Init-Pib"], ["New-Item", "-t", key_type, identity]):
        done = subprocess.run([sys.executable, "-m", "ndn.bin.sec", *command], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"pyndnsec {' '.join(command)}: {done.stdout}{done.stderr}")
    with open(os.path.join(home, ".ndn", "client.conf"), "w") as file:
        # python-ndn finds a key chain by this file or by these two variables only.
        file.write(f"pib=pib-sqlite3:{home}/.ndn\ntpm=tpm-file:{home}/.ndn/ndnsec-key-file\n")
