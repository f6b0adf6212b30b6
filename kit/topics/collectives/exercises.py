"""Labs 01a and 01b: collectives from send and receive, a deadlock repaired, a bandwidth that was counted wrongly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil, log2
from random import Random
from typing import TYPE_CHECKING, Any

from kit.grade import inputs
from kit.grade.cost import rounds_at_most
from kit.grade.diagnose import (
    chunk_order,
    contributions,
    divided,
    input_changed,
    input_returned,
    neighbour,
    not_cut,
    nothing_arrived,
    nothing_returned,
    one_for_all,
    only_rank_zero,
    own_input,
    remainder_left,
    wrong_source,
)
from kit.grade.exercise import Case, Exercise, Run
from kit.grade.traffic import (
    bytes_per_rank,
    calls,
    messages_in_all,
    messages_per_rank,
    on_each_rank,
    only,
    payload_at_most,
    received_once,
    sends,
    silent,
    to_the_right,
)
from kit.grade.values import is_tensor, on_each_result, same
from kit.grade.words import counted, line
from kit.topics.collectives import mistakes
from kit.trace.text import POINT_TO_POINT

if TYPE_CHECKING:
    import torch

    from kit.trace.facts import RankTrace
    from kit.trace.trace import Trace

LAB_A, LAB_B = "01a_collectives", "01b_collectives"
FLOAT = 4  # bytes of a float32
BY_HAND = only(POINT_TO_POINT, "send and receive only")
EACH_ONCE = messages_in_all(
    lambda case: case.world - 1, "each of the other ranks has to receive x once, and nobody else"
)


def _timing_cases(world: int, random: Random) -> Iterator[Case]:
    import torch

    for dtype in (torch.float32, torch.float64):
        size, seconds = random.randint(1000, 50_000), random.uniform(1e-5, 1e-3)
        tensors = torch.zeros(world * size, dtype=dtype), torch.zeros(size, dtype=dtype)
        yield Case(world, ((*tensors, seconds),) * world, size, {"itemsize": dtype.itemsize, "seconds": seconds})


def _bus_bandwidth(case: Case) -> float:
    whole = case.world * case.size * case.facts["itemsize"]
    return float(whole / case.facts["seconds"] * (case.world - 1) / case.world / 1e9)


def _miscounted(run: Run, expected: Sequence[Any]) -> str | None:
    """A bandwidth that is wrong by one of the usual factors."""
    if isinstance(run.results[0], str):
        return f"rank 0 returned {run.results[0]!r}: a number is asked for, not text"
    if not all(isinstance(got, int | float) for got in run.results):
        return None
    if all(
        any(got == round(right, digits) for digits in range(5))
        for got, right in zip(run.results, expected, strict=True)
    ):
        return f"rank 0 returned {run.results[0]}, rounded: a result has all its digits, {expected[0]:.6g}"
    n, itemsize, seconds, gib = run.case.world, run.case.facts["itemsize"], run.case.facts["seconds"], 1e9 / 2**30
    output = f"{n} times too low: the output was counted, and S of a reduce-scatter is the whole that goes in"
    binary = "a GB is 10**9 bytes, and 2**30 of them are a GiB"
    share = f"(n - 1)/n of S crosses each link, here {n - 1}/{n}"
    mistakes = {
        gib / n: f"{output}; besides, {binary}",
        1 / n: output,
        gib: f"7 % too low: {binary}",
        1 / (n - 1): f"the output over the time: S is the whole that goes in, and {share}",
        n / (n - 1): f"that is algbw, S over the time: busbw counts that {share}",
        2.0: (  # alike for n = 2
            f"twice too high: `whole` holds all {n} pieces, and {share}; 2 (n - 1)/n is the factor of an all-reduce, 1"
            " that of algbw"
        ),
        1 / itemsize: f"elements were counted, and each of them has {itemsize} bytes",
        1e9: "bytes per second, and GB/s are asked for: divide by 10**9",
        1e3: "MB/s, and GB/s are asked for: a GB is 10**9 bytes",
        8.0: "bits were counted, and a GB is 10**9 bytes",
        0.1: "10 times too low: a GB is 10**9 bytes, 1e9, and 10e9 is 10**10",
        seconds * seconds: "a bandwidth is bytes over seconds, not bytes times seconds",
        n * n: share,
        (n / (n - 1)) ** 2: share,
    }
    if itemsize != FLOAT:  # float32 was tried before, and right
        mistakes[FLOAT / itemsize] = f"{FLOAT} bytes were counted for an element, which has {itemsize} here"
    for m in range(2, 9):
        if m != n:
            factor = (m - 1) / m * n / (n - 1)
            other = f"as if (n - 1)/n were taken for {m} ranks, and here are {n}: dist.get_world_size() says how many"
            besides = f"{factor:g} times too high, as if the piece were counted besides, or else {other}"
            mistakes.setdefault(factor, besides if abs(factor - 1 - 1 / n) < 1e-9 else other)
    for factor, sentence in mistakes.items():
        if all(abs(got - factor * right) <= 1e-6 * right for got, right in zip(run.results, expected, strict=True)):
            return f"rank 0 returned {run.results[0]:.4g} GB/s where {expected[0]:.4g} is right: {sentence}"
    return None


REDUCE_SCATTER_BANDWIDTH = Exercise(
    id="reduce-scatter-bandwidth",
    lab=LAB_B,
    function="bus_bandwidth",
    size="C",
    cases=_timing_cases,
    oracle=lambda case: [_bus_bandwidth(case)] * case.world,
    hints=(
        "On 4 ranks each hands in 4 pieces and gets one. How many pieces cross its link? Count them in the ring.",
        (
            "n - 1 pieces leave each rank: (n - 1)/n of the whole. Which of `whole` and `piece` does the code multiply"
            " by that? And which power of ten is a GB?"
        ),
        "`size = whole.numel() * whole.element_size()`, then `size / seconds * (n - 1) / n / 1e9`.",
    ),
    diagnoses=(nothing_returned, _miscounted),
    traffic=(silent,),
    mistakes=mistakes.REDUCE_SCATTER_BANDWIDTH,
    praise="counted on the whole buffer, in units of 10**9 bytes",
)


def _rooted_cases(world: int, random: Random) -> Iterator[Case]:
    """The last rank is the source first: rank 0 as the source would hide a forgotten argument."""
    sources = [world - 1, 0, random.randrange(1, world)]
    for number, source in enumerate(sources):
        size = 1 if number == 1 else random.randint(2, 40)
        yield Case(world, tuple((x, source) for x in inputs.tensors(world, size, random)), size, {"source": source})


def _of_source(case: Case) -> list[Any]:
    return [case.arguments[case.facts["source"]][0]] * case.world


def _sum_cases(world: int, random: Random) -> Iterator[Case]:
    for size in inputs.sizes(world, random):
        yield Case(world, tuple((x,) for x in inputs.tensors(world, size, random)), size)


def _sum(case: Case) -> list[Any]:
    return [sum(x for (x,) in case.arguments)] * case.world


NO_SUCH_RANK = (
    r"there is no such rank",
    "Ranks go from 0 to n - 1: counted round a ring, the right neighbour is (r + 1) % n, the left one (r - 1) % n.",
)
TO_ITSELF = (
    r"that is this rank itself|same as the rank of the current process",
    "The source has x already: it sends to every other rank, and receives nothing.",
)
TOO_FEW_CHUNKS = (
    r"list index out of range",
    "Count the chunks: x.chunk(n) and x.split(size) may make fewer than n; x.tensor_split(n) makes n, some empty.",
)
UNEQUAL_BUFFERS = (
    r"message and its buffer|must match the size",
    "Chunks may differ by one element: each inbox is made like the chunk that comes, torch.empty_like(...).",
)
LIST_AND_TENSOR = (
    r"Expected parameter",
    "`dist.reduce_scatter(mine, chunks)` takes a list and fills one tensor, `dist.all_gather(chunks, mine)` takes one"
    " tensor and fills a list.",
)


def _unless_crossed(otherwise: str) -> Callable[[Case, Trace], str]:
    """Why all wait, as it was seen: who receives from a rank that sends elsewhere, or else what is usual."""

    def told(case: Case, trace: Trace) -> str:
        left_open = [one for part in trace.ranks for one in part.operations if one.ended is None]
        to = {one.rank: one.peer for one in left_open if one.name == "send"}
        for one in left_open:
            if one.name == "recv" and one.peer in to and to[one.peer] != one.rank:
                return (
                    f"rank {one.rank} receives from rank {one.peer}, which sends to rank {to[one.peer]}: who sends to"
                    " the right has to receive from the left."
                )
        return otherwise

    return told


ALL_SEND = (
    r"(?s)\A(?!.*waits? in recv).*waits? in send",
    _unless_crossed(
        "All ranks send first, so nobody receives: let some receive first, or start the send with dist.isend and wait"
        " for it later."
    ),
)
ALL_RECEIVE = (
    r"(?s)\A(?!.*waits? in send).*waits? in recv.*(each waits|waits in recv)",
    _unless_crossed(
        "All ranks receive first, so nobody has sent: start the send with dist.isend before the recv, wait for it"
        " after."
    ),
)


def _even_pieces(x: torch.Tensor, n: int) -> Sequence[torch.Tensor]:
    return x.tensor_split(n)


def _padded_pieces(x: torch.Tensor, n: int) -> Sequence[torch.Tensor]:
    step = max(1, ceil(len(x) / n))
    return [x[rank * step : (rank + 1) * step] for rank in range(n)]


@on_each_result
def _cut_down(run: Run, rank: int, got: Any, right: Any) -> str | None:
    """A whole number of chunks, by leaving out what is over."""
    even = len(right) // run.case.world * run.case.world
    if not is_tensor(got) or got.shape != (even,) or even == len(right) or not same(got, right[:even]):
        return None
    lost = counted(len(right) - even, "element")
    return (
        f"rank {rank} lacks the last {lost} of {len(right)}: add zeros to x, up to a multiple of n, do not cut it down"
    )


def _chunk(case: Case) -> int:
    return ceil(case.size / case.world) * FLOAT


BROADCAST = Exercise(
    id="broadcast",
    lab=LAB_A,
    function="broadcast",
    size="C",
    cases=_rooted_cases,
    oracle=_of_source,
    hints=(
        "One rank has something to say, the others listen. Which call belongs to which?",
        (
            "The source loops over all other ranks and sends; each of the others receives once, into a fresh"
            " `torch.empty_like(x)`."
        ),
        (
            "`if rank == source:` `dist.send(x, group_dst=other, group=group)` for every other rank, return"
            " `x.clone()`; `else:` `dist.recv(inbox, group_src=source, group=group)` and return `inbox`."
        ),
    ),
    before=(input_changed,),
    after=(input_returned,),
    diagnoses=(nothing_returned, wrong_source, nothing_arrived, only_rank_zero, own_input),
    traffic=(BY_HAND, received_once, EACH_ONCE),
    advice=(
        (r"[Dd]eadlock|waits in|never", "Every send needs a receive on the rank it names, and every receive a send."),
    ),
    errors=(TO_ITSELF, NO_SUCH_RANK),
    mistakes=mistakes.BROADCAST,
    peers_in_group=True,
    praise="n - 1 messages in all",
)

RING_ALL_REDUCE = Exercise(
    id="ring-all-reduce",
    lab=LAB_A,
    function="ring_all_reduce",
    size="C",
    cases=_sum_cases,
    oracle=_sum,
    hints=(
        (
            "Cut x into n chunks. In every step each rank sends one chunk to the right, receives one from the left, and"
            " adds what came."
        ),
        (
            "Two loops of n - 1 steps. In step s of the first, rank r sends chunk (r - s) % n and adds into chunk (r -"
            " s - 1) % n; after it rank r holds chunk (r + 1) % n complete. The second loop hands complete chunks on,"
            " without adding."
        ),
        (
            "One step, which cannot dead-lock: `work = dist.isend(chunks[out], group_dst=right, group=group)`,"
            " `dist.recv(inbox, group_src=left, group=group)`, `work.wait()`. Make the chunks by"
            " `list(x.clone().tensor_split(n))`, and put them together by `torch.cat`."
        ),
    ),
    before=(input_changed,),
    after=(input_returned,),
    diagnoses=(
        nothing_returned,
        divided,
        own_input,
        only_rank_zero,
        remainder_left,
        lambda run, expected: to_the_right(run),
        chunk_order(_even_pieces),
        contributions(_even_pieces),
    ),
    traffic=(
        BY_HAND,
        bytes_per_rank(
            lambda case, rank: 2 * (case.world - 1) * _chunk(case),
            _chunk,
            "the whole tensor goes round, not one chunk of it",
            "more chunks go round than 2 (n - 1)",
        ),
        messages_per_rank(
            lambda case, rank: 2 * (case.world - 1), "n - 1 steps add the chunks up, n - 1 steps hand them round"
        ),
        to_the_right,
    ),
    advice=(ALL_SEND, ALL_RECEIVE, UNEQUAL_BUFFERS),
    errors=(NO_SUCH_RANK, TOO_FEW_CHUNKS, UNEQUAL_BUFFERS),
    mistakes=mistakes.RING_ALL_REDUCE,
    peers_in_group=True,
    praise="2 (n - 1) messages of one chunk per rank",
)

ALL_REDUCE_FROM_HALVES = Exercise(
    id="all-reduce-from-halves",
    lab=LAB_B,
    function="all_reduce_from_halves",
    size="C",
    cases=_sum_cases,
    oracle=_sum,
    hints=(
        "The first half leaves every rank with one chunk of the sum; the second gives everybody all chunks.",
        (
            "Both want n chunks of equal size: copy x into zeros of ceil(C/n) n elements first, and cut the padding off"
            " at the end."
        ),
        (
            "With `chunks = list(padded.split(size))` and `mine` of one chunk's shape: `dist.reduce_scatter(mine,"
            " chunks, group=group)`, then `dist.all_gather(chunks, mine, group=group)`, then `padded[: len(x)]`."
        ),
    ),
    before=(input_changed,),
    after=(input_returned,),
    diagnoses=(
        nothing_returned,
        not_cut,
        _cut_down,
        divided,
        own_input,
        only_rank_zero,
        one_for_all(_padded_pieces),
        chunk_order(_padded_pieces),
        contributions(_padded_pieces),
    ),
    traffic=(
        calls(("reduce_scatter", "all_gather"), "each half of an all-reduce, once"),
        only(("reduce_scatter", "all_gather"), "reduce-scatter and all-gather only"),
        payload_at_most(lambda case: _chunk(case) * case.world, "pad to the next multiple of n, no further"),
    ),
    advice=(
        (
            r"must be equal|needs one for each",
            "Copy x into zeros of ceil(C/n) n elements, and cut those into n chunks.",
        ),
    ),
    errors=(LIST_AND_TENSOR,),
    mistakes=mistakes.ALL_REDUCE_FROM_HALVES,
    praise="two collectives, fewer than n elements of padding",
)

TREE_BROADCAST = Exercise(
    id="tree-broadcast",
    lab=LAB_B,
    function="tree_broadcast",
    size="C",
    cases=_rooted_cases,
    oracle=_of_source,
    hints=(
        "After one round two ranks know it. Who could be sending in the second round?",
        (
            "Count ranks from the source: `place = (rank - source) % n`. Before the round of distance d = 1, 2, 4, ..."
            " the places below d have it."
        ),
        (
            "`for d in 1, 2, 4, ... < n`: a place p < d sends to place p + d if that is < n; a place d <= p < 2 d"
            " receives from p - d. Place p is rank `(p + source) % n`, given as group_dst or group_src with"
            " group=group."
        ),
    ),
    before=(input_changed,),
    after=(input_returned,),
    diagnoses=(nothing_returned, wrong_source, nothing_arrived, only_rank_zero, own_input),
    traffic=(BY_HAND, received_once, EACH_ONCE),
    cost=(
        rounds_at_most(
            lambda case: ceil(log2(case.world)),
            "every rank that has the tensor can hand it on in the same round, so the number of ranks that know it"
            " doubles",
        ),
    ),
    advice=(
        (
            r"waits in recv",
            "In the round of distance d the places d to 2 d - 1 receive, each from the place d before it: whoever is"
            " further away waits for a later round.",
        ),
        (
            r"[Dd]eadlock|waits in|never",
            "Every send needs a receive on the rank it names, also where n is no power of two.",
        ),
    ),
    errors=(
        (
            rf"there is no such rank|{TO_ITSELF[0]}",
            "Places are counted from the source, modulo n: place p is rank (p + source) % n.",
        ),
    ),
    mistakes=mistakes.TREE_BROADCAST,
    beyond=(7,),  # a heap has three rounds on 5 ranks, as it should, and one too many on 7
    peers_in_group=True,
    praise="n - 1 messages in ceil(log2 n) rounds",
)


@on_each_rank
def _inbox_sent(run: Run, part: RankTrace) -> str | None:
    """A rule: it is x that travels, not what the rank receives into."""
    inboxes = {region.storage for one in part.operations if one.name == "recv" for region in one.outputs}
    wrong = next((one for one in sends(part) if any(region.storage in inboxes for region in one.inputs)), None)
    if wrong is None:
        return None
    return (
        f"rank {part.rank} sent its inbox, from {line(wrong, run)}: x is to go to the right, not what comes from the"
        " left"
    )


REPAIR_DEADLOCK = Exercise(
    id="repair-deadlock",
    lab=LAB_A,
    function="shift_right",
    size="C",
    cases=_sum_cases,
    oracle=lambda case: [case.arguments[(rank - 1) % case.world][0] for rank in range(case.world)],
    hints=(
        "Step it: every rank stands in the same line. What would have to happen for any of them to go on?",
        (
            "`dist.send` comes back when somebody receives. Either some ranks receive first, or a send is started"
            " without waiting for it."
        ),
        (
            "`work = dist.isend(x, group_dst=right, group=group)`, then"
            " `dist.recv(inbox, group_src=left, group=group)`, then `work.wait()`."
        ),
    ),
    before=(input_changed, _inbox_sent),
    after=(input_returned,),
    diagnoses=(
        nothing_returned,
        nothing_arrived,
        own_input,
        neighbour(-1, "wrong direction: every rank has what its right neighbour had, and x was to go to the right"),
        only_rank_zero,
    ),
    traffic=(
        BY_HAND,
        messages_per_rank(lambda case, rank: 1, "x goes one rank on, once"),
        bytes_per_rank(
            lambda case, rank: case.size * FLOAT,
            lambda case: case.size * FLOAT,
            "more than x is sent",
            "more than x is sent",
        ),
    ),
    advice=(ALL_SEND, ALL_RECEIVE),
    errors=(NO_SUCH_RANK,),
    mistakes=mistakes.REPAIR_DEADLOCK,
    peers_in_group=True,
    praise="one message per rank, whoever comes first",
)

EXERCISES = (
    BROADCAST,
    RING_ALL_REDUCE,
    REPAIR_DEADLOCK,
    ALL_REDUCE_FROM_HALVES,
    TREE_BROADCAST,
    REDUCE_SCATTER_BANDWIDTH,
)
