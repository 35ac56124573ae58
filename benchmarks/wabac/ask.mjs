// What wabac.js (ReplayWeb.page) does with pairs of requests, in Node over an IndexedDB in memory: its own database, its
// own way of writing a body into a URL, its own fuzzy matching. `npm ci --ignore-scripts` first.
//
// On stdin a JSON list of {recorded, asked}, each {method, url, headers, body (base64)}; on stdout a JSON list of what
// each asked request got: true (an answer, the recorded one) or false.
import "fake-indexeddb/auto";

import { postToGetUrl } from "warcio";

globalThis.self = globalThis; // it was made for a service worker
globalThis.registration = { scope: "http://localhost/" };
globalThis.location = new URL("http://localhost/");
const { ArchiveDB, ArchiveRequest } = await import("@webrecorder/wabac/swlib");

async function stdin() {
  let text = "";
  for await (const piece of process.stdin) text += piece;
  return JSON.parse(text);
}

/** The URL as a browser sends it. */
function written(url) {
  try {
    const found = new URL(url);
    found.hash = "";
    return found.href;
  } catch {
    return url;
  }
}

/** A recorded request's URL, as its WARC loader writes it. */
function stored({ method, url, headers, body }) {
  const told = { method, url: written(url), headers: new Headers(headers), postData: Buffer.from(body, "base64") };
  if (method !== "GET") postToGetUrl(told);
  return told.url;
}

async function asked(db, { method, url, headers, body }) {
  const data = Buffer.from(body, "base64");
  const options = { method, headers: new Headers(headers), body: data.length && method !== "GET" ? data : undefined };
  const request = new ArchiveRequest(written(url), new Request("http://localhost/", options));
  await request.convertPostToGet();
  const event = { clientId: "", resultingClientId: "", replacesClientId: "" };
  return Boolean(await db.getResource(request, "", event));
}

const pairs = await stdin();
const db = new ArchiveDB("pairs");
await db.initing;
db.repeatTracker = null; // no pair repeats another one
let failed = "";
for (const [number, pair] of pairs.entries()) {
  const payload = new TextEncoder().encode("answer");
  try {
    await db.addResource({ url: stored(pair.recorded), ts: 1735689600000 + number, status: 200, mime: "text/plain",
      respHeaders: { "content-type": "text/plain" }, payload, digest: `sha256:${number}` });
  } catch (error) {
    failed = String(error);
  }
}
const found = [];
for (const pair of pairs) {
  try {
    found.push(await asked(db, pair.asked));
  } catch (error) {
    failed = String(error);
    found.push(false);
  }
}
if (failed) console.error(`the last of what failed: ${failed}`);
process.stdout.write(JSON.stringify(found), () => process.exit(0));
