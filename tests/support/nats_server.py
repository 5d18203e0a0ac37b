"""A small NATS server on a real socket that routes messages, and misbehaves as it is told."""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import socket
import ssl
import threading

from tests.support.certificate import CERTFILE, KEYFILE

__all__ = ["MiniNats"]

READ_S = 30


class MiniNats:
    """Serves on 127.0.0.1 in a `with` block.

    Args:
        info: facts for its INFO beside the usual ones.
        user, password, token: who is let in; None: everybody.
        tls: whether connections go on in TLS.
        greeting: bytes to begin with in place of INFO.
        replies: whether the server answers PING.
        port: where; 0: anywhere.
    """

    def __init__(
        self,
        *,
        user=None,
        password=None,
        token=None,
        tls=False,
        greeting=None,
        replies=True,
        port=0,
        **info,
    ):
        self.connects = queue.SimpleQueue()  # what each client said in CONNECT
        self.lines = queue.SimpleQueue()  # every control line
        self._login = {"user": user, "pass": password, "auth_token": token}
        self._greeting, self._replies = greeting, replies
        self._tls = None
        if tls:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(CERTFILE, KEYFILE)
        self._info = {"server_id": "MINI", "version": "2.10.0", "headers": True} | info
        self._info = {"max_payload": 1_048_576, "tls_required": tls} | self._info
        self.lock = threading.Lock()
        self.clients = []
        self._turns = itertools.count()
        self._threads = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = self._listener.getsockname()[1]
        self._listening = False

    @property
    def url(self):
        return f"nats://127.0.0.1:{self.port}"

    def __enter__(self):
        self._start(self._accept)
        return self

    def __exit__(self, *_):
        self.stop()

    def close_door(self):
        """Take no new connection."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def stop(self):
        """End everything; the port is free then."""
        self.close_door()
        self.drop()
        for thread in list(self._threads):
            thread.join(READ_S)

    def drop(self):
        """Cut every connection."""
        with self.lock:
            clients = list(self.clients)
        for client in clients:
            client.cut()

    def say(self, data):
        """Say something to every client."""
        with self.lock:
            clients = list(self.clients)
        for client in clients:
            client.write(data)

    def _start(self, target, *args):
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._start(_Client(self, connection).run)

    # -- what a client does ------------------------------------------------------------------------------------------

    def greet(self, client):
        if self._greeting is not None:
            client.write(self._greeting)
            return
        client.write(b"INFO " + json.dumps(self._info).encode() + b"\r\n")
        if self._tls is not None:
            client.secure(self._tls)

    def lets_in(self, options):
        return all(options.get(name) == value for name, value in self._login.items() if value)

    def answers_ping(self):
        return self._replies

    def silence(self):
        """Answer no PING any more."""
        self._replies = False

    def route(self, sender, subject, reply, block, data):
        """Send a message to those who listen, or say that nobody does."""
        if len(block) + len(data) > self._info["max_payload"]:
            sender.write(b"-ERR 'Maximum Payload Violation'\r\n")
            sender.cut()
            return
        with self.lock:
            found = [
                (client, sid, group)
                for client in self.clients
                for sid, (pattern, group) in client.subscriptions.items()
                if _matches(pattern, subject)
            ]
        groups = {group: [f for f in found if f[2] == group] for _, _, group in found if group}
        chosen = [f for f in found if not f[2]]
        chosen += [members[next(self._turns) % len(members)] for members in groups.values()]
        for client, sid, _ in chosen:
            client.message(subject, sid, reply, block, data)
        if not chosen and reply and sender.options.get("no_responders"):
            self.route(sender, reply, "", b"NATS/1.0 503\r\n\r\n", b"")


class _Client:
    def __init__(self, server, connection):
        self.server = server
        self.socket = connection
        self.options = {}
        self.subscriptions = {}
        self._writing = threading.Lock()

    def run(self):
        server = self.server
        with server.lock:
            server.clients.append(self)
        try:
            server.greet(self)
            self.read(self.socket.makefile("rb"))
        except (OSError, ValueError):
            pass
        finally:
            with server.lock:
                server.clients.remove(self)
            self.cut()
            self.socket.close()

    def secure(self, context):
        self.socket = context.wrap_socket(self.socket, server_side=True)

    def cut(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def write(self, data):
        with self._writing, contextlib.suppress(OSError):
            self.socket.sendall(data)

    def message(self, subject, sid, reply, block, data):
        places = " ".join(part for part in (subject, sid, reply) if part)
        word, sizes = "MSG", f"{len(data)}"
        if block:
            word, sizes = "HMSG", f"{len(block)} {len(block) + len(data)}"
        self.write(f"{word} {places} {sizes}\r\n".encode() + block + data + b"\r\n")

    def read(self, file):
        with file:
            while line := file.readline():
                word, *parts = line.decode().split()
                self.server.lines.put(line.decode().strip())
                if word == "CONNECT":
                    self.options = json.loads(line.decode().partition(" ")[2])
                    self.server.connects.put(self.options)
                    if not self.server.lets_in(self.options):
                        self.write(b"-ERR 'Authorization Violation'\r\n")
                        return
                elif word == "PING" and self.server.answers_ping():
                    self.write(b"PONG\r\n")
                elif word == "SUB":
                    self.subscriptions[parts[-1]] = (parts[0], parts[1] if len(parts) == 3 else "")
                elif word == "UNSUB":
                    self.subscriptions.pop(parts[0], None)
                elif word in {"PUB", "HPUB"}:
                    self.publish(word, parts, file)

    def publish(self, word, parts, file):
        sizes = 2 if word == "HPUB" else 1
        places, counts = parts[:-sizes], [int(part) for part in parts[-sizes:]]
        body = file.read(counts[-1] + 2)[:-2]
        header = counts[0] if sizes == 2 else 0
        reply = places[1] if len(places) == 2 else ""
        self.server.route(self, places[0], reply, body[:header], body[header:])


def _matches(pattern, subject):
    wanted, given = pattern.split("."), subject.split(".")
    for place, token in enumerate(wanted):
        if token == ">":
            return len(given) > place
        if place >= len(given) or token not in {"*", given[place]}:
            return False
    return len(wanted) == len(given)
