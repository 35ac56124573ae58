// Part of freeze.js.
// ---- performance: entries keep names and sizes; their times are 0, as nothing took time
const MEASURED = new Set(["mark", "measure", "navigation", "resource"]);
const still = (entry, more) => {
  if (entry.entryType === "mark" || entry.entryType === "measure") return entry;
  const copy = Object.create(Object.getPrototypeOf(entry));
  const values = {};
  for (const [name, value] of Object.entries(entry.toJSON())) {
    let kept = typeof value === "number" ? 0 : value;
    if (/BodySize$|^responseStatus$|^redirectCount$/.test(name)) kept = entry.entryType === "resource" ? value : 0;
    if (name === "responseStatus") kept = value;
    if (name === "transferSize") kept = entry.entryType === "resource" && entry.encodedBodySize ? entry.encodedBodySize + 300 : 0;
    if (name === "serverTiming" || name === "notRestoredReasons") kept = name === "serverTiming" ? [] : null;
    if (name === "nextHopProtocol") kept = "http/1.1";
    if (name === "name") kept = unmarked(value);
    values[name] = kept;
  }
  Object.assign(values, more);
  for (const [name, value] of Object.entries(values)) Object.defineProperty(copy, name, { value, enumerable: false });
  Object.defineProperty(copy, "toJSON", { value: () => ({ ...values }) });
  return copy;
};
const LOADED = { domInteractive: 1, domContentLoadedEventStart: 1, domContentLoadedEventEnd: 1, domComplete: 2,
  loadEventStart: 2, loadEventEnd: 2, duration: 2, responseStart: 1, responseEnd: 1, type: "navigate" };
let navigation = null;
const arrange = (entries) => {
  const own = [];
  for (const entry of entries) {
    if (!MEASURED.has(entry.entryType)) continue;
    if (entry.entryType === "navigation") own.push(navigation || (navigation = still(entry, LOADED)));
    else own.push(still(entry));
  }
  const place = (e) => ["navigation", "resource", "mark", "measure"].indexOf(e.entryType);
  return own.sort((a, b) => place(a) - place(b) || a.startTime - b.startTime ||
    (a.entryType === "resource" ? (a.name < b.name ? -1 : a.name > b.name ? 1 : 0) : 0));
};
if (G.Performance) {
  const proto = G.Performance.prototype;
  stand(proto, "now", readElapsed);
  getter(proto, "timeOrigin", () => config.start);
  for (const name of ["getEntries", "getEntriesByType", "getEntriesByName"])
    stand(proto, name, (f, self, args) => arrange(Reflect.apply(f, self, args)));
  stand(proto, "mark", (f, self, [name, options]) => Reflect.apply(f, self, [name, { startTime: elapsed(), ...options }]));
  const moment = (point) => { // a measure may begin or end at a moment that the browser noted by its own clock
    if (typeof point !== "string" || !G.PerformanceTiming || !(point in PerformanceTiming.prototype)) return point;
    const at = self_.timing[point];
    if (!at) throw new DOMException(`'${point}' is empty: it did not happen, or was on another origin.`, "InvalidAccessError");
    return at - config.start;
  };
  const self_ = G.performance;
  stand(proto, "measure", (f, self, [name, start, end]) => {
    const options = start !== null && typeof start === "object" ? { ...start } : { start: start === undefined ? 0 : start };
    if (end !== undefined) options.end = end;
    if (options.end === undefined && (options.start === undefined || options.duration === undefined)) options.end = elapsed();
    for (const side of ["start", "end"]) if (side in options) options[side] = moment(options[side]);
    return Reflect.apply(f, self, [name, options]);
  });
  stand(proto, "toJSON", (f, self, args) => {
    const { timing, ...said } = Reflect.apply(f, self, args);
    if (timing === undefined) return { ...said, timeOrigin: config.start };
    const known = {};
    for (const name of Object.keys(timing.toJSON ? timing.toJSON() : timing)) known[name] = self.timing[name];
    return { ...said, timeOrigin: config.start, timing: known, eventCounts: {} };
  });
  getter(proto, "memory", () => ({ jsHeapSizeLimit: 4294705152, totalJSHeapSize: 10000000, usedJSHeapSize: 10000000 }));
  getter(G.PerformanceEntry && PerformanceEntry.prototype, "navigationId", () => 1);
  for (const kind of ["PerformanceEntry", "PerformanceMark", "PerformanceMeasure"])
    if (G[kind] && Object.hasOwn(G[kind].prototype, "toJSON"))
      stand(G[kind].prototype, "toJSON", (f, self) => ({ ...Reflect.apply(f, self, []), navigationId: 1 }));
  if (G.PerformanceTiming) for (const name of Object.getOwnPropertyNames(PerformanceTiming.prototype))
    getter(PerformanceTiming.prototype, name, () =>
      /^(redirect|unload|secure)/.test(name) ? 0 : config.start + (name in LOADED ? LOADED[name] : 0));
}
if (G.PerformanceObserver) {
  const Native = G.PerformanceObserver;
  const Frozen = new Proxy(Native, { construct: (target, [callback], as) => Reflect.construct(target, [(list, self, extra) => {
    const entries = arrange(list.getEntries());
    if (!entries.length) return;
    callback.call(self, {
      getEntries: () => entries,
      getEntriesByType: (type) => entries.filter((e) => e.entryType === type),
      getEntriesByName: (name, type) => entries.filter((e) => e.name === name && (!type || e.entryType === type)),
    }, self, extra);
  }], as === Frozen ? target : as) });
  Native.prototype.constructor = Frozen;
  stand(Native.prototype, "takeRecords", (f, self) => arrange(Reflect.apply(f, self, [])));
  G.PerformanceObserver = Frozen;
}
if (G.console) { // console timers print the browser's own time
  const begun = new Map(), { log, warn } = console;
  const label = (given) => given === undefined ? "default" : String(given);
  stand(console, "time", (f, self, [given]) => { if (!begun.has(label(given))) begun.set(label(given), elapsed()); else warn(`Timer '${label(given)}' already exists`); });
  const tell = (given, more) => {
    const since = begun.get(label(given));
    if (since === undefined) warn(`Timer '${label(given)}' does not exist`);
    else log(`${label(given)}: ${elapsed() - since} ms`, ...more);
  };
  stand(console, "timeLog", (f, self, [given, ...more]) => tell(given, more));
  stand(console, "timeEnd", (f, self, [given]) => { tell(given, []); begun.delete(label(given)); });
}
