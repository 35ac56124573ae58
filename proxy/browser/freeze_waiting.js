// Part of freeze.js.
// ---- what a page waits for besides `fetch`: its own loading, the loading of scripts, styles, images and frames, and
// the browser's own work (storage, digests, image encoding). The clock stands until it is done, as its duration depends
// on the machine. The driver hears of such requests late, and of the rest not at all. What never ends is given up after
// `asks` of the driver, which asks only while it knows of no request under way, and `ms` real ms.
const ELEMENT = { asks: 60, ms: 1000 }, WORK = { asks: 600, ms: 8000 }, LOADING = { asks: 200, ms: 5000 };
const holds = new Set();
const hold = (patience = WORK) => {
  const one = { since: native.now(), asks: 0, patience };
  holds.add(one);
  return () => { hop().then(() => holds.delete(one)); }; // the page's reaction to it comes first
};
const until = (promise) => { const end = hold(); promise.then(end, end); return promise; };
const document_ = isWindow ? { since: native.now(), asks: 0 } : null;
// Returns how much the clock waits for. With `through`, what is older than `STUCK` is not counted.
const holding = (through) => {
  const now = native.now();
  let count = 0;
  for (const one of holds) {
    if (++one.asks > one.patience.asks && now - one.since > one.patience.ms) holds.delete(one);
    else if (!through || now - one.since < STUCK) count++;
  }
  if (isWindow && document.readyState !== "complete" && !through) // a document that is written to later never completes
    if (++document_.asks <= LOADING.asks || now - document_.since <= LOADING.ms) count++;
  return count;
};

// ---- elements: held from the moment they are seen to load until their load or error event
const LOADS = "script[src],link[href],img,iframe,frame,meta[http-equiv=refresh i],marquee";
const loads = (e) => {
  switch (e.localName) {
    case "script": return e.hasAttribute("src") && !e.noModule && /^(module|(text|application)\/(x-)?(java|ecma|j)script.*)?$/i.test(e.type.trim());
    case "link": return e.href && !e.disabled && /(^| )(stylesheet|modulepreload)( |$)/i.test(e.rel) && (!e.media || G.matchMedia(e.media).matches);
    case "img": return !e.complete && e.loading !== "lazy";
    case "iframe": case "frame": return (e.hasAttribute("srcdoc") || /^(https?|blob|data):/.test(e.src)) && e.loading !== "lazy";
    default: return false;
  }
};
const loading = new WeakMap(); // element -> the listener that ends its hold
const ran = new WeakSet(); // scripts that were awaited: each runs once, wherever it is put
const awaitLoad = (e) => {
  if (e.localName === "meta") plan(e);
  if (e.localName === "marquee" && e.stop) e.stop(); // before it has begun, so it stays at its start
  if (!(e instanceof HTMLElement) || loading.has(e) || ran.has(e) || !loads(e)) return;
  if (e.localName === "script") ran.add(e);
  const release = hold(ELEMENT);
  const end = (event) => {
    if (event.target !== e) return;
    for (const kind of ["load", "error"]) unlisten.call(e, kind, end, true);
    loading.delete(e);
    release();
  };
  loading.set(e, end);
  for (const kind of ["load", "error"]) listenTo.call(e, kind, end, true);
};
const SOURCES = new Set(["src", "srcset", "srcdoc", "href", "rel"]);
const LOADERS = new Set(["script", "link", "img", "iframe", "frame", "meta", "marquee"]); // the elements that LOADS may match
const noticed = (records) => { // large documents have hundreds of thousands
  const covered = new Set(); // nodes that are searched together with their parent
  for (let n = 0; n < records.length; n++) {
    const record = records[n], type = record.type;
    if (type === "attributes" && SOURCES.has(record.attributeName)) awaitLoad(record.target);
    if (type !== "childList") continue;
    const added = record.addedNodes, count = added.length, target = count ? record.target : null;
    for (let at = 0; at < count; at++) {
      const node = added[at];
      if (node.nodeType !== 1) continue;
      covered.add(node);
      if (node.shadowRoot) enter(node.shadowRoot); // it came with the markup, and may be moving already
      if (covered.has(target)) continue;
      if (LOADERS.has(node.localName) && node.matches(LOADS)) awaitLoad(node);
      if (node.firstElementChild) for (const e of node.querySelectorAll(LOADS)) awaitLoad(e);
    }
  }
};
if (G.HTMLImageElement) { // an image loads even outside a document
  const proto = HTMLImageElement.prototype;
  for (const name of ["src", "srcset"])
    setter(proto, name, (f, self, args) => { Reflect.apply(f, self, args); if (self.isConnected === false) awaitLoad(self); });
  stand(proto, "decode", (f, self, args) => until(Reflect.apply(f, self, args)));
}

// ---- the browser's own work
const works = (owner, ...names) => { // functions that return a promise
  for (const name of names) stand(owner, name, (f, self, args) => {
    const answer = Reflect.apply(f, self, args);
    return answer && typeof answer.then === "function" ? until(answer) : answer;
  });
};
const of = (name) => G[name] && G[name].prototype;
works(of("SubtleCrypto"), "encrypt", "decrypt", "sign", "verify", "digest", "generateKey", "deriveKey", "deriveBits", "importKey", "exportKey", "wrapKey", "unwrapKey");
works(of("Blob"), "text", "arrayBuffer", "bytes");
works(of("CacheStorage"), "match", "has", "open", "delete", "keys");
works(of("Cache"), "match", "matchAll", "add", "addAll", "put", "delete", "keys");
works(of("StorageManager"), "estimate", "persisted", "getDirectory");
works(of("CookieStore"), "get", "getAll", "set", "delete");
works(of("OffscreenCanvas"), "convertToBlob");
works(of("FontFace"), "load");
works(of("FontFaceSet"), "load");
works(of("IDBFactory"), "databases");
works(of("Permissions"), "query");
works(of("NavigatorUAData"), "getHighEntropyValues");
works(of("FileSystemDirectoryHandle"), "getFileHandle", "getDirectoryHandle", "removeEntry");
works(of("FileSystemFileHandle"), "getFile", "createWritable", "createSyncAccessHandle");
works(of("FileSystemWritableFileStream"), "write", "close");
works(G, "createImageBitmap");
works(G.WebAssembly, "compile", "instantiate", "compileStreaming", "instantiateStreaming");
const events = (target, kinds, patience = WORK) => { // held until one of these events comes
  const release = hold(patience);
  const end = () => { for (const kind of kinds) unlisten.call(target, kind, end); release(); };
  for (const kind of kinds) listenTo.call(target, kind, end);
  return target;
};
for (const name of ["open", "deleteDatabase"])
  stand(of("IDBFactory"), name, (f, self, args) => events(Reflect.apply(f, self, args), ["success", "error", "blocked"]));
stand(of("IDBDatabase"), "transaction", (f, self, args) => events(Reflect.apply(f, self, args), ["complete", "abort"]));
for (const name of ["readAsText", "readAsDataURL", "readAsArrayBuffer", "readAsBinaryString"])
  stand(of("FileReader"), name, (f, self, args) => { Reflect.apply(f, self, args); events(self, ["loadend"]); });
for (const name of ["back", "forward", "go"]) stand(of("History"), name, (f, self, args) => {
  Reflect.apply(f, self, args);
  if (name !== "go" || Number(args[0])) events(G, ["popstate", "pagehide"], ELEMENT);
});
// A view transition has two pictures, before and after its update. The update takes its own time, the rest takes none.
stand(of("Document"), "startViewTransition", (f, self, [given, ...more]) => {
  const update = typeof given === "function" ? given : given && given.update, begun = hold();
  const done = (...args) => { begun(); return update ? update(...args) : undefined; };
  const transition = Reflect.apply(f, self, [given === null || typeof given !== "object" ? done : { ...given, update: done }, ...more]);
  const drawn = () => until(transition.ready.then(() => { unseen = true; })), over = () => { transitions--; }; // it moves from the next frame on
  transitions++;
  transition.updateCallbackDone.then(drawn, drawn);
  transition.finished.then(over, over);
  return transition;
});
stand(of("HTMLCanvasElement"), "toBlob", (f, self, [callback, ...more]) => {
  const end = hold();
  try {
    return Reflect.apply(f, self, [typeof callback !== "function" ? callback : (blob) => { end(); return callback(blob); }, ...more]);
  } catch (error) { end(); throw error; }
});
