"""Short turns on the processor are asked for by every thread of a process, and given back."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from kit.probe.links.scheduling import SHORT, ask_for_turns, turn

IN_A_PROCESS_OF_ITS_OWN = """
import os, threading
from kit.probe.links.scheduling import SHORT, ask_for_turns, turn

def in_a_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(turn()))
    thread.start()
    thread.join()
    return found[0]

niceness = os.nice(1)
before, stay = turn(), threading.Event()
old = threading.Thread(target=stay.wait, daemon=True)
old.start()
ask_for_turns(SHORT)
assert turn() == turn(old.native_id) == in_a_thread() == SHORT, (turn(), turn(old.native_id))
assert os.nice(0) == niceness
ask_for_turns(0)
assert turn() == turn(old.native_id) == in_a_thread() == before
"""


def release() -> tuple[int, ...]:
    return tuple(map(int, platform.release().split("-")[0].split(".")[:2]))


@pytest.mark.skipif(turn() == 0.0 or release() < (6, 12), reason="this system grants no turns")
def test_all_threads_have_them_and_lose_them() -> None:
    subprocess.run([sys.executable, "-c", IN_A_PROCESS_OF_ITS_OWN], check=True)


def test_another_machine_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = turn()
    with monkeypatch.context() as patch:
        patch.setattr(platform, "machine", lambda: "sparc")
        ask_for_turns(SHORT)
        assert turn() == 0.0
    assert turn() == before
