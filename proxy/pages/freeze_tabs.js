// Part of freeze.js.
// ---- tabs that the page opens: the browser tells of them when it likes, so they are counted for the driver, which waits
// until it was told of as many. What uses a window that is there already opens none.
let tabs = 0, tabsSaid = 0, tabsTold = 0; // opened here; how many of them the driver knows of, and was told of by the browser
let heedForms = () => {};
if (isWindow) {
  const SHOWN = /^(https?|about|blob):/; // others have no page that is told of
  const named = new Map(); // a name that was given -> its window, null if that is not known
  const met = new WeakSet();
  const isNew = (w) => { // the document that a window begins with has no place in its history
    if (w.top !== w || met.has(w)) return false;
    met.add(w);
    try { return w.navigation.currentEntry === null; } catch { return G.origin === "null"; } // which a sandboxed page can't see
  };
  const taken = (name) => {
    if (named.has(name)) return !(named.get(name) && named.get(name).closed);
    for (let w = G; ; w = w.parent) {
      try { if (w.name === name || (w[name] && w[name].window === w[name])) return true; } catch { /* another site's: it has no such frame */ }
      if (w === w.parent) return false;
    }
  };
  const opens = (alone, ...elements) => { // whether a link or form opens a tab, `alone` if that knows nothing of this page
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
  // What is done about an event is known when everybody has heard of it.
  const heed = (event, does) => native.soon(() => { if (!event.defaultPrevented && does()) tabs++; });
  const clicked = (event) => {
    const link = event.composedPath().find((e) => (e.localName === "a" || e.localName === "area") && e.hasAttribute("href"));
    if (link) heed(event, () => followed(event, link));
  };
  const sent = (form, button) => form.getAttribute("method") !== "dialog" && opens(false, button, form);
  heedForms = (root) => listen(root, "submit", (event) => {
    const { target, submitter } = event; // which are gone afterwards, in a shadow tree
    heed(event, () => sent(target, submitter));
  }, true);
  heedForms(G);
  for (const kind of ["click", "auxclick"]) listen(G, kind, clicked, true);
  stand(HTMLElement.prototype, "click", (f, self, args) => { // what is in no document is heard by nobody
    if (!self.isConnected) listenTo.call(self, "click", clicked, { capture: true, once: true });
    return Reflect.apply(f, self, args);
  });
  stand(HTMLFormElement.prototype, "submit", (f, self, args) => {
    Reflect.apply(f, self, args);
    if (sent(self, null)) tabs++;
  });
  stand(G, "open", (f, self, args) => {
    const w = Reflect.apply(f, self, args), [url, given, features] = args.map(String);
    const name = given && given !== "undefined" ? given : "_blank";
    // No window: it was blocked (as all are in a sandbox), or knows nothing of this page.
    const unseen = !w && G.origin !== "null" && /(^|[\s,])no(opener|referrer)\b(?!\s*=\s*(0|no|false))/i.test(features) && !taken(name);
    if (w ? isNew(w) && (!url || SHOWN.test(protocolOf(url))) : unseen) tabs++;
    if (w && w.top === w && name[0] !== "_") named.set(name, w);
    return w;
  });
}
// How many more were opened, by this document and its frames, than the driver was told of.
const untold = () => {
  let count = tabs - tabsTold;
  for (const one of workers) if (one.state) count += Math.max(0, one.state.tabs - (one.tabsTold || 0));
  return count;
};
const saying = (state) => { // to the driver
  state.untold = untold();
  tabsSaid = tabs;
  for (const one of workers) if (one.state) one.tabsSaid = one.state.tabs;
  return state;
};
const told = () => { // it was told of as many as were said
  tabsTold = tabsSaid;
  for (const one of workers) one.tabsTold = one.tabsSaid;
};
