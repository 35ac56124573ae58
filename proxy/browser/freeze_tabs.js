// Part of freeze.js.
// ---- tabs that the page opens: the browser reports them late, so they are counted for the driver, which waits until
// as many were reported. A link or form that uses an existing window opens none.
let tabs = 0, tabsSaid = 0, tabsTold = 0; // opened here; how many of them the driver was told of, and how many the browser reported to it
let heedForms = () => {};
if (isWindow) {
  const SHOWN = /^(https?|about|blob):/; // other schemes have no page that is reported
  const named = new Map(); // name of a window -> the window, null if it is unknown
  const met = new WeakSet();
  const isNew = (w) => { // a window's initial document has no entry in its history
    if (w.top !== w || met.has(w)) return false;
    met.add(w);
    try { return w.navigation.currentEntry === null; } catch { return G.origin === "null"; } // a sandboxed page can't read it
  };
  const taken = (name) => {
    if (named.has(name)) return !(named.get(name) && named.get(name).closed);
    for (let w = G; ; w = w.parent) {
      try { if (w.name === name || (w[name] && w[name].window === w[name])) return true; } catch { /* another site's: it has no such frame */ }
      if (w === w.parent) return false;
    }
  };
  const MOST = 20; // windows that scripts of a document may have open; more are blocked, as by a browser's popup blocker
  let windows = [], lone = 0, said = false; // those with an opener, the number of others; true if the last was blocked
  const full = () => {
    windows = windows.filter((w) => !w.closed);
    const was = said;
    said = windows.length + lone >= MOST;
    if (said && !was) G.console.warn("stillweb: windows: blocked");
    return said;
  };
  const opens = (alone, ...elements) => { // true if a link or form opens a tab; `alone`: the tab has no opener
    const setter_ = [...elements, document.querySelector("base[target]")].find((e) => e && (e.getAttribute("formtarget") || e.getAttribute("target")));
    const target = setter_ ? setter_.getAttribute("formtarget") || setter_.getAttribute("target") : "";
    if (/^(|_self|_parent|_top)$/i.test(target)) return false;
    if (/^_blank$/i.test(target)) return true;
    if (taken(target)) return false;
    if (!alone) named.set(target, null);
    return true;
  };
  const protocolOf = (url) => URL.canParse(url, document.baseURI) ? new URL(url, document.baseURI).protocol : "";
  const followed = (event, link) => {
    const protocol = protocolOf(link.href && link.href.baseVal !== undefined ? link.href.baseVal : link.href);
    if (event.button === 1 || event.ctrlKey || event.shiftKey) return event.isTrusted && SHOWN.test(protocol);
    return event.type === "click" && !link.hasAttribute("download") && (SHOWN.test(protocol) || protocol === "javascript:") &&
      opens(/\bno(opener|referrer)\b/i.test(link.getAttribute("rel")), link);
  };
  // What becomes of an event is known when all its listeners have run.
  const heed = (event, does) => native.soon(() => { if (!event.defaultPrevented && does()) tabs++; });
  const clicked = (event) => {
    const link = event.composedPath().find((e) => (e.localName === "a" || e.localName === "area") && e.hasAttribute("href"));
    if (!link) return;
    const target = link.getAttribute("target") || "";
    if (!event.isTrusted && !/^(|_self|_parent|_top)$/i.test(target) && !taken(target)) { // a script clicks
      if (full()) event.preventDefault();
      else lone++;
    }
    heed(event, () => followed(event, link));
  };
  const sent = (form, button) => form.getAttribute("method") !== "dialog" && opens(false, button, form);
  heedForms = (root) => listen(root, "submit", (event) => {
    const { target, submitter } = event; // in a shadow tree, these are gone afterwards
    heed(event, () => sent(target, submitter));
  }, true);
  heedForms(G);
  for (const kind of ["click", "auxclick"]) listen(G, kind, clicked, true);
  stand(HTMLElement.prototype, "click", (f, self, args) => { // clicks on an element outside the document reach none of our listeners
    if (!self.isConnected) listenTo.call(self, "click", clicked, { capture: true, once: true });
    return Reflect.apply(f, self, args);
  });
  stand(HTMLFormElement.prototype, "submit", (f, self, args) => {
    Reflect.apply(f, self, args);
    if (sent(self, null)) tabs++;
  });
  stand(G, "open", (f, self, args) => {
    if (full()) return null;
    const w = Reflect.apply(f, self, args), [url, given, features] = args.map(String);
    const name = given && given !== "undefined" ? given : "_blank";
    // No window: it was blocked (as all are in a sandbox), or has no opener.
    const unseen = !w && G.origin !== "null" && /(^|[\s,])no(opener|referrer)\b(?!\s*=\s*(0|no|false))/i.test(features) && !taken(name);
    if (w ? isNew(w) && (!url || SHOWN.test(protocolOf(url))) : unseen) tabs++;
    if (unseen) lone++;
    if (w && w.top === w && !windows.includes(w)) windows.push(w);
    if (w && w.top === w && name[0] !== "_") named.set(name, w);
    return w;
  });
}
// How many more tabs this document and its frames opened than were reported to the driver.
const untold = () => {
  let count = tabs - tabsTold;
  for (const one of workers) if (one.state) count += Math.max(0, one.state.tabs - (one.tabsTold || 0));
  return count;
};
const saying = (state) => { // adds the count of tabs to a state for the driver
  state.untold = untold();
  tabsSaid = tabs;
  for (const one of workers) if (one.state) one.tabsSaid = one.state.tabs;
  return state;
};
const told = () => { // called when the browser has reported as many as the driver was told of
  tabsTold = tabsSaid;
  for (const one of workers) one.tabsTold = one.tabsSaid;
};
