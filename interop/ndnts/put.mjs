// Serves content of --size pseudo-random octets, or --file, in segments with RDR metadata; prints its SHA-256.
// Prints {"event": "ready"}, then serves until SIGTERM or --timeout.
import { Name } from "@ndn/packet";
import { Metadata, serveMetadata } from "@ndn/rdr";
import { BufferChunkSource, serveVersioned } from "@ndn/segmented-object";
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";

import { signerOf } from "./credentials.mjs";
import { almost, connect, options, registered, run, say, uri } from "./outcome.mjs";

const args = options("put.mjs <name>", { size: 100000, file: "", seed: 1, "segment-size": 4000, freshness: 10000, sign: "digest" }, 60);

/** SHA-256 in counter mode: any content with no pattern that a cache or a bug could hide behind. */
function pseudoRandom(seed, size) {
  const blocks = [];
  for (let i = 0; i * 32 < size; ++i) {
    blocks.push(createHash("sha256").update(`${seed} ${i}`).digest());
  }
  return Buffer.concat(blocks).subarray(0, size);
}

await run(args.timeout, async () => {
  const name = new Name(args.positionals[0]);
  const content = args.file ? await readFile(args.file) : pseudoRandom(args.seed, args.size);
  const signer = await signerOf(args.sign);
  const face = await connect({ register: true });
  const server = serveVersioned(name, new BufferChunkSource(content, { chunkSize: args["segment-size"] }), {
    signer, freshnessPeriod: args.freshness, pOpts: { announcement: name, concurrency: 64 },
  });
  serveMetadata(new Metadata(server.prefix), { prefix: name, signer, freshnessPeriod: 10, pOpts: { announcement: name } });
  await registered(face.fw, name);
  say({
    event: "ready", name: uri(name), bytes: content.length, segments: Math.ceil(content.length / args["segment-size"]),
    sha256: createHash("sha256").update(content).digest("hex"),
  });
  await almost(args.timeout);
  return {};
});
