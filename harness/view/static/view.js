// Keys and drafts of the pages. Every page works without this file.
(() => {
  const typing = (target) => target.closest("input, select, textarea, [contenteditable]");
  const rows = () => [...document.querySelectorAll("[data-row]")].filter((row) => !row.hidden);
  let at = -1;
  const choose = (to) => {
    const all = rows();
    if (!all.length) return;
    all.forEach((row) => row.classList.remove("current"));
    at = Math.max(0, Math.min(to, all.length - 1));
    all[at].classList.add("current");
    all[at].scrollIntoView({ block: "nearest" });
    (all[at].matches("a") ? all[at] : all[at].querySelector("a"))?.focus({ preventScroll: true });
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    const go = (name) => document.querySelector(`[data-key="${name}"]`)?.click();
    if (event.key === "j") choose(at + 1);
    else if (event.key === "k") choose(at - 1);
    else if (event.key === "n" || event.key === "p") go(event.key);
    else if (event.key === "/") { document.querySelector("input[type=search]")?.focus(); event.preventDefault(); }
  });
  // Table of an export: its filters work on the rows that are there.
  for (const local of document.querySelectorAll("form[data-local]")) {
    const scope = local.closest(".page-section") || document, shown = local.querySelector("[role=status]");
    const fit = () => {
      const text = local.elements.q.value.toLowerCase(), show = local.elements.show.value;
      let count = 0;
      for (const row of scope.querySelectorAll("[data-row]")) {
        row.hidden = !((!text || row.dataset.row.toLowerCase().includes(text)) && (!show || row.dataset.flags.split(" ").includes(show)));
        count += !row.hidden;
      }
      shown.textContent = `${count} shown`;
    };
    local.hidden = false;
    local.addEventListener("input", fit);
    local.addEventListener("submit", (event) => event.preventDefault());
    fit();
  }
  // What a reviewer typed survives a reload. Reviews of an export are kept until they are saved as a file.
  const store = (name, value) => { try { value === null ? sessionStorage.removeItem(name) : sessionStorage.setItem(name, value); } catch { /* storage is off */ } };
  const stored = (name) => { try { return sessionStorage.getItem(name); } catch { return null; } };
  const offers = document.querySelectorAll("a.save");
  const run = document.querySelector("form.review")?.dataset.run;
  const kept = `stillweb-reviews ${run}`;
  const offer = () => {
    const all = JSON.parse(stored(kept) || "[]");
    for (const link of offers) {
      if (!all.length) continue;
      link.href = URL.createObjectURL(new Blob(all.map((one) => JSON.stringify(one) + "\n"), { type: "application/jsonl" }));
      link.hidden = false;
      link.textContent = `Save ${all.length} review${all.length === 1 ? "" : "s"} as a file`;
    }
  };
  offer();
  for (const form of document.querySelectorAll("form.review")) {
    const key = `stillweb-draft ${run} ${form.elements.trace.value}`;
    const fields = [...form.elements].filter((field) => field.name && field.type !== "hidden");
    if (new URL(location).searchParams.has("saved")) store(key, null);
    const typed = JSON.parse(stored(key) || "{}");
    for (const field of fields) if (field.name in typed) field.value = typed[field.name];
    form.addEventListener("input", () => store(key, JSON.stringify(Object.fromEntries(fields.map((field) => [field.name, field.value])))));
    const gate = form.querySelector(".override"), chosen = form.elements.class;
    const toggle = () => { if (gate) { gate.hidden = chosen.value !== form.dataset.composition; gate.querySelector("textarea").required = !gate.hidden; } };
    chosen.addEventListener("change", toggle);
    toggle();
    if (form.dataset.static === undefined) continue;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const value = Object.fromEntries(new FormData(form)), said = form.querySelector(".said");
      if (value.class === value.nearest_class) { said.textContent = "The nearest class must be another one."; return; }
      value.attempt = Number(value.attempt);
      value.decisive_event = Number(value.decisive_event);
      const all = JSON.parse(stored(kept) || "[]").filter((one) => one.task !== value.task || one.attempt !== value.attempt || one.reviewer !== value.reviewer);
      store(kept, JSON.stringify([...all, value]));
      store(key, null);
      offer();
      said.textContent = "Kept in this page. Save the file before you close it.";
    });
  }
})();
