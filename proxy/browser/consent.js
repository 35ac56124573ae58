// The button of a document's cookie banner that consents to least, evaluated with the patterns of driver.py and the order of kinds.
// Returns null, or [element, text, kind]. Open shadow roots are looked through; frames are asked one by one.
([patterns, order]) => {
  const known = {};
  let read = null; // only where a button stands
  const compiled = (kind) => (read ??= JSON.parse(patterns))[kind].map((one) => (typeof one === "string" ? one : new RegExp(one[0], one[1])));
  const fits = (kind, text) => (known[kind] ??= compiled(kind)).some((one) => (typeof one === "string" ? one === text : one.test(text)));
  const clean = (text) => text.toLowerCase().replace(/[“”"'/#&[\]→✕×⟩❯><✗‘’›«»]+/g, "").replace(/\s+/g, " ").trim();
  const inner = (node) => (node instanceof ShadowRoot ? [...node.children].map((e) => e.innerText || "").join("\n") : node.innerText || "");
  const up = (node) => (node.assignedSlot || node.parentNode);
  const shown = (e) => {
    if (!e.checkVisibility({ visibilityProperty: true, opacityProperty: true })) return false;
    const box = e.getBoundingClientRect();
    return box.width > 0 && box.height > 0;
  };
  const NAMED = /cookie|consent|gdpr|rgpd|dsgvo|privacy|(^|[-_ ])cmp([-_ ]|$)/i;
  const floats = (e) => /^(fixed|sticky)$/.test(getComputedStyle(e).position) || (e.localName === "dialog" && e.open)
    || /^(alert)?dialog$/.test(e.getAttribute("role")) || e.getAttribute("aria-modal") === "true";
  const isNamed = (e) => NAMED.test(`${e.id} ${e.getAttribute("class") || ""} ${e.getAttribute("aria-label") || ""} ${e.localName}`);
  const FAR = 8, LONG = 6000, SHORT = 1500; // ancestors; characters of a banner, and of one that does not float
  const framed = window.parent !== window;
  // Returns the text of the banner that holds the element, "" if it stands in none.
  const around = (e) => {
    let near = 0;
    for (let node = up(e); node && node !== document; node = up(node)) {
      if (node === document.documentElement || node === document.body) {
        const text = framed ? inner(document.body) : "";
        return fits("about", text) && text.length < LONG ? text : "";
      }
      near++;
      const special = node instanceof ShadowRoot ? isNamed(node.host) || floats(node.host) : floats(node) || isNamed(node);
      if (!special && near > FAR) continue;
      const text = inner(node);
      if (special && text.length < LONG && fits("about", text)) return text;
      if (!special && text.length < SHORT && /cookie/i.test(text) && fits("detect", text)) return text;
    }
    return "";
  };
  const roots = [document], found = [];
  for (const root of roots) for (const e of root.querySelectorAll("*")) {
    if (e.shadowRoot) roots.push(e.shadowRoot);
    const button = e.matches("button,input[type=button],input[type=submit],[role=button]");
    if (!button && e.localName !== "a" && !/button|btn/i.test(e.getAttribute("class") || "")) continue;
    if (e.disabled || e.matches("[role=tab],[role=switch],[role=checkbox],[aria-expanded],[aria-pressed]")) continue;
    const said = (e.localName === "input" ? e.value : e.innerText || e.getAttribute("aria-label") || "").trim();
    const text = clean(said);
    if (!text || text.length > 100 || fits("never", text) || !shown(e)) continue;
    const kind = ["reject", "settings", "save", "accept", "acknowledge"].find((one) => fits(one, text));
    if (!kind || (kind !== "reject" && !button)) continue; // other links lead to other pages
    if (kind === "reject" && e.localName === "a" && /^https?:/.test(e.href) && new URL(e.href).origin + new URL(e.href).pathname !== location.origin + location.pathname) continue;
    const banner = around(e);
    if (banner && !fits("exclude", banner)) found.push([e, said, kind]);
  }
  const inside = found.filter((one) => !found.some((other) => other !== one && one[0].contains(other[0])));
  for (const kind of order) {
    const one = inside.find((each) => each[2] === kind);
    if (one) return one;
  }
  return null;
}
