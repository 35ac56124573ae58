// Part of freeze.js.
// ---- chance: sfc32, seeded (FNV-1a) from the profile's seed, the address, the kind of use and the calling code. Each
// calling code has a stream of its own, so the order in which the network brings modules that draw while they load
// changes nothing. Older recordings (`chance` 1) have one stream for each document.
const place = () => { // the position of a frame among its parent's, from the top
  const path = [];
  for (let w = G; w !== w.parent; w = w.parent) {
    let at = 0;
    while (at < w.parent.length && w.parent[at] !== w) at++;
    path.unshift(at);
  }
  return path.join(".");
};
// A document without an address of its own (about:srcdoc, blob:) is identified by its place; a blob's address changes
// each time.
const addressed = () => {
  const where = unmarked(G.location ? G.location.href : "").split("#")[0];
  return config.address || (isWindow && !/^https?:/.test(where) ? `${where.replace(/:.*/s, ":")} ${place()}` : where);
};
let address = addressed();
renewals.push(() => { address = addressed(); });
// Secrets in the address are left out of the seed: in replay a pseudonym stands there, another one in each snapshot.
const [strong, weak, never] = config.secrets.map((pattern) => new RegExp(pattern));
const plain = (name) => name.replace(/([a-z0-9])(?=[A-Z])|([A-Z])(?=[A-Z][a-z])/g, "$1$2_").replace(/[^\p{L}\p{N}]+/gu, "_").replace(/^_|_$/g, "").toLowerCase();
const secretName = (name, value) => !never.test(name) && (strong.test(name) || (weak.test(name) && value.length > 7 && /\d/.test(value) && /[a-z]/i.test(value)));
const isSecret = (name, value) => /^stillweb-secret-/.test(value) || secretName(plain(name), value);
const withoutSecrets = (where) => where.replace(/([?&;])([^=&;]+)=([^&;]+)/g, (all, mark, name, value) => isSecret(name, value) ? `${mark}${name}=` : all);
const stream = (seed) => {
  let h = 0x811c9dc5;
  for (const one of seed) h = Math.imul(h ^ one.codePointAt(0), 0x01000193);
  let a = h >>> 0, b = (h ^ 0x9e3779b9) >>> 0, c = (h ^ 0x243f6a88) >>> 0, d = 1;
  const next = () => {
    const t = (((a + b) | 0) + d) | 0;
    d = (d + 1) | 0; a = b ^ (b >>> 9); b = (c + (c << 3)) | 0; c = (c << 21) | (c >>> 11); c = (c + t) | 0;
    return t >>> 0;
  };
  for (let i = 0; i < 15; i++) next();
  return next;
};
// The calling code, by its scripts and functions. Positions in them are left out, as they move with the length of a
// pseudonym before them. A page may have replaced `Error`.
const NativeError = G.Error, CALLERS = 12;
const named = new Map(); // a script's address -> its name in the seed
const nameOf = (script) => {
  if (!named.has(script)) named.set(script, withoutSecrets(unmarked(script.split("#")[0].replace(/^(blob|data):.*/s, "$1:"))));
  return named.get(script);
};
const asking = () => {
  const { stackTraceLimit, prepareStackTrace } = NativeError, own = Object.hasOwn(NativeError, "prepareStackTrace");
  let called = "";
  try {
    NativeError.stackTraceLimit = CALLERS;
    NativeError.prepareStackTrace = (error, calls) =>
      calls.map((one) => `${nameOf(String(one.getScriptNameOrSourceURL() || ""))} ${one.getFunctionName() || ""}`).join("\n");
    called = new NativeError().stack;
  } catch { /* they can't be changed: one stream for all */ }
  try {
    NativeError.stackTraceLimit = stackTraceLimit;
    if (own) NativeError.prepareStackTrace = prepareStackTrace; else delete NativeError.prepareStackTrace;
  } catch { /* as they were */ }
  return typeof called === "string" ? called : "";
};
const LOOKS_BACK = 1000; // draws in one go after which the caller is taken to be in a loop: reading the stack takes time
const streams = new Map(), latest = new Map();
let draws = 0;
const forget = () => { draws = 0; latest.clear(); };
renewals.push(() => { streams.clear(); forget(); });
const chanceOf = (kind) => {
  renew();
  if (draws++ === 0) native.soon(forget);
  if (draws > LOOKS_BACK && latest.has(kind)) return latest.get(kind);
  const seed = `${config.seed}|${kind}|${withoutSecrets(address)}` + (config.chance > 1 ? `|${asking()}` : "");
  if (!streams.has(seed)) streams.set(seed, stream(seed));
  latest.set(kind, streams.get(seed));
  return latest.get(kind);
};
stand(Math, "random", () => { const next = chanceOf("math"); return ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992; });
if (G.Crypto) {
  stand(G.Crypto.prototype, "getRandomValues", (target, self, args) => {
    const array = Reflect.apply(target, self, args); // checks its arguments as always
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength), next = chanceOf("values");
    for (let i = 0; i < bytes.length; i++) bytes[i] = next() >>> 24;
    return array;
  });
  stand(G.Crypto.prototype, "randomUUID", () => {
    const next = chanceOf("uuid"), hex = Array.from({ length: 16 }, () => next() >>> 24);
    hex[6] = (hex[6] & 15) | 64; hex[8] = (hex[8] & 63) | 128;
    return hex.map((v, i) => ([4, 6, 8, 10].includes(i) ? "-" : "") + v.toString(16).padStart(2, "0")).join("");
  });
}
