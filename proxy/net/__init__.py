"""Code shared by recording and serving: addresses, certificates, web socket conversations, silent streams."""
