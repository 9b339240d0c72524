// Expresses Interests and says what came back: Data, a Nack, or nothing.
import { consume } from "@ndn/endpoint";
import { AltUri } from "@ndn/naming-convention2";
import { Data, FwHint, Interest, Nack, Name } from "@ndn/packet";
import { createHash } from "node:crypto";

import { signerOf, verifierOf } from "./credentials.mjs";
import { connect, Failed, options, run, uri } from "./outcome.mjs";

const args = options("consumer.mjs <name>", {
  expect: "data", content: "", count: 1, "at-once": false, "can-be-prefix": false, "must-be-fresh": false,
  lifetime: 2000, "hop-limit": 0, nonce: 0, "forwarding-hint": [], parameters: "", sign: "", verify: "digest",
});

/** NDNts gives a Nack to nobody who consumes: it is seen at the face. */
function nackOf(face, interest, signal) {
  return new Promise((resolve) => {
    face.fw.addEventListener("pktrx", ({ face: from, packet: { l3 } }) => {
      if (from === face && l3 instanceof Nack && l3.interest.name.equals(interest.name)) {
        resolve(l3);
      }
    }, { signal });
  });
}

async function expressOne(face, name) {
  const interest = new Interest(name, Interest.Lifetime(args.lifetime));
  interest.canBePrefix = args["can-be-prefix"];
  interest.mustBeFresh = args["must-be-fresh"];
  if (args["hop-limit"] > 0) { interest.hopLimit = args["hop-limit"]; }
  if (args.nonce > 0) { interest.nonce = args.nonce; }
  if (args["forwarding-hint"].length > 0) { interest.fwHint = new FwHint(args["forwarding-hint"]); }
  if (args.parameters) {
    interest.appParameters = new TextEncoder().encode(args.parameters);
    if (args.sign) {
      await (await signerOf(args.sign, { forInterest: true })).sign(interest);
    } else {
      await interest.updateParamsDigest();
    }
  }
  const done = new AbortController();
  const consumed = consume(interest, { signal: done.signal, verifier: await verifierOf(args.verify) }).catch((err) => err);
  const answer = await Promise.race([consumed, nackOf(face, interest, done.signal)]);
  done.abort();
  if (answer instanceof Nack) {
    return { result: "nack", nack_reason: answer.reason };
  }
  if (!(answer instanceof Data)) {
    if (!answer.message.startsWith("Interest rejected: expire")) { throw answer; }
    return { result: "timeout" };
  }
  return {
    result: "data",
    name: uri(answer.name),
    content: new TextDecoder().decode(answer.content).slice(0, 200),
    content_bytes: answer.content.length,
    content_sha256: createHash("sha256").update(answer.content).digest("hex"),
    freshness_ms: answer.freshnessPeriod,
    final_block: answer.finalBlockId ? AltUri.ofComponent(answer.finalBlockId) : null,
    signature_type: answer.sigInfo.type,
  };
}

await run(args.timeout, async () => {
  const face = await connect();
  const base = new Name(args.positionals[0]);
  const names = args.count === 1 ? [base] : Array.from({ length: args.count }, (_, i) => base.append(`${i}`));
  const answers = [];
  if (args["at-once"]) {
    answers.push(...await Promise.all(names.map((name) => expressOne(face, name))));
  } else {
    for (const name of names) { answers.push(await expressOne(face, name)); }
  }
  const counts = Object.fromEntries(["data", "nack", "timeout"].map((kind) =>
    [kind, answers.filter(({ result }) => result === kind).length]));
  const fields = { ...answers.at(-1), counts };
  if (counts[args.expect] !== names.length) {
    throw new Failed(`expected ${args.expect}`, fields);
  }
  if (args.content && answers.some(({ content }) => content !== args.content)) {
    throw new Failed("the content differs", fields);
  }
  return fields;
});
