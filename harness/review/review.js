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
  for (const form of document.querySelectorAll("form.review")) {
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
      const key = "stillweb-reviews";
      const all = JSON.parse(sessionStorage.getItem(key) || "[]").filter((o) => o.task !== value.task || o.attempt !== value.attempt || o.reviewer !== value.reviewer);
      all.push(value);
      sessionStorage.setItem(key, JSON.stringify(all));
      const link = document.getElementById("save");
      link.href = URL.createObjectURL(new Blob(all.map((o) => JSON.stringify(o) + "\n"), { type: "application/jsonl" }));
      link.hidden = false;
      link.textContent = `Save ${all.length} review${all.length === 1 ? "" : "s"} as a file`;
      form.querySelector(".said").textContent = "Kept in this page. Save the file before you close it.";
    });
  }
})();
