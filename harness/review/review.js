(() => {
  const items = [...document.querySelectorAll("details.attempt")];
  const shown = document.getElementById("shown");
  const filter = () => {
    const text = document.getElementById("f-text").value.toLowerCase();
    const status = document.getElementById("f-status").value;
    const state = document.getElementById("f-review").value;
    let count = 0;
    for (const item of items) {
      const fits = (!text || item.dataset.name.toLowerCase().includes(text)) && (!status || item.dataset.status === status) &&
        (!state || item.dataset.reviewed === state);
      item.hidden = !fits;
      count += fits;
    }
    shown.textContent = `${count} of ${items.length} shown`;
  };
  for (const id of ["f-text", "f-status", "f-review"]) document.getElementById(id).addEventListener("input", filter);
  filter();
  // What is typed survives a reload, a stopped server, and the page that comes when another attempt's review was saved.
  const draft = (form) => `stillweb-draft ${form.elements.trace.value} ${form.elements.anchor.value}`;
  const fields = (form) => [...form.elements].filter((field) => field.name && field.type !== "hidden");
  const here = new URL(location);
  const saved = here.searchParams.has("saved") ? decodeURIComponent(here.hash.slice(1)) : "";
  if (saved) {
    here.searchParams.delete("saved"); // a reload must not take what is typed next for saved
    history.replaceState(null, "", here);
  }
  const save = document.getElementById("save");
  const key = `stillweb-reviews ${document.body.dataset.run}`;
  const kept = () => JSON.parse(sessionStorage.getItem(key) || "[]");
  const offer = () => {
    const all = kept();
    if (!all.length) return;
    save.href = URL.createObjectURL(new Blob(all.map((o) => JSON.stringify(o) + "\n"), { type: "application/jsonl" }));
    save.hidden = false;
    save.textContent = `Save ${all.length} review${all.length === 1 ? "" : "s"} as a file`;
  };
  offer();
  for (const form of document.querySelectorAll("form.review")) {
    if (form.elements.anchor.value === saved) sessionStorage.removeItem(draft(form));
    const typed = JSON.parse(sessionStorage.getItem(draft(form)) || "null");
    if (typed) {
      for (const field of fields(form)) if (field.name in typed) field.value = typed[field.name];
      form.closest("details").open = true;
    }
    form.addEventListener("input", () => {
      sessionStorage.setItem(draft(form), JSON.stringify(Object.fromEntries(fields(form).map((field) => [field.name, field.value]))));
    });
    const gate = form.querySelector(".override");
    const choose = form.querySelector("[name=class]");
    const toggle = () => { if (gate) { gate.hidden = choose.value !== form.dataset.composition; gate.querySelector("textarea").required = !gate.hidden; } };
    choose.addEventListener("change", toggle);
    toggle();
    if (form.dataset.static !== undefined) form.addEventListener("submit", (event) => {
      event.preventDefault();
      const value = Object.fromEntries(new FormData(form));
      if (value.class === value.nearest_class) { form.querySelector(".said").textContent = "The nearest class must be another one."; return; }
      value.attempt = Number(value.attempt);
      value.decisive_event = Number(value.decisive_event);
      const all = kept().filter((o) => o.task !== value.task || o.attempt !== value.attempt || o.reviewer !== value.reviewer);
      sessionStorage.setItem(key, JSON.stringify([...all, value]));
      sessionStorage.removeItem(draft(form));
      offer();
      form.querySelector(".said").textContent = "Kept in this page. Save the file before you close it.";
    });
  }
})();
