// Fetches segmented content with NDNts's fetcher, finding its version by RDR metadata; prints its SHA-256.
import { Name } from "@ndn/packet";
import { retrieveMetadata } from "@ndn/rdr";
import { discoverVersion, fetch } from "@ndn/segmented-object";
import { createHash } from "node:crypto";
import { writeFile } from "node:fs/promises";

import { verifierOf } from "./credentials.mjs";
import { connect, Failed, options, run, uri } from "./outcome.mjs";

const args = options("get.mjs <name>", { discover: "metadata", retries: 5, sha256: "", output: "", verify: "digest" }, 30);

await run(args.timeout, async () => {
  await connect();
  const verifier = await verifierOf(args.verify);
  const base = new Name(args.positionals[0]);
  const cOpts = { retx: args.retries, verifier };
  let name = base;
  switch (args.discover) {
    case "metadata": { ({ name } = await retrieveMetadata(base, cOpts)); break; }
    case "prefix": { name = await discoverVersion(base, { cOpts }); break; }
    case "none": { break; }
    default: { throw new Failed("--discover is metadata, prefix or none"); }
  }
  const fetched = fetch(name, { verifier, retxLimit: args.retries });
  const content = await fetched;
  if (args.output) { await writeFile(args.output, content); }
  const fields = {
    name: uri(name), bytes: content.length, segments: fetched.count,
    sha256: createHash("sha256").update(content).digest("hex"),
  };
  if (args.sha256 && fields.sha256 !== args.sha256) {
    throw new Failed("the content differs", fields);
  }
  return fields;
});
