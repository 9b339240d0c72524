// Takes part in State Vector Sync (NDNts's: version 2), says when it has heard of --peers with --publish items each, and
// stays until it is ended.
// All participants register the group's prefix; the forwarder must send its Interests to all of them, so its strategy is
// set to multicast first. Start the participants at about the same time.
import { invoke } from "@ndn/nfdmgmt";
import { Name } from "@ndn/packet";
import { SvSync } from "@ndn/svs";

import { almost, connect, options, registered, run, say, sleep, uri } from "./outcome.mjs";

const args = options("svs.mjs <group> <node>", { peers: 1, publish: 3 }, 20);

await run(args.timeout, async () => {
  const [group, node] = args.positionals.map((text) => new Name(text));
  const face = await connect({ register: true });
  const chosen = await invoke("strategy-choice/set", { name: group, strategy: new Name("/localhost/nfd/strategy/multicast") });
  const sync = await SvSync.create({ syncPrefix: group, periodicTimeout: [1000, 0.1] });
  const heard = {};
  sync.addEventListener("update", ({ id, hiSeqNum }) => { heard[uri(id.name ?? id)] = hiSeqNum; });
  await Promise.race([registered(face.fw, group), sleep(5)]);
  say({ event: "ready", node: uri(node) });
  const own = sync.add(node);
  own.seqNum = args.publish;
  for (;;) {
    const others = Object.values(heard);
    if (others.length >= args.peers && others.every((number) => number >= args.publish)) { break; }
    await sleep(0.1);
  }
  say({ event: "heard", heard });
  // The others may still miss what this one knows: it stays until it is ended.
  await almost(args.timeout);
  return { published: args.publish, heard, strategy_status: chosen.statusCode };
});
