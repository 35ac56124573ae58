// Part of freeze.js.
// ---- objects with a date: those without one of their own get today's from the browser
if (G.File) {
  const Native = G.File, opened = native.now();
  const said = Object.getOwnPropertyDescriptor(Native.prototype, "lastModified").get;
  const dates = new WeakMap();
  const Frozen = new Proxy(Native, { construct: (target, [parts, name, options], as) => {
    const file = Reflect.construct(target, [parts, name, { ...options, lastModified: options && options.lastModified !== undefined ? options.lastModified : wall() }],
      as === Frozen ? target : as);
    dates.set(file, said.call(file));
    return file;
  } });
  const dated = (file, date) => { // a file that the browser made, of a form's part
    if (!dates.has(file)) dates.set(file, date >= opened ? wall() : date);
    return dates.get(file);
  };
  getter(Native.prototype, "lastModified", function (get) { return dated(this, get()); });
  getter(Native.prototype, "lastModifiedDate", function () { return new NativeDate(this.lastModified); });
  Native.prototype.constructor = Frozen;
  G.File = Frozen;
}
if (isWindow) {
  const said = Object.getOwnPropertyDescriptor(Document.prototype, "lastModified").get;
  const dates = new WeakMap();
  const today = () => said.call(document.implementation.createHTMLDocument("")); // the date that a document without one shows, to the second
  // Returns true if the answer's header gave a date. While recording, a header can name this very second: the next one
  // tells.
  const dated = (one) => {
    for (let before = today(); ; before = today()) {
      const date = said.call(one), after = today();
      if (date !== before && date !== after) return true;
      if (before !== after) continue;
      if (config.replay) return false;
      while (today() === after); // takes less than a second
      return said.call(one) === date;
    }
  };
  const start = () => {
    const d = new NativeDate(config.start), two = (v) => String(v).padStart(2, "0");
    return `${two(d.getMonth() + 1)}/${two(d.getDate())}/${d.getFullYear()} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  };
  getter(Document.prototype, "lastModified", function (get) {
    if (!dates.has(this)) dates.set(this, dated(this) ? get() : start());
    return dates.get(this);
  });
}
