"""geomx.testing.ports: a port that nodes are told before one of them listens is nobody else's until then."""

import contextlib
import socket

from geomx.testing.ports import kept_port


def test_a_kept_port_is_given_to_nobody_who_asks_for_any():
    kept = {kept_port() for _ in range(300)}
    assert len(kept) == 300
    with contextlib.ExitStack() as open_till_the_end:
        server = open_till_the_end.enter_context(socket.create_server(("127.0.0.1", 0)))
        asked = [open_till_the_end.enter_context(socket.create_connection(server.getsockname())) for _ in range(100)]
        asked += [open_till_the_end.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(300)]
        assert not kept & {s.getsockname()[1] for s in asked}


def test_who_is_told_a_kept_port_listens_there():
    port = kept_port()
    with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(("127.0.0.1", port)) as client:
        there, address = server.accept()
        there.close()
        assert address == client.getsockname()
