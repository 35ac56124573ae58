// Loaded into Node by NODE_OPTIONS=--require. Nodes before 22.21 and 24.5 ignore the proxy variables: this sends
// their fetch, http and https through the proxy, by CONNECT for every scheme; hosts that NO_PROXY names (*, host, .domain,
// each with :port or without) are reached directly, and so is the proxy, which libraries that know of it (axios) ask
// themselves. Newer ones do it by themselves.
'use strict';
const variable = (name) => process.env[name] || process.env[name.toLowerCase()];
const proxyUrl = variable('HTTPS_PROXY') || variable('HTTP_PROXY');

if (proxyUrl && !process.allowedNodeEnvironmentFlags.has('--use-env-proxy')) {
  const http = require('node:http');
  const https = require('node:https');
  const net = require('node:net');
  const tls = require('node:tls');
  const proxy = new URL(proxyUrl);
  const user = `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`;
  const headers = { 'User-Agent': `node/${process.versions.node}` };
  if (proxy.username) headers['Proxy-Authorization'] = `Basic ${Buffer.from(user).toString('base64')}`;
  const direct = new http.Agent(); // never the replaced global agent: the proxy itself is reached directly

  const around = (variable('NO_PROXY') || '').toLowerCase().split(/[\s,]+/).filter(Boolean).map((entry) => {
    const [, name, port] = entry.match(/^(.*?)(?::(\d+))?$/);
    return { name: name.replace(/^\*(?=\.)/, ''), port };
  });
  const isProxy = (host, port) => host === proxy.hostname && String(port) === (proxy.port || '80');
  const isAround = (host, port) => isProxy(host, port) || around.some(({ name, port: only }) => (!only || only === String(port))
    && (name === '*' || name === host.toLowerCase() || (name.startsWith('.') && host.toLowerCase().endsWith(name))));

  // Opens a tunnel to host:port; calls back with (error) or (null, socket), with TLS on it when asked for.
  const tunnel = ({ host, port, secure, servername, options }, callback) => {
    const target = `${net.isIPv6(host) ? `[${host}]` : host}:${port}`;
    const request = http.request({
      host: proxy.hostname, port: proxy.port || 80, method: 'CONNECT', path: target, agent: direct,
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
      const wrapped = tls.connect({
        ALPNProtocols: ['http/1.1'], ...options, socket, host, port: undefined, path: undefined,
        servername: servername || (net.isIP(host) ? '' : host),
      });
      wrapped.once('error', callback);
      wrapped.once('secureConnect', () => {
        wrapped.off('error', callback);
        callback(null, wrapped);
      });
    });
    request.end();
  };

  const throughProxy = (Agent, secure) => class extends Agent {
    createConnection(options, callback) {
      const { host, servername } = options;
      const port = options.port || (secure ? 443 : 80);
      if (isAround(host, port)) return super.createConnection(options, callback);
      tunnel({ host, port, secure, servername, options }, callback);
    }
  };
  http.globalAgent = new (throughProxy(http.Agent, false))({ keepAlive: true, scheduling: 'lifo' });
  https.globalAgent = new (throughProxy(https.Agent, true))({ keepAlive: true, scheduling: 'lifo' });

  // fetch: undici is inside Node and its classes are not exported, but its global dispatcher's class is an Agent.
  if (typeof globalThis.fetch === 'function') {
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
          const socket = secure ? tls.connect({ host, port: at, servername, ALPNProtocols: ['http/1.1'] })
            : net.connect({ host, port: at });
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
