// A list that all who are connected see grow: prints its port, and ends with its standard input.
const http = require('node:http');
const { Server } = require('socket.io');

const server = http.createServer();
const io = new Server(server);
const items = [];
io.on('connection', (socket) => {
  socket.emit('hello', items);
  socket.on('add', (item, done) => {
    items.push(item);
    io.emit('item', item);
    done(items.length);
  });
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.on('end', () => process.exit()).resume();
