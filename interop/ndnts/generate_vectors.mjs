// Writes packets made by NDNts, with what is in them, as test data for crates/ndn-packet: see the README there.
//   target/interop/node interop/ndnts/generate_vectors.mjs OUT_DIR
// OUT_DIR/keys.json, which interop/python/generate_vectors.py makes, holds the keys.
import { Certificate, createSigner, ECDSA, Ed25519, generateSigningKey, HMAC, RSA } from "@ndn/keychain";
import { Fragmenter, LpPacket } from "@ndn/lp";
import { AltUri } from "@ndn/naming-convention2";
import { SafeBag } from "@ndn/ndnsec";
import {
  ControlParameters, ControlResponse, CsInfo, FaceQueryFilter, FaceStatus, GeneralStatus, PrefixAnn, RibEntry, Route,
  StrategyChoice,
} from "@ndn/nfdmgmt";
import {
  Component, Data, digestSigning, FwHint, Interest, KeyLocator, LLVerify, NackHeader, Name, nullSigner, SigInfo, SigType,
  ValidityPeriod,
} from "@ndn/packet";
import { Decoder, Encoder } from "@ndn/tlv";
import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";

const where = process.argv[2];
const keys = JSON.parse(await readFile(path.join(where, "keys.json"), "utf8"));
const hex = (octets) => octets === undefined ? null : Buffer.from(octets).toString("hex");
const octets = (text) => new Uint8Array(Buffer.from(text, "hex"));

const vectors = [];
function add(kind, id, wire, fields) {
  vectors.push({ kind, id, wire: hex(wire), fields });
}

function nameFields(name) {
  return { uri: AltUri.ofName(name), typed_uri: `${name}`, components: name.comps.map((c) => [c.type, hex(c.value)]) };
}

async function signatureFields(packet, key) {
  const { sigInfo } = packet;
  if (!sigInfo) { return null; }
  let signed;
  await packet[LLVerify.OP](async (input) => { signed = input; });
  const locator = sigInfo.keyLocator;
  return {
    type: sigInfo.type, key,
    key_locator: locator?.name ? { name: AltUri.ofName(locator.name) } : locator?.digest ? { digest: hex(locator.digest) } : null,
    time: sigInfo.time ?? null, nonce: hex(sigInfo.nonce), sequence: sigInfo.seqNum === undefined ? null : Number(sigInfo.seqNum),
    signed: hex(signed), value: hex(packet.sigValue),
  };
}

async function addInterest(id, made, key = null) {
  const wire = Encoder.encode(made);
  const interest = Decoder.decode(wire, Interest);
  // NDNts reads an absent lifetime as 4000 and an absent hop limit as 255; null here is absence.
  const has = new Set(elements(wire));
  add("interest", id, wire, {
    name: nameFields(interest.name), can_be_prefix: interest.canBePrefix, must_be_fresh: interest.mustBeFresh,
    forwarding_hint: (interest.fwHint?.delegations ?? []).map((name) => AltUri.ofName(name)),
    nonce: interest.nonce ?? null, lifetime_ms: has.has(0x0C) ? interest.lifetime : null,
    hop_limit: has.has(0x22) ? interest.hopLimit : null, parameters: hex(interest.appParameters),
    signature: await signatureFields(interest, key),
  });
}

function elements(wire) {
  const outer = new Decoder(wire).read();
  const types = [];
  for (const inner = outer.vd; !inner.eof;) { types.push(inner.read().type); }
  return types;
}

async function addData(id, made, key, kind = "data", more = {}) {
  const wire = Encoder.encode(made);
  const data = Decoder.decode(wire, Data);
  const has = new Set(elements(wire));
  add(kind, id, wire, {
    name: nameFields(data.name), content_type: data.contentType,
    // NDNts writes no FreshnessPeriod of 0, so 0 is absence.
    freshness_ms: data.freshnessPeriod || null,
    final_block: data.finalBlockId ? hex(data.finalBlockId.tlv) : null, content: has.has(0x15) ? hex(data.content) : null,
    implicit_sha256: createHash("sha256").update(wire).digest("hex"), signature: await signatureFields(data, key), ...more,
  });
  return wire;
}

async function privateKey(name, algorithm) {
  const key = keys[name];
  return generateSigningKey(new Name(key.name), algorithm, { importPkcs8: [octets(key.private_pkcs8), octets(key.public_spki)] });
}

const [ecdsa, ecdsaPublic] = await privateKey("ecdsa", ECDSA);
const [rsa, rsaPublic] = await privateKey("rsa", RSA);
const [ed25519, ed25519Public] = await privateKey("ed25519", Ed25519);
const hmacKey = await HMAC.cryptoGenerate({ importRaw: octets(keys.hmac.secret) }, false);
const hmac = createSigner(new Name(keys.hmac.name), HMAC, hmacKey);
const signers = { sha256: digestSigning, ecdsa, rsa, ed25519, hmac };

function names() {
  const uris = [
    "/", "/a", "/hello/world", "/8=%00%01%FF", "/-._~/AZaz09", "/32=metadata", "/65535=x", "/252=a/253=b/255=c/256=d",
    "/...", "/....", "/.....", "/f/seg=0", "/f/seg=255", "/f/seg=256", "/f/seg=65536", "/f/seg=4294967296", "/f/off=4000", "/f/v=1",
    "/f/v=1795299291818", "/f/t=1795299291818000", "/f/seq=77",
    `/1=${"%01".repeat(32)}`, `/a/2=${"%FE".repeat(32)}`, `/${"x".repeat(252)}`, `/${"y".repeat(253)}`,
  ];
  for (const uri of uris) {
    const name = AltUri.parseName(uri);
    add("name", uri.length < 80 ? uri : `${uri.slice(0, 20)}...${uri.length}`, Encoder.encode(name), nameFields(name));
  }
}

async function interests() {
  const switches = [
    ["can_be_prefix", (i) => { i.canBePrefix = true; }], ["must_be_fresh", (i) => { i.mustBeFresh = true; }],
    ["lifetime", (i) => { i.lifetime = 1000; }], ["hop_limit", (i) => { i.hopLimit = 32; }],
    ["forwarding_hint", (i) => { i.fwHint = new FwHint(["/hint/a", "/hint/b"]); }],
  ];
  for (let bits = 0; bits < 1 << switches.length; ++bits) {
    const interest = new Interest("/interest/of/some", Interest.Nonce(0x01020304));
    const chosen = switches.filter((_, i) => (bits >> i) & 1);
    for (const [, apply] of chosen) { apply(interest); }
    await addInterest(chosen.map(([field]) => field).join("+") || "bare", interest);
  }
  for (const lifetime of [0, 1, 255, 256, 65535, 65536]) {
    await addInterest(`lifetime ${lifetime}`, new Interest("/i", Interest.Nonce(0), Interest.Lifetime(lifetime)));
  }
  for (const size of [0, 1, 252, 253, 1000]) {
    const interest = new Interest("/with/parameters", Interest.Nonce(7), new Uint8Array(size).fill(0xA5));
    await interest.updateParamsDigest();
    await addInterest(`${size} octets of parameters`, interest);
  }
  const stamps = {
    time: SigInfo.Time(1795299291818), nonce: SigInfo.Nonce(octets("0102030405060708")), sequence: SigInfo.SeqNum(42n),
  };
  for (const [key, signer] of Object.entries(signers)) {
    for (const chosen of [[], ["time"], ["time", "nonce"], ["sequence"], ["time", "nonce", "sequence"]]) {
      const interest = new Interest("/signed/interest", Interest.Nonce(7), new TextEncoder().encode("parameters"));
      interest.sigInfo = new SigInfo(SigType.Null, ...chosen.map((field) => stamps[field]));
      await signer.sign(interest);
      await addInterest(`signed ${key} ${chosen.join("+") || "bare"}`, interest, key);
    }
  }
  const command = new Interest(new Name("/localhost/nfd/rib/register").append(
    new Component(8, Encoder.encode(new ControlParameters({ name: new Name("/my/prefix"), origin: 65, cost: 0, flags: 2, expirationPeriod: 1200000 })))), Interest.Nonce(7));
  command.sigInfo = new SigInfo(SigType.Null, stamps.time, stamps.nonce);
  await digestSigning.sign(command);
  await addInterest("command as NDNts registers", command, "sha256");
}

async function datas() {
  for (const [id, content] of Object.entries({ none: undefined, some: new TextEncoder().encode("content"), 253: new Uint8Array(253), 8000: new Uint8Array(8000).map((_, i) => i % 251) })) {
    const data = content ? new Data("/data/x", content) : new Data("/data/x");
    await digestSigning.sign(data);
    await addData(`content ${id}`, data, "sha256");
  }
  const metas = {
    freshness: [Data.FreshnessPeriod(10000)], final: [Data.FinalBlock], link: [Data.ContentType(1)], nack: [Data.ContentType(3)],
    "type 1024": [Data.ContentType(1024)], all: [Data.ContentType(2), Data.FreshnessPeriod(4294967296), Data.FinalBlock],
  };
  for (const [id, args] of Object.entries(metas)) {
    const data = new Data(AltUri.parseName("/data/x/v=1/seg=300"), ...args, new TextEncoder().encode("content"));
    await digestSigning.sign(data);
    await addData(`meta ${id}`, data, "sha256");
  }
  for (const [key, signer] of [...Object.entries(signers), ["null", nullSigner]]) {
    for (const uri of ["/", "/data/signed", "/data/signed/v=3/seg=9"]) {
      const data = new Data(AltUri.parseName(uri), Data.FreshnessPeriod(1000), new TextEncoder().encode("signed content"));
      await signer.sign(data);
      await addData(`signed ${key} ${uri}`, data, key);
    }
  }
  const data = new Data("/data/by/digest");
  await ecdsa.withKeyLocator(new KeyLocator(createHash("sha256").update(octets(keys.ecdsa.public_spki)).digest())).sign(data);
  await addData("key locator is a digest", data, "ecdsa");
}

async function certificates() {
  const validity = new ValidityPeriod(Date.UTC(2026, 0, 2, 3, 4, 5), Date.UTC(2046, 10, 21, 23, 59, 59));
  const pairs = { ecdsa: [ecdsa, ecdsaPublic], rsa: [rsa, rsaPublic], ed25519: [ed25519, ed25519Public] };
  const more = { not_before: "20260102T030405", not_after: "20461121T235959" };
  for (const [key, [privateKeyOf, publicKey]] of Object.entries(pairs)) {
    const own = await Certificate.selfSign({ validity, privateKey: privateKeyOf, publicKey });
    await addData(`self-signed ${key}`, own.data, key, "certificate", { subject_key: key, ...more });
    const issued = await Certificate.issue({ validity, issuerId: Component.from("issuer"), issuerPrivateKey: ecdsa, publicKey });
    await addData(`${key} issued by ecdsa`, issued.data, "ecdsa", "certificate", { subject_key: key, ...more });
    const passphrase = "correct horse";
    const bag = await SafeBag.create(own, octets(keys[key].private_pkcs8), passphrase);
    add("safe_bag", key, Encoder.encode(bag), { key, passphrase, encryption: "PBES2 aes-256-cbc", certificate: hex(Encoder.encode(own.data)) });
  }
}

async function lpPackets() {
  const interest = Encoder.encode(new Interest("/lp/interest", Interest.Nonce(7)));
  const big = new Data("/lp/data", new Uint8Array(3000).map((_, i) => i % 251));
  await digestSigning.sign(big);
  const data = Encoder.encode(big);
  const addLp = (id, packet, whole) => add("lp", id, Encoder.encode(packet), {
    ...(packet.fragSeqNum === undefined ? {} : { sequence: `${packet.fragSeqNum}`, frag_index: packet.fragIndex, frag_count: packet.fragCount }),
    ...(packet.pitToken ? { pit_token: hex(packet.pitToken) } : {}),
    ...(packet.nack ? { nack: true, nack_reason: packet.nack.reason || null } : {}),
    ...(packet.congestionMark ? { congestion_mark: packet.congestionMark } : {}),
    fragment: hex(packet.payload), ...(whole ? { reassembled: hex(whole) } : {}),
  });
  const make = (fields) => Object.assign(new LpPacket(), { payload: interest }, fields);
  addLp("idle", make({ payload: undefined }));
  addLp("token of 6", make({ pitToken: octets("010203040506") }));
  for (const reason of [0, 50, 100, 150]) { addLp(`nack ${reason}`, make({ nack: new NackHeader(reason) })); }
  addLp("nack with token", make({ nack: new NackHeader(150), pitToken: octets("0102") }));
  addLp("congestion", make({ payload: data, congestionMark: 1 }));
  const full = make({ payload: data, pitToken: octets("aabb"), congestionMark: 2 });
  for (const mtu of [1500, 600]) {
    const fragments = new Fragmenter().fragment(full, mtu);
    for (const [i, fragment] of fragments.entries()) { addLp(`fragment ${i} of ${fragments.length}`, fragment, data); }
  }
  const announcement = await PrefixAnn.build({ announced: "/announced", version: 1, expirationPeriod: 3600000, signer: ecdsa, validityPeriod: new ValidityPeriod(Date.UTC(2026, 0, 1), Date.UTC(2046, 0, 1)) });
  await addData("with validity", announcement.data, "ecdsa", "prefix_announcement", { announced: "/announced", expiration_ms: 3600000 });
}

function management() {
  const name = new Name("/my/prefix");
  const strategy = AltUri.parseName("/localhost/nfd/strategy/asf/v=5");
  const parameters = {
    register: [{ name }, { name: "/my/prefix" }],
    "register as a producer does": [{ name, origin: 65, cost: 0, flags: 2, expirationPeriod: 1200000 },
      { name: "/my/prefix", origin: 65, cost: 0, flags: 2, expiration_period: 1200000 }],
    face: [{ uri: "udp4://192.0.2.1:6363", facePersistency: 1, mtu: 1500, flags: 3, mask: 7 },
      { uri: "udp4://192.0.2.1:6363", face_persistency: 1, mtu: 1500, flags: 3, mask: 7 }],
    strategy: [{ name, strategy }, { name: "/my/prefix", strategy: "/localhost/nfd/strategy/asf/v=5" }],
    // NDNts writes the last three fields after all others, which forwarders do not.
    "order of its own": [
      { name, faceId: 262, uri: "udp4://192.0.2.1:6363", localUri: "udp4://192.0.2.2:6363", origin: 255, cost: 10, capacity: 65536, count: 100, flags: 3, mask: 7, strategy, expirationPeriod: 3600000, facePersistency: 2, baseCongestionMarkingInterval: 100000000, defaultCongestionThreshold: 65536, mtu: 1500 },
      { name: "/my/prefix", face_id: 262, uri: "udp4://192.0.2.1:6363", local_uri: "udp4://192.0.2.2:6363", origin: 255, cost: 10, capacity: 65536, count: 100, flags: 3, mask: 7, strategy: "/localhost/nfd/strategy/asf/v=5", expiration_period: 3600000, face_persistency: 2, base_congestion_mark_interval: 100000000, default_congestion_threshold: 65536, mtu: 1500 }],
  };
  for (const [id, [made, fields]] of Object.entries(parameters)) {
    add("control_parameters", id, Encoder.encode(new ControlParameters(made)), fields);
  }
  const body = new ControlParameters({ name, faceId: 262, origin: 0, cost: 10, flags: 1 });
  add("control_response", "ok", Encoder.encode(new ControlResponse(200, "OK", body)),
    { status_code: 200, status_text: "OK", body: { name: "/my/prefix", face_id: 262, origin: 0, cost: 10, flags: 1 } });
  add("control_response", "no body", Encoder.encode(new ControlResponse(404, "not found")), { status_code: 404, status_text: "not found", body: null });

  const fill = (Type, values) => Object.assign(new Type(), values);
  const general = ["start_timestamp", "current_timestamp", "n_name_tree_entries", "n_fib_entries", "n_pit_entries", "n_measurement_entries", "n_cs_entries", "n_in_interests", "n_in_data", "n_in_nacks", "n_out_interests", "n_out_data", "n_out_nacks", "n_satisfied_interests", "n_unsatisfied_interests"];
  const camel = (field) => field.replace("n_measurement_entries", "n_measurements_entries").replaceAll(/_([a-z])/g, (_, letter) => letter.toUpperCase());
  const counters = Object.fromEntries(general.map((field, i) => [field, 1000 + i]));
  add("forwarder_status", "counters in sequence", Encoder.encode(fill(GeneralStatus, { nfdVersion: "24.07", ...Object.fromEntries(general.map((field) => [camel(field), counters[field]])) })), { nfd_version: "24.07", ...counters });

  const face = { face_id: 300, uri: "udp4://192.0.2.1:6363", local_uri: "udp4://192.0.2.2:6363", face_scope: 0, face_persistency: 1, link_type: 0, mtu: 1500, n_in_interests: 1, n_in_data: 256, n_in_nacks: 0, n_out_interests: 65536, n_out_data: 4294967296, n_out_nacks: 3, n_in_bytes: 1, n_out_bytes: 2, flags: 7 };
  const big = (field, value) => field.startsWith("n_") ? BigInt(value) : value;
  const asFace = fill(FaceStatus, Object.fromEntries(Object.entries(face).map(([field, value]) => [camel(field), big(field, value)])));
  add("face_dataset", "one face", Encoder.encode(asFace), { faces: [face] });
  add("face_query_filter", "by scheme", Encoder.encode(fill(FaceQueryFilter, { uriScheme: "udp4", facePersistency: 1 })), { uri_scheme: "udp4", face_persistency: 1 });

  const routes = [{ face_id: 262, origin: 0, cost: 0, flags: 1 }, { face_id: 300, origin: 255, cost: 10, flags: 2, expiration_period: 3600000 }];
  const rib = fill(RibEntry, { name, route: routes.map((route) => fill(Route, Object.fromEntries(Object.entries(route).map(([field, value]) => [camel(field), value])))) });
  add("rib_dataset", "one name, two routes", Encoder.encode(rib), { entries: [{ name: "/my/prefix", routes }] });
  add("strategy_dataset", "one choice", Encoder.encode(fill(StrategyChoice, { name, strategy })), { entries: [{ name: "/my/prefix", strategy: "/localhost/nfd/strategy/asf/v=5" }] });
  const cache = { capacity: 65536, flags: 3, n_cs_entries: 100, n_hits: 7, n_misses: 300 };
  add("cs_info", "some", Encoder.encode(fill(CsInfo, { capacity: 65536n, flags: 3, nCsEntries: 100n, nHits: 7n, nMisses: 300n })), cache);
}

names();
await interests();
await datas();
await certificates();
await lpPackets();
management();
const { version } = JSON.parse(await readFile(new URL("node_modules/@ndn/packet/package.json", import.meta.url), "utf8"));
const out = path.join(where, "ndnts.json");
await writeFile(out, `{"library": "NDNts", "version": "${version}", "vectors": [\n${vectors.map((v) => JSON.stringify(v)).join(",\n")}\n]}\n`);
process.stdout.write(`${JSON.stringify({ ok: true, vectors: vectors.length, file: out })}\n`);
