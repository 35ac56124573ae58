// Part of freeze.js.
// ---- observers of size and visibility: the browser reports in each frame that it draws, and the number of frames
// drawn while a page changes depends on the machine. So a page gets its reports once it rests, before a later timer:
// the present state of each target, unless that was the last one reported.
const boxOf = { "border-box": "borderBoxSize", "device-pixel-content-box": "devicePixelContentBoxSize" };
const KINDS = {
  ResizeObserver: {
    state: (entry, { box }) => { const [{ inlineSize, blockSize }] = entry[boxOf[box] || "contentBoxSize"]; return `${inlineSize} ${blockSize}`; },
    stale: () => false,
  },
  IntersectionObserver: {
    state: ({ isIntersecting, intersectionRatio, isVisible }, known, { thresholds }) =>
      `${isIntersecting} ${isIntersecting && thresholds.filter((one) => one <= intersectionRatio).length} ${isVisible}`,
    stale: ({ target, boundingClientRect: then }) => { // it has moved since, without a report
      const now = target.getBoundingClientRect();
      return ["x", "y", "width", "height"].some((side) => Math.abs(now[side] - then[side]) >= 1);
    },
  },
};
const watching = new WeakMap(); // observer -> its targets and the entries to report
const found = new Set(); // those with entries from the browser
let watchers = 0, targets = 0;
// Returns an observer's entries to report, in the order in which it began to observe the targets.
const foundBy = (own) => {
  const all = [...own.entries.values()].filter((entry) => own.known.has(entry.target));
  own.entries.clear();
  found.delete(own);
  all.sort((a, b) => own.known.get(a.target).number - own.known.get(b.target).number);
  return all.filter((entry) => {
    const known = own.known.get(entry.target), state = own.kind.state(entry, known, own.observer), before = known.told;
    known.told = state;
    stamps.set(entry, elapsed());
    return state !== before;
  });
};
const take = (own, entries) => {
  for (const entry of entries) own.entries.set(entry.target, entry);
  if (own.entries.size) found.add(own);
};
for (const [name, kind] of Object.entries(KINDS)) {
  const Native = G[name];
  if (!Native) continue;
  const { prototype } = Native, { observe, unobserve } = prototype;
  const Told = new Proxy(Native, { construct: (target, [callback, ...more], as) => {
    const own = { kind, callback, number: ++watchers, entries: new Map(), known: new WeakMap(), observer: null };
    const given = typeof callback === "function" ? (entries) => take(own, entries) : callback; // the constructor reports the error
    own.observer = Reflect.construct(target, [given, ...more], as === Told ? target : as);
    own.anew = (one) => { unobserve.call(own.observer, one); observe.call(own.observer, one); };
    watching.set(own.observer, own);
    return own.observer;
  } });
  prototype.constructor = Told;
  Object.defineProperty(G, name, { value: Told, writable: true, configurable: true, enumerable: false });
  stand(prototype, "observe", (f, self, [target, options, ...more]) => {
    const answer = Reflect.apply(f, self, [target, options, ...more]), own = watching.get(self);
    const box = (options && options.box) || "content-box", known = own.known.get(target);
    unseen = watched = true;
    if (!known || known.box !== box) own.known.set(target, { number: ++targets, box, told: null });
    return answer;
  });
  stand(prototype, "unobserve", (f, self, args) => {
    const answer = Reflect.apply(f, self, args), own = watching.get(self);
    own.known.delete(args[0]);
    own.entries.delete(args[0]);
    return answer;
  });
  stand(prototype, "disconnect", (f, self, args) => {
    const answer = Reflect.apply(f, self, args), own = watching.get(self);
    own.known = new WeakMap();
    own.entries.clear();
    return answer;
  });
  stand(prototype, "takeRecords", (f, self, args) => {
    const own = watching.get(self);
    take(own, Reflect.apply(f, self, args));
    return foundBy(own);
  });
}
getter(G.IntersectionObserverEntry && IntersectionObserverEntry.prototype, "time", function () { return stamps.has(this) ? stamps.get(this) : elapsed(); });
// Reports to the page what two drawn frames have found. Resolves to whether there was anything.
const tell = async () => {
  let late = false, told = false;
  for (const { kind, entries, anew } of found)
    for (const entry of entries.values()) if (kind.stale(entry)) { anew(entry.target); late = true; }
  if (late) await frame();
  for (const own of [...found].sort((a, b) => a.number - b.number)) {
    const entries = foundBy(own);
    if (!entries.length) continue;
    told = true;
    native.soon(Function.prototype.call.bind(own.callback, own.observer, entries, own.observer)); // keeps our code out of its stack
    await hop();
  }
  return told;
};

// ---- frames drawn for observers, and after scrolling. A page that changes with every timer is drawn less often
// (`DRAWN` times, and once in `EACH` ms of its time), as drawing takes real time.
const DRAWN = 20, EACH = 250;
let unseen = false, watched = false, scrolled = false, drawn = 0, left = DRAWN, drawnAt = clock;
const scrolls = (owner, ...names) => { for (const name of names) stand(owner, name, (f, self, args) => { scrolled = true; return Reflect.apply(f, self, args); }); };
scrolls(isWindow ? G : null, "scroll", "scrollTo", "scrollBy");
scrolls(of("Element"), "scroll", "scrollTo", "scrollBy", "scrollIntoView");
for (const name of G.Element ? ["scrollTop", "scrollLeft"] : [])
  setter(Element.prototype, name, (f, self, args) => { scrolled = true; return Reflect.apply(f, self, args); });
const wanting = () => Number(unseen || scrolled || found.size > 0 || (watched && drawn !== mutations));
// Draws frames if `wanted`, unless too many were drawn, and in any case for what is `fresh`. Resolves to whether it
// drew.
const draw = async (wanted, fresh) => {
  left = Math.min(DRAWN, left + (clock - drawnAt) / EACH);
  drawnAt = clock;
  if (!wanted || (!fresh && left < 1)) return false;
  if (!fresh) left--;
  await show();
  return true;
};
// Called when the parent page has drawn: a frame can't tell by itself whether it is in sight.
const drawnFor = async () => { unseen = scrolled = false; drawn = mutations; await tell(); };
let shownAt = -1; // `happened()` when frames were drawn without further effect: no observer has more to report
const happened = () => unseen || scrolled || found.size ? -2 : mutations + calls;
const show = async () => {
  unseen = scrolled = false;
  drawn = mutations;
  const before = happened(), really = await frame(), told = await tell();
  shownAt = really && !told && workers.size === 0 ? before : -1;
};
