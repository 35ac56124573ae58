// Loaded into Node by NODE_OPTIONS=--require. Nodes before 22.21 and 24.5 ignore the proxy variables, newer ones read them
// for their own agents alone. This sends through the proxy, by CONNECT for every scheme: fetch, http and https with any
// agent, and whatever opens TLS to speak HTTP in it (http2, web sockets of libraries, dispatchers of undici); on
// this machine only fetch and the usual agents. Hosts that NO_PROXY names (*, host, .domain, each with :port or without)
// are reached directly, and so is the proxy, which libraries that know of it (axios) ask themselves. Deno reads the
// variables for these itself.
'use strict';
const variable = (name) => process.env[name] || process.env[name.toLowerCase()];
const proxyUrl = variable('HTTPS_PROXY') || variable('HTTP_PROXY');

if (proxyUrl && !process.versions.deno) {
  const http = require('node:http');
  const https = require('node:https');
  const net = require('node:net');
  const tls = require('node:tls');
  const { Duplex } = require('node:stream');
  const proxy = new URL(proxyUrl);
  const user = `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`;
  const headers = { 'User-Agent': `node/${process.versions.node}` };
  if (proxy.username) headers['Proxy-Authorization'] = `Basic ${Buffer.from(user).toString('base64')}`;
  const connectTls = tls.connect;
  const connectPlainly = net.connect;
  const nameOf = (host, servername) => servername || (net.isIP(host) ? '' : host);

  const around = (variable('NO_PROXY') || '').toLowerCase().split(/[\s,]+/).filter(Boolean).map((entry) => {
    const [, name, port] = entry.match(/^(.*?)(?::(\d+))?$/);
    return { name: name.replace(/^\*(?=\.)/, ''), port };
  });
  const isProxy = (host, port) => host === proxy.hostname && String(port) === (proxy.port || '80');
  const isAround = (host, port) => isProxy(host, port) || around.some(({ name, port: only }) => (!only || only === String(port))
    && (name === '*' || name === host.toLowerCase() || (name.startsWith('.') && host.toLowerCase().endsWith(name))));

  // What a library opens itself on this machine is mostly a browser that it drives (Puppeteer).
  const isHere = (host) => /^(localhost|127\..*|\[?::1\]?)$/i.test(host);

  // Opens a tunnel to host:port; calls back with (error) or (null, socket), with TLS on it when asked for.
  const tunnel = ({ host, port, secure, servername, options }, callback) => {
    const target = `${net.isIPv6(host) ? `[${host}]` : host}:${port}`;
    const request = http.request({
      host: proxy.hostname, port: proxy.port || 80, method: 'CONNECT', path: target, agent: false,
      headers: { Host: target, ...headers },
    });
    request.once('error', callback);
    request.once('connect', (response, socket, head) => {
      request.off('error', callback);
      if (response.statusCode !== 200) {
        socket.destroy();
        callback(new Error(`the proxy refused to connect to ${target}: ${response.statusCode}`));
        return;
      }
      if (head.length) socket.unshift(head);
      if (!secure) {
        callback(null, socket);
        return;
      }
      const wrapped = connectTls({
        ALPNProtocols: ['http/1.1'], ...options, socket, host, port: undefined, path: undefined,
        servername: nameOf(host, servername),
      });
      wrapped.once('error', callback);
      wrapped.once('secureConnect', () => {
        wrapped.off('error', callback);
        callback(null, wrapped);
      });
    });
    request.end();
  };

  // A tunnel for those who need a socket at once: what is written meanwhile waits.
  class Tunnel extends Duplex {
    constructor(host, port) {
      super();
      this.target = { host, port };
      this.held = true;
    }

    // Whether the program waits for it before it ends.
    hold(held) {
      this.held = held;
      if (this.socket) this.socket[held ? 'ref' : 'unref']();
      return this;
    }

    ref() { return this.hold(true); }

    unref() { return this.hold(false); }

    _construct(done) {
      tunnel(this.target, (error, socket) => {
        this.socket = socket;
        if (socket) {
          this.hold(this.held);
          socket.on('data', (piece) => this.push(piece) || socket.pause());
          socket.on('end', () => this.push(null));
          socket.on('error', (broken) => this.destroy(broken));
          socket.on('close', () => this.destroy());
        }
        done(error);
      });
    }

    _read() { this.socket.resume(); }

    _write(piece, encoding, done) { this.socket.write(piece, encoding, done); }

    _final(done) { this.socket.end(done); }

    _destroy(error, done) {
      if (this.socket) this.socket.destroy();
      done(error);
    }
  }
  for (const name of ['setTimeout', 'setNoDelay', 'setKeepAlive']) Tunnel.prototype[name] = function asked() { return this; };

  // The agents of http and https, those that programs make themselves included.
  for (const [module, secure] of [[http, false], [https, true]]) {
    const { Agent } = module;
    const { createConnection } = Agent.prototype;
    class Usual extends Agent {} // that of requests without one, and with `agent: false`
    Agent.prototype.createConnection = function connected(options, callback) {
      const port = options.port || (secure ? 443 : 80);
      const host = options.host || 'localhost';
      if (!callback || options.socketPath || options.socket || isAround(host, port)
        || (isHere(host) && !(this instanceof Usual))) {
        return createConnection.call(this, options, callback);
      }
      tunnel({ host, port, secure, servername: options.servername, options }, callback);
      return undefined;
    };
    // Newer Nodes' own one would send through the proxy what a library asks of it.
    module.globalAgent = new Usual({ keepAlive: true, scheduling: 'lifo' });
  }

  // Connections that are opened otherwise, where what comes with them tells that HTTP will be spoken: a database's stay.
  const optionsOf = (words) => Object.assign({}, ...words.map((word) => (
    typeof word === 'object' ? word : typeof word === 'string' && !/^\d+$/.test(word) ? { host: word } : { port: word })));
  const speaksHttp = ({ headers: fields, protocol, ALPNProtocols: names }) => Boolean(fields) || /^https?:$/.test(protocol)
    || (Array.isArray(names) && names.some((name) => name === 'h2' || name === 'http/1.1'));
  const through = (connect, secure) => function connected(...words) {
    const callback = typeof words[words.length - 1] === 'function' ? words.pop() : undefined;
    const options = optionsOf(words.filter((word) => word !== undefined && word !== null));
    const host = options.host || 'localhost';
    const port = options.port || (secure ? 443 : 80);
    if (options.socket || options.path || !speaksHttp(options) || isHere(host) || isAround(host, port)) {
      return connect.call(this, ...words, ...(callback ? [callback] : []));
    }
    const socket = new Tunnel(host, port);
    if (!secure) return socket;
    const wrapped = connect.call(this, { ...options, host, servername: nameOf(host, options.servername), socket }, callback);
    for (const name of ['ref', 'unref']) wrapped[name] = () => { socket[name](); return wrapped; };
    return wrapped;
  };
  tls.connect = through(connectTls, true);
  net.connect = net.createConnection = through(connectPlainly, false);
  require('node:module').syncBuiltinESMExports();

  // fetch: undici is inside Node and its classes are not exported, but its global dispatcher's class is an Agent. Newer
  // Nodes' is one that reads the variables.
  if (typeof globalThis.fetch === 'function' && !process.allowedNodeEnvironmentFlags.has('--use-env-proxy')) {
    const slot = Symbol.for('undici.globalDispatcher.1');
    void globalThis.Headers; // loads undici, which fills the slot
    const Agent = globalThis[slot] && globalThis[slot].constructor;
    if (Agent) {
      globalThis[slot] = new Agent({
        connect: ({ hostname, port, protocol, servername }, callback) => {
          const secure = protocol === 'https:';
          const host = hostname.replace(/^\[|\]$/g, '');
          const at = port || (secure ? 443 : 80);
          if (!isAround(host, at)) {
            tunnel({ host, port: at, secure, servername }, callback);
            return;
          }
          const socket = secure ? connectTls({ host, port: at, servername, ALPNProtocols: ['http/1.1'] })
            : connectPlainly({ host, port: at });
          socket.once('error', callback);
          socket.once(secure ? 'secureConnect' : 'connect', () => {
            socket.off('error', callback);
            callback(null, socket);
          });
        },
      });
    }
  }
}
