// Part of freeze.js.
// ---- cookies expire by the browser's own clock, while a page computes their ends by the frozen one. So a cookie that
// a page sets with a later end lives as long as its context, and one whose end has come is deleted.
const ALIVE = 400 * 86400; // s; the longest life that browsers allow
const COOKIE_DAY = /^(?:\w+,?[ -])?(\d{1,2})[ -](\w{3})\w*[ -](\d{2,4}) (\d{1,2}):(\d{1,2}):(\d{1,2})/;
const dayOf = (text) => { // RFC 6265, 5.1.1: more formats than Date takes, and always GMT
  const found = COOKIE_DAY.exec(text.trim());
  if (!found) return NativeDate.parse(text);
  const [day, month, year] = [found[1], "jan feb mar apr may jun jul aug sep oct nov dec".indexOf(found[2].toLowerCase()) / 4, Number(found[3])];
  if (month < 0) return NaN;
  return NativeDate.UTC(year < 70 ? 2000 + year : year < 100 ? 1900 + year : year, month, day, found[4], found[5], found[6]);
};
const lasts = (text) => {
  const [pair, ...attributes] = String(text).split(";");
  let life = null, age = null;
  const kept = attributes.filter((one) => {
    const [, name, value] = /^\s*([^=]*?)\s*(?:=(.*))?$/s.exec(one);
    if (/^expires$/i.test(name)) {
      const day = dayOf(value || "");
      if (!Number.isNaN(day)) life = day - wall();
      return false;
    }
    if (!/^max-age$/i.test(name)) return true;
    if (/^-?\d+$/.test((value || "").trim())) age = Number(value);
    return false;
  });
  const left = age !== null ? age : life; // Max-Age is preferred to Expires
  if (left !== null) kept.push(` max-age=${left > 0 ? ALIVE : 0}`);
  return [pair, ...kept].join(";");
};
if (isWindow) setter(Document.prototype, "cookie", (f, self, [text]) => Reflect.apply(f, self, [lasts(text)]));
if (G.CookieStore) stand(CookieStore.prototype, "set", (f, self, [what, ...more]) => {
  if (what === null || typeof what !== "object" || typeof what.expires !== "number") return Reflect.apply(f, self, [what, ...more]);
  return Reflect.apply(f, self, [{ ...what, expires: native.now() + (what.expires > wall() ? ALIVE * 1000 : -1000) }]);
});
