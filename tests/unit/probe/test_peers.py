"""Which user stands at the other end of a connection, read from the system's table."""

from __future__ import annotations

import os
import socket

from kit.probe.peers import Connection, connections, own_inodes, parse, strangers

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def row(here: str, there: str, state: str, user: int, inode: int) -> str:
    return f"   0: {here} {there} {state} 00000000:00000000 00:00000000 00000000  {user:>4}        0 {inode} 1 0 20\n"


def test_table_is_read_and_only_established_ends_count() -> None:
    text = (
        HEAD + row("0100007F:9C40", "00000000:0000", "0A", 0, 7) + row("0100007F:9C40", "0100007F:8000", "01", 1001, 8)
    )
    assert list(parse(text)) == [Connection("0100007F:9C40", "0100007F:8000", 1001, 8)]


def test_another_user_at_the_far_end_is_a_stranger_and_root_is_none() -> None:
    known = []
    for port, user in ((1, 1001), (2, 65534), (3, 0)):
        known += [Connection("a:9", f"a:{port}", 1001, port), Connection(f"a:{port}", "a:9", user, 100 + port)]
    assert strangers(known, {1, 2, 3}, user=1001) == {65534}
    assert strangers(known, {1, 3}, user=1001) == set(), "a connection that is not ours was counted"
    assert strangers(known, {1, 2, 3}, user=65534) == {1001}


def test_addresses_of_both_tables_meet() -> None:
    mapped = "0000000000000000FFFF00000100007F"
    known = [
        *parse(HEAD + row("0100007F:0009", "0100007F:0001", "01", 1001, 1)),
        *parse(HEAD + row(f"{mapped}:0001", f"{mapped}:0009", "01", 65534, 2)),
    ]
    assert strangers(known, {1}, user=1001) == {65534}


def test_a_real_connection_of_this_process_is_seen_from_both_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as caller:
        called, _ = listener.accept()
        with called:
            own = {os.fstat(end.fileno()).st_ino for end in (caller, called)}
            assert own <= own_inodes()
            one, other = {end for end in connections() if end.inode in own}
            assert (one.here, one.there) == (other.there, other.here)
            assert strangers(connections(), own, user=os.geteuid()) == set()
            expected = set() if os.geteuid() == 0 else {os.geteuid()}
            assert strangers(connections(), own, user=os.geteuid() + 1) == expected
