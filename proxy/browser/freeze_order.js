// Part of freeze.js.
// ---- answers reach the page in the order of its requests, in whatever order the network brings them. So its state,
// while recording and in replay, depends on no race. Requests older than `STUCK` are not waited for, nor those whose
// answer no script has asked for.
const STUCK = 8000; // real ms, like the driver's patience (freeze.py)
const line = []; // in the order of requests; `tell` is set when the answer is here
let telling = false;
const queued = (read = () => true) => { const place = { since: native.now(), tell: null, gone: false, read }; line.push(place); return place; };
const leave = (place) => { place.gone = true; place.tell = null; tellAll(); };
const tellAll = async () => {
  if (telling) return;
  telling = true;
  for (;;) {
    while (line.length && line[0].gone) line.shift();
    let next = line[0];
    if (!next) break;
    if (!next.tell && (native.now() - next.since > STUCK || !next.read())) { next.gone = true; continue; }
    if (!next.tell) {
      const waits = line.some((place) => place.tell);
      if (waits) native.setTimeout(tellAll, 200);
      break;
    }
    line.shift();
    try { next.tell(); } catch (error) { report(error); }
    await hop(); // each answer is a task of its own
  }
  telling = false;
};
const arrived = (place, tell) => { if (place.gone) tell(); else { place.tell = tell; tellAll(); } };
const inOrder = (promise) => {
  const place = queued();
  return new Promise((done, fail) => promise.then(
    (value) => arrived(place, () => done(value)),
    (error) => {
      if (error && error.name === "AbortError") { leave(place); fail(error); } // the page itself aborted it
      else arrived(place, () => fail(error));
    }));
};
if (G.XMLHttpRequest) {
  const Native = G.XMLHttpRequest, send = G.EventTarget.prototype.dispatchEvent;
  const places = new WeakMap(), late = new WeakMap(), blocking = new WeakSet();
  const stateOf = Object.getOwnPropertyDescriptor(Native.prototype, "readyState").get;
  // A script reads a request's answer if it has listened for its events, or looked at it. Only such a one stops the clock.
  const read = new WeakSet();
  const follow = (asked) => track(new Promise((done) => listenTo.call(asked, "loadend", done, { once: true })));
  const reads = (asked) => { if (read.has(asked)) return; read.add(asked); if (places.has(asked)) follow(asked); };
  stand(Native.prototype, "addEventListener", (f, self, args) => { const answer = Reflect.apply(f, self, args); reads(self); return answer; });
  for (const kind of ["loadstart", "progress", "load", "error", "timeout", "abort", "loadend", "readystatechange"])
    setter(kind === "readystatechange" ? Native.prototype : XMLHttpRequestEventTarget.prototype, `on${kind}`,
      (f, self, args) => { Reflect.apply(f, self, args); reads(self); });
  for (const name of ["readyState", "status", "response", "responseText"])
    getter(Native.prototype, name, function (get) { const value = get(); reads(this); return value; });
  const hold = (event) => {
    const asked = event.currentTarget, place = places.get(asked);
    if (!place || !event.isTrusted || (event.type === "readystatechange" && stateOf.call(asked) !== 4)) return;
    event.stopImmediatePropagation();
    late.get(asked).push(event);
    if (event.type !== "loadend") return;
    arrived(place, () => {
      if (places.get(asked) !== place) return; // aborted, or sent anew
      places.delete(asked);
      for (const one of late.get(asked)) send.call(asked, new one.constructor(one.type, one)); // copies, since a dispatched event stays stopped
    });
  };
  const giveUp = (asked) => {
    const place = places.get(asked);
    if (!place) return false;
    places.delete(asked);
    leave(place);
    return stateOf.call(asked) === 4;
  };
  const Ordered = new Proxy(Native, { construct: (target, args, as) => {
    const asked = Reflect.construct(target, args, as === Ordered ? target : as);
    for (const kind of ["readystatechange", "load", "error", "timeout", "loadend"]) listenTo.call(asked, kind, hold);
    return asked;
  } });
  Native.prototype.constructor = Ordered;
  Object.defineProperty(G, "XMLHttpRequest", { value: Ordered, writable: true, configurable: true, enumerable: false });
  // Its timeout runs by the page's clock, which stands while an answer is on its way.
  const limit = Object.getOwnPropertyDescriptor(Native.prototype, "timeout");
  const limits = new WeakMap(), alarms = new WeakMap();
  const alarm = (asked) => {
    queue.delete(alarms.get(asked));
    if (limits.get(asked) && places.has(asked)) alarms.set(asked, add(() => { if (places.has(asked)) limit.set.call(asked, 1); }, limits.get(asked)));
  };
  Object.defineProperty(Native.prototype, "timeout", { ...limit,
    get: new Proxy(limit.get, { apply: (f, self) => limits.get(self) || Reflect.apply(f, self, []) }),
    set: new Proxy(limit.set, { apply: (f, self, [ms]) => {
      if (blocking.has(self)) return Reflect.apply(f, self, [ms]);
      limits.set(self, Number(ms) >>> 0);
      return alarm(self);
    } }) });
  stand(Native.prototype, "open", (f, self, args) => {
    giveUp(self);
    if (args.length > 2 && !args[2]) blocking.add(self); else blocking.delete(self);
    return Reflect.apply(f, self, args);
  });
  stand(Native.prototype, "abort", (f, self, args) => {
    const untold = giveUp(self);
    const answer = Reflect.apply(f, self, args);
    if (untold) for (const kind of ["abort", "loadend"]) send.call(self, new ProgressEvent(kind));
    return answer;
  });
  stand(Native.prototype, "send", (f, self, args) => {
    if (blocking.has(self)) return Reflect.apply(f, self, args);
    fetched++;
    const place = queued(() => read.has(self));
    places.set(self, place);
    if (read.has(self)) follow(self);
    late.set(self, []);
    alarm(self);
    listenTo.call(self, "loadend", () => queue.delete(alarms.get(self)), { once: true });
    try { return Reflect.apply(f, self, args); } catch (error) { giveUp(self); throw error; }
  });
}
