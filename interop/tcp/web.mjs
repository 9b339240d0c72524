// HTTPS, as HTTP/2 or HTTP/1.1 as the client likes: a page of objects on several hosts, and bytes.
//   node web.mjs ADDRESS PORT KEY CERTIFICATE
// `/` is a page that says how many of its objects it loaded; `/bytes/N` has N bytes.
import { readFileSync } from "node:fs";
import { createSecureServer } from "node:http2";

const [address, port, key, cert] = process.argv.slice(2);
const HOSTS = ["one.test", "two.test", "three.test"];
const OBJECTS = 8;

function page() {
  const each = HOSTS.flatMap((host) => Array.from({ length: OBJECTS }, (_, number) => [host, number]));
  const scripts = each.map(([host, number]) => `<script src="https://${host}/script/${number}"></script>`);
  const pictures = each.map(([host, number]) => `<img src="https://${host}/picture/${number}" onload="loaded += 1">`);
  return `<!doctype html><title>objects</title><script>var loaded = 0;
addEventListener("load", () => {
  const [entry] = performance.getEntriesByType("navigation");
  document.title = "loaded " + loaded + " over " + entry.nextHopProtocol;
});</script>${scripts.join("")}${pictures.join("")}`;
}

// Every object is as large as a few Data of 8 KB.
const picture = `<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><!--${"x".repeat(20000)}--></svg>`;
const script = `loaded += 1; // ${"y".repeat(20000)}`;

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
