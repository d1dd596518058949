"""Ports that nodes are told before one of them listens there."""

import socket


def kept_port() -> int:
    """A TCP port of 127.0.0.1 that is nobody else's until this process ends; a node that is told it can listen there.

    A socket stays bound to it without listening. So the kernel gives it to nobody who asks for any port, nor to a
    connection's own end, while it lets a listener that reuses addresses (ZeroMQ's do) have it. A port that is only
    looked up can be another's a moment later.
    """
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    port = int(kept.getsockname()[1])
    kept.detach()  # closed by this process's end, not by Python
    return port
