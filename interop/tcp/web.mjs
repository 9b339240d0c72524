// HTTPS, as HTTP/2 or HTTP/1.1 as the client likes: a page of objects on several hosts, and bytes.
//   node web.mjs ADDRESS PORT KEY CERTIFICATE [HOSTS OBJECTS SIZE]
// `/` is a page that says how many of its objects it loaded, and in which time; each of HOSTS hosts (host1.test, ...)
// has OBJECTS of them, of SIZE bytes. `/bytes/N` has N bytes.
import { readFileSync } from "node:fs";
import { createSecureServer } from "node:http2";

const [address, port, key, cert, hosts = 3, objects = 16, size = 20000] = process.argv.slice(2);
const HOSTS = Array.from({ length: Number(hosts) }, (_, number) => `host${number + 1}.test`);

function page() {
  const each = HOSTS.flatMap((host) => Array.from({ length: Number(objects) }, (_, number) => [host, number]));
  const is = (odd) => ([, number]) => number % 2 === odd;
  const scripts = each.filter(is(1)).map(([host, number]) => `<script src="https://${host}/script/${number}"></script>`);
  const pictures = each.filter(is(0))
    .map(([host, number]) => `<img src="https://${host}/picture/${number}" onload="loaded += 1">`);
  return `<!doctype html><title>objects</title><script>var loaded = 0;
addEventListener("load", () => {
  const [entry] = performance.getEntriesByType("navigation");
  const time = performance.now().toFixed(1);
  document.title = "loaded " + loaded + " over " + entry.nextHopProtocol + " in " + time + " ms";
});</script>${scripts.join("")}${pictures.join("")}`;
}

// An object without filling, and its place.
const filled = (start, end) => start + "x".repeat(Math.max(0, Number(size) - start.length - end.length)) + end;
const picture = filled('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><!--', "--></svg>");
const script = filled("loaded += 1; // ", "");

function answer(request, response) {
  const [, kind, count] = request.url.split("/");
  const send = (type, body) => { response.setHeader("Content-Type", type); response.end(body); };
  switch (kind) {
    case "": return send("text/html", page());
    case "script": return send("text/javascript", script);
    case "picture": return send("image/svg+xml", picture);
    case "bytes": return send("application/octet-stream", Buffer.alloc(Number(count), "Whimbrel carries TCP. "));
    default: response.statusCode = 404; return response.end();
  }
}

const server = createSecureServer({ allowHTTP1: true, key: readFileSync(key), cert: readFileSync(cert) }, answer);
server.on("sessionError", () => {});
server.listen(Number(port), address, () => process.stdout.write('{"event": "ready"}\n'));
