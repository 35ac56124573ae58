// A Playwright driver for many clients: a connection to its Unix socket is what the pipes of a driver of its own would be.
// A client's first message is its environment, which the browsers get that it starts. They end with its connection.
const net = require("net");
const [, , place, library] = process.argv;
const { DispatcherConnection, RootDispatcher, PlaywrightDispatcher, createPlaywright } = require(library).server;

function serve(socket) {
  const connection = new DispatcherConnection();
  let playwright, environment, pending = [], size = 0, wanted = 4, head = true;
  const root = new RootDispatcher(connection, async (scope, { sdkLanguage }) => {
    playwright = createPlaywright({ sdkLanguage, isClientCollocatedWithServer: true });
    return new PlaywrightDispatcher(scope, playwright);
  });
  connection.onmessage = (message) => {
    const data = Buffer.from(JSON.stringify(message));
    const length = Buffer.alloc(4);
    length.writeUInt32LE(data.length);
    socket.write(length);
    socket.write(data);
  };
  const take = (message) => {
    if (!environment) {
      environment = message;
    } else {
      if (message.method === "launch") message.params.env ??= environment;
      connection.dispatch(message);
    }
  };
  socket.on("data", (chunk) => {
    pending.push(chunk);
    size += chunk.length;
    while (size >= wanted) {
      const all = pending.length > 1 ? Buffer.concat(pending) : pending[0];
      const part = all.subarray(0, wanted);
      pending = [all.subarray(wanted)];
      size -= wanted;
      wanted = head ? part.readUInt32LE() : 4;
      head = !head;
      if (head) take(JSON.parse(part));
    }
  });
  let left = false;
  const leave = async () => {
    if (left) return;
    left = true;
    connection.onmessage = () => {};
    const stopped = root.stopPendingOperations(new Error("Disconnected")); // as a browser's launch
    await Promise.all((playwright?.allBrowsers() ?? []).map((browser) => browser.options.browserProcess.kill()));
    await stopped;
    socket.end();
  };
  socket.on("end", leave);
  socket.on("close", leave);
  socket.on("error", () => {}); // the client was killed
}

net.createServer({ allowHalfOpen: true }, serve).listen(place, () => console.log("ready"));
process.stdin.on("end", () => process.exit(0)).resume();
