"""One mistake each, made by one rank of three, and the sentence it must get: stepped and recorded alike."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress

import torch
import torch.distributed as dist


def destinations(x: torch.Tensor) -> None:
    dist.reduce(x, dst=1 if dist.get_rank() == 2 else 0)


def reductions(x: torch.Tensor) -> None:
    dist.all_reduce(x, op=dist.ReduceOp.MAX if dist.get_rank() == 1 else dist.ReduceOp.SUM)


def short_list(x: torch.Tensor) -> None:
    root = dist.get_rank() == 0
    dist.gather(x, [torch.zeros(2)] * 2 if root else None, dst=0)


def odd_list(x: torch.Tensor) -> None:
    root = dist.get_rank() == 0
    dist.scatter(torch.zeros(2), [torch.zeros(2), torch.zeros(5), torch.zeros(2)] if root else None, src=0)


def short_whole(x: torch.Tensor) -> None:
    dist.all_gather_into_tensor(torch.zeros(5), x)


def uneven_pieces(x: torch.Tensor) -> None:
    sizes = [4 if dist.get_rank() == 2 and peer == 1 else 2 for peer in range(3)]
    dist.all_to_all([torch.zeros(2) for _ in range(3)], [torch.zeros(n) for n in sizes])


def uneven_wholes(x: torch.Tensor) -> None:
    dist.all_to_all_single(torch.zeros(3), torch.zeros(6 if dist.get_rank() == 1 else 3))


def message_of_another_kind(x: torch.Tensor) -> None:
    if dist.get_rank() == 0:
        dist.send(torch.ones(2, dtype=torch.int32), 1)
    if dist.get_rank() == 1:
        dist.recv(x, 0)


def other_tag(x: torch.Tensor) -> None:
    if dist.get_rank() == 0:
        dist.send(x, 1, tag=3)
    if dist.get_rank() == 1:
        dist.recv(x, 0, tag=4)


def other_tag_unwaited(x: torch.Tensor) -> None:
    if dist.get_rank() == 0:
        dist.isend(x, 1, tag=3)
    if dist.get_rank() == 1:
        dist.irecv(x, 0, tag=4)


def nobody_takes_it(x: torch.Tensor) -> None:
    if dist.get_rank() == 0:
        dist.isend(x, 1)


def nobody_sends_it(x: torch.Tensor) -> None:
    if dist.get_rank() == 0:
        dist.irecv(x, 1)


def comes_alone(x: torch.Tensor) -> None:
    if dist.get_rank() == 1:
        dist.all_reduce(x, async_op=True)


def waits_for_anybody(x: torch.Tensor) -> None:
    if dist.get_rank() == 1:
        dist.recv(x)


def in_a_circle(x: torch.Tensor) -> None:
    dist.send(x, (dist.get_rank() + 1) % 3)


def beside_a_circle(x: torch.Tensor) -> None:
    dist.recv(x, {0: 1, 1: 0, 2: 0}[dist.get_rank()])


def another_order(x: torch.Tensor) -> None:
    calls = [lambda: dist.all_reduce(x), lambda: dist.barrier()]
    for call in reversed(calls) if dist.get_rank() == 1 else calls:
        call()


def sends_below(x: torch.Tensor) -> None:
    if dist.get_rank() == 1:
        dist.send(x, -1)


def receives_below(x: torch.Tensor) -> None:
    if dist.get_rank() == 1:
        dist.recv(x, -2)


def sends_beyond(x: torch.Tensor) -> None:
    if dist.get_rank() == 1:
        dist.isend(x, 3)


def sends_to_itself(x: torch.Tensor) -> None:
    if dist.get_rank() == 1:
        dist.isend(x, 1)


def receives_from_itself(x: torch.Tensor) -> None:
    if dist.get_rank() == 1:
        dist.recv(x, 1)


def no_such_source(x: torch.Tensor) -> None:
    if dist.get_rank() == 1:
        dist.broadcast(x, src=99)


def source_from_the_end(x: torch.Tensor) -> None:
    if dist.get_rank() == 1:
        dist.broadcast(x, src=-1)


def leaves_content(x: torch.Tensor) -> None:
    if dist.get_rank() == 1:
        raise SystemExit(0)
    dist.all_reduce(x)


def hands_back_a_generator(x: torch.Tensor) -> object:
    return (n for n in range(3))


def misspells_wait(x: torch.Tensor) -> None:
    work = dist.all_reduce(x, async_op=True)
    if dist.get_rank() == 1:
        work.wiat()
    work.wait()


def another_group(x: torch.Tensor) -> None:
    pair = dist.new_group([0, 2])
    if dist.get_rank() == 2:
        dist.all_reduce(x, group=pair)
    dist.barrier()
    if dist.get_rank() == 0:
        dist.all_reduce(x, group=pair)


FAILED = "rank 1 failed at line {2}: ValueError:"
NOBODY = "there is no such rank, this group has 3: 0 to 2"
CULPRITS = {
    destinations: "ranks 0, 1 call reduce to rank 0 (line {1}), rank 2 calls reduce to rank 1 (line {1}): "
    "every rank must name the same destination.",
    reductions: "ranks 0, 2 call all_reduce with SUM (line {1}), rank 1 calls all_reduce with MAX (line {1}): "
    "every rank must name the same reduction.",
    short_list: "rank 0 gathers into a list of 2 tensors in gather (line {2}): it needs one for each of 3 ranks.",
    odd_list: "rank 0 scatters 5 x float32 beside 2 x float32 in scatter (line {2}): every tensor of the list must be "
    "like the single one.",
    short_whole: "rank 0 calls all_gather between 2 x float32 and 5 x float32 (line {1}): the whole must hold the part "
    "3 times, once per rank.",
    uneven_pieces: "rank 2 gives rank 1 4 elements in all_to_all (line {2}), rank 1 makes room for 2 (line {2}): both "
    "must be equal.",
    uneven_wholes: "ranks 0, 1, 2 give 12 elements in all_to_all (line {1}) and make room for 9: what all ranks give "
    "and what they take must be equal.",
    message_of_another_kind: "rank 0 sends 2 x int32 to rank 1 (line {2}), rank 1 receives 2 x float32 from rank 0 "
    "(line {4}): a message and its buffer must have the same dtype.",
    other_tag: "Deadlock: rank 0 waits in send to rank 1 (line {2}), rank 1 waits in recv from rank 0 (line {4}). Rank "
    "0 sends to rank 1 with tag 3 (line {2}), rank 1 receives with tag 4 (line {4}): a message and its receive must "
    "have the same tag.",
    other_tag_unwaited: "rank 0 sends to rank 1 with tag 3 (line {2}), rank 1 receives with tag 4 (line {4}): a "
    "message and its receive must have the same tag.",
    nobody_takes_it: "rank 0 calls send to rank 1 (line {2}); rank 1 finished without it.",
    nobody_sends_it: "rank 0 calls recv from rank 1 (line {2}); rank 1 finished without it.",
    comes_alone: "rank 1 calls all_reduce (line {2}); ranks 0, 2 finished without it.",
    waits_for_anybody: "Deadlock: rank 1 waits in recv from any rank (line {2}); ranks 0, 2 finished without it.",
    in_a_circle: "Deadlock: rank 0 waits in send to rank 1 (line {1}), rank 1 waits in send to rank 2 (line {1}), "
    "rank 2 waits in send to rank 0 (line {1}): each waits for the next.",
    beside_a_circle: "Deadlock: rank 0 waits in recv from rank 1 (line {1}), ranks 1, 2 wait in recv from rank 0 "
    "(line {1}): ranks 0 and 1 wait for each other.",
    another_order: "ranks 0, 2 call all_reduce of 2 x float32 (line {1}), rank 1 calls barrier (line {1}): every rank "
    "of a group must call the same operation in the same order.",
    sends_below: f"{FAILED} send to rank -1: {NOBODY}",
    receives_below: f"{FAILED} recv from rank -2: {NOBODY}; dist.recv(x) without a rank takes what comes first",
    sends_beyond: f"{FAILED} send to rank 3: {NOBODY}",
    sends_to_itself: f"{FAILED} send to rank 1: that is this rank itself, and a message has two ends",
    receives_from_itself: f"{FAILED} recv from rank 1: that is this rank itself, and a message has two ends",
    no_such_source: "rank 1 failed at line {2}: ValueError: broadcast names rank 99, and the ranks here are 0 to 2: "
    "name one of them",
    source_from_the_end: "rank 1 failed at line {2}: ValueError: broadcast names rank -1, and the ranks here are 0 to "
    "2: name one of them",
    leaves_content: "Deadlock: ranks 0, 2 wait in all_reduce (line {3}); rank 1 finished without it.",
    hands_back_a_generator: "the function returned a generator, which cannot be sent back: "
    "run it there, and return what comes of it",
    misspells_wait: "rank 1 failed at line {3}: AttributeError: 'Work' object has no attribute 'wiat'",
    another_group: "Deadlock: ranks 0, 1 wait in barrier for rank 2 (line {4}), rank 2 waits in all_reduce for rank 0 "
    "(line {3}): ranks 0 and 2 wait for each other.",
}


def killed(how: str, pid: int, waiting: bool) -> None:
    """Rank 1, of that number, is killed while it waits for rank 2 in a reduction, or when it has left it."""
    if waiting and dist.get_rank() == 1:
        threading.Thread(target=_kill_once_it_waits, args=(threading.get_ident(), pid)).start()
    if waiting and dist.get_rank() == 2:
        _until_gone(pid)
    match how:
        case "all_reduce":
            dist.all_reduce(torch.ones(2))
        case "reduce":
            dist.reduce(torch.ones(2), 0, op=dist.ReduceOp.MAX)
        case "reduce_scatter":
            dist.reduce_scatter(torch.zeros(2), [torch.ones(2)] * 3)
    if dist.get_rank() == 1:
        os.kill(pid, signal.SIGKILL)


def _kill_once_it_waits(thread: int, pid: int) -> None:
    def waits() -> bool:
        stack = [frame for frame, _ in traceback.walk_stack(sys._current_frames()[thread])]
        return any(f.f_code.co_name == "wait" and f.f_globals["__name__"].startswith("kit.probe") for f in stack)

    while not waits():
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)


def _until_gone(pid: int) -> None:
    with suppress(ProcessLookupError):
        while True:
            os.kill(pid, 0)
            time.sleep(0.01)
