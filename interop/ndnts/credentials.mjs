// Signers and verifiers named on the command line.
//   digest           SHA-256 only
//   hmac:HEX         a shared key
//   keychain         an ECDSA key with a self-signed certificate, made for this run in an NDNts key chain
//   ed25519, rsa     a key made for this run
import {
  Certificate, createSigner, createVerifier, Ed25519, generateSigningKey, HMAC, KeyChain, RSA, SigningAlgorithmListFull,
} from "@ndn/keychain";
import { Data, digestSigning, Name, SignedInterestPolicy, SigType } from "@ndn/packet";
import { Decoder } from "@ndn/tlv";
import { readFile } from "node:fs/promises";

const HMAC_KEY_NAME = new Name("/interop/KEY/hmac");
const policy = new SignedInterestPolicy(SignedInterestPolicy.Nonce(), SignedInterestPolicy.Time());

async function hmacKey(which) {
  const raw = Buffer.from(which.slice("hmac:".length), "hex");
  const { secretKey } = await HMAC.cryptoGenerate({ importRaw: raw }, false);
  return { secretKey, info: {} };
}

let keyChain;
/** The key chain of this run with the certificate of its one identity. */
export async function identity() {
  if (!keyChain) {
    const chain = KeyChain.createTemp();
    const [privateKey, publicKey] = await generateSigningKey(chain, new Name("/interop/ndnts"));
    const certificate = await Certificate.selfSign({ privateKey, publicKey });
    await chain.insertCert(certificate);
    keyChain = { chain, certificate };
  }
  return keyChain;
}

async function plainSigner(which) {
  if (which === "digest") { return digestSigning; }
  if (which.startsWith("hmac:")) { return createSigner(HMAC_KEY_NAME, HMAC, await hmacKey(which)); }
  if (which === "keychain") {
    const { chain, certificate } = await identity();
    return chain.getSigner(certificate.name);
  }
  const algorithm = { ed25519: Ed25519, rsa: RSA }[which];
  if (!algorithm) { throw new Error(`no signer is called ${which}`); }
  const [signer] = await generateSigningKey(new Name(`/interop/${which}`), algorithm);
  return signer;
}

export async function signerOf(which, { forInterest = false } = {}) {
  const signer = await plainSigner(which);
  return forInterest ? policy.makeSigner(signer) : signer;
}

export async function verifierOf(which) {
  if (which === "none") { return undefined; }
  if (which === "digest") {
    // A signature by a key that nobody named here is not looked at.
    return { verify: async (pkt) => pkt.sigInfo?.type === SigType.Sha256 ? digestSigning.verify(pkt) : undefined };
  }
  if (which.startsWith("hmac:")) { return createVerifier(HMAC_KEY_NAME, HMAC, await hmacKey(which)); }
  const data = Decoder.decode(await readFile(which), Data);
  return createVerifier(Certificate.fromData(data), { algoList: SigningAlgorithmListFull });
}
