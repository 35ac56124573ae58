// An official MCP client for Node: connects, lists, calls, and prints what it was told as one JSON document.
//   node client.mjs JOB      JOB = {"sdk": 1 | 2, "era": "legacy" | revision, "url" | "command", "calls": [[name, arguments], …]}
const job = JSON.parse(process.argv[2]);
const whoami = { name: "stillweb-tests", version: "1" };

async function parts() {
  if (job.sdk === 1) {
    const base = "@modelcontextprotocol/sdk/client";
    const { Client } = await import(`${base}/index.js`);
    const { StdioClientTransport } = await import(`${base}/stdio.js`);
    const { StreamableHTTPClientTransport } = await import(`${base}/streamableHttp.js`);
    return [new Client(whoami), StdioClientTransport, StreamableHTTPClientTransport];
  }
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
  const mode = job.era === "legacy" ? "legacy" : { pin: job.era };
  return [new Client(whoami, { versionNegotiation: { mode } }), StdioClientTransport, StreamableHTTPClientTransport];
}

const [client, Stdio, Http] = await parts();
const transport = job.url
  ? new Http(new URL(job.url))
  : new Stdio({ command: job.command[0], args: job.command.slice(1), env: process.env, stderr: "ignore" });
await client.connect(transport);
const told = { server: client.getServerVersion(), tools: (await client.listTools()).tools, results: [] };
if (client.getServerCapabilities()?.prompts) told.prompts = (await client.listPrompts()).prompts;
for (const [name, given] of job.calls) {
  try {
    const { content, isError, _meta } = await client.callTool({ name, arguments: given });
    told.results.push({ content, isError: isError ?? false, mark: _meta?.stillweb ?? null });
  } catch (error) {
    told.results.push({ error: [error.code, error.message] });
  }
}
process.stdout.write(JSON.stringify(told), () => client.close().then(() => process.exit(0)));
