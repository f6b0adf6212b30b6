"""Keeping ipyparallel's idea of who is there in step with ours: alone it takes half a minute to notice a kill."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from kit.cluster.errors import ClusterError


def forget(client: Any, dead: Iterable[int]) -> None:
    """Tells the controller that these engines are gone, so that results which wait for them fail now."""
    for engine in dead:
        content = {"id": engine}  # the request a leaving engine makes itself; it has no answer
        client._io_loop.add_callback(client.session.send, client._query_socket, "unregistration_request", content)


def client_that_sees(client: Any, engines: Iterable[int], seconds: float = 10.0) -> Any:
    """The client, once the news of all `engines` has reached it."""
    deadline = time.monotonic() + seconds
    missing = set(engines)
    while missing := missing - set(client.ids):
        if time.monotonic() > deadline:
            raise ClusterError(f"ipyparallel does not list engines {sorted(missing)}: reset() forks the ranks anew")
        time.sleep(0.01)
    return client
