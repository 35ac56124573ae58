// The same agent for Node, with its own fetch.   usage: node agent.mjs QUESTION
const { OPENAI_API_KEY, OPENAI_BASE_URL, SERPER_API_KEY } = process.env;

async function post(url, headers, body) {
  const sent = { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(url, sent);
  if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
  return answer.json();
}

const tools = {
  async search({ q }) {
    const found = await post("https://google.serper.dev/search", { "X-API-KEY": SERPER_API_KEY }, { q });
    return found.organic.map((hit) => `${hit.title} ${hit.link}`).join("\n");
  },
  async read({ url }) {
    const page = await fetch(url);
    return page.ok ? page.text() : `error ${page.status}`;
  },
};

function tool(name, argument) {
  const parameters = { type: "object", properties: { [argument]: { type: "string" } }, required: [argument] };
  return { type: "function", function: { name, parameters } };
}

const messages = [{ role: "user", content: process.argv[2] }];
for (;;) {
  const asked = { model: "small", messages, tools: [tool("search", "q"), tool("read", "url")] };
  const reply = await post(`${OPENAI_BASE_URL}/chat/completions`, { Authorization: `Bearer ${OPENAI_API_KEY}` }, asked);
  const { message } = reply.choices[0];
  if (!message.tool_calls?.length) {
    console.log(message.content);
    break;
  }
  messages.push(message);
  for (const { id, function: call } of message.tool_calls) {
    messages.push({ role: "tool", tool_call_id: id, content: await tools[call.name](JSON.parse(call.arguments)) });
  }
}
