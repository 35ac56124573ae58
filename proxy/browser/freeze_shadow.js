// Part of freeze.js.
// ---- shadow trees: a document's mutation observer and its list of animations do not cover them
const roots = new Set([...(isWindow ? [document] : [])]);
let mutations = 0;
const observer = isWindow && G.MutationObserver
  ? new MutationObserver((list) => { mutations += list.length; noticed(list); changed(); }) : null;
const enter = (root) => {
  if (root !== document && roots.has(root)) return;
  roots.add(root);
  observer.observe(root, { subtree: true, childList: true, characterData: true, attributes: true });
  watchMotion(root);
  if (root !== document) heedForms(root); // submit events are seen within a tree only
  explore(root);
};
const explore = (root) => { // enters the shadow trees that came with the markup
  const all = root.querySelectorAll("*");
  for (let n = 0; n < all.length; n++) if (all[n].shadowRoot) enter(all[n].shadowRoot);
};
const begin = (before) => { // for another document in the same window
  roots.delete(before);
  enter(document);
  for (const e of document.querySelectorAll("link,img,meta,marquee")) if (!e.sheet) awaitLoad(e); // what has loaded by now is not awaited
  changed();
};
if (observer) {
  stand(Element.prototype, "attachShadow", (f, self, args) => {
    const root = Reflect.apply(f, self, args);
    enter(root);
    return root;
  });
  for (const kind of ["Element", "ShadowRoot"])
    stand(G[kind] && G[kind].prototype, "setHTMLUnsafe", (f, self, args) => { Reflect.apply(f, self, args); explore(self.shadowRoot || self); });
  // The parser gives none of its shadow trees to a script or an observer. A frame may be drawn before it is done.
  const search = () => { for (const root of roots) explore(root); };
  parsed = () => { if (document.readyState === "loading") search(); };
  listen(G, "readystatechange", () => { if (document.readyState === "interactive") search(); }, true);
}
