"""Sockets: listening, TLS, WebSocket, who may connect, and who is read when."""
