// Reads what a person sees of a document, without changing it: its visible text, its markup with the live state of
// forms and open shadow roots, the state of its filters and pages, and its links to documents. With `only` "state", the
// state alone: the rest takes most of the time in a large document.
(only) => {
  const clean = (text) => (typeof text === "string" ? text : "").replace(/\s+/g, " ").trim();
  const label = (e) => clean(e.getAttribute("aria-label") ||
    (e.getAttribute("aria-labelledby") || "").split(/\s+/).filter(Boolean)
      .map((id) => document.getElementById(id)?.textContent || "").join(" ") ||
    (e.labels && e.labels.length ? [...e.labels].map((l) => {
      const copy = l.cloneNode(true);
      copy.querySelectorAll("select,textarea,script,style").forEach((x) => x.remove());
      return copy.textContent;
    }).join(" ") : "") || e.getAttribute("placeholder") || e.getAttribute("title") || e.name || e.id).slice(0, 120);
  const shown = (e) => e.checkVisibility ? e.checkVisibility() : true;

  const roots = [document];
  for (let i = 0; i < roots.length; i++)
    for (const e of roots[i].querySelectorAll("*")) if (e.shadowRoot) roots.push(e.shadowRoot);
  const all = (selector) => roots.flatMap((root) => [...root.querySelectorAll(selector)]);

  const fields = [];
  for (const e of all("input,select,textarea")) {
    const type = e.localName === "input" ? e.type : e.localName;
    const drawn = /^(checkbox|radio)$/.test(type) && [...e.labels].some(shown); // visible by its label, if it is hidden itself
    if (/^(hidden|password|submit|button|reset|image|file)$/.test(type) || !(shown(e) || drawn)) continue;
    const field = { label: label(e), type };
    if (e.name) field.name = e.name;
    if (type === "checkbox" || type === "radio") { field.value = e.value; field.checked = e.checked; }
    else if (type === "select") field.value = [...e.selectedOptions].map((o) => clean(o.textContent));
    else field.value = e.value;
    fields.push(field);
  }
  const names = (selector) => all(selector).filter(shown)
    .map((e) => clean(e.getAttribute("aria-label")) || clean(e.textContent).slice(0, 120) || label(e)).filter(Boolean);
  const state = { url: location.href, fragment: location.hash };
  if (fields.length) state.fields = fields;
  const tabs = names('[role=tab][aria-selected=true]');
  if (tabs.length) state.tabs = tabs;
  const chosen = names('[aria-pressed=true],[role=option][aria-selected=true],[role=checkbox][aria-checked=true],' +
    '[role=radio][aria-checked=true],[role=switch][aria-checked=true],[role=menuitemradio][aria-checked=true]');
  if (chosen.length) state.chosen = chosen;
  const current = all('[aria-current]:not([aria-current=false])').filter(shown);
  const page = current.map((e) => clean(e.textContent)).find((t) => /^\D{0,12}\d+\D{0,3}$/.test(t));
  const asked = new URLSearchParams(location.search);
  const number = page ? page.match(/\d+/)[0] : ["page", "p", "pg", "offset", "start", "_next"].map((k) => asked.get(k)).find(Boolean);
  if (number) state.page = number;
  const sorted = all('[aria-sort=ascending],[aria-sort=descending]').filter(shown)
    .map((e) => `${clean(e.textContent)} ${e.getAttribute("aria-sort")}`);
  if (sorted.length) state.sort = sorted;
  const open = names('details[open]>summary,[aria-expanded=true]');
  if (open.length) state.open = open;

  const whole = (value) => typeof value === "string" ? value.toWellFormed() // a text may have been cut within a character
    : Array.isArray(value) ? value.map(whole) : value === null || typeof value !== "object" ? value
    : Object.fromEntries(Object.entries(value).map(([key, one]) => [key, whole(one)]));
  if (only === "state") return whole({ state });

  const inert = document.implementation.createHTMLDocument(""); // nothing in the copy loads or runs
  const copy = (node, into) => { // copies node's children into `into`, with the state that the markup lacks
    for (const child of node.childNodes) {
      const made = inert.importNode(child, false);
      if (child.nodeType === 1) {
        if (child.localName === "input") {
          if (/^(checkbox|radio)$/.test(child.type)) made.toggleAttribute("checked", child.checked);
          else if (child.type !== "password" && child.type !== "file") made.setAttribute("value", child.value);
        }
        if (child.localName === "option") made.toggleAttribute("selected", child.selected);
        if (child.localName === "textarea") { made.textContent = child.value; into.appendChild(made); continue; }
        if (child.shadowRoot) {
          const template = inert.createElement("template");
          template.setAttribute("shadowrootmode", child.shadowRoot.mode);
          copy(child.shadowRoot, template.content);
          made.appendChild(template);
        }
        if (child.localName === "template") { copy(child.content, made.content); into.appendChild(made); continue; }
      }
      copy(child, made);
      into.appendChild(made);
    }
  };
  const root = document.documentElement;
  let html = "";
  if (root) {
    const made = inert.importNode(root, false);
    copy(root, made);
    html = made.outerHTML;
  }
  const type = document.doctype;
  if (type) html = `<!DOCTYPE ${type.name}${type.publicId ? ` PUBLIC "${type.publicId}"` : ""}${type.systemId ? ` "${type.systemId}"` : ""}>\n${html}`;

  const drawn = (e) => {
    while (e && getComputedStyle(e).display === "contents") e = e.assignedSlot || e.parentElement || e.getRootNode().host;
    return !e || shown(e);
  };
  const own = (node) => [...node.childNodes].map((n) => { // the text of a shadow tree; slotted content is in the body's text
    if (n.nodeType !== 1) return n.nodeType === 3 ? n.data.trim() : "";
    const display = getComputedStyle(n).display; // innerText of an element that is not drawn is its source text
    if (display !== "contents") return display === "none" ? "" : n.innerText || "";
    return n.localName === "slot" && n.assignedNodes().length ? "" : own(n);
  }).filter((t) => t.trim()).join("\n");
  const shadow = roots.slice(1).filter((r) => drawn(r.host)).map(own).filter((t) => t.trim());
  const body = document.body ? document.body.innerText : (root ? root.textContent : "");
  const text = [body, ...shadow].join("\n");
  const pdfs = all("a[href]").map((a) => a.href).filter((href) => /^https?:/.test(href) && /\.pdf($|[?#])/i.test(href));
  return whole({ url: location.href, title: document.title, text, html, state, pdfs: [...new Set(pdfs)],
    height: root ? root.scrollHeight : 0, view: innerHeight });
}
