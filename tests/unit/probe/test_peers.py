"""Which user stands at the other end of a connection, read from the system's table."""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import NoReturn

import pytest

from kit.probe import peers
from kit.probe.peers import Connection, asked, connections, listed, own_inodes, parse, strangers

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def row(here: str, there: str, state: str, user: int, inode: int) -> str:
    return f"   0: {here} {there} {state} 00000000:00000000 00:00000000 00000000  {user:>4}        0 {inode} 1 0 20\n"


def test_table_is_read_and_only_established_ends_count() -> None:
    text = (
        HEAD + row("0100007F:9C40", "00000000:0000", "0A", 0, 7) + row("0100007F:9C40", "0100007F:8000", "01", 1001, 8)
    )
    assert list(parse(text)) == [Connection("0100007F:9C40", "0100007F:8000", 1001, 8)]


def test_of_all_connections_those_of_these_sockets_count() -> None:
    known = []
    for port, user in ((1, 1001), (2, 65534), (3, 0)):
        known += [Connection("a:9", f"a:{port}", 1001, port), Connection(f"a:{port}", "a:9", user, 100 + port)]
    assert listed(known, {1, 2, 3}) == {1001, 65534, 0}
    assert listed(known, {1, 3}) == {1001, 0}, "a connection that is not ours was counted"


def test_addresses_of_both_tables_meet() -> None:
    mapped = "0000000000000000FFFF00000100007F"
    known = [
        *parse(HEAD + row("0100007F:0009", "0100007F:0001", "01", 1001, 1)),
        *parse(HEAD + row(f"{mapped}:0001", f"{mapped}:0009", "01", 65534, 2)),
    ]
    assert listed(known, {1}) == {65534}


@pytest.mark.parametrize("told", ["asked", "listed"])
@pytest.mark.parametrize(("address", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
def test_a_real_connection_of_this_process_is_seen_from_both_ends(
    told: str, address: str, family: socket.AddressFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    if told == "listed":
        monkeypatch.setattr(peers, "asked", refused)
    before = own_inodes()
    try:
        server = socket.create_server((address, 0), family=family)
    except OSError as lacking:
        pytest.skip(f"no {address} on this host: {lacking}")
    with server as listener, socket.create_connection(listener.getsockname()[:2]) as caller:
        called, _ = listener.accept()
        with called:
            own = {os.fstat(end.fileno()).st_ino for end in (caller, called)}
            assert own <= own_inodes() - before
            assert strangers(own, user=os.geteuid()) == set()
            expected = set() if os.geteuid() == 0 else {os.geteuid()}
            assert strangers(own, user=os.geteuid() + 1) == expected
            assert listed(connections(), own) == {os.geteuid()}
            assert told == "listed" or list(asked(own)) == [os.geteuid()] * 2


def test_a_caller_by_ipv6_is_seen_where_one_listens_on_ipv4() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_INET6) as caller:
        caller.connect(("::ffff:127.0.0.1", listener.getsockname()[1]))
        called, _ = listener.accept()
        with called:
            for end in (caller, called):
                assert list(asked({os.fstat(end.fileno()).st_ino})) == [os.geteuid()]


def test_a_far_end_that_has_gone_is_nobody_s_and_a_listener_is_not_taken_for_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        caller = socket.create_connection(listener.getsockname())
        called, _ = listener.accept()
        with called:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            inodes = {os.fstat(called.fileno()).st_ino, os.fstat(listener.fileno()).st_ino}
            caller.close()
            assert list(asked(inodes)) == []


def refused(inodes: set[int]) -> NoReturn:
    raise OSError(errno.EPROTONOSUPPORT, "not here")
