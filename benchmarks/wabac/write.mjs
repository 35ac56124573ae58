// Writes a WARC with warcio.js, the library of ArchiveWeb.page and Browsertrix: `node write.mjs FILE.warc.gz`.
//
// On stdin a JSON list of exchanges: {url, method, headers, body, status, answer, mime}.
import { createWriteStream } from "node:fs";

import { WARCRecord, WARCSerializer } from "warcio";

const out = createWriteStream(process.argv[2]);
const date = "2025-02-03T04:05:06Z";
const warcVersion = "WARC/1.1";

async function put(record) {
  out.write(await WARCSerializer.serialize(record, { gzip: true }));
}

async function* bytes(text) {
  if (text) yield new TextEncoder().encode(text);
}

let told = "";
for await (const piece of process.stdin) told += piece;
await put(WARCRecord.createWARCInfo({ filename: "data.warc.gz", warcVersion }, { software: "warcio.js" }));
for (const { url, method, headers, body, status, answer, mime } of JSON.parse(told)) {
  const response = WARCRecord.create(
    { url, date, type: "response", warcVersion, httpHeaders: { "Content-Type": mime }, statusline: `HTTP/1.1 ${status}` },
    bytes(answer),
  );
  await put(response);
  const warcHeaders = { "WARC-Concurrent-To": response.warcHeader("WARC-Record-ID") };
  const statusline = `${method} ${new URL(url).pathname} HTTP/1.1`;
  await put(WARCRecord.create({ url, date, type: "request", warcVersion, httpHeaders: headers, statusline, warcHeaders }, bytes(body)));
}
out.end();
