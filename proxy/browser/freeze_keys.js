// Part of freeze.js.
// ---- crypto.subtle: keys, and the operations that draw a number each time (RSA-OAEP, RSA-PSS, ECDSA), from the seed. So
// what a page encrypts or signs is the same in replay, and it can read what the server encrypted to its key.
if (G.SubtleCrypto && G.CryptoKey) {
  const S = SubtleCrypto.prototype, subtle = G.crypto.subtle, own = {};
  for (const name of ["generateKey", "importKey", "exportKey", "encrypt", "wrapKey", "sign", "digest"]) own[name] = S[name].bind(subtle);
  const called_ = (given) => String((given && given.name) || given).toUpperCase();
  const joined = (...parts) => Uint8Array.from(parts.flatMap((part) => [...part]));
  const bytesOf = (data) => ArrayBuffer.isView(data) ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength).slice() : new Uint8Array(data).slice();
  const source_ = () => { // random bytes of one call, which may be asked for later
    const begun = chanceOf("keys"), next = stream(Array.from({ length: 8 }, begun).join());
    return (length, zeros = 0) => Uint8Array.from({ length }, (_, at) => { const byte = next() >>> 24; return at < zeros ? 0 : byte; });
  };

  // numbers
  const big = (bytes) => BigInt("0x" + (bytes.reduce((hex, byte) => hex + byte.toString(16).padStart(2, "0"), "") || "0"));
  const written = (number, length) => Uint8Array.from(number.toString(16).padStart(2 * length, "0").match(/../g), (byte) => parseInt(byte, 16));
  const read64 = (text) => big(Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (one) => one.charCodeAt(0)));
  const in64 = (number) => btoa(String.fromCharCode(...written(number, (number.toString(16).length + 1) >> 1))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");
  const mod = (a, m) => ((a % m) + m) % m;
  const power = (base_, exponent, m) => {
    let result = 1n;
    for (const bit of exponent.toString(2)) { result = result * result % m; if (bit === "1") result = result * base_ % m; }
    return result;
  };
  const inverse = (a, m) => {
    let [r, s, t, u] = [mod(a, m), m, 1n, 0n];
    while (s) { const q = r / s; [r, s, t, u] = [s, r - q * s, u, t - q * u]; }
    return mod(t, m);
  };

  // key pairs
  const DER = (tag, ...parts) => joined([tag], [joined(...parts).length], ...parts); // none here has 128 bytes
  const OID = {
    X25519: [6, 3, 43, 101, 110], ED25519: [6, 3, 43, 101, 112], EC: [6, 7, 42, 134, 72, 206, 61, 2, 1],
    "P-256": [6, 8, 42, 134, 72, 206, 61, 3, 1, 7], "P-384": [6, 5, 43, 129, 4, 0, 34], "P-521": [6, 5, 43, 129, 4, 0, 35],
  };
  // p, order and x, y of the base point of the curves, whose a is -3 (FIPS 186-4, D.1.2)
  const CURVES = {
    "P-256": [32, 2n ** 256n - 2n ** 224n + 2n ** 192n + 2n ** 96n - 1n, 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n,
      0x6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296n, 0x4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5n],
    "P-384": [48, 2n ** 384n - 2n ** 128n - 2n ** 96n + 2n ** 32n - 1n, 0xffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973n,
      0xaa87ca22be8b05378eb1c71ef320ad746e1d3b628ba79b9859f741e082542a385502f25dbf55296c3a545e3872760ab7n, 0x3617de4a96262c6f5d9e98bf9292dc29f8f41dbd289a147ce9da3113b5f0b8c00a60b1ce1d7e819d7a431d7c90ea0e5fn],
    "P-521": [66, 2n ** 521n - 1n, 0x1fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffa51868783bf2f966b7fcc0148f709a5d03bb5c9b8899c47aebb6fb71e91386409n,
      0xc6858e06b70404e9cd9e3ecb662395b4429c648139053fb521f828af606b4d3dbaa14b5e77efe75928fe1dc127a2ffa8de3348b3c1856a429bf97e7e31c2e5bd66n, 0x11839296a789a3bc0045c8a5fb42c7d1bd998f54449579b446817afbd17273e662c97ee72995ef42640c550b9013fad0761353c7086a272c24088be94769fd16650n],
  };
  const PRIMES = [];
  const prime = (bits, bytes, e) => {
    for (let at = 3; !PRIMES.length || at < 4000; at += 2) if (PRIMES.every((one) => at % Number(one))) PRIMES.push(BigInt(at));
    for (;;) {
      let candidate = BigInt.asUintN(bits, big(bytes((bits + 7) >> 3))) | (3n << BigInt(bits - 2)) | 1n;
      for (let tries = 0; tries < 4 * bits; tries++, candidate += 2n)
        if (PRIMES.every((one) => candidate % one) && (candidate - 1n) % e && [2n, 3n].every((one) => power(one, candidate - 1n, candidate) === 1n)) return candidate;
    }
  };
  const madeRSA = (bits, e, bytes) => {
    const q = prime(bits >> 1, bytes, e), p = prime(bits - (bits >> 1), bytes, e), d = inverse(e, (p - 1n) * (q - 1n));
    const numbers = { n: p * q, e, d, p, q, dp: d % (p - 1n), dq: d % (q - 1n), qi: inverse(q, p) };
    return { kty: "RSA", ...Object.fromEntries(Object.entries(numbers).map(([name, number]) => [name, in64(number)])) };
  };
  const OF_PUBLIC = ["encrypt", "verify", "wrapKey"];
  const pair = async (native_, given, bytes) => {
    const { publicKey, privateKey } = native_, name = called_(given), rsa = name.startsWith("RSA"), curve = rsa ? "" : given.namedCurve;
    let form = "pkcs8", secret;
    if (rsa) [form, secret] = ["jwk", madeRSA(given.modulusLength, big(given.publicExponent), bytes)];
    else if (CURVES[curve]) {
      const size = CURVES[curve][0], scalar = bytes(size, size > 64 ? 2 : 1); // below the order
      secret = DER(48, [2, 1, 0], DER(48, OID.EC, OID[curve]), DER(4, DER(48, [2, 1, 1], DER(4, scalar))));
    } else if (OID[name]) secret = DER(48, [2, 1, 0], DER(48, OID[name]), DER(4, DER(4, bytes(32))));
    else return native_; // an algorithm that is newer than this
    const whole = rsa ? secret : await own.exportKey("jwk", await own.importKey(form, secret, given, true, privateKey.usages));
    const { kty, crv, n, e, x, y } = whole;
    return {
      publicKey: await own.importKey("jwk", { kty, crv, n, e, x, y }, given, publicKey.extractable, publicKey.usages),
      privateKey: shut(await own.importKey(form, secret, given, true, privateKey.usages), privateKey.extractable),
    };
  };
  // A key that the page may not export can be exported here, as its numbers are needed.
  const DRAWS = new Set(["RSA-OAEP", "RSA-PSS", "ECDSA"]), shutKeys = new WeakSet();
  const shut = (key, extractable) => { if (!extractable) shutKeys.add(key); return key; };
  getter(G.CryptoKey.prototype, "extractable", function (get) { return get() && !shutKeys.has(this); });
  const forbidden = () => Promise.reject(new DOMException("key is not extractable", "InvalidAccessError"));
  stand(S, "generateKey", (f, self, args) => {
    const [given, extractable, usages] = args, name = called_(given);
    const blocks = { "SHA-1": 512, "SHA-256": 512, "SHA-384": 1024, "SHA-512": 1024 };
    const bits = /^AES-/.test(name) ? given.length : name === "HMAC" ? given.length || blocks[called_(given && given.hash)] : 0;
    const bytes = source_(), made = Reflect.apply(f, self, args); // checks its arguments as always
    if (bits && bits % 8 === 0) return made.then(() => own.importKey("raw", bytes(bits / 8), given, extractable, usages));
    return made.then((native_) => native_.publicKey ? pair(native_, given, bytes) : native_);
  });
  stand(S, "importKey", (f, self, args) => {
    const [form, data, given, extractable, usages] = args;
    if (extractable || !DRAWS.has(called_(given))) return Reflect.apply(f, self, args);
    return Reflect.apply(f, self, [form, form === "jwk" && data ? { ...data, ext: true } : data, given, true, usages]).then((key) => shut(key, false));
  });
  stand(S, "exportKey", (f, self, args) => shutKeys.has(args[1]) ? forbidden() : Reflect.apply(f, self, args));

  // operations
  const digest = async (hash, ...parts) => new Uint8Array(await own.digest(hash, joined(...parts)));
  const masked = async (hash, seed, data) => { // MGF1 (RFC 8017, B.2.1)
    const mask = [];
    for (let count = 0; mask.length < data.length; count++) mask.push(...await digest(hash, seed, written(BigInt(count), 4)));
    return data.map((byte, at) => byte ^ mask[at]);
  };
  const numbersOf = async (key) => Object.fromEntries(Object.entries(await own.exportKey("jwk", key)).filter(([name]) => name in { n: 1, e: 1, d: 1 }).map(([name, text]) => [name, read64(text)]));
  const sealed = async (key, label, data, bytes) => { // RSA-OAEP (RFC 8017, 7.1.1); null if the data is too long
    const hash = key.algorithm.hash.name, of_ = await digest(hash, label), size = key.algorithm.modulusLength >> 3;
    const room = size - 2 * of_.length - 2 - data.length;
    if (room < 0) return null;
    const seed = bytes(of_.length), block = await masked(hash, seed, joined(of_, new Uint8Array(room), [1], data));
    const { n, e } = await numbersOf(key);
    return written(power(big(joined([0], await masked(hash, block, seed), block)), e, n), size).buffer;
  };
  const proved = async (key, salted, data, bytes) => { // RSA-PSS (RFC 8017, 9.1.1); null if the salt is too long
    const hash = key.algorithm.hash.name, bits = key.algorithm.modulusLength - 1, size = (bits + 7) >> 3, salt = bytes(salted);
    const told_ = await digest(hash, new Uint8Array(8), await digest(hash, data), salt), room = size - told_.length - salt.length - 2;
    if (room < 0) return null;
    const block = await masked(hash, told_, joined(new Uint8Array(room), [1], salt));
    block[0] &= 255 >> (8 * size - bits);
    const { n, d } = await numbersOf(key);
    return written(power(big(joined(block, told_, [188])), d, n), (bits + 8) >> 3).buffer;
  };
  const signed = async (key, hash, data, bytes) => { // ECDSA (FIPS 186-4, 6.4)
    const [size, p, order, x, y] = CURVES[key.algorithm.namedCurve], k = big(bytes(size, size > 64 ? 2 : 1)), { d } = await numbersOf(key);
    const told_ = await digest(hash, data), z = big(told_) >> BigInt(Math.max(0, 8 * (told_.length - size)));
    const add_ = ([ax, ay], [bx, by]) => {
      const slope = mod(ax === bx ? (3n * ax * ax - 3n) * inverse(2n * ay, p) : (by - ay) * inverse(bx - ax, p), p), cx = mod(slope * slope - ax - bx, p);
      return [cx, mod(slope * (ax - cx) - ay, p)];
    };
    let point = [x, y];
    for (const bit of k.toString(2).slice(1)) { point = add_(point, point); if (bit === "1") point = add_(point, [x, y]); }
    const r = mod(point[0], order);
    return joined(written(r, size), written(mod(inverse(k, order) * (z + r * d), order), size)).buffer;
  };
  const may = (key, given, use) => key instanceof G.CryptoKey && key.algorithm.name.toUpperCase() === called_(given) && DRAWS.has(called_(given)) && key.usages.includes(use);
  const label_ = (given) => given.label ? bytesOf(given.label) : new Uint8Array();
  stand(S, "encrypt", (f, self, args) => {
    const [given, key, data] = args;
    if (!may(key, given, "encrypt")) return Reflect.apply(f, self, args);
    const bytes = source_(), text = bytesOf(data);
    return sealed(key, label_(given), text, bytes).then((found) => found || own.encrypt(given, key, text));
  });
  stand(S, "wrapKey", (f, self, args) => {
    const [form, key, by, given] = args;
    if (shutKeys.has(key)) return forbidden();
    if (!may(by, given, "wrapKey")) return Reflect.apply(f, self, args);
    const bytes = source_();
    return own.exportKey(form, key).then((data) => sealed(by, label_(given), form === "jwk" ? new TextEncoder().encode(JSON.stringify(data)) : new Uint8Array(data), bytes))
      .then((found) => found || own.wrapKey(form, key, by, given));
  });
  stand(S, "sign", (f, self, args) => {
    const [given, key, data] = args;
    if (!may(key, given, "sign")) return Reflect.apply(f, self, args);
    const bytes = source_(), text = bytesOf(data), ec = called_(given) === "ECDSA";
    return (ec ? signed(key, given.hash, text, bytes) : proved(key, given.saltLength, text, bytes)).then((found) => found || own.sign(given, key, text));
  });
}
