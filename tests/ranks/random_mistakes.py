"""Programs of random operations with one mistake each, whose every fact is known: who does what in which line.

Nothing is predicted of a run. What is said about it is taken apart into claims ('rank 2 waits in all_reduce (line 9)'),
and each is looked up in the program: see `false_claims`.
"""

from __future__ import annotations

import linecache
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

MISTAKES = (
    "none", "operation", "shape", "dtype", "reduction", "root", "missing", "returns", "raises", "killed", "swapped",
    "peer", "tag", "group", "alone",
)  # fmt: skip
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
COLLECTIVE = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "gather", "scatter", "barrier")


@dataclass(frozen=True)
class Call:
    """One operation as one rank asks for it. Groups are numbered; group 0 is that of all ranks."""

    name: str  # 'end' of the function, 'raise' and 'kill' too
    group: int = 0
    count: int = 2
    dtype: str = "float32"
    reduction: str = "SUM"
    root: int = 0
    peer: int | None = None
    tag: int = 0
    later: bool = False  # asked for now, waited for at the end of the program

    def source(self, members: tuple[int, ...]) -> str:
        n, own = len(members), f"torch.ones({self.count}, dtype=torch.{self.dtype})"
        group = f"group=groups[{self.group}]"
        later = ", async_op=True" if self.later else ""
        reduction = f"op=dist.ReduceOp.{self.reduction}"
        many = f"[{own} for _ in range({n})]"
        match self.name:
            case "all_reduce":
                call = f"dist.all_reduce({own}, {reduction}, {group}{later})"
            case "broadcast":
                call = f"dist.broadcast({own}, {self.root}, {group}{later})"
            case "reduce":
                call = f"dist.reduce({own}, {self.root}, {reduction}, {group}{later})"
            case "all_gather":
                call = f"dist.all_gather({many}, {own}, {group}{later})"
            case "reduce_scatter":
                call = f"dist.reduce_scatter({own}, {many}, {reduction}, {group}{later})"
            case "gather":
                call = f"dist.gather({own}, {many} if rank == {self.root} else None, {self.root}, {group}{later})"
            case "scatter":
                call = f"dist.scatter({own}, {many} if rank == {self.root} else None, {self.root}, {group}{later})"
            case "barrier":
                call = f"dist.barrier({group}{later})"
            case "send" | "recv":
                call = f"dist.{'i' if self.later else ''}{self.name}({own}, {self.peer}, tag={self.tag})"
            case "end":
                return "return"
            case "raise":
                return "raise ValueError('boom')"
            case "kill":
                return "os.kill(os.getpid(), signal.SIGKILL)"
        return f"works.append({call})" if self.later else call


@dataclass
class Program:
    """What every rank calls, in order, and in which line of the source."""

    world: int
    groups: tuple[tuple[int, ...], ...]
    calls: list[list[Call]]  # by rank
    mistake: str
    culprit: int
    lines: list[list[int]] = field(default_factory=list)  # of each call, by rank
    text: str = ""

    def write(self, file: str) -> None:
        """Its source: a branch for each rank, a line for each call."""
        text = ["def program():", "    rank, works = dist.get_rank(), []"]
        members = ", ".join(f"dist.new_group({list(ranks)})" for ranks in self.groups[1:])
        text.append(f"    groups = [dist.group.WORLD, {members}]")
        for rank, calls in enumerate(self.calls):
            text.append(f"    if rank == {rank}:")
            self.lines.append([])
            for call in calls:
                self.lines[rank].append(len(text) + 1)
                text.append(f"        {call.source(self.groups[call.group])}")
            text.append("        pass")
        text += ["    for work in works:", "        work.wait()"]
        self.text = "\n".join(text) + "\n"
        linecache.cache[file] = (len(self.text), None, [line + "\n" for line in text], file)

    def function(self, file: str) -> Callable[[], None]:
        import os
        import signal

        import torch
        import torch.distributed as dist

        self.write(file)
        names: dict[str, Any] = {"torch": torch, "dist": dist, "os": os, "signal": signal, "__name__": "__main__"}
        exec(compile(self.text, file, "exec"), names)
        function: Callable[[], None] = names["program"]
        return function

    def at(self, line: int) -> tuple[int, Call] | None:
        """Whose line it is, and what is called there."""
        return next(
            (
                (rank, call)
                for rank, calls in enumerate(self.calls)
                for call, here in zip(calls, self.lines[rank], strict=True)
                if here == line
            ),
            None,
        )

    def waits_at_end(self, line: int) -> bool:
        return line == len(self.text.splitlines())

    def ends(self, rank: int) -> str:
        """How a rank ends that nobody holds up: 'finished', 'failed' or 'dead'."""
        last = next((call.name for call in self.calls[rank] if call.name in ("end", "raise", "kill")), "end")
        return {"end": "finished", "raise": "failed", "kill": "dead"}[last]


def draw(seed: str) -> Program:
    choose = random.Random(seed)
    world = 3
    groups: tuple[tuple[int, ...], ...] = ((0, 1, 2), tuple(sorted(choose.sample(range(3), 2))))
    calls: list[list[Call]] = [[] for _ in range(world)]
    for _ in range(choose.randint(1, 6)):
        _add(choose, calls, groups)
    mistake, culprit = choose.choice(MISTAKES), choose.randrange(world)
    made = _mistaken(choose, calls, groups, mistake, culprit)
    return Program(world, groups, calls, mistake if made else "none", culprit)


def _add(choose: random.Random, calls: list[list[Call]], groups: tuple[tuple[int, ...], ...]) -> None:
    """One communication, right on all ranks."""
    later = choose.random() < 0.2
    about = {"count": choose.randint(1, 9), "dtype": choose.choice(("float32", "float64", "int64")), "later": later}
    if choose.random() < 0.3:
        source, target = choose.sample(range(3), 2)
        tag = choose.choice((0, 0, 7))
        calls[source].append(Call("send", peer=target, tag=tag, **about))
        calls[target].append(Call("recv", peer=source, tag=tag, **about))
        return
    number = choose.randrange(2)
    members = groups[number]
    call = Call(
        choose.choice(COLLECTIVE), number, reduction=choose.choice(("SUM", "MAX")), root=choose.choice(members), **about
    )
    for rank in members:
        calls[rank].append(call)


def _mistaken(
    choose: random.Random, calls: list[list[Call]], groups: tuple[tuple[int, ...], ...], mistake: str, culprit: int
) -> bool:
    """Makes one rank's mistake; False where the program has no place for it."""
    mine = calls[culprit]

    def change(which: Callable[[Call], bool], how: Callable[[Call], Call]) -> bool:
        places = [i for i, call in enumerate(mine) if which(call)]
        if not places:
            return False
        place = choose.choice(places)
        mine[place] = how(mine[place])
        return True

    def collective(call: Call) -> bool:
        return call.peer is None

    match mistake:
        case "operation":
            other = {"barrier": "all_reduce", "all_reduce": "broadcast"}
            return change(
                lambda c: collective(c), lambda c: replace(c, name=other.get(c.name, "all_reduce"), later=False)
            )
        case "shape":
            return change(lambda c: c.name != "barrier", lambda c: replace(c, count=c.count + 3))
        case "dtype":
            return change(lambda c: c.name != "barrier", lambda c: replace(c, dtype="int32"))
        case "reduction":
            return change(lambda c: c.name in REDUCING, lambda c: replace(c, reduction="MIN"))
        case "root":
            return change(
                lambda c: c.name in ROOTED,
                lambda c: replace(c, root=choose.choice([r for r in groups[c.group] if r != c.root])),
            )
        case "peer":
            return change(lambda c: not collective(c), lambda c: replace(c, peer=3 - culprit - (c.peer or 0)))
        case "tag":
            return change(lambda c: not collective(c), lambda c: replace(c, tag=c.tag + 1))
        case "group":
            number = next((n for n in (1, 0) if culprit in groups[n]), 0)
            return change(
                lambda c: collective(c) and c.group != number and c.name not in ROOTED,
                lambda c: replace(c, group=number),
            )
        case "missing":
            if not mine:
                return False
            del mine[choose.randrange(len(mine))]
        case "returns" | "raises" | "killed":
            del mine[choose.randint(0, len(mine)) :]
            mine.append(Call({"returns": "end", "raises": "raise", "killed": "kill"}[mistake]))
        case "swapped":
            places = [i for i in range(len(mine) - 1) if mine[i] != mine[i + 1]]
            if not places:
                return False
            i = choose.choice(places)
            mine[i], mine[i + 1] = mine[i + 1], mine[i]
        case "alone":
            mine.insert(choose.randint(0, len(mine)), Call(choose.choice(COLLECTIVE), later=choose.random() < 0.5))
        case _:
            return False
    return True


# -- what is said, looked up

_RANKS = r"ranks? (\d+(?:, \d+)*)"
_WAIT = re.compile(
    rf"{_RANKS} waits? in (\w+)(?: (?:from|to) rank (\d+))?(?: for ranks? [\d, and]+)? \(line (\d+)\)", re.I
)
_CALL = re.compile(rf"{_RANKS} calls? (\w+)([^(;:]*?) \(line (\d+)\)", re.I)
_SENDS = re.compile(r"rank (\d+) sends (?:(\d+) x (\w+) )?to rank (\d+)(?: with tag (\d+))? \(line (\d+)\)", re.I)
_RECEIVES = re.compile(
    r"rank (\d+) receives (?:(\d+) x (\w+) from rank (\d+)|with tag (\d+)) \(line (\d+)\)", re.I
)  # fmt: skip
_ENDED = re.compile(rf"{_RANKS} (finished|failed) without it", re.I)
_DIED = re.compile(r"rank (\d+) died(?: in [^(]+\(line \d+\) or after it)?(?:: (?:killed by )?(\w+))?", re.I)
_FAILED = re.compile(r"rank (\d+) failed at line (\d+): (\w+)", re.I)


def false_claims(program: Program, said: str) -> list[str]:
    """Every claim of `said` that the program does not bear out."""
    return [f"'{claim}' {why}" for claim, why in _claims(program, said)]


def names(said: str, rank: int) -> bool:
    """Whether a rank is named, by itself or among others."""
    return any(rank in _numbers(ranks) for ranks in re.findall(r"ranks? ([\d, and]+)", said, re.I))


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _claims(program: Program, said: str) -> Iterator[tuple[str, str]]:
    for found in _WAIT.finditer(said):
        for rank in _numbers(found[1]):
            line = int(found[4])
            there = program.at(line)
            if program.waits_at_end(line):
                if not any(c.later and c.name == found[2] for c in program.calls[rank]):
                    yield found[0], "has nothing of the kind to wait for at the end"
            elif there is None or there[0] != rank or there[1].name != found[2]:
                yield found[0], f"calls {there} there"
            elif found[3] and int(found[3]) != (there[1].root if there[1].peer is None else there[1].peer):
                yield found[0], "names another rank there"
    for found in _CALL.finditer(said):
        for rank in _numbers(found[1]):
            there = program.at(int(found[4]))
            if there is None or there[0] != rank or there[1].name != found[2]:
                yield found[0], f"calls {there} there"
            else:
                yield from ((found[0], why) for why in _details(program, there[1], found[3]))
    for found in _SENDS.finditer(said):
        yield from ((found[0], why) for why in _message(program, "send", found[1], found[4], found[5], found[6], found))
    for found in _RECEIVES.finditer(said):
        yield from ((found[0], why) for why in _message(program, "recv", found[1], found[4], found[5], found[6], found))
    for found in _ENDED.finditer(said):
        for rank in _numbers(found[1]):
            if found[2] == "finished" and program.ends(rank) != "finished":
                yield found[0], f"is {program.ends(rank)}"
            refused = _refused(said, rank) or _cut_off(program, said, rank)
            if found[2] == "failed" and program.ends(rank) != "failed" and not refused:
                yield found[0], f"is {program.ends(rank)}"
    for found in _DIED.finditer(said):
        aborted = found[2] == "SIGABRT" and program.mistake != "none"  # gloo ends a process whose messages do not fit
        if program.ends(int(found[1])) != "dead" and not aborted:
            yield found[0], "was not killed"
    for found in _FAILED.finditer(said):
        boom = program.ends(int(found[1])) == "failed"
        if found[3] == "ValueError" and not boom:
            yield found[0], "raises nothing"


def _refused(said: str, rank: int) -> bool:
    """Whether a rank is said to disagree with others, or to have failed with what a library said of that."""
    reasons = (line for line in said.splitlines() if "must " in line or "failed at line" in line)
    return any(names(line, rank) for line in reasons)


def _cut_off(program: Program, said: str, rank: int) -> bool:
    """Whether a rank communicates with one that is said to have died, or to disagree with others."""
    lines = (line for line in said.splitlines() if "must " in line or "died" in line)
    broken = {
        number for line in lines for ranks in re.findall(r"ranks? ([\d, and]+)", line) for number in _numbers(ranks)
    }
    calls = [call for call in program.calls[rank] if call.name not in ("end", "raise", "kill")]
    with_whom = (program.groups[call.group] if call.peer is None else (call.peer,) for call in calls)
    return any(broken & set(others) - {rank} for others in with_whom)


def _details(program: Program, call: Call, text: str) -> Iterator[str]:
    """' of 4 x float32', ' with SUM', ' from rank 2', ' to rank 0', as they follow the name of a call."""
    size = re.search(r" of (\d+) x (\w+)", text)
    if size and (int(size[1]), size[2]) != (call.count, call.dtype):
        yield f"hands over {call.count} x {call.dtype}"
    with_reduction = re.search(r" with (\w+)", text)
    if with_reduction and with_reduction[1] != call.reduction:
        yield f"reduces with {call.reduction}"
    other = re.search(r" (?:from|to) rank (\d+)", text)
    if other and int(other[1]) != (call.root if call.peer is None else call.peer):
        yield "names another rank"


def _message(
    program: Program, name: str, rank: str, peer: str | None, tag: str | None, line: str, found: re.Match[str]
) -> Iterator[str]:
    there = program.at(int(line))
    if there is None or there[0] != int(rank) or there[1].name != name:
        yield f"calls {there} there"
        return
    call = there[1]
    if peer is not None and int(peer) != call.peer:
        yield f"has rank {call.peer} at the other end"
    if tag is not None and int(tag) != call.tag:
        yield f"has tag {call.tag}"
    if found[2] is not None and (int(found[2]), found[3]) != (call.count, call.dtype):
        yield f"has {call.count} x {call.dtype}"
