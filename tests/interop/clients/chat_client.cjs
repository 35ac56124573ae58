// Two of them, one after the other, each adds what it is told to; what each heard is printed. Usage: URL TRANSPORTS ITEM ...
const { io } = require('socket.io-client');

const [, , url, transports, ...items] = process.argv;
const heard = { first: [], second: [] };

const connected = (name) =>
  new Promise((resolve) => {
    const socket = io(url, { transports: transports.split(','), reconnection: false, forceNew: true });
    const said = (what) => (value) => heard[name].push(`${what} ${JSON.stringify(value)}`);
    socket.on('item', said('item'));
    socket.on('disconnect', (why) => why === 'io client disconnect' || process.exit(console.log(why) ?? 3));
    socket.on('connect_error', (error) => process.exit(console.log(`error ${error.message}`) ?? 1));
    socket.on('hello', (value) => resolve(socket, said('hello')(value)));
  });
const add = (name, socket, item) =>
  new Promise((resolve) => socket.emit('add', item, (count) => resolve(heard[name].push(`added ${count}`))));

const upgraded = ({ io: { engine } }) =>
  new Promise((resolve) => (engine.transport.name === 'websocket' ? resolve() : engine.once('upgrade', resolve)));

(async () => {
  const first = await connected('first');
  if (transports === 'polling,websocket') await upgraded(first); // else the network's timing decides which way an item goes
  for (const item of items) await add('first', first, item);
  if (transports === 'polling') {
    const second = await connected('second');
    await add('second', second, 'from the second');
    while (!heard.first.includes('item "from the second"')) await new Promise((resolve) => setTimeout(resolve, 10));
    second.close();
  }
  first.close();
  for (const name of Object.keys(heard)) console.log(name, heard[name].join(', '));
})();
