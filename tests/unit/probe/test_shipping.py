"""What travels to the ranks, and what says no."""

from __future__ import annotations

import linecache
import pickle
import threading

import pytest

from kit.probe.arrival import Arrival
from kit.probe.shipping import Package, PerRank, pack

OFFSET = 5


def helper(x: int) -> int:
    return x + OFFSET


def uses_helper(x: int) -> int:
    return helper(x)


def arrived(package: Package) -> Arrival:
    return Arrival(package.function, package.rest, {})


def test_helpers_and_globals_travel_by_value_with_their_source() -> None:
    package = pack(uses_helper, (1,), {}, 2)
    assert package.name == "uses_helper" and package.root_file == __file__
    assert set(package.sources) == {__file__}
    assert "def uses_helper(x: int) -> int:" in package.sources[__file__]
    assert b"tests.unit.probe" not in pickletools_globals(package.function.small), "by value, not by name"
    assert arrived(package).function(1) == 6


def pickletools_globals(blob: bytes) -> bytes:
    import pickletools

    names = [str(argument) for opcode, argument, _ in pickletools.genops(blob) if opcode.name == "GLOBAL"]
    return " ".join(names).encode()


def test_a_global_may_be_named_like_one_of_torchs_modules() -> None:
    import torch.distributed as dist

    pytest.importorskip("torch.distributed.config")  # a module of a class of its own, which torch 2.8 has not

    config = {"width": 3}

    def width() -> int:
        return config["width"] if dist.is_available() else dist.config

    assert arrived(pack(width, (), {}, 2)).function() == 3


def test_each_rank_gets_its_own_argument() -> None:
    package = pack(uses_helper, (PerRank([10, 20]),), {"k": 3}, 2)
    assert [arrived(package).open(blob) for blob in package.arguments] == [((10,), {"k": 3}), ((20,), {"k": 3})]


def test_a_cell_without_a_file_keeps_its_text() -> None:
    text = "def cell(x):\n    return x\n"
    linecache.cache["<cell 1>"] = (len(text), None, text.splitlines(True), "<cell 1>")
    space: dict[str, object] = {"__name__": "__main__"}
    exec(compile(text, "<cell 1>", "exec"), space)
    package = pack(space["cell"], (1,), {}, 1)  # type: ignore[arg-type]
    assert package.sources == {"<cell 1>": ("def cell(x):", "    return x")}


def test_a_function_without_source_travels_and_its_lines_are_empty() -> None:
    space: dict[str, object] = {"__name__": "__main__"}
    exec(compile("def timed(x):\n    return x\n", "<timed>", "exec"), space)
    assert pack(space["timed"], (1,), {}, 1).sources == {"<timed>": ()}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (threading.Lock(), "an argument cannot be sent to the ranks"),
        (PerRank([1, 2, 3]), "per_rank holds 3 values, and there are 2 ranks"),
    ],
)
def test_what_cannot_travel(value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pack(uses_helper, (value,), {}, 2)


def test_nonsense_in_place_of_a_function_or_a_list() -> None:
    with pytest.raises(ValueError, match="give a function to run on the ranks, not int"):
        pack(3, (), {}, 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one value for each rank, not str"):
        PerRank("ab")


def test_a_package_can_itself_be_sent() -> None:
    package = pack(uses_helper, (1,), {}, 1)
    assert pickle.loads(pickle.dumps(package)) == package
