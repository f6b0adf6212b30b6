"""Random programs with a mistake each: whatever is said of them, stepped and recorded, is borne out by the program.

The same forty in every run, every fourth of them recorded too; 2,000 new ones in the full matrix. `--seed S` draws
other ones, or the same again.
"""

from __future__ import annotations

import os

import pytest

from kit.run.errors import RankError, what_went_wrong
from kit.run.live import LiveRunner
from tests.ranks.random_mistakes import MISTAKES, Call, Program, draw, false_claims, names

BATCH = 40
RECORDED = 4  # every so many-th
HARMLESS = ("none", "swapped", "returns", "raises", "missing")  # at times: two that are alike, or nothing left out


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "batch" in metafunc.fixturenames:
        options = metafunc.config.option
        batches = 50 if options.full_matrix else 1
        seed = options.seed or (os.urandom(4).hex() if options.full_matrix else "usual")
        metafunc.parametrize(("batch", "seed"), [(n, seed) for n in range(batches)], ids=map(str, range(batches)))


@pytest.mark.timeout(600)
def test_nothing_false_is_said_of_random_programs(three: LiveRunner, batch: int, seed: str) -> None:
    wrong = []
    for number in range(batch * BATCH, (batch + 1) * BATCH):
        program = draw(f"{seed} {number}")
        function = program.function(f"<program {number}>")
        said = {"stepped": stepped(three, function)}
        if number % RECORDED == 0:
            said["recorded"] = recorded(three, function)
        for how, words in said.items():
            for complaint in [*false_claims(program, words), *unsaid(program, words)]:
                wrong.append(f"program {number}, {how}, {program.mistake} of rank {program.culprit}: {complaint}")
                wrong.append(f"{words}\n{program.text}")
    assert not wrong, "\n".join([f"--seed {seed}", *wrong])


def test_a_rank_that_dies_within_an_operation_keeps_the_others_from_no_later_one(three: LiveRunner) -> None:
    """Two ranks may stay in gloo's reduce_scatter for ever; their broadcast needs them alone."""
    program = draw("6da49b7c 266")
    function = program.function("<program>")
    assert program.mistake == "killed" and "reduce_scatter" in program.text
    said = stepped(three, function)
    assert not [*false_claims(program, said), *unsaid(program, said)]


def stepped(cluster: LiveRunner, function: object) -> str:
    state = cluster.step(function).finish()  # type: ignore[arg-type]
    assert not any(rank.phase == "running" for rank in state)
    return what_went_wrong(state)


def recorded(cluster: LiveRunner, function: object) -> str:
    try:
        cluster.record(function)  # type: ignore[arg-type]
    except RankError as error:
        return str(error)
    return ""


def unsaid(program: Program, said: str) -> list[str]:
    if program.mistake == "none":
        return ["nothing is wrong, and something is said"] if said else []
    if not said:
        return [] if program.mistake in HARMLESS else ["nothing is said"]
    return [] if names(said, program.culprit) else [f"rank {program.culprit} is not named"]


def test_the_judge_of_these_sentences_knows_a_false_one() -> None:
    """What it lets pass elsewhere is not passed because it looks at nothing."""
    send, receive = Call("send", peer=1, tag=3), Call("recv", peer=0)
    reduction = Call("all_reduce", count=4)
    program = Program(3, ((0, 1, 2), (0, 1)), [[send, reduction], [receive, reduction], [Call("kill")]], "killed", 2)
    program.function("<program>")
    (a, b), (c, d) = program.lines[:2]
    right = [
        f"Deadlock: ranks 0 waits in send to rank 1 (line {a}); rank 2 died.",
        f"rank 1 waits in recv from rank 0 (line {c}), rank 1 finished without it.",
        f"rank 0 calls all_reduce of 4 x float32 (line {b}), rank 1 calls all_reduce with SUM (line {d})",
        f"Rank 0 sends to rank 1 with tag 3 (line {a}), rank 1 receives with tag 0 (line {c}): a message",
        "rank 2 died: killed by SIGKILL\nrank 0 failed without it",
    ]
    wrong = [
        f"rank 1 waits in send to rank 1 (line {a})",
        f"rank 0 waits in send to rank 2 (line {a})",
        f"rank 0 waits in recv from rank 1 (line {a})",
        "ranks 1, 2 finished without it",
        "rank 1 failed without it",
        "rank 0 died: killed by SIGABRT\nrank 2 failed without it",
        "rank 1 died: killed by SIGKILL",
        "rank 1 failed at line 5: ValueError: boom",
        f"rank 0 calls all_reduce of 5 x float32 (line {b})",
        f"rank 1 calls all_reduce of 4 x int64 (line {d})",
        f"rank 0 calls all_reduce with MAX (line {b})",
        f"rank 1 calls barrier (line {d})",
        f"rank 0 sends to rank 1 with tag 4 (line {a})",
        f"rank 1 receives 2 x int32 from rank 0 (line {c})",
    ]
    assert [false_claims(program, claim) for claim in right] == [[]] * len(right)
    assert [claim for claim in wrong if not false_claims(program, claim)] == []


def test_every_mistake_is_drawn() -> None:
    assert {draw(f"all {number}").mistake for number in range(400)} == set(MISTAKES)
