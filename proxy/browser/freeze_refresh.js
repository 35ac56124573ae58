// Part of freeze.js.
// ---- `<meta http-equiv=refresh>`: the browser would navigate by its own clock, in the middle of an agent's action.
// Its navigation is stopped, and a timer of the page's clock does it instead.
const planned = new Map(); // meta element -> its target
let going = false;
const plan = (meta) => {
  const found = /^\s*(\d+(?:\.\d*)?|\.\d+)\s*(?:[;,]\s*|\s|$)(.*)$/s.exec(meta.content);
  if (!found || planned.has(meta)) return;
  let [, seconds, rest] = found;
  const named = /^url\s*=\s*(.*)$/is.exec(rest);
  if (named) rest = named[1];
  const quoted = /^(["'])(.*?)(?:\1|$)/s.exec(rest);
  if (quoted) rest = quoted[2];
  let url = null;
  try { url = new URL(rest, document.baseURI); } catch { return; }
  if (!/^https?:$/.test(url.protocol)) return;
  planned.set(meta, url.href);
  add(() => {
    going = true;
    const here = G.location.href.split("#")[0];
    if (url.href.split("#")[0] === here) G.location.reload();
    else if (seconds <= 1) G.location.replace(url.href);
    else G.location.assign(url.href);
    going = false;
  }, seconds * 1000);
};
if (isWindow && G.navigation) G.navigation.addEventListener("navigate", (event) => {
  if (going || event.userInitiated || event.formData || !event.cancelable || event.destination.sameDocument) return;
  if (![...planned.values()].includes(event.destination.url)) return;
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = 5;
  const callers = new Error().stack.split("\n").length - 2; // a navigation by a script has that script below us in the stack
  Error.stackTraceLimit = limit;
  if (callers === 0) event.preventDefault();
});
