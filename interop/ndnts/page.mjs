// What runs in the browser; browser.mjs bundles it and calls it.
import { enableNfdPrefixReg } from "@ndn/nfdmgmt";
import { AltUri } from "@ndn/naming-convention2";
import { digestSigning, Name } from "@ndn/packet";
import { Metadata, retrieveMetadata, serveMetadata } from "@ndn/rdr";
import { BufferChunkSource, fetch, serveVersioned } from "@ndn/segmented-object";
import { WsTransport } from "@ndn/ws-transport";

const sha256 = async (content) => [...new Uint8Array(await crypto.subtle.digest("SHA-256", content))]
  .map((octet) => octet.toString(16).padStart(2, "0")).join("");

let face;

async function connect(uri, local) {
  face = await WsTransport.createFace({}, uri);
  face.attributes.local = local;
  enableNfdPrefixReg(face);
}

async function serve(uri, size) {
  const name = new Name(uri);
  const content = new Uint8Array(size);
  for (let at = 0; at < size; at += 65536) {
    crypto.getRandomValues(content.subarray(at, at + 65536));
  }
  const registered = new Promise((resolve) => {
    face.fw.addEventListener("pktrx", ({ face: from, packet: { l3 } }) => {
      if (from === face && /^\/local(host|hop)\/nfd\/rib\/register\//.test(AltUri.ofName(l3.name))) { resolve(); }
    });
  });
  const server = serveVersioned(name, new BufferChunkSource(content, { chunkSize: 4000 }), {
    freshnessPeriod: 10000, pOpts: { announcement: name, concurrency: 64 },
  });
  serveMetadata(new Metadata(server.prefix), { prefix: name, freshnessPeriod: 10, pOpts: { announcement: name } });
  await registered;
  return { bytes: size, sha256: await sha256(content) };
}

async function get(uri) {
  const { name } = await retrieveMetadata(new Name(uri), { retx: 3, verifier: digestSigning });
  const fetched = fetch(name, { retxLimit: 5 });
  const content = await fetched;
  return { name: AltUri.ofName(name), bytes: content.length, segments: fetched.count, sha256: await sha256(content) };
}

globalThis.ndn = { connect, serve, get };
