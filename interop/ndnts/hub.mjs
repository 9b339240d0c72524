// A stand-in for a forwarder, made of NDNts's own: to try the programs here without Whimbrel, and to tell whose fault it is.
// It has faces, routes, Nacks for what has no route, and enough of NFD management for `manage`; no cache, no strategies.
//   hub.mjs --unix hub.sock --tcp 16363 --ws 19696
import { produce } from "@ndn/endpoint";
import { Forwarder, FwPacket } from "@ndn/fw";
import { L3Face, StreamTransport } from "@ndn/l3face";
import { ControlParameters, ControlResponse, CsInfo, FaceQueryFilter, FaceStatus, GeneralStatus, RibEntry, Route, StrategyChoice } from "@ndn/nfdmgmt";
import { Segment, Version } from "@ndn/naming-convention2";
import { Data, digestSigning, Interest, Nack, Name, NameMap } from "@ndn/packet";
import { Decoder, Encoder, NNI } from "@ndn/tlv";
import { WsTransport } from "@ndn/ws-transport";
import { rm } from "node:fs/promises";
import net from "node:net";
import { WebSocketServer } from "ws";

import { almost, options, run, say } from "./outcome.mjs";

const args = options("hub.mjs", { unix: "", tcp: 0, ws: 0 }, 3600);
const fw = Forwarder.create();
const began = Date.now();
const prefixes = [new Name("/localhost/nfd"), new Name("/localhop/nfd")];

const faces = new Map(); // id -> { fwFace, uri, localUri, scope, persistency }
const idOf = new Map(); // FwFace -> id
let lastId = 255;
const rib = new NameMap(); // -> Map of "face origin" -> route
const strategies = new NameMap();
strategies.set(new Name("/"), new Name("/localhost/nfd/strategy/best-route/v=5".replace("v=5", "54=%05")));
let capacity = 65536;

function addFace(transport, uri, localUri, scope) {
  const fwFace = fw.addFace(new L3Face(transport, { local: scope === 1, advertiseFrom: false }));
  const id = ++lastId;
  faces.set(id, { fwFace, uri, localUri, scope, persistency: 1 });
  idOf.set(fwFace, id);
  return () => {
    fwFace.close();
    removeFace(id);
  };
}

function removeFace(id) {
  idOf.delete(faces.get(id)?.fwFace);
  faces.delete(id);
  for (const [name, routes] of rib) {
    for (const [key, route] of routes) {
      if (route.faceId === id) { routes.delete(key); }
    }
    if (routes.size === 0) { rib.delete(name); }
  }
}

async function listen() {
  if (args.unix) {
    await rm(args.unix, { force: true });
    net.createServer((socket) => socket.once("close", addFace(new StreamTransport(socket), "fd://0", `unix://${args.unix}`, 1)))
      .listen(args.unix);
  }
  if (args.tcp) {
    net.createServer((socket) => socket.once("close", addFace(
      new StreamTransport(socket), `tcp4://127.0.0.1:${socket.remotePort}`, `tcp4://127.0.0.1:${args.tcp}`, 1)))
      .listen(args.tcp, "127.0.0.1");
  }
  if (args.ws) {
    new WebSocketServer({ port: args.ws, host: "127.0.0.1" }).on("connection", async (socket) => {
      socket.once("close", addFace(await WsTransport.connect(socket), "ws://127.0.0.1", `ws://127.0.0.1:${args.ws}`, 1));
    });
  }
}

/** What asked, and from where: a producer of NDNts is not told the face. */
const cameFrom = new Map();
fw.addEventListener("pktrx", ({ face, packet: { l3, token } }) => {
  if (!(l3 instanceof Interest) || !idOf.has(face)) { return; }
  if (prefixes.some((prefix) => prefix.isPrefixOf(l3.name))) {
    cameFrom.set(l3.name.valueHex, idOf.get(face));
    return;
  }
  const wanted = l3.fwHint?.delegations[0] ?? l3.name;
  let routed = false;
  for (const [prefix, routes] of rib) {
    routed ||= prefix.isPrefixOf(wanted) && [...routes.values()].some(({ faceId }) => faceId !== idOf.get(face));
  }
  if (!routed) { face.send(FwPacket.create(new Nack(l3, 150), token)); }
});

const commands = {
  "faces/create": ({ uri }) => {
    for (const [faceId, face] of faces) {
      if (face.uri === uri) { return [409, { faceId, uri, localUri: face.localUri, facePersistency: face.persistency }]; }
    }
    if (!/^(udp|tcp)4:\/\/[0-9.]+:[0-9]+$/.test(uri ?? "")) { return [400]; }
    const fwFace = fw.addFace({ rx: (async function*() { await new Promise(() => {}); })(), tx: async (packets) => { for await (const packet of packets) { void packet; } } });
    faces.set(++lastId, { fwFace, uri, localUri: "udp4://127.0.0.1:6363", scope: 0, persistency: 0 });
    idOf.set(fwFace, lastId);
    return [200, { faceId: lastId, uri, localUri: "udp4://127.0.0.1:6363", flags: 0, facePersistency: 0 }];
  },
  "faces/update": ({ faceId, flags }, from) => faces.has(faceId ?? from) ? [200, { faceId: faceId ?? from, flags, facePersistency: 0 }] : [404],
  "faces/destroy": ({ faceId }) => {
    faces.get(faceId)?.fwFace.close();
    removeFace(faceId);
    return [200, { faceId }];
  },
  "rib/register": ({ name, faceId, origin = 0, cost = 0, flags = 1, expirationPeriod }, from) => {
    if (!name) { return [400]; }
    faceId ||= from;
    if (!faces.has(faceId)) { return [410]; }
    const { fwFace } = faces.get(faceId);
    if (!fwFace.hasRoute(name)) { fwFace.addRoute(name); }
    if (!rib.get(name)) { rib.set(name, new Map()); }
    rib.get(name).set(`${faceId} ${origin}`, { faceId, origin, cost, flags, expirationPeriod });
    return [200, { name, faceId, origin, cost, flags, expirationPeriod }];
  },
  "rib/unregister": ({ name, faceId, origin = 0 }, from) => {
    if (!name) { return [400]; }
    faceId ||= from;
    if (rib.get(name)?.delete(`${faceId} ${origin}`)) { faces.get(faceId)?.fwFace.removeRoute(name); }
    if (rib.get(name)?.size === 0) { rib.delete(name); }
    return [200, { name, faceId, origin }];
  },
  "strategy-choice/set": ({ name, strategy }) => {
    if (!/best-route|multicast/.test(`${strategy}`)) { return [404]; }
    strategies.set(name, strategy);
    return [200, { name, strategy }];
  },
  "strategy-choice/unset": ({ name }) => {
    strategies.delete(name);
    return [200, { name }];
  },
  "cs/config": (given) => {
    capacity = given.capacity ?? capacity;
    return [200, { capacity, flags: 3 }];
  },
};

const fill = (Type, values) => Object.assign(new Type(), values);

function faceStatus([faceId, { uri, localUri, scope, persistency }]) {
  const none = Object.fromEntries(["InInterests", "InData", "InNacks", "OutInterests", "OutData", "OutNacks", "InBytes", "OutBytes"].map((n) => [`n${n}`, 0n]));
  return fill(FaceStatus, { faceId, uri, localUri, faceScope: scope === 1 ? 1 : 0, facePersistency: persistency, linkType: 0, ...none, flags: 0 });
}

const datasets = {
  "status/general": () => [fill(GeneralStatus, {
    nfdVersion: "hub", startTimestamp: began, currentTimestamp: Date.now(), ...Object.fromEntries(
      ["NameTreeEntries", "FibEntries", "PitEntries", "MeasurementsEntries", "CsEntries", "InInterests", "InData", "InNacks", "OutInterests", "OutData", "OutNacks", "SatisfiedInterests", "UnsatisfiedInterests"].map((n) => [`n${n}`, 0])),
  })],
  "faces/list": () => [...faces].map(faceStatus),
  "faces/query": (parameter) => {
    const filter = new Decoder(parameter.value).decode(FaceQueryFilter);
    return [...faces].map(faceStatus).filter((face) => ["faceId", "uri", "localUri"].every((field) => [undefined, face[field]].includes(filter[field])));
  },
  "rib/list": () => [...rib].map(([name, routes]) => fill(RibEntry, { name, route: [...routes.values()].map((route) => fill(Route, route)) })),
  "fib/list": () => [...rib].map(([name, routes]) => [0x80, name, ...[...routes.values()].map(({ faceId, cost }) => [0x81, [0x69, NNI(faceId)], [0x6A, NNI(cost)]])]),
  "cs/info": () => [fill(CsInfo, { capacity: BigInt(capacity), flags: 3, nCsEntries: 0n, nHits: 0n, nMisses: 0n })],
  "strategy-choice/list": () => [...strategies].map(([name, strategy]) => fill(StrategyChoice, { name, strategy })),
};

/** Datasets made of late: who asked for the newest version then asks for its segments by name, the first included. */
const published = new Map();

async function manage(interest) {
  const { name } = interest;
  if (name.at(-1).is(Segment)) { return published.get(name.valueHex); }
  const from = cameFrom.get(name.valueHex);
  cameFrom.delete(name.valueHex);
  const verb = `${name.at(2).text}/${name.at(3).text}`;
  if (datasets[verb]) {
    const content = Encoder.encode(datasets[verb](name.get(4)));
    // One segment will do here; a forwarder cuts it when it grows.
    const data = new Data(name.append(Version, Date.now()).append(Segment, 0), Data.FinalBlock, Data.FreshnessPeriod(1), content);
    published.set(data.name.valueHex, data);
    setTimeout(() => published.delete(data.name.valueHex), 10000);
    return data;
  }
  if (!commands[verb]) { return undefined; }
  let status = 400;
  let body;
  try {
    const parameters = new Decoder(name.at(4).value).decode(ControlParameters);
    [status, body] = commands[verb](parameters, from);
  } catch (err) {
    process.stderr.write(`${verb}: ${err.message}\n`);
  }
  return new Data(name, Data.FreshnessPeriod(1), Encoder.encode(new ControlResponse(status, status === 200 ? "OK" : "refused", new ControlParameters(body))));
}

await run(args.timeout, async () => {
  await listen();
  for (const prefix of prefixes) { produce(prefix, manage, { fw, dataSigner: digestSigning, concurrency: 64 }); }
  say({ event: "ready" });
  await almost(args.timeout);
  return {};
});
