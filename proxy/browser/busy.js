// Returns a page's visible signs of being at work: `says` in words or by a role, `moves` by an animation without end.
() => {
  const WORDS = /^\W*(loading|running|processing|working|thinking|generating|calculating|computing|updating|refreshing|connecting|querying|searching|saving|please wait|wird geladen|lädt|chargement|cargando|caricamento|加载中|読み込み中)(?![a-z]).{0,40}(\.{2,}|…)\W*$/i;
  const ROLES = "[aria-busy=true],progress:not([value]),[role=progressbar]:not([aria-valuenow]):not([aria-valuetext])";
  const drawn = (e) => e.getClientRects().length > 0 && e.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const named = (e, why) => `${e.localName} ${why}`.slice(0, 120);
  const says = new Set(), moves = new Set();
  const roots = [document];
  for (const root of roots) for (const e of root.querySelectorAll("*")) if (e.shadowRoot) roots.push(e.shadowRoot);
  const all = (selector) => roots.flatMap((root) => [...root.querySelectorAll(selector)]);
  for (const root of [document.documentElement, document.body])
    for (const name of root ? root.classList : []) if (/(^|[-_])(busy|loading|running|working|processing)$/i.test(name)) says.add(named(root, name));
  if (WORDS.test(document.title)) says.add(`title ${document.title}`.slice(0, 120));
  if (/^(wait|progress)$/.test(getComputedStyle(document.documentElement).cursor) || (document.body && /^(wait|progress)$/.test(getComputedStyle(document.body).cursor)))
    says.add("cursor");
  for (const e of all(ROLES)) if (drawn(e)) says.add(named(e, e.getAttribute("role") || (e.localName === "progress" ? "" : "busy")));
  for (const e of all("[aria-label],[title]"))
    for (const name of ["aria-label", "title"]) {
      const text = e.getAttribute(name);
      if (text && text.length < 80 && WORDS.test(text) && drawn(e)) says.add(named(e, text));
    }
  let left = 20000;
  for (const root of roots) for (const texts = document.createTreeWalker(root.body || root, NodeFilter.SHOW_TEXT); left > 0 && texts.nextNode(); left--) {
    const node = texts.currentNode, text = node.data.trim();
    if (text.length > 2 && text.length < 60 && WORDS.test(text) && node.parentElement && !/^(script|style|option|textarea)$/.test(node.parentElement.localName) && drawn(node.parentElement))
      says.add(named(node.parentElement, text));
  }
  for (const motion of roots.flatMap((root) => root.getAnimations ? root.getAnimations() : [])) {
    const e = motion.effect && motion.effect.target;
    if (e && motion.playState === "running" && motion.effect.getComputedTiming().endTime === Infinity && drawn(e)) moves.add(named(e, `turning ${motion.animationName || ""}`));
  }
  return { says: [...says].sort(), moves: [...moves].sort() };
}
