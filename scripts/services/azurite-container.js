// Makes a container in Azurite: azurite-container.js URL NAME. The account and the key are those of every emulator.
const crypto = require("node:crypto");

const account = "devstoreaccount1";
const key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const [url, name] = process.argv.slice(2);
const headers = { "x-ms-date": new Date().toUTCString(), "x-ms-version": "2023-11-03" };
// Method, eleven headers that are absent, ours, and what is asked for.
const asked = ["PUT", ...Array(11).fill(""), `x-ms-date:${headers["x-ms-date"]}`, `x-ms-version:${headers["x-ms-version"]}`];
const resource = `/${account}/${account}/${name}\nrestype:container`;
const signature = crypto.createHmac("sha256", Buffer.from(key, "base64")).update([...asked, resource].join("\n")).digest("base64");
headers.authorization = `SharedKey ${account}:${signature}`;

fetch(`${url}/${name}?restype=container`, { method: "PUT", headers }).then(async (reply) => {
  if (reply.status !== 201) {
    console.error(`${reply.status}: ${await reply.text()}`);
    process.exit(1);
  }
});
