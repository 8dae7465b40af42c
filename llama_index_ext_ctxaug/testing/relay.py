"""A relay in front of a server that adds latency, counts round trips, holds answers and cuts connections."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType


class Relay:
    """A TCP relay on loopback in front of a server, in threads of this process.

    Args:
        target: address of the server: host and port, or the path of its socket.
        latency: seconds that the relay adds to each round trip.

    Example:
        ```python
        with Relay(("127.0.0.1", 6379), latency=0.0005) as relay:
            client = Redis(port=relay.port)
        ```
    """

    def __init__(self, target: tuple[str, int] | str, *, latency: float = 0.0) -> None:
        self.target = target
        self.latency = latency
        self.round_trips = 0
        """Number of requests that a client sent after an answer."""
        self.sent = bytearray()
        """All bytes that clients have sent."""
        self._answers_flow = threading.Event()
        self._answers_flow.set()
        self._asked = threading.Event()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def hold_answers(self) -> None:
        """Hold the server's answers back from now on, as if it hung."""
        self._asked.clear()
        self._answers_flow.clear()

    def wait_until_asked(self, timeout: float = 10.0) -> None:
        """Wait until a client has sent something after `hold_answers`.

        Raises:
            TimeoutError: nothing was sent within `timeout` seconds.
        """
        if not self._asked.wait(timeout):
            raise TimeoutError(f"nothing was sent within {timeout} seconds")

    def release_answers(self) -> None:
        """Pass the answers on again."""
        self._answers_flow.set()

    def cut(self) -> None:
        """Cut all connections in both directions; new ones are accepted."""
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def close(self) -> None:
        """Cut all connections and refuse new ones."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._answers_flow.set()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = self._connect()
            except Exception:
                client.close()  # without it the client would wait for an answer
                raise
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets += [client, server]
            answered = threading.Event()
            answered.set()
            for pump in (self._requests, self._answers):
                threading.Thread(target=pump, args=(client, server, answered), daemon=True).start()

    def _connect(self) -> socket.socket:
        if isinstance(self.target, str):
            server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            server.connect(self.target)
            return server
        server = socket.create_connection(self.target)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server

    def _requests(self, client: socket.socket, server: socket.socket, answered: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                self._asked.set()
                self.sent += data
                if answered.is_set():
                    answered.clear()
                    self.round_trips += 1
                    if self.latency:
                        time.sleep(self.latency)
                server.sendall(data)
        _end(server)

    def _answers(self, client: socket.socket, server: socket.socket, answered: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                self._answers_flow.wait()
                answered.set()
                client.sendall(data)
        _end(client)


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
