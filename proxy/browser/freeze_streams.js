// Part of freeze.js.
// ---- streams, in replay: all recorded messages come at once, in their order, and the clock stands until they have
// come. Those that time had brought after a view was taken come with the step that led to the next one.
let goOn = async () => {};
if (config.replay && G.WebSocket) {
  const STREAM = "stillweb-stream", REST = "stillweb-rest", MISSED = "stillweb-miss", STEP = "stillweb-step ", HANG = 45000; // real ms: seconds are short on a busy machine
  const waits = new WeakMap(); // socket -> number of REST messages awaited
  const talking = new Set(), say = G.WebSocket.prototype.send;
  const await_ = (socket) => { waits.set(socket, (waits.get(socket) || 0) + 1); pending++; };
  const come = (socket, all) => {
    const count = waits.get(socket) || 0, less = all ? count : Math.min(1, count);
    waits.set(socket, count - less);
    if (less) hop().then(() => { pending -= less; });
  };
  goOn = async (number) => {
    for (const socket of talking) {
      if (socket.readyState === 3) talking.delete(socket);
      if (socket.readyState !== 1) continue;
      await_(socket);
      say.call(socket, STEP + number);
      native.setTimeout(() => come(socket), HANG);
    }
    while ([...talking].some((socket) => waits.get(socket))) await new Promise((done) => native.setTimeout(done, 2));
    await hop();
  };
  const Frozen = new Proxy(G.WebSocket, { construct: (target, [url, ...more], as) => {
    const full = absolute(url);
    full.search += (full.search ? "&" : "?") + STREAM;
    const socket = Reflect.construct(target, [/^(ws|http)s?:$/.test(full.protocol) ? full.href : url, ...more], as === Frozen ? target : as);
    await_(socket);
    talking.add(socket);
    socket.addEventListener("message", (event) => {
      if (event.data !== REST && event.data !== MISSED) return;
      event.stopImmediatePropagation();
      if (event.data === MISSED) G.console.error(`stillweb: miss: ${socket.url}`); // the driver hears of it here
      come(socket);
    });
    for (const end of ["close", "error"]) socket.addEventListener(end, () => come(socket, true));
    native.setTimeout(() => come(socket, true), HANG);
    return socket;
  } });
  G.WebSocket.prototype.constructor = Frozen;
  getter(G.WebSocket.prototype, "url", (get) => get().replace(/[?&]stillweb-stream$/, ""));
  stand(G.WebSocket.prototype, "send", (f, self, args) => {
    const answer = Reflect.apply(f, self, args);
    if (self.readyState === 1) { await_(self); native.setTimeout(() => come(self), HANG); }
    return answer;
  });
  G.WebSocket = Frozen;
}
// While recording, messages of web sockets are counted, so that the driver knows what is still on its way. As in
// replay, the clock stands while a socket opens, and until a message of the page is answered; else the effects would
// come at another time of the page. `PATIENCE` is how long, in real ms, a message may be without an answer: less once
// one like it was left without.
const OPENING = 8000, PATIENCE = [2000, 250, 250, 0], PAUSE = 60;
const sockets = new Map(); // open sockets: how many messages each sent and heard, and what it waits for
const unanswered = new Map(); // kinds of messages that nobody answered -> how many
const kindOf_ = (data) => typeof data === "string" ? data.slice(0, 200).replace(/[0-9a-f-]{8,}|[0-9]+/gi, "#").slice(0, 40)
  : `${data.byteLength === undefined ? data.size : data.byteLength}`;
// `silent`: sockets that the page sent a message since the last `ask()`, and that have sent none since.
const talk = () => {
  const all = { sent: 0, heard: 0, silent: 0 };
  for (const [socket, count] of sockets)
    if (socket.readyState === 3) sockets.delete(socket);
    else { all.sent += count.sent; all.heard += count.heard; all.silent += Number(count.asked); }
  return all;
};
if (!config.replay && G.WebSocket) {
  goOn = async () => { for (const count of sockets.values()) count.asked = count.spoken = false; };
  const wait = (count, ms, kind) => { // stops the clock until the answer
    pending++;
    const one = { kind, late: native.setTimeout(() => {
      if (kind !== null) unanswered.set(kind, (unanswered.get(kind) || 0) + 1);
      release(count, one);
    }, ms) };
    count.waits.add(one);
  };
  const release = (count, one) => {
    if (!count.waits.delete(one)) return;
    native.clearTimeout(one.late);
    hop().then(() => { pending--; });
  };
  const over = (count) => { for (const one of [...count.waits]) release(count, one); };
  const heard = (count) => { // other messages may follow in its wake
    count.heard++;
    count.asked = false;
    count.spoken = true;
    native.clearTimeout(count.pause);
    for (const one of count.waits) if (one.kind !== null) unanswered.delete(one.kind);
    if (count.waits.size) count.pause = native.setTimeout(() => over(count), PAUSE);
  };
  const Counted = new Proxy(G.WebSocket, { construct: (target, args, as) => {
    const socket = Reflect.construct(target, args, as === Counted ? target : as);
    const count = { sent: 0, heard: 0, asked: false, spoken: false, waits: new Set(), pause: 0 };
    sockets.set(socket, count);
    wait(count, OPENING, null);
    listenTo.call(socket, "open", () => { over(count); wait(count, PATIENCE[1], null); });
    listenTo.call(socket, "message", () => heard(count));
    for (const end of ["close", "error"]) listenTo.call(socket, end, () => over(count));
    return socket;
  } });
  G.WebSocket.prototype.constructor = Counted;
  stand(G.WebSocket.prototype, "send", (f, self, args) => {
    const answer = Reflect.apply(f, self, args), count = sockets.get(self);
    if (!count || self.readyState !== 1) return answer;
    const kind = kindOf_(args[0]), before = unanswered.get(kind) || 0, ms = PATIENCE[Math.min(before, PATIENCE.length - 1)];
    count.sent++;
    if (!before && !count.spoken) count.asked = true;
    if (ms) wait(count, ms, kind);
    return answer;
  });
  G.WebSocket = Counted;
}
// Reports the messages of streams so far. Nothing is drawn: the page's observers hear nothing until the streams are
// silent.
const hearing = async () => {
  await askWorkers({ ping: true });
  return saying(together(status()));
};
// An event stream is read to its recorded end. If it was asked for again with its last event's id, the gateway has
// that answer, too; else the stream stays open and silent. The mark in the URL holds the id, as a header field of ours
// would need a CORS preflight, and how often the id was sent.
if (config.replay && G.EventSource) {
  const Native = G.EventSource, ask = G.fetch;
  const state = new WeakMap();
  const resolved = (url) => { try { return absolute(url); } catch { throw new DOMException(`'${url}' is no address`, "SyntaxError"); } };
  class EventSource extends EventTarget {
    constructor(url, options) {
      super();
      const full = resolved(url), withCredentials = !!(options && options.withCredentials);
      const own = { url: full.href, withCredentials, readyState: 0, last: "", done: "", again: new Map(), handlers: {}, stop: new AbortController() };
      state.set(this, own);
      const fail = () => { if (own.readyState === 2) return; own.readyState = 2; this.dispatchEvent(new Event("error")); };
      const connect = (to, again) => ask(to, { headers: { Accept: "text/event-stream" }, cache: "no-store", signal: own.stop.signal,
        credentials: withCredentials ? "include" : "same-origin" }).then(async (answer) => {
        if (again) {
          if (answer.headers.get("stillweb-verdict") === "synthetic") return undefined; // it was not asked for again
          own.readyState = 0;
          this.dispatchEvent(new Event("error"));
          if (own.readyState === 2) return undefined;
        }
        if (answer.status !== 200 || !/^text\/event-stream/i.test(answer.headers.get("content-type") || "")) return fail();
        const text = await answer.text();
        if (own.readyState === 2) return undefined;
        own.readyState = 1;
        this.dispatchEvent(new Event("open"));
        this[KEY](text.replace(/^\uFEFF/, ""), own);
        if (own.readyState === 2 || !own.done) return undefined;
        const count = (own.again.get(own.done) || 0) + 1, next = new URL(own.url);
        own.again.set(own.done, count);
        next.search += `${next.search ? "&" : "?"}stillweb-stream=${count}.${encodeURIComponent(own.done)}`;
        return connect(next.href, true);
      }, again ? () => {} : fail);
      connect(full.href, false);
    }
    [KEY](text, own) { // HTML standard, 9.2.6; an event without its final empty line is left out
      let data = [], type = "";
      for (const line of text.split(/\r\n|\r|\n/).slice(0, -1)) {
        if (own.readyState === 2) return;
        if (line === "") {
          if (data.length) this.dispatchEvent(new MessageEvent(type || "message", { data: data.join("\n"),
            lastEventId: own.last, origin: new URL(own.url).origin }));
          data = []; type = ""; own.done = own.last;
          continue;
        }
        const [, field, value] = /^([^:]*)(?::[ ]?(.*))?$/s.exec(line);
        if (field === "data") data.push(value || "");
        else if (field === "event") type = value || "";
        else if (field === "id" && !(value || "").includes("\0")) own.last = value || "";
      }
    }
    get url() { return state.get(this).url; }
    get withCredentials() { return state.get(this).withCredentials; }
    get readyState() { return state.get(this).readyState; }
    close() { const own = state.get(this); own.readyState = 2; own.stop.abort(); }
  }
  for (const name of ["open", "message", "error"]) {
    Object.defineProperty(EventSource.prototype, `on${name}`, { configurable: true, enumerable: true,
      get() { return state.get(this).handlers[name] || null; },
      set(handler) {
        const { handlers } = state.get(this);
        if (!(name in handlers)) this.addEventListener(name, (event) => { if (typeof handlers[name] === "function") handlers[name].call(this, event); });
        handlers[name] = handler;
      } });
  }
  for (const [name, value] of [["CONNECTING", 0], ["OPEN", 1], ["CLOSED", 2]])
    for (const object of [EventSource, EventSource.prototype]) Object.defineProperty(object, name, { value, enumerable: true });
  Object.defineProperty(EventSource.prototype, Symbol.toStringTag, { value: "EventSource", configurable: true });
  Object.defineProperty(EventSource, "toString", { value: () => Native.toString() });
  G.EventSource = EventSource;
}
