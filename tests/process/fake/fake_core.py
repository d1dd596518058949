"""A core that only joins and leaves: nodes meet at their scheduler over TCP, and see each other go."""

import contextlib
import ctypes
import os
import socket
import threading


class Error(Exception):
    pass


class Refused(Error):
    pass


class Timeout(Error):
    pass


class Ticket:
    pass


class Domain:
    def __init__(self, *, scheduler_host, scheduler_port, num_servers, num_members):
        self.address = scheduler_host, scheduler_port
        self.num_members, self.num_nodes = num_members, num_servers + num_members


class Shard:
    def __init__(self, server, offset, length):
        self.server, self.offset, self.length = server, offset, length


class Plan:
    def __init__(self, shards, part_length):
        self.shards, self.part_length = shards, part_length


class CodecChoice:
    def __init__(self, name="identity", params=()):
        self.name, self.params = name, dict(params)


class Node:
    """LAN servers are members of the WAN; schedulers serve the one domain that they are given."""

    def __init__(self, **given):
        self.given, self.name, self.rank, self.addresses = given, "fake", given["rank"], {}
        self.role, self.party, self.global_rank = given["role"], given["party"], 0
        self.num_workers = self.num_all_workers = 0
        self.domains = {n: d for n in ("lan", "wan") if (d := given[n])}
        self.links, self.failure, self.sent = {}, "", 0
        if self.role == "scheduler":
            self._listen()

    def _listen(self):
        ((tier, domain),) = self.domains.items()
        try:
            self.server = socket.create_server(("127.0.0.1", domain.address[1]))
        except OSError as e:
            raise Error(f"127.0.0.1:{domain.address[1]} can't be listened on: {e.strerror}") from None
        self.addresses = {tier: f"127.0.0.1:{self.server.getsockname()[1]}"}

    def set_planner(self, plan): ...
    def set_policy(self, choose): ...
    def set_transport(self, choose): ...
    def set_scheduler(self, credit, rank): ...
    def set_overlay(self, choose): ...
    def set_updater(self, make): ...
    def on_configure(self, apply): ...
    def on_log(self, log):
        self.log = log

    def load_plugin(self, path): ...
    def add_codec(self, name, make): ...

    def start(self):
        if os.environ.get("FAKE_REFUSE") == f"{self.given['party']}/{self.role}":
            raise Refused("compression is none here but fp16 at worker 0 of party party0")
        self.log(30, "something is slow")
        self.log(20, "something is as it should be")
        if os.environ.get("FAKE_BLOCK"):
            block_for_ever()
        if self.role == "scheduler":
            self._gather()
        else:
            self._join()
        return self.given["settings"]

    def _gather(self):
        (domain,) = self.domains.values()
        self.members = [self.server.accept()[0] for _ in range(domain.num_nodes)]
        self.roles = [m.recv(1) for m in self.members]
        for member in self.members:
            member.sendall(b"G")

    def _join(self):
        for tier, domain in self.domains.items():
            link = self.links[tier] = socket.create_connection(domain.address, timeout=30)
            is_server = self.role == "global_server" or (self.role == "local_server" and tier == "lan")
            link.sendall(b"S" if is_server else b"M")
        for link in self.links.values():
            if link.recv(1) != b"G":
                self._fail("the scheduler is gone")
            link.settimeout(None)

    def serve(self):
        if self.role == "scheduler":
            self._watch()
        elif self.role == "local_server":
            self._until_over(self.links["lan"])
            self.leave()
        else:
            self._until_over(self.links["wan"])

    def _watch(self):
        """Until all members have left: L, then the end of the stream; an end without L is a death."""
        left, lock = threading.Semaphore(0), threading.Lock()

        def watch(member):
            said = member.recv(1)
            with lock:
                if said != b"L" and not self.failure:
                    self.failure = "a node is gone"
            left.release()

        members = [m for m, role in zip(self.members, self.roles, strict=True) if role == b"M"]
        for member in members:
            threading.Thread(target=watch, args=(member,), daemon=True).start()
        for _ in members:
            left.acquire()
            if self.failure:
                break
        for member in self.members:
            with contextlib.suppress(OSError):
                member.sendall(b"D" if self.failure else b"E")
        if self.failure:
            raise Error(self.failure)
        if os.environ.get("FAKE_BAD_END") and "wan" in self.domains:
            os._exit(7)

    def _until_over(self, link):
        said = b""
        with contextlib.suppress(OSError):
            said = link.recv(1)
        if said != b"E":
            self._fail("the scheduler says that a node is gone")

    def _fail(self, sentence):
        self.failure = sentence
        raise Error(sentence)

    def leave(self, timeout_s=-1.0):
        for tier, link in self.links.items():
            if not (self.role == "local_server" and tier == "lan"):
                link.sendall(b"L")

    def fail(self, message):
        self.failure = message
        for link in self.links.values():
            link.shutdown(socket.SHUT_RDWR)

    def close(self): ...

    def counters(self):
        return {"wan.up_bytes": 100.0, "lan.up_bytes": 10.0, "encode_s": 0.5, "wan.messages": 2.0}

    def take_trace(self):
        return ""

    def ledger(self):
        sent = [("wan", "the moon", "w", "up", "RAW", 1, 60, 0), ("wan", "the moon", "", "up", "", 2, 0, 40),
                ("lan", "the moon", "w", "up", "RAW", 1, 10, 0)]  # fmt: skip
        return {"counters": self.counters(), "sent": sent, "work": [("wan", "w", 0.5, 0.0, 0.0, 0.0, 0, 0)]}


def block_for_ever():
    """As a wait inside C++ that never looks at signals: a mutex that is locked twice."""
    libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)
