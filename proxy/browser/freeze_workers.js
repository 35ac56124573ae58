// Part of freeze.js.
// ---- workers: this same script runs first in each of them
let births = 0;
const source = (more) => `(${freeze.toString()})(${JSON.stringify({ ...config, ...more, address: (more && more.address) || `${address} ${++births}` })});\n`;
// A module's imports run before its own first line, so in a module this script is the first import.
const first_in = (kind, more) => kind === "module" ? `import "data:text/javascript,${encodeURIComponent(source(more))}";\n` : source(more);
const blobs = new Map();
if (G.URL && URL.createObjectURL) {
  stand(URL, "createObjectURL", (f, self, [object]) => {
    const url = Reflect.apply(f, self, [object]);
    if (object instanceof Blob && /^$|script/.test(object.type)) blobs.set(url, object);
    return url;
  });
  stand(URL, "revokeObjectURL", (f, self, [url]) => { blobs.delete(String(url)); return Reflect.apply(f, self, [url]); });
}
const objectURL = G.URL && URL.createObjectURL;
const script = (...parts) => objectURL.call(URL, new Blob(parts, { type: "text/javascript" }));
const base = () => config.base || (isWindow ? document.baseURI : G.location.href);
const absolute = (url) => new URL(String(url), base());
const prepared = (url, kind, shared, more) => {
  const full = absolute(url);
  if (full.protocol === "blob:" && blobs.has(full.href)) return script(first_in(kind, more), blobs.get(full.href));
  if (full.protocol === "data:") {
    const [head, ...rest] = full.href.split(",");
    return script(first_in(kind, more), /;base64$/.test(head) ? atob(rest.join(",")) : decodeURIComponent(rest.join(",")));
  }
  if (!/^https?:$/.test(full.protocol)) return null;
  if (isWindow) { full.search += (full.search ? "&" : "?") + MARK + (shared ? "=shared" : "") + (kind === "module" ? "=module" : ""); return full.href; }
  // The driver does not see a worker's requests, so the workers of a worker begin here, and load their script
  // themselves.
  const begin = source({ address: full.href, base: full.href });
  return kind === "module" ? script(`import "data:text/javascript,${encodeURIComponent(begin)}";\nimport ${JSON.stringify(full.href)};`)
    : script(begin, `importScripts(${JSON.stringify(full.href)});`);
};
// If a policy (Trusted Types) must allow a worker's address, it is asked about that address, and then allows ours.
const policies = [];
let passing = null;
if (G.TrustedTypePolicyFactory) stand(TrustedTypePolicyFactory.prototype, "createPolicy", (f, self, [name, rules, ...more]) => {
  const rule = rules && rules.createScriptURL;
  if (typeof rule !== "function") return Reflect.apply(f, self, [name, rules, ...more]);
  const policy = Reflect.apply(f, self, [name, { ...rules, createScriptURL: (url, ...given) =>
    passing && url === passing.ours ? rule.call(rules, passing.theirs, ...given) && url : rule.call(rules, url, ...given) }, ...more]);
  policies.push({ policy, rule, name });
  return policy;
});
const allowed = (url, ready, use) => {
  passing = { theirs: String(url), ours: ready };
  try {
    const typed = G.TrustedScriptURL && url instanceof TrustedScriptURL;
    return use(typed && policies.length ? trustedBy(ready) : ready);
  } finally { passing = null; }
};
const trustedBy = (ready) => {
  for (const { policy } of policies) {
    try {
      const made = policy.createScriptURL(ready);
      if (String(made) === ready) return made;
    } catch { continue; } // a policy for other addresses: the next may allow ours
  }
  return ready;
};
const kindOf = (options) => options && typeof options === "object" ? options.type : undefined;
const workers = new Set();
const attach = (worker, port, url) => {
  const known = { worker, port, silent: false, begun: false, state: null, offset: 0 };
  workers.add(known);
  worker.addEventListener("error", (event) => {
    if (known.begun) return;
    workers.delete(known);
    // An error of the script itself has a message; a script that never loaded has none.
    if (url && event.message === undefined) G.console.warn(`stillweb: worker: ${url}`);
  });
  if (port.addEventListener) port.addEventListener("close", () => workers.delete(known)); // the frame shows another document
  if (port.addEventListener) worker.addEventListener("message", (event) => { // the worker has closed itself
    if (!event.data || event.data[MARK] !== "closed") return;
    event.stopImmediatePropagation();
    workers.delete(known);
  });
  return known;
};
if (G.Worker) {
  const Native = G.Worker;
  const Frozen = new Proxy(Native, { construct: (target, [url, options, ...more], as) => {
    if (!URL.canParse(url, base())) return new Native(url, options); // the constructor reports the error
    const ready = prepared(url, kindOf(options));
    const worker = allowed(url, ready, (at) => Reflect.construct(target, [ready === null ? url : at, options, ...more], as === Frozen ? target : as));
    if (ready !== null) {
      const channel = new MessageChannel();
      worker.postMessage({ [MARK]: true }, [channel.port2]);
      attach(worker, channel.port1, absolute(url).href);
    }
    return worker;
  } });
  Native.prototype.constructor = Frozen;
  G.Worker = Frozen;
  stand(Native.prototype, "terminate", (f, self) => {
    for (const known of workers) if (known.worker === self) workers.delete(known);
    return Reflect.apply(f, self, []);
  });
}
// A shared worker has no channel that is ours alone. All of its pages speak to it by broadcast, each with an id of its
// own.
const sharedHere = new Map();
if (G.SharedWorker) {
  const Frozen = new Proxy(G.SharedWorker, { construct: (target, [url, options, ...more], as) => {
    if (!URL.canParse(url, base())) return new target(url, options);
    const full = absolute(url), kind = kindOf(options), own = `${kind} ${full.href}`;
    // A worker without an address is shared only within this page, under a name of ours.
    if (!/^https?:$/.test(full.protocol) && !sharedHere.has(own)) {
      const air = native.uuid();
      sharedHere.set(own, { air, at: prepared(url, kind, true, { air }) });
    }
    const here = sharedHere.get(own), ready = here ? here.at : prepared(url, kind, true);
    const worker = allowed(url, ready, (at) => Reflect.construct(target, [ready === null ? url : at, options, ...more], as === Frozen ? target : as));
    if (ready === null) return worker;
    const air = new BroadcastChannel(`${MARK} ${here ? here.air : full.href.split("#")[0]} ${(options && options.name) || (typeof options === "string" ? options : "")}`);
    const from = native.uuid();
    const port = { postMessage: (message) => air.postMessage({ ...message, from }) };
    const known = attach(worker, port, full.href);
    known.late = true; // until it has spoken; messages sent before it listens are lost
    pending++;
    const heard = () => { if (known.late) { known.late = false; pending--; } };
    worker.addEventListener("error", heard);
    native.setTimeout(heard, 5000);
    air.onmessage = ({ data }) => {
      if (data.hello || data.to === from) heard();
      if (data.to === from && data.state && port.onmessage) port.onmessage({ data: data.state });
    };
    air.postMessage({ who: true, from });
    return worker;
  } });
  G.SharedWorker = Frozen;
}
// Due time of the workers' next timer, as last reported; their clocks move with the page's.
const nextInWorkers = () => [...workers].reduce((least, { state, offset }) =>
  state && state.next !== null ? Math.min(least, config.start + offset + state.elapsed + state.next) : least, Infinity);
// Real ms for which a worker that begins, or computes, is waited for. After that it holds nothing up.
const BEGINNING = 20000, WORKING = 8000;
const NOTHING = { elapsed: 0, pending: 0, held: 0, started: 0, fetched: 0, mutations: 0, next: null, leaving: 0, tabs: 0, wanting: 0, fresh: 0, sent: 0, heard: 0, silent: 0 };
const askWorkers = async (message) => {
  for (const known of workers) if (known.frame && known.frame.closed) workers.delete(known);
  const answers = await Promise.all([...workers].map((known) => new Promise((done) => {
    if (known.silent || known.late) { done(null); return; }
    if (!known.since) known.since = native.now(); // time of the first message that it has not answered yet
    const timeout = native.setTimeout(() => {
      known.silent = native.now() - known.since > (known.begun || known.frame ? WORKING : BEGINNING);
      known.state = { ...NOTHING, ...known.state, pending: 0, held: known.silent ? 0 : 1, next: null };
      done(known.silent ? null : { ...known.state, ran: 0 });
    }, 1000);
    known.port.onmessage = (event) => {
      native.clearTimeout(timeout);
      known.silent = false; known.begun = true; known.since = 0; known.state = event.data;
      done(event.data);
    };
    known.port.postMessage(message.to === undefined ? message : { ...message, to: message.to - known.offset });
  })));
  return answers.filter((answer) => answer !== null);
};

// A page drives its frames like workers, so that all clocks in it are one.
const answer = async (data) => {
  await hop();
  if (data.frames) return frames();
  if (data.ask) return ask(data.ask);
  if (data.drew) await drawnFor();
  if (!data.ping) {
    const ran = await inTurn(() => { const ms = data.to - elapsed(); return ms >= 0 ? pass(ms, { through: data.through, whole: true }) : null; });
    if (ran) return ran;
  }
  await rest(data.through, data.drew);
  return { ...together(status(data.through)), ran: 0 };
};
if (isWindow) {
  listen(G, "message", (event) => {
    if (!event.data || event.data[MARK] !== "frame" || !event.ports.length) return;
    event.stopImmediatePropagation();
    if (!event.source) return; // it is gone meanwhile, and will never answer
    for (const known of workers) if (known.frame === event.source) workers.delete(known); // the frame shows another document
    const known = attach(event.ports[0], event.ports[0]);
    known.frame = event.source;
    known.offset = elapsed(); // a document's clock begins with it
    event.ports[0].start();
  });
  if (G.parent !== G) {
    const channel = new MessageChannel();
    channel.port1.onmessage = async ({ data }) => {
      if (data.meet === undefined) channel.port1.postMessage(await answer(data));
      else meet(config.start + data.meet, data.through);
    };
    // Posted outside of this script: the browser notes where a message is posted, and would read the whole script for
    // that.
    Promise.resolve().then(() => G.parent.postMessage({ [MARK]: "frame" }, "*", [channel.port2]));
  }
}

if (!isWindow) {
  if (G.WorkerLocation) {
    const real = config.base ? new URL(config.base) : null;
    for (const name of ["href", "search", "origin", "protocol", "host", "hostname", "port", "pathname", "hash"])
      getter(WorkerLocation.prototype, name, (get) => real ? real[name] : unmarked(get()));
    stand(WorkerLocation.prototype, "toString", (f, self) => real ? real.href : unmarked(Reflect.apply(f, self, [])));
  }
  if (G.postMessage) stand(G, "close", (f, self, args) => { G.postMessage({ [MARK]: "closed" }); return Reflect.apply(f, G, args); });
  if (config.base) { // our script has another address than the worker itself
    const whole = (url) => typeof url === "string" || url instanceof URL ? absolute(url).href : url;
    stand(G, "importScripts", (f, self, urls) => Reflect.apply(f, self, urls.map(whole)));
    stand(G, "fetch", (f, self, [what, ...more]) => Reflect.apply(f, self, [whole(what), ...more]));
    stand(XMLHttpRequest.prototype, "open", (f, self, [method, url, ...more]) => Reflect.apply(f, self, [method, whole(url), ...more]));
    const NativeRequest = G.Request;
    G.Request = new Proxy(NativeRequest, { construct: (target, [what, ...more], as) =>
      Reflect.construct(target, [whole(what), ...more], as === G.Request ? target : as) });
  }
  const begin = (event) => {
    if (!event.data || event.data[MARK] !== true || !event.ports.length) return;
    event.stopImmediatePropagation();
    G.removeEventListener("message", begin);
    event.ports[0].onmessage = async ({ data }) => event.ports[0].postMessage(await answer(data));
  };
  if (G.SharedWorkerGlobalScope && G instanceof SharedWorkerGlobalScope) {
    const air = new BroadcastChannel(`${MARK} ${config.air || address} ${G.name}`);
    air.onmessage = async ({ data }) => {
      if (data.from === undefined) return;
      air.postMessage(data.who ? { to: data.from } : { to: data.from, state: await answer(data) });
    };
    air.postMessage({ hello: true });
  } else G.addEventListener("message", begin);
}
