"""One script over one blocking connection: for tests, and to look at a single failure."""

from __future__ import annotations

import socket
import ssl
import time

from fuzz.live.generator import RESET
from fuzz.live.script import Ending, Script

ANSWER_S = 0.5
BETWEEN_S = 0.02


def send_script(script: Script, ports: dict[str, int]) -> bytes:
    """What the broker answered, until it closed or said nothing for a while."""
    answer = b""
    with socket.create_connection(("127.0.0.1", ports[script.listener]), 10.0) as plain:
        link = wrap(plain) if script.is_inside_tls else plain
        try:
            for piece in script.pieces:
                link.sendall(piece)
                time.sleep(BETWEEN_S)  # so that the broker reads it alone
            if script.ending is Ending.HALF_CLOSE:
                plain.shutdown(socket.SHUT_WR)
            link.settimeout(ANSWER_S)
            while script.ending not in (Ending.CLOSE, Ending.RESET) and (data := link.recv(65536)):
                answer += data
        except OSError:
            pass  # the broker ended it, or has said all
        if script.ending in (Ending.RESET, Ending.WAIT_RESET):
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        link.close()
    return answer


def wrap(plain: socket.socket) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain)
