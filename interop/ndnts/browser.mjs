// NDNts in headless Chromium over WebSocket: serves segmented content under --serve, fetches --get, or both.
// The forwarder's address is WHIMBREL_NDN_WS (ws://127.0.0.1:9696). With --serve it prints {"event": "ready"} and
// serves until SIGTERM or --timeout; a --get then comes before. NDNts does not know where a WebSocket ends, so it registers
// under /localhop; --localhost makes it /localhost. The page's origin, http://127.0.0.1:PORT with the port of --page-port,
// must be among the forwarder's allowed origins.
import { build } from "esbuild";
import { existsSync } from "node:fs";
import http from "node:http";
import { fileURLToPath } from "node:url";
import { launch } from "puppeteer-core";

import { almost, Failed, options, run, say } from "./outcome.mjs";

const args = options("browser.mjs", { serve: "", size: 100000, get: "", sha256: "", localhost: false, "page-port": 0, chromium: "/usr/bin/chromium" }, 60);
const uplink = process.env.WHIMBREL_NDN_WS ?? "ws://127.0.0.1:9696";

async function bundle() {
  const { outputFiles: [{ text }] } = await build({
    entryPoints: [fileURLToPath(new URL("page.mjs", import.meta.url))],
    bundle: true, write: false, format: "esm", platform: "browser", mainFields: ["browser", "module", "main"],
    define: { global: "globalThis" }, logLevel: "error",
  });
  return text;
}

/** Only a page from an address of this machine may use a browser's cryptography without TLS. */
function serveScript(script, port) {
  return new Promise((resolve) => {
    const server = http.createServer((request, response) => {
      const isScript = request.url === "/page.js";
      response.setHeader("Content-Type", isScript ? "text/javascript" : "text/html");
      response.end(isScript ? script : '<!doctype html><script type="module" src="/page.js"></script>');
    });
    server.listen(port, "127.0.0.1", () => resolve(server.address().port));
  });
}

await run(args.timeout, async () => {
  if (!existsSync(args.chromium)) { throw new Failed(`there is no ${args.chromium}`); }
  const port = await serveScript(await bundle(), args["page-port"]);
  const browser = await launch({
    executablePath: args.chromium, headless: true,
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"],
  });
  // Chromium must not outlive this process, however that ends.
  process.on("exit", () => browser.process()?.kill("SIGKILL"));
  const page = await browser.newPage();
  page.on("pageerror", (err) => process.stderr.write(`page: ${err.stack ?? err}\n`));
  await page.goto(`http://127.0.0.1:${port}/`);
  await page.waitForFunction("globalThis.ndn");
  await page.evaluate((uri, local) => globalThis.ndn.connect(uri, local), uplink, args.localhost);
  const fields = { browser: await browser.version() };
  if (args.get) {
    Object.assign(fields, await page.evaluate((uri) => globalThis.ndn.get(uri), args.get));
    if (args.sha256 && fields.sha256 !== args.sha256) { throw new Failed("the content differs", fields); }
  }
  if (args.serve) {
    say({ event: "ready", name: args.serve, ...await page.evaluate((uri, size) => globalThis.ndn.serve(uri, size), args.serve, args.size) });
    await almost(args.timeout);
  }
  return fields;
});
