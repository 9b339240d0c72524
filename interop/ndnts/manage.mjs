// NFD management through @ndn/nfdmgmt.
//   status   fetches every dataset that NDNts knows and prints what it decodes to
//   walk     creates a face, routes over it, chooses a strategy, changes the cache, takes all back, checking each step in
//            the datasets; also commands that must be refused, with the codes NFD answers
//   burst    --count registrations at once, then as many unregistrations
import {
  ChannelStatus, ControlParameters, CsInfo, FaceQuery, FaceStatus, GeneralStatus, invoke, list, RibEntry, StrategyChoice,
} from "@ndn/nfdmgmt";
import { AltUri } from "@ndn/naming-convention2";
import { Name } from "@ndn/packet";

import { identity, signerOf } from "./credentials.mjs";
import { connect, Failed, options, run, sleep, uri } from "./outcome.mjs";

const args = options("manage.mjs <status|walk|burst>", { count: 200, "face-uri": "udp4://127.0.0.1:36363", sign: "digest" }, 30);
const ORIGIN_STATIC = 255;

let opts;
async function command(verb, parameters) {
  const response = await invoke(verb, parameters, opts);
  let body = null;
  if (response.body.length > 0) { body = ControlParameters.decodeFromResponseBody(response); }
  return { status: response.statusCode, text: response.statusText, body };
}

function plain(value) {
  if (value instanceof Name) { return uri(value); }
  if (Array.isArray(value)) { return value.map((item) => plain(item)); }
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).filter(([, v]) => v !== undefined).map(([k, v]) => [k, plain(v)]));
  }
  return value;
}

const steps = [];
const check = (step, ok, fields = {}) => steps.push({ step, ok: Boolean(ok), ...plain(fields) });

function result(fields = {}) {
  const wrong = steps.filter(({ ok }) => !ok).map(({ step }) => step);
  if (wrong.length > 0) { throw new Failed(`wrong: ${wrong.join(", ")}`, { steps }); }
  return { steps, ...fields };
}

async function status() {
  const datasets = {};
  for (const Type of [GeneralStatus, FaceStatus, ChannelStatus, CsInfo, StrategyChoice, RibEntry]) {
    datasets[Type.datasetName] = await list(Type, opts).then(plain).catch((err) => ({ error: err.message }));
  }
  const failed = Object.entries(datasets).filter(([, { error }]) => error).map(([name]) => name);
  // NFD has faces/channels; other forwarders may do without.
  if (failed.some((name) => name !== "faces/channels")) { throw new Failed(`not fetched: ${failed.join(", ")}`, { datasets }); }
  return { datasets };
}

async function walk() {
  const name = new Name("/interop/ndnts/walk");
  const faceUri = args["face-uri"];
  const made = await command("faces/create", { uri: faceUri });
  const faceId = made.body?.faceId;
  check("a face is created", made.status === 200 && faceId, made);
  const again = await command("faces/create", { uri: faceUri });
  check("a face that is there already is told with its id", again.status === 409 && again.body?.faceId === faceId, again);
  const found = await list(FaceQuery({ faceId }), opts);
  check("the query finds the face", found.length === 1 && found[0].uri === faceUri);

  const updated = await command("faces/update", { faceId, flagCongestionMarking: true, maskCongestionMarking: true });
  check("congestion marking is switched on", updated.status === 200, updated);

  const route = await command("rib/register", { name, faceId, cost: 7, origin: ORIGIN_STATIC, flagChildInherit: true });
  check("a route is registered", route.status === 200 && route.body.cost === 7, route);
  const routesOf = async () => (await list(RibEntry, opts)).filter((entry) => entry.name.equals(name)).flatMap((entry) => entry.route);
  const routes = await routesOf();
  check("the RIB has the route", routes.length === 1 && routes[0].faceId === faceId && routes[0].cost === 7 && routes[0].origin === ORIGIN_STATIC);

  const strategy = new Name("/localhost/nfd/strategy/multicast");
  const chosen = await command("strategy-choice/set", { name, strategy });
  check("a strategy is chosen", chosen.status === 200, chosen);
  const choiceOf = async () => (await list(StrategyChoice, opts)).find((choice) => choice.name.equals(name));
  check("the choice is listed", strategy.isPrefixOf((await choiceOf())?.strategy ?? "/"));
  check("the choice is taken back", (await command("strategy-choice/unset", { name })).status === 200);
  await sleep(1.1); // what is asked for twice may be a second old
  check("the choice is gone", !await choiceOf());

  const [before] = await list(CsInfo, opts);
  const configured = await command("cs/config", { capacity: 12345 });
  check("the cache is configured", configured.status === 200 && configured.body.capacity === 12345, configured);
  await sleep(1.1);
  const [info] = await list(CsInfo, opts);
  check("the cache's capacity is told", info.capacity === 12345n);
  await command("cs/config", { capacity: Number(before.capacity) });

  check("the route is taken back", (await command("rib/unregister", { name, faceId, origin: ORIGIN_STATIC })).status === 200);
  await sleep(1.1);
  check("the route is gone", (await routesOf()).length === 0);
  check("the face is destroyed", (await command("faces/destroy", { faceId })).status === 200);
  const refused = await command("rib/register", { name, faceId, cost: 7 });
  check("no route over a face that is gone", refused.status === 410, refused);
  const nonsense = await command("strategy-choice/set", { name, strategy: new Name("/localhost/nfd/strategy/no-such") });
  check("no strategy that does not exist", nonsense.status === 404, nonsense);
  return result();
}

async function burst() {
  const milliseconds = [];
  for (const verb of ["register", "unregister"]) {
    const began = performance.now();
    const answers = await Promise.all(Array.from({ length: args.count }, (_, i) =>
      command(`rib/${verb}`, { name: AltUri.parseName(`/interop/ndnts/burst/${i}`) })));
    milliseconds.push(Math.round(performance.now() - began));
    const accepted = answers.filter((answer) => answer.status === 200).length;
    check(`all ${verb}ed`, accepted === args.count, { accepted });
  }
  return result({ milliseconds });
}

await run(args.timeout, async () => {
  await connect();
  if (args.sign === "keychain") { await identity(); }
  opts = { signer: await signerOf(args.sign), cOpts: { retx: 1, modifyInterest: { lifetime: 1500 } } };
  const work = { status, walk, burst }[args.positionals[0]];
  if (!work) { throw new Failed("status, walk or burst?"); }
  return work();
});
