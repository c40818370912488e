"""The only I/O: sockets, TLS, WebSocket, files, timers."""
