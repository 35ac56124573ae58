"""What recording and serving share: addresses, certificates, web sockets' talk, streams that have said all."""
