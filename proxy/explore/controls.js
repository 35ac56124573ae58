// The controls of a page in document order: one entry for each element that may lead to another view, with ways to
// name it (`target` for people, `css` as the last resort). Changes nothing.
(limit) => {
  const clean = (text) => (typeof text === "string" ? text.toWellFormed() : "").replace(/\s+/g, " ").trim(); // the page may override a property with any value
  const elements = Object.getOwnPropertyDescriptor(HTMLFormElement.prototype, "elements").get; // a field may be named "elements"
  const elementsOf = (form) => [...elements.call(form)];
  const outside = (e) => { // left of the page or above it, where no scrolling leads: a folded menu
    const box = e.getBoundingClientRect();
    const page = document.documentElement, rtl = getComputedStyle(page).direction === "rtl";
    return box.right + scrollX <= (rtl ? page.clientWidth - page.scrollWidth : 0) || box.bottom + scrollY <= 0;
  };
  const shown = (e) => (e.checkVisibility ? e.checkVisibility({ visibilityProperty: true }) : true) && e.getClientRects().length > 0;
  const passed = (e) => getComputedStyle(e).pointerEvents === "none"; // a click goes through it to the element behind
  const reached = (e) => shown(e) && !passed(e) &&
    [e, ...e.querySelectorAll("*")].some((x) => { const box = x.getBoundingClientRect(); return box.width > 0 && box.height > 0; });
  const all = []; // in document order; the content of open shadow roots follows its host
  const gather = (root) => { for (const e of root.querySelectorAll("*")) { all.push(e); if (e.shadowRoot) gather(e.shadowRoot); } };
  gather(document);
  const byId = (e, id) => (e.getRootNode().getElementById ? e.getRootNode() : document).getElementById(id);
  const label = (e) => clean(e.getAttribute("aria-label") ||
    (e.getAttribute("aria-labelledby") || "").split(/\s+/).filter(Boolean).map((id) => byId(e, id)?.textContent || "").join(" ") ||
    (e.labels && e.labels.length ? [...e.labels].map((l) => {
      const copy = l.cloneNode(true);
      copy.querySelectorAll("select,textarea,input,button,script,style").forEach((x) => x.remove());
      return copy.textContent;
    }).join(" ") : ""));
  const name = (e) => clean(e.getAttribute("aria-label")) || clean(e.textContent) || clean(e.value) || clean(e.title) ||
    clean(e.dataset.originalTitle) || clean([...e.querySelectorAll("img[alt],[aria-label],[title],svg title")].map((x) => x.alt || x.getAttribute("aria-label") || x.title || x.textContent).join(" "));
  const listening = new Set(globalThis[Symbol.for("stillweb.clickable")] || []);
  delete globalThis[Symbol.for("stillweb.clickable")];
  const operated = "a[href],button,input,select,textarea,label,summary,option,[role=button],[role=tab],[role=link],[role=menuitem],[role=switch],[role=option]";
  // An undeclared button: it has a click listener, or looks clickable (and no element around it does).
  const clickable = (e) => {
    if (e.closest(operated) || e.querySelector("input,select,textarea,table,tr,li") || e.localName === "tr") return false;
    if (listening.has(e)) return e.querySelectorAll(operated).length === 0 && e.querySelectorAll("*").length < 40;
    if (getComputedStyle(e).cursor !== "pointer" || !e.parentElement || getComputedStyle(e.parentElement).cursor === "pointer") return false;
    return ![...listening].some((x) => x !== e && e.contains(x)) && e.querySelectorAll(operated).length === 0;
  };
  const css = (e) => { // a shadow root is reached through its host; a space (and no ">") leads into it
    const parts = [], root = e.getRootNode();
    for (let n = e; n && n !== document.documentElement; n = n.parentElement) {
      if (n.id && root.querySelectorAll(`#${CSS.escape(n.id)}`).length === 1) { parts.unshift(`#${CSS.escape(n.id)}`); break; }
      const same = n.parentNode ? [...n.parentNode.children].filter((c) => c.localName === n.localName) : [n];
      parts.unshift(same.length > 1 ? `${n.localName}:nth-of-type(${same.indexOf(n) + 1})` : n.localName);
    }
    const inner = parts.join(" > ");
    return root.host ? `${css(root.host)} ${inner}` : inner;
  };
  const fields = all.filter((e) => /^(input|select|textarea)$/.test(e.localName));
  const byLabel = (e) => {
    const text = label(e);
    if (text && fields.filter((f) => label(f) === text).length === 1) return { label: text };
    const hint = clean(e.placeholder);
    if (hint && fields.filter((f) => clean(f.placeholder) === hint).length === 1) return { placeholder: hint };
    return null;
  };
  const found = [];
  const add = (kind, e, target, more) => found.push({ kind, css: css(e), target, ...more });
  const actionOf = (form) => {  // a field may be named "action"
    try { return new URL(form.getAttribute("action") || "", location.href); } catch { return new URL(location.href); }  // invalid: nothing is sent
  };
  const methodOf = (form) => (form.getAttribute("method") || "get").toLowerCase();
  const submitOf = (e) => {
    const form = e.form || e.closest("form");
    if (!form) return null;
    const button = elementsOf(form).find((x) => (x.type === "submit" || x.type === "image") && shown(x));
    if (!button) return { css: null, name: "", method: methodOf(form), action: actionOf(form).href, texts: texts(form), about: about(form) };
    return { css: css(button), name: name(button), target: operable(button, "button"), method: methodOf(form), action: actionOf(form).href, texts: texts(form), about: about(form) };
  };
  const about = (form) => [...["id", "name", "class", "role"].map((n) => form.getAttribute(n)), actionOf(form).pathname].join(" ");
  const texts = (form) => elementsOf(form).filter((x) => /^(text|search|email|tel|url|password|textarea|file)$/.test(x.type) && (shown(x) || x.type === "textarea")).map((x) => x.type);
  const roleNames = {};
  const roleOf = (e) => e.getAttribute("role") || (e.localName === "a" ? "link" : e.localName === "button" || e.type === "submit" ? "button" : "");
  for (const e of all) {
    const role = roleOf(e);
    if (role && shown(e)) { const key = `${role}|${name(e)}`; roleNames[key] = (roleNames[key] || 0) + 1; }
  }
  const operable = (e, role) => {
    const text = name(e);
    return text && text.length < 80 && roleNames[`${role}|${text}`] === 1 ? { role, name: text, exact: true } : null;
  };
  // True if a link leads to a visible place in this page; else it folds something, or shows another tab.
  const aPlace = (e, hash) => {
    let id = hash.slice(1);
    try { id = decodeURIComponent(id); } catch { /* keep it as written */ }
    const goal = byId(e, id) || document.getElementsByName(id)[0];
    return goal ? shown(goal) && !goal.contains(e) && !e.hasAttribute("aria-expanded") : /^top$/i.test(id);
  };
  // A dialog over the whole screen: only elements in it, or still clickable ones, can be operated. Other fixed
  // elements (a bar, the field of a drawn box) may lie below it.
  const layers = (e) => { // the fixed elements around it, the nearest first
    const fixed = [];
    for (let n = e; n; n = n.parentElement || n.getRootNode().host) if (getComputedStyle(n).position === "fixed") fixed.push(n);
    return fixed;
  };
  const [right, bottom] = [innerWidth - 5, innerHeight - 5];
  const points = [[5, 5], [right, 5], [5, bottom], [right, bottom], [innerWidth / 2, innerHeight / 2]];
  const above = points.map(([x, y]) => { const hit = document.elementFromPoint(x, y); return hit && layers(hit)[0]; });
  const covered = above.every(Boolean);
  const onTop = (e) => layers(e).some((layer) => above.includes(layer)) || [e, ...(e.labels || [])].some((x) => {
    const box = x.getBoundingClientRect();
    return x.contains(x.getRootNode().elementFromPoint(box.x + box.width / 2, box.y + box.height / 2));
  });
  const here = new URL(location.href);
  for (const e of all) {
    if (found.length >= limit) break;
    if (e.disabled || e.matches(":disabled") || e.getAttribute("aria-disabled") === "true" || e.closest("[inert]")) continue;
    const type = e.localName === "input" ? e.type : /^(select|summary|button)$/.test(e.localName) ? e.localName : ""; // no <time>, no <search>
    const visible = shown(e) && !outside(e);
    if (!visible && !((type === "radio" || type === "checkbox") && e.labels && [...e.labels].some(reached))) continue;
    if (visible && !/^(select|textarea|input)$/.test(e.localName) && passed(e)) continue;
    if (covered && !onTop(e)) continue;
    const role = e.getAttribute("role");
    if (type === "select") {
      const options = [...e.options].filter((o) => !o.disabled && !o.selected).map((o) => clean(o.textContent));
      add("select", e, byLabel(e), { options: [...new Set(options)].filter(Boolean), submit: submitOf(e) });
    } else if (type === "radio") {
      if (!e.checked) add("radio", e, byLabel(e), { submit: submitOf(e) });
    } else if (type === "checkbox") {
      add(e.checked ? "uncheck" : "check", e, byLabel(e), { submit: submitOf(e) });
    } else if (type === "text" && e.form && /^\d{1,5}$/.test(e.value)) { // really a number field, such as rows per page
      add("value", e, byLabel(e), { type: "number", min: "", max: "", step: "", value: e.value, submit: submitOf(e) });
    } else if (type === "search" || (type === "text" && e.form)) {
      add("text", e, byLabel(e), { submit: submitOf(e), search: type === "search" || /search|query|find|^q$|suche|keyword/i.test(`${e.name} ${e.id} ${e.placeholder} ${label(e)} ${e.form ? about(e.form) : ""}`) });
    } else if (/^(number|range|date|month|week|time|datetime-local)$/.test(type)) {
      add("value", e, byLabel(e), { type, min: e.min, max: e.max, step: e.step, value: e.value, submit: submitOf(e) });
    } else if (role === "tab") {
      if (e.getAttribute("aria-selected") !== "true") add("tab", e, operable(e, "tab"), { name: name(e) });
    } else if (type === "summary") {
      if (e.parentElement && !e.parentElement.open) add("expand", e, null, { name: name(e) });
    } else if (e.localName === "th" || role === "columnheader") {
      const inner = e.querySelector("a[href],button,[role=button]");
      if (!inner && (e.hasAttribute("aria-sort") || e.onclick || e.tabIndex === 0 || /sort/i.test(e.className)))
        add("sort", e, null, { name: name(e) });
    } else if (e.localName === "a" && e.hasAttribute("href")) {
      if (!/^(https?|javascript):$/.test(e.protocol) || e.hasAttribute("download")) continue;
      const url = new URL(e.href);
      if (/^(#|#!|javascript:.*)?$/.test(e.getAttribute("href").trim())) {  // really a button
        add("button", e, operable(e, "link"), { name: name(e), submit: null });
        continue;
      }
      const sameDocument = url.pathname === here.pathname && url.search === here.search && url.host === here.host;
      if (sameDocument && !/^#\/?.*[/=!]/.test(url.hash)) {
        if (!aPlace(e, url.hash)) add("button", e, operable(e, "link"), { name: name(e), submit: null });
        continue;
      }
      add("link", e, operable(e, role || "link"), { name: name(e), href: e.href, rel: e.rel,
        near: url.host === here.host && url.pathname === here.pathname, origin: url.origin === here.origin,
        paging: !!e.closest("[class*=paginat i],[class*=pager i],[aria-label*=paginat i],[aria-label*=pages i]") ||
          (!!e.closest("nav") && /^(\d{1,4}|next|previous|›|»|→|next page)$/i.test(name(e))), header: !!e.closest("th") });
    } else if (e.localName === "button" || role === "button" || role === "switch" || role === "menuitem" || (role === "option" && e.tabIndex >= 0) ||
        type === "button" || type === "submit") {
      if (role === "tab" || e.closest("a[href]")) continue;
      const submits = e.type === "submit" && !!e.form;
      add(submits ? "submit" : "button", e, operable(e, role || "button"), { name: name(e), expanded: e.getAttribute("aria-expanded"),
        pressed: e.getAttribute("aria-pressed"), submit: submits ? submitOf(e) : null });
    } else if (e !== document.body && (e.localName === "a" || clickable(e))) {
      if (e.localName === "a" && !(e.tabIndex >= 0 || e.onclick || clickable(e))) continue;
      const text = name(e) || clean([e, ...e.children].map((x) => x.getAttribute("class") || "").join(" ")) || e.id;
      if (text) add("button", e, null, { name: text, submit: null });
    }
  }
  const words = [...document.querySelectorAll("h1,h2,h3,td,th,li,dt")].slice(0, 200).map((e) => clean(e.textContent)).join(" ");
  return { controls: found, words };
}
