// Decodes what python-ndn made (OUT_DIR/python-ndn.json) with NDNts and verifies its signatures: do the two agree?
import { createVerifier, ECDSA, Ed25519, HMAC, RSA } from "@ndn/keychain";
import { LpPacket } from "@ndn/lp";
import { AltUri } from "@ndn/naming-convention2";
import { SafeBag } from "@ndn/ndnsec";
import { ControlParameters, ControlResponse, CsInfo, FaceStatus, GeneralStatus, RibEntry, StrategyChoice } from "@ndn/nfdmgmt";
import { Data, digestSigning, Interest, Name } from "@ndn/packet";
import { Decoder } from "@ndn/tlv";
import { readFile } from "node:fs/promises";
import path from "node:path";

const where = process.argv[2];
const read = async (file) => JSON.parse(await readFile(path.join(where, file), "utf8"));
const octets = (text) => new Uint8Array(Buffer.from(text, "hex"));
const keys = await read("keys.json");

async function verifier(key) {
  if (key === "sha256") { return digestSigning; }
  if (key === "hmac") { return createVerifier(HMAC, await HMAC.cryptoGenerate({ importRaw: octets(keys.hmac.secret) }, false)); }
  const algorithm = { ecdsa: ECDSA, rsa: RSA, ed25519: Ed25519 }[key];
  const { private_pkcs8: pkcs8, public_spki: spki } = keys[key];
  return createVerifier(algorithm, await algorithm.cryptoGenerate({ importPkcs8: [octets(pkcs8), octets(spki)] }, false));
}

function all(wire, Type) {
  const decoder = new Decoder(wire);
  const found = [];
  while (!decoder.eof) { found.push(decoder.decode(Type)); }
  return found;
}

const datasets = {
  face_dataset: FaceStatus, rib_dataset: RibEntry, strategy_dataset: StrategyChoice, cs_info: CsInfo,
  forwarder_status: GeneralStatus, control_parameters: ControlParameters, control_response: ControlResponse,
};

async function check({ kind, wire, fields }) {
  const input = octets(wire);
  if (kind === "name") {
    const name = new Decoder(input).decode(Name);
    return fields.uri === undefined || AltUri.ofName(name) === fields.uri ? undefined : AltUri.ofName(name);
  }
  if (["interest", "data", "certificate"].includes(kind)) {
    const packet = Decoder.decode(input, kind === "interest" ? Interest : Data);
    if (AltUri.ofName(packet.name) !== fields.name.uri) { return AltUri.ofName(packet.name); }
    if (kind === "interest" && fields.parameters !== null) { await packet.validateParamsDigest(); }
    const key = fields.signature?.key;
    if (key && key !== "null") { await (await verifier(key)).verify(packet); }
    return undefined;
  }
  if (kind === "lp") { Decoder.decode(input, LpPacket); }
  if (kind === "safe_bag") {
    const pkcs8 = await Decoder.decode(input, SafeBag).decryptKey(fields.passphrase);
    return Buffer.from(pkcs8).toString("hex") === keys[fields.key].private_pkcs8 ? undefined : "another key came out";
  }
  if (datasets[kind]) { all(input, datasets[kind]); }
  return undefined;
}

const wrong = [];
const { vectors } = await read("python-ndn.json");
for (const vector of vectors) {
  const problem = await check(vector).catch((err) => `${err}`);
  if (problem) { wrong.push(`${vector.kind} ${vector.id}: ${problem}`); }
}
process.stdout.write(`${JSON.stringify({ ok: wrong.length === 0, checked: vectors.length, wrong })}\n`);
process.exit(wrong.length === 0 ? 0 : 1);
