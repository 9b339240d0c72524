// Registers a prefix and answers Interests until --answers are answered, or SIGTERM, or --timeout.
// Prints {"event": "ready"} once the forwarder has accepted the registration.
import { produce } from "@ndn/endpoint";
import { FwPacket } from "@ndn/fw";
import { Data, Interest, Nack, Name } from "@ndn/packet";

import { identity, signerOf } from "./credentials.mjs";
import { almost, connect, Failed, options, registered, run, say, sleep, uri } from "./outcome.mjs";

const args = options("producer.mjs <prefix>", {
  register: "", content: "hello", suffix: "", size: -1, freshness: 10000, delay: 0, nack: 0, silent: false, answers: 0,
  sign: "digest", "command-sign": "digest",
}, 60);

let count = 0;
let enough;
const isEnough = new Promise((resolve) => { enough = resolve; });

function counted() {
  ++count;
  if (args.answers > 0 && count >= args.answers) {
    // What was just written must still leave the socket.
    setTimeout(enough, 200);
  }
}

function dataFor(interest) {
  const text = args.content.replace("{name}", `${interest.name}`)
    .replace("{parameters}", new TextDecoder().decode(interest.appParameters ?? new Uint8Array()));
  const name = args.suffix ? interest.name.append(...new Name(args.suffix).comps) : interest.name;
  const content = args.size >= 0 ? new Uint8Array(args.size) : new TextEncoder().encode(text);
  return new Data(name, Data.FreshnessPeriod(args.freshness), content);
}

await run(args.timeout, async () => {
  const prefix = new Name(args.positionals[0]);
  const announced = new Name(args.register || prefix);
  const registration = {};
  if (args["command-sign"] === "keychain") {
    const { chain, certificate } = await identity();
    // NDNts also serves the certificate while a command is under way.
    Object.assign(registration, {
      signer: await signerOf("keychain"), preloadCertName: certificate.name, preloadFromKeyChain: chain,
      // It also asks the network for who issued a self-signed certificate.
      preloadInterestLifetime: 200,
    });
  }
  const face = await connect({ register: true, ...registration });
  if (args.register) {
    // NDNts forwards by the hint inside the program too, unless that is one of its own names.
    face.fw.nodeNames.push(announced);
  }
  const dataSigner = await signerOf(args.sign);
  produce(prefix, async (interest) => {
    await sleep(args.delay);
    counted();
    return args.silent || args.nack > 0 ? undefined : dataFor(interest);
  }, { announcement: announced, dataSigner, concurrency: 64 });
  if (args.nack > 0) {
    // A producer of NDNts cannot say no; its face can.
    face.fw.addEventListener("pktrx", ({ face: from, packet: { l3, token } }) => {
      if (from === face && l3 instanceof Interest && prefix.isPrefixOf(l3.name)) {
        face.send(FwPacket.create(new Nack(l3, args.nack), token));
      }
    });
  }
  await registered(face.fw, announced);
  say({ event: "ready", prefix: uri(prefix) });
  await Promise.race([isEnough, almost(args.timeout)]);
  if (args.answers > 0 && count < args.answers) {
    throw new Failed("too few Interests came", { answered: count });
  }
  return { answered: count };
});
