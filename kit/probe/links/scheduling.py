"""Short turns on the processor, so that a thread that wakes is let in at once although others compute.

Linux gives a computing thread some milliseconds before another may have its core; a message on a link of one
millisecond would come late by that. A thread that has asked for shorter turns does not wait so long (Linux 6.12; before
that the wish has no effect). It needs no rights and takes no time from anybody: turns are shorter, and more of them.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

SHORT = 1e-4  # s, the least that the system grants
_CALLS = {"x86_64": (314, 315), "aarch64": (274, 275)}  # sched_setattr, sched_getattr
_ATTRIBUTES = struct.Struct("<IIQiIQQQII")  # size, policy, flags, niceness, priority, turn in ns, ...
_libc = ctypes.CDLL(None, use_errno=True)


def ask_for_turns(seconds: float) -> None:
    """For all threads of this process, and those they will start. 0: as long as the system thinks right.

    Nothing happens on another system, for threads of another class, and where it is refused.
    """
    if platform.machine() not in _CALLS or not os.path.isdir("/proc/self/task"):
        return
    for thread in map(int, os.listdir("/proc/self/task")):
        try:
            if os.sched_getscheduler(thread) != os.SCHED_OTHER:
                continue
            niceness = os.getpriority(os.PRIO_PROCESS, thread)
        except ProcessLookupError:  # ended meanwhile
            continue
        wish = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, niceness, 0, round(seconds * 1e9), 0, 0, 0, 0)
        _libc.syscall(_CALLS[platform.machine()][0], thread, wish, 0)


def turn(thread: int = 0) -> float:
    """The seconds that a thread (0: the calling one) has been granted; 0.0 where the system does not say."""
    if platform.machine() not in _CALLS:
        return 0.0
    room = ctypes.create_string_buffer(_ATTRIBUTES.size)
    if _libc.syscall(_CALLS[platform.machine()][1], thread, room, _ATTRIBUTES.size, 0) != 0:
        return 0.0
    return float(_ATTRIBUTES.unpack(room.raw)[5]) / 1e9
