// Freezes the time and chance that a page can observe. The clock starts at `config.start` (ms since 1970) and moves
// only when the driver (freeze.py) lets the page's own timers run. Every random source is seeded by `config.seed` and
// the document's own address. Runs in every frame before the page's scripts, and in workers. The driver calls it
// through globalThis[Symbol.for("stillweb")].
(function freeze(config) {
  "use strict";
  const G = globalThis;
  const KEY = Symbol.for("stillweb");
  if (G[KEY]) return;
  const isWindow = typeof G.document !== "undefined";
  const MARK = "stillweb-worker"; // ends a query, and marks a worker's script for the driver
  const unmarked = (url) => String(url).replace(/[?&]stillweb-(worker(=shared)?(=module)?|stream(=[^#]*)?)(?=#|$)/, "");
  const NativeDate = G.Date, NativeMath = Math.random;
  const native = {
    setTimeout: G.setTimeout.bind(G),
    clearTimeout: G.clearTimeout.bind(G),
    uuid: () => String(NativeDate.now()) + NativeMath(), // tells pages apart; pages never see it
    now: NativeDate.now.bind(NativeDate),
    raf: G.requestAnimationFrame ? G.requestAnimationFrame.bind(G) : null,
    postTask: G.scheduler && G.scheduler.postTask ? G.scheduler.postTask.bind(G.scheduler) : null,
  };
  native.soon = (what) => { if (native.postTask) native.postTask(what, { priority: "user-blocking" }); else native.setTimeout(what, 0); };

  // Replaces a function by one that looks the same (name, length, source text).
  const stand = (object, name, apply) => {
    const old = object && object[name];
    if (typeof old !== "function") return;
    const proxy = new Proxy(old, { apply });
    Object.defineProperty(object, name, { value: proxy, writable: true, configurable: true,
      enumerable: Object.prototype.propertyIsEnumerable.call(object, name) });
  };
  const getter = (object, name, get) => {
    const old = object && Object.getOwnPropertyDescriptor(object, name);
    if (!old || !old.get || !old.configurable) return;
    const proxy = new Proxy(old.get, { apply: (target, self) => get.call(self, () => Reflect.apply(target, self, [])) });
    Object.defineProperty(object, name, { get: proxy, set: old.set, configurable: true, enumerable: old.enumerable });
  };
  const setter = (object, name, apply) => {
    const old = Object.getOwnPropertyDescriptor(object, name);
    Object.defineProperty(object, name, { ...old, set: new Proxy(old.set, { apply }) });
  };

  // `document.open` removes a page's listeners, and ours with them.
  const listenTo = G.EventTarget.prototype.addEventListener, unlisten = G.EventTarget.prototype.removeEventListener;
  const lasting = [];
  const listen = (target, kind, handler, capture = false) => {
    if (isWindow) lasting.push(() => listenTo.call(target, kind, handler, capture));
    listenTo.call(target, kind, handler, capture);
  };
  if (isWindow) for (const name of ["open", "write", "writeln"]) stand(Document.prototype, name, (f, self, args) => {
    const answer = Reflect.apply(f, self, args);
    if (self === document) for (const again of lasting) again();
    return answer;
  });

  // A window begins with an empty document. If a script looks at it then, we run in that document. The next document
  // has the same window; we notice it when something of ours is called: the driver asks, a timer is set, a number is
  // drawn.
  let shown = isWindow ? document : null;
  const renewals = []; // callbacks for another document in the same window
  const mayChange = isWindow && G.navigation && G.navigation.currentEntry === null;
  const renew = () => {
    if (!mayChange || document === shown) return;
    const before = shown;
    shown = document;
    for (const again of renewals) again(before);
  };
  //= freeze_chance.js
  //= freeze_keys.js

  // ---- time
  let clock = config.start; // virtual ms since 1970
  const elapsed = () => clock - config.start;
  const wall = () => Math.floor(clock);
  // A page that polls the clock until time passes would wait for ever: after `LOOKS` reads, each takes a millisecond.
  const LOOKS = 1_000_000;
  let seen = 0;
  const look = () => {
    if (seen++ === 0) native.soon(() => { seen = 0; });
    if (seen > LOOKS) clock += 1;
  };
  const read = () => { look(); return wall(); };
  const readElapsed = () => { look(); return elapsed(); };
  const FrozenDate = new Proxy(NativeDate, {
    construct: (target, args, as) => Reflect.construct(target, args.length ? args : [read()], as === FrozenDate ? target : as),
    apply: () => new NativeDate(read()).toString(),
  });
  stand(NativeDate, "now", read);
  NativeDate.prototype.constructor = FrozenDate;
  Object.defineProperty(G, "Date", { value: FrozenDate, writable: true, configurable: true, enumerable: false });
  if (G.Intl && Intl.DateTimeFormat) {
    const proto = Intl.DateTimeFormat.prototype;
    const formats = new WeakMap();
    getter(proto, "format", function (get) {
      const own = get();
      if (!formats.has(this)) formats.set(this, (date) => own(date === undefined ? wall() : date));
      return formats.get(this);
    });
    stand(proto, "formatToParts", (f, self, [date]) => Reflect.apply(f, self, [date === undefined ? wall() : date]));
  }
  if (G.Temporal && Temporal.Now) {
    const instant = () => Temporal.Instant.fromEpochMilliseconds(read());
    const zoned = (zone) => instant().toZonedDateTimeISO(zone === undefined ? Temporal.Now.timeZoneId() : zone);
    stand(Temporal.Now, "instant", instant);
    stand(Temporal.Now, "zonedDateTimeISO", (f, self, [zone]) => zoned(zone));
    stand(Temporal.Now, "plainDateTimeISO", (f, self, [zone]) => zoned(zone).toPlainDateTime());
    stand(Temporal.Now, "plainDateISO", (f, self, [zone]) => zoned(zone).toPlainDate());
    stand(Temporal.Now, "plainTimeISO", (f, self, [zone]) => zoned(zone).toPlainTime());
  }
  //= freeze_dates.js
  //= freeze_cookies.js
  const stamps = new WeakMap();
  getter(G.Event && Event.prototype, "timeStamp", function () {
    if (!stamps.has(this)) stamps.set(this, elapsed());
    return stamps.get(this);
  });

  // ---- timers: one queue by due time, then by order of registration
  const queue = new Map();
  let serial = 0;
  let depth = 0; // nesting of timers, for the 4 ms that browsers enforce
  const add = (handler, delay, args = [], extra = null) => {
    renew();
    const id = ++serial;
    queue.set(id, { id, due: clock + delay, handler, args, depth: depth + 1, ...extra });
    return id;
  };
  // The browser itself calls the handler, so that no line of ours is in its stack or in its errors.
  let called = null, calls = 0;
  const call = (timer) => new Promise((done) => {
    calls++;
    native.setTimeout(() => { depth = timer.depth; }, 0);
    called = { id: timer.id, by: native.setTimeout(timer.handler, 0, ...(timer.given ? timer.given() : timer.args)) };
    native.setTimeout(() => { depth = 0; called = null; done(); }, 0);
  });
  const length = (delay) => {
    const ms = Math.max(0, Number(delay) | 0); // 32 bits, as in browsers: a longer delay becomes none
    return depth >= 5 ? Math.max(4, ms) : ms;
  };
  const code = (handler) => typeof handler === "function" ? handler : String(handler);
  stand(G, "setTimeout", (f, self, [handler, delay, ...args]) => handler === undefined ? Reflect.apply(f, G, []) : add(code(handler), length(delay), args));
  stand(G, "setInterval", (f, self, [handler, delay, ...args]) => {
    const every = Math.max(1, length(delay));
    return add(code(handler), every, args, { every });
  });
  const drop = (f, self, [id]) => {
    queue.delete(Number(id));
    if (called && called.id === Number(id)) native.clearTimeout(called.by);
  };
  stand(G, "clearTimeout", drop);
  stand(G, "clearInterval", drop);
  stand(G, "requestAnimationFrame", (f, self, [callback]) => typeof callback !== "function" ? Reflect.apply(f, self, [callback])
    : add(callback, 16 - (Math.floor(elapsed()) % 16), [], { given: () => [elapsed()] }));
  stand(G, "cancelAnimationFrame", drop);
  const idle = () => {
    const end = elapsed() + 50;
    return [{ didTimeout: false, timeRemaining: () => Math.max(0, end - readElapsed()) }];
  };
  stand(G, "requestIdleCallback", (f, self, [callback]) => typeof callback !== "function" ? Reflect.apply(f, self, [callback])
    : add(callback, 1, [], { given: idle }));
  stand(G, "cancelIdleCallback", drop);
  if (G.AbortSignal) stand(AbortSignal, "timeout", (f, self, [ms]) => {
    const controller = new AbortController();
    add(() => controller.abort(new DOMException("signal timed out", "TimeoutError")), Math.max(0, Number(ms) || 0));
    return controller.signal;
  });
  if (native.postTask) stand(G.scheduler, "postTask", (f, self, [callback, options]) => {
    const delay = options && options.delay;
    if (!delay) return native.postTask(callback, options);
    return new Promise((done, fail) => add(() => native.postTask(callback, { ...options, delay: 0 }).then(done, fail), Math.max(0, Number(delay) || 0)));
  });

  // ---- answers that the page waits for: the clock stands while one is on its way
  let pending = 0, started = 0, fetched = 0;
  const hop = () => new Promise((done) => native.postTask ? native.postTask(done, { priority: "background" }) : native.setTimeout(done, 0));
  const track = (promise) => {
    renew();
    pending++; started++;
    const end = () => hop().then(() => { pending--; });
    promise.then(end, end);
    return promise;
  };
  //= freeze_order.js
  //= freeze_waiting.js
  stand(G, "fetch", (f, self, args) => { fetched++; return track(inOrder(Reflect.apply(f, self, args))); });
  if (G.Response) for (const name of ["text", "json", "arrayBuffer", "blob", "bytes", "formData"])
    stand(Response.prototype, name, (f, self, args) => track(inOrder(Reflect.apply(f, self, args))));
  if (G.Response && G.ReadableStreamDefaultReader) { // a body that is read piece by piece
    const bodies = new WeakSet(), readers = new WeakSet(), of_ = ReadableStream.prototype;
    getter(Response.prototype, "body", (get) => { const body = get(); if (body) bodies.add(body); return body; });
    const passed = (name, apply) => stand(of_, name, (f, self, args) => bodies.has(self) ? apply(Reflect.apply(f, self, args)) : Reflect.apply(f, self, args));
    passed("getReader", (reader) => { readers.add(reader); return reader; });
    passed("pipeThrough", (stream_) => { bodies.add(stream_); return stream_; });
    passed("tee", (both) => { for (const one of both) bodies.add(one); return both; });
    passed("pipeTo", track);
    passed("values", (pieces) => { const next = pieces.next.bind(pieces); pieces.next = (...args) => track(next(...args)); return pieces; });
    Object.defineProperty(of_, Symbol.asyncIterator, { value: of_.values, writable: true, configurable: true, enumerable: false });
    for (const kind of ["ReadableStreamDefaultReader", "ReadableStreamBYOBReader"])
      if (G[kind]) stand(G[kind].prototype, "read", (f, self, args) =>
        readers.has(self) ? track(Reflect.apply(f, self, args)) : Reflect.apply(f, self, args));
  }

  //= freeze_performance.js

  // ---- properties that differ between machines
  if (G.NetworkInformation) {
    const proto = G.NetworkInformation.prototype;
    for (const [name, value] of Object.entries({ rtt: 50, downlink: 10, effectiveType: "4g", saveData: false }))
      getter(proto, name, () => value);
  }
  const Nav = G.Navigator || G.WorkerNavigator;
  if (Nav) {
    getter(Nav.prototype, "hardwareConcurrency", () => 4);
    getter(Nav.prototype, "deviceMemory", () => 8);
  }

  const frameLimit = isWindow && G.top === G ? 2000 : 300; // real ms for two drawn frames on a busy machine
  //= freeze_workers.js
  //= freeze_refresh.js
  //= freeze_motion.js
  //= freeze_observers.js
  //= freeze_shadow.js
  //= freeze_streams.js
  //= freeze_tabs.js

  // ---- the driver's side
  if (observer) enter(document);
  if (mayChange) {
    renewals.push((before) => { document_.since = native.now(); document_.asks = 0; begin(before); });
    listen(G, "visibilitychange", () => native.soon(renew), true); // the first document is being left
    listen(G, "readystatechange", renew, true);
  }
  if (isWindow) {
    getter(G.AnimationTimeline && AnimationTimeline.prototype, "currentTime", () => elapsed());
  }
  const report = (error) => { if (G.reportError) G.reportError(error); };
  const first = () => {
    let best = null;
    for (const timer of queue.values()) if (!best || timer.due < best.due || (timer.due === best.due && timer.id < best.id)) best = timer;
    return best;
  };
  // Waits until the page and its workers have done all they can do now. Returns how many answers and loads they wait
  // for.
  const rest = async (through, drewFor = false) => {
    for (let drew = drewFor; ; drew = true) {
      await hop();
      renew();
      await adopt();
      const answers = workers.size ? await askWorkers({ ping: true, through, drew }) : [];
      if (workers.size) await hop();
      const sum = (name, own) => answers.reduce((all, answer) => all + answer[name], own);
      const waiting = { pending: sum("pending", pending), held: sum("held", holding(through)) };
      if (waiting.held > 0 || (!through && waiting.pending > 0) || G.top !== G) return waiting;
      if (!(await draw(sum("wanting", wanting()), sum("fresh", Number(unseen)) > 0))) return waiting;
    }
  };
  // Runs the page's timers of the next `ms` virtual milliseconds in order, each with all that follows from it. Stops
  // early when a tab is opened or, unless `through`, a request starts. Moves the clock to the end of the span only if
  // `whole`.
  const pass = async (ms, { through = false, whole = false, real = 2000 } = {}) => {
    const end = clock + ms, began = started, opened = G.top === G ? 0 : untold(), asked = fetched, from = clock, limit = native.now() + real;
    let ran = 0;
    looked = shownAt = -1;
    if (G.top !== G && whole) meet(end, through);
    for (;;) {
      const waiting = await rest(through);
      if (waiting.held > 0 || (!through && (waiting.pending > 0 || started !== began))) break;
      if (untold() > opened) { whole = false; break; }
      const timer = first();
      const due = Math.min(timer ? timer.due : Infinity, nextInWorkers(), nextInMotion());
      if (due > end) break;
      if (native.now() > limit) { whole = false; break; } // timers that are due by then are not skipped
      clock = Math.max(clock, due);
      keepUp();
      if (workers.size) {
        const moved = await askWorkers({ to: elapsed(), through });
        const count = moved.reduce((sum, answer) => sum + answer.ran, 0);
        if (count) { ran += count; continue; }
      }
      if (!timer || timer.due > clock) continue;
      if (timer.every) timer.due = clock + timer.every; else queue.delete(timer.id);
      depth = timer.depth;
      await call(timer);
      ran++;
    }
    if (whole && holding(through) === 0 && (through || (pending === 0 && started === began))) { clock = Math.max(clock, end); keepUp(); }
    if (workers.size) await askWorkers({ to: elapsed(), through });
    const state = saying(together(status(through)));
    state.ran = ran; state.moved = clock - from; state.asked = fetched - asked;
    return state;
  };
  // Frames move together: one may send a message to another at once, whose clock must not be behind.
  const meet = (end, through) => {
    const timer = first();
    if (pending || holding(through) || (timer && timer.due < end) || nextInMotion() < end) return;
    clock = Math.max(clock, end);
    keepUp();
    for (const one of workers) if (one.frame) one.port.postMessage({ meet: elapsed() - one.offset, through });
  };
  let turn = Promise.resolve();
  const inTurn = (work) => { // a call whose caller gave up is still running
    const mine = turn.then(work);
    turn = mine.catch(report);
    return mine;
  };
  const run = (ms, how) => inTurn(() => pass(ms, how));
  // A navigation that began here: the browser may not have reported its request yet.
  let way = null;
  const stay = () => { way = null; }; // it loaded no other document
  if (isWindow && G.navigation) {
    G.navigation.addEventListener("navigate", (event) => {
      const elsewhere = /^https?:/.test(event.destination.url) && !event.destination.sameDocument && event.downloadRequest === null;
      way = elsewhere ? { event, since: native.now() } : way;
    });
    for (const end of ["navigatesuccess", "navigateerror"]) G.navigation.addEventListener(end, stay);
  }
  const leaving = () => Number(Boolean(way && !way.event.defaultPrevented && !G.navigation.transition && native.now() - way.since < 5000));
  // The state of this document alone; `together` adds all frames and workers that it drives.
  const status = (through) => {
    const timer = first();
    return { elapsed: elapsed(), pending, held: holding(through), started, fetched, mutations, replay: Boolean(config.replay), next: timer ? timer.due - clock : null,
      leaving: leaving(), tabs, wanting: wanting(), fresh: Number(unseen), ready: isWindow ? document.readyState : "complete", ...talk() };
  };
  const together = (state) => {
    for (const known of workers) if (known.state)
      for (const name of ["pending", "held", "started", "fetched", "mutations", "leaving", "tabs", "wanting", "fresh", "sent", "heard", "silent"]) state[name] += known.state[name];
    const later = Math.min(nextInWorkers(), nextInMotion()) - clock;
    if (later !== Infinity) state.next = state.next === null ? later : Math.min(state.next, later);
    return state;
  };
  // Draws two real frames, so that intersection and resize observers report, unless the last run has ended with that.
  const frames = async () => {
    if (shownAt !== happened()) await Promise.all([show(), askWorkers({ frames: true })]);
    return saying(together(status()));
  };
  // Called before step `number` is performed on the page: the messages of its sockets count from then on.
  const ask = async (number) => {
    await Promise.all([goOn(number), askWorkers({ ask: number })]);
    return status();
  };
  Object.defineProperty(G, KEY, { value: Object.freeze({ run, status, frames, hearing, stay, told, ask }), enumerable: false });
})
