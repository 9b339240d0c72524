// An SSH server that runs the commands of whoever connects, for tests in a namespace of their own.
//   node ssh.mjs ADDRESS PORT
import { spawn } from "node:child_process";

import ssh2 from "ssh2";

const [address, port] = process.argv.slice(2);
// OpenSSH's own format of private keys.
const { private: hostKey } = ssh2.utils.generateKeyPairSync("ed25519");

// It would hang up after 45 s of silence, which is what OpenSSH's server does not do by default.
const hour = 3_600_000;
const server = new ssh2.Server({ hostKeys: [hostKey], keepaliveInterval: hour }, (client) => {
  client.on("authentication", (asked) => asked.accept());
  client.on("error", () => {});
  client.on("session", (accept) => {
    const session = accept();
    session.on("exec", (accept, _reject, { command }) => {
      const channel = accept();
      const program = spawn("/bin/sh", ["-c", command]);
      channel.pipe(program.stdin);
      program.stdout.pipe(channel, { end: false });
      program.on("close", (code) => { channel.exit(code ?? 1); channel.end(); });
      channel.on("close", () => program.kill());
    });
  });
});
server.listen(Number(port), address, () => process.stdout.write('{"event": "ready"}\n'));
