// What every program here shares: the connection to the forwarder, a deadline, and one line of JSON as the last line
// of output. The forwarder's address is NDNTS_UPLINK: unix:///path, tcp://host:port, udp://host:port or ws://host:port.
import { enableNfdPrefixReg } from "@ndn/nfdmgmt";
import { TcpTransport, UdpTransport, UnixTransport } from "@ndn/node-transport";
import { AltUri } from "@ndn/naming-convention2";
import { Name } from "@ndn/packet";
import { WsTransport } from "@ndn/ws-transport";
import { parseArgs } from "node:util";

/** What was expected did not happen; the fields go to the last line. */
export class Failed extends Error {
  constructor(message, fields = {}) {
    super(message);
    this.fields = fields;
  }
}

export function say(fields) {
  process.stdout.write(`${JSON.stringify(fields, (key, value) => typeof value === "bigint" ? Number(value) : value)}\n`);
}

/**
 * Options by util.parseArgs, with --timeout in seconds.
 * @param defaults name of an option -> default; a number makes it a number, a boolean a switch, an array repeatable.
 */
export function options(usage, defaults, timeout = 10) {
  const all = { timeout, ...defaults };
  const config = Object.fromEntries(Object.entries(all).map(([name, value]) =>
    [name, { type: typeof value === "boolean" ? "boolean" : "string", multiple: Array.isArray(value) }]));
  let parsed;
  try {
    parsed = parseArgs({ options: config, allowPositionals: true });
  } catch (err) {
    process.stderr.write(`${err.message}\nusage: ${usage}\noptions: ${Object.keys(config).map((n) => `--${n}`).join(" ")}\n`);
    process.exit(2);
  }
  const values = {};
  for (const [name, value] of Object.entries(all)) {
    const given = parsed.values[name];
    values[name] = given === undefined ? value : typeof value === "number" ? Number(given) : given;
  }
  if (parsed.positionals.length === 0 && usage.includes("<")) {
    process.stderr.write(`usage: ${usage}\n`);
    process.exit(2);
  }
  return { ...values, positionals: parsed.positionals };
}

/** Opens the face to the forwarder; register also makes producers register their prefixes there. */
export async function connect({ register = false, ...registration } = {}) {
  const uplink = new URL(process.env.NDNTS_UPLINK ?? "unix:///run/nfd/nfd.sock");
  // A URL parser knows host and port of the schemes that it knows only.
  const [, host, port = "6363"] = /^[a-z0-9]+:\/\/(\[[^\]]*\]|[^:/]*)(?::(\d+))?/.exec(uplink.href) ?? [];
  let face;
  switch (uplink.protocol) {
    case "unix:": { face = await UnixTransport.createFace({}, uplink.pathname); break; }
    case "tcp:": { face = await TcpTransport.createFace({}, host, Number(port)); break; }
    case "udp:": { face = await UdpTransport.createFace({}, { host, port: Number(port) }); break; }
    case "ws:": { face = await WsTransport.createFace({}, uplink.href); break; }
    default: { throw new Error(`NDNTS_UPLINK has no known scheme: ${uplink.href}`); }
  }
  if (register) {
    enableNfdPrefixReg(face, registration);
  }
  return face;
}

/** Resolves when the forwarder has accepted the registration of what is announced on any face. */
export async function registered(fw, name) {
  const wanted = new Name(name);
  for (;;) {
    for (const destination of fw.readvertise.destinations) {
      const record = destination.table.get(wanted);
      if (record?.status === 1) { // ReadvertiseDestination.Status.ADVERTISED
        return;
      }
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** As python-ndn writes it: /a/v=1, where NDNts's own way is /8=a/54=%01. */
export const uri = (name) => AltUri.ofName(Name.from(name));

/** Runs the program and ends the process: 0 with what it returned, 1 otherwise. */
export async function run(timeout, work) {
  const finish = (ok, fields) => {
    say({ ok, ...fields });
    process.exit(ok ? 0 : 1);
  };
  // A test that has seen enough of a producer ends it with SIGTERM; that is no failure of the producer.
  process.on("SIGTERM", () => finish(true, { stopped: true }));
  setTimeout(() => finish(false, { error: `not done within ${timeout} s` }), 1000 * (timeout - process.uptime()));
  try {
    finish(true, await work());
  } catch (err) {
    if (!(err instanceof Failed)) {
      process.stderr.write(`${err.stack}\n`);
    }
    finish(false, { error: err.message, ...err.fields });
  }
}

/** Until half a second before --timeout, so that the last line can still tell what happened. */
export const almost = (timeout) => sleep(timeout - process.uptime() - 0.5);

export const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
