"""Files: exact, small, shared; and whatever is wrong with one is said, never executed."""

from __future__ import annotations

import json
import pickle
import tracemalloc
import zipfile
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kit.trace.facts import (
    Account,
    Frame,
    Memory,
    MemorySample,
    Output,
    Pass,
    Place,
    RankState,
    Stop,
    Stretch,
    Summary,
    TensorFact,
)
from kit.trace.io import TABLES, VALUES
from kit.trace.trace import Trace
from tests.traces import example

EXAMPLES = [example.ring, example.held_ring, example.via_root, example.deadlock, example.failure, example.overlap]
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit, types included; `==` will not do for arrays and NaN."""
    if type(a) is not type(b):
        return False
    if is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return repr(a) == repr(b) if isinstance(a, float) else bool(a == b)


def with_tensors(
    *facts: TensorFact, output: tuple[Output, ...] = (), scalars: tuple[tuple[str, str], ...] = ()
) -> Trace:
    trace = example.deadlock()
    frame = Frame(Place("cell", 1, "f"), facts, scalars)
    stop = Stop(0, 0, 5, (frame,), Memory(1, 2, "resident set"), output)
    return replace(trace, ranks=(replace(trace.ranks[0], stops=(stop,)), trace.ranks[1]), positions=())


@pytest.mark.parametrize("build", EXAMPLES, ids=lambda build: build.__name__)
def test_a_trace_comes_back_as_it_was(build: Any, tmp_path: Path) -> None:
    trace = build()
    path = trace.save(tmp_path / "run.trace")
    assert same(Trace.load(path), trace)
    assert Trace.load(str(path)).spans() == trace.spans()
    assert [item.name for item in tmp_path.iterdir()] == ["run.trace"], "nothing is left beside it"


numbers = arrays.arrays(
    st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.uint8, np.bool_, np.complex64]),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)


@quick
@given(
    values=numbers,
    floats=st.tuples(st.floats(), st.floats(), st.floats(), st.floats()),
    head=st.lists(st.floats(), max_size=3),
    text=st.text(st.characters(codec=None), max_size=20),
    memory=st.integers(0, 2**63),
)
def test_any_fact_comes_back_to_the_last_bit(
    tmp_path: Path, values: np.ndarray, floats: Any, head: list[float], text: str, memory: int
) -> None:
    small = TensorFact(text, values.shape, str(values.dtype), "cpu", values, None, memory, 0, True)
    large = TensorFact("y", (10**9,), "float32", "cuda:0", None, Summary(*floats, 3, 4, tuple(head)), 2, 7)
    trace = with_tensors(small, large, output=(Output("stderr", text),), scalars=((text, text),))
    assert same(Trace.load(trace.save(tmp_path / "x")), trace)


def test_minus_zero_and_nan_keep_apart(tmp_path: Path) -> None:
    def summary(x: float) -> TensorFact:
        return TensorFact("x", (9,), "float32", "cpu", None, Summary(x, x, x, x, 0, 0, (x,)), 1, 0)

    trace = with_tensors(*(summary(x) for x in (0.0, -0.0, float("nan"), float("inf"), 5e-324)))
    assert same(Trace.load(trace.save(tmp_path / "x")), trace)


def test_loaded_arrays_are_read_only(tmp_path: Path) -> None:
    trace = Trace.load(
        with_tensors(TensorFact("x", (2,), "int64", "cpu", np.arange(2), None, 1, 0)).save(tmp_path / "x")
    )
    values = trace.ranks[0].stops[0].frames[0].tensors[0].values
    assert values is not None
    with pytest.raises(ValueError, match="read-only"):
        values[0] = 5


def test_what_repeats_is_written_once_and_shared_again(tmp_path: Path) -> None:
    def run(stops: int) -> Trace:
        trace = example.deadlock()
        data = np.random.default_rng(0).random(4000)
        made = []
        for index in range(stops):
            fact = TensorFact("x", (4000,), "float64", "cpu", data.copy(), None, 1, 0)
            made.append(Stop(0, index, index, (Frame(Place("cell", 1, "f"), (fact,), ()),), Memory(1, 1, "m")))
        return replace(trace, ranks=(replace(trace.ranks[0], stops=tuple(made)), trace.ranks[1]), positions=())

    one, hundred = run(1).save(tmp_path / "one"), run(100).save(tmp_path / "hundred")
    assert hundred.stat().st_size < one.stat().st_size + 3000
    stops = Trace.load(hundred).ranks[0].stops
    assert stops[0].frames[0] is stops[99].frames[0]


def test_equal_traces_make_equal_files(tmp_path: Path) -> None:
    a, b = example.ring().save(tmp_path / "a"), example.ring().save(tmp_path / "b")
    assert a.read_bytes() == b.read_bytes()
    assert a.stat().st_size < 10_000


def test_an_array_of_objects_is_not_saved(tmp_path: Path) -> None:
    trace = with_tensors(TensorFact("x", (1,), "object", "cpu", np.array([{}], dtype=object), None, 1, 0))
    with pytest.raises(ValueError, match="convert it to numbers"):
        trace.save(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def content(path: Path) -> tuple[dict[str, Any], bytes]:
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("trace.json")), archive.read("values.bin")


def rewrite(path: Path, text: str, values: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("trace.json", text)
        archive.writestr("values.bin", values)
    return path


def test_another_version_says_to_upgrade(tmp_path: Path) -> None:
    data, values = content(example.deadlock().save(tmp_path / "x"))
    data["version"] = 5
    with pytest.raises(ValueError, match=r"version 5; this Lockstep reads versions 1 to 4\. Upgrade lockstep-labs"):
        Trace.load(rewrite(tmp_path / "x", json.dumps(data), values))


def test_a_file_of_version_1_has_no_passes_and_no_account(tmp_path: Path) -> None:
    trace = example.ring()
    data, values = content(trace.save(tmp_path / "x"))
    data["version"] = 1
    table = data["tables"]["RankTrace"]
    new = [table["fields"].index(name) for name in ("passes", "account", "stretches")]
    for row in [table["fields"], *table["rows"]]:
        for column in sorted(new, reverse=True):
            del row[column]
    assert same(Trace.load(rewrite(tmp_path / "x", json.dumps(data), values)), trace)


def test_accounts_of_memory_and_named_stretches_come_back(tmp_path: Path) -> None:
    held = MemorySample(5, "addmm", parameters=2**40, activations=7), MemorySample(6, "ends", other=1)
    trace = example.ring()
    ranks = tuple(
        replace(
            rank,
            passes=(Pass("forward", 1, 5),),
            account=Account("live storages", held),
            stretches=(Stretch("PP:0F0", 2, 4),),
        )
        for rank in trace.ranks
    )
    trace = replace(trace, ranks=ranks)
    assert same(Trace.load(trace.save(tmp_path / "x")), trace)
    assert Trace.load(tmp_path / "x").holdings() == trace.holdings()
    tables = content(tmp_path / "x")[0]["tables"]
    assert "Holding" in tables and tables["Account"]["fields"] == ["method", "holdings"], "the names that files know"


class Bomb:
    def __reduce__(self) -> Any:
        return (Path.write_text, (Path("pickle-was-executed"), "x"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda p: p.write_bytes(b""),
        lambda p: p.write_bytes(b"not a zip at all"),
        lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]),
        lambda p: p.write_bytes(pickle.dumps(Bomb())),
        lambda p: rewrite(p, "{", b""),
        lambda p: rewrite(p, "[]", b""),
        lambda p: rewrite(p, "{}", b""),
        lambda p: rewrite(p, "[" * 100_000, b""),
        lambda p: rewrite(p, "1" * 10_000, b""),
        lambda p: rewrite(p, json.dumps(content(p)[0]), b""),
    ],
)
def test_a_broken_file_says_what_to_do(damage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = example.ring().save(tmp_path / "run.trace")
    damage(path)
    with pytest.raises(ValueError, match="run.trace is not a trace that can be read: .*written by trace.save"):
        Trace.load(path)
    assert not Path("pickle-was-executed").exists()


def bomb(path: Path, name: str, what: bytes, times: int, claimed: int | None = None) -> Path:
    """A trace one of whose members unpacks to `what`, so many times over; claimed: what it says of its length."""
    kept = dict(zip((TABLES, VALUES), (json.dumps(content(path)[0]).encode(), content(path)[1]), strict=True))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in (TABLES, VALUES):
            with archive.open(member, "w") as out:
                out.write(kept[member] if member != name else b"")
                for _ in range(times if member == name else 0):
                    out.write(what)
            if member == name and claimed is not None:
                archive.getinfo(name).file_size = claimed
    return path


def cost(path: Path) -> tuple[str | None, int]:
    """What is said of a file, and the most bytes that loading it took."""
    tracemalloc.start()
    try:
        said = refusal(path)
        return said, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "what", "words"),
    [
        (VALUES, bytes(1 << 20), "values.bin unpacks to more than"),
        (TABLES, b" " * (1 << 20), "trace.json unpacks to more than"),
        (TABLES, b"[],[],[],[" * 100_000, "trace.json unpacks to more than"),
    ],
)
@pytest.mark.parametrize("claimed", [None, 1000], ids=["honest", "a liar"])
def test_a_small_file_that_unpacks_to_a_large_one_costs_little(
    name: str, what: bytes, words: str, claimed: int | None, tmp_path: Path
) -> None:
    path = bomb(example.ring().save(tmp_path / "x"), name, what, 120, claimed)
    said, taken = cost(path)
    assert said is not None and (words in said or claimed)
    assert taken < most_for(path)


@pytest.mark.parametrize("world", [10**9, 3, 0, -1])
def test_a_world_larger_than_its_ranks_is_not_believed(world: int, tmp_path: Path) -> None:
    data, values = content(example.ring().save(tmp_path / "x"))
    meta = data["tables"]["Meta"]
    meta["rows"][0][meta["fields"].index("world")] = world
    said, taken = cost(rewrite(tmp_path / "x", json.dumps(data), values))
    assert said is not None and f"its ranks are not those of a world of {world}" in said
    assert taken < 1 << 22


def test_other_kinds_of_packing_are_refused(tmp_path: Path) -> None:
    """They cannot be unpacked piece by piece."""
    path = example.ring().save(tmp_path / "x")
    data, values = content(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr(TABLES, json.dumps(data))
        archive.writestr(VALUES, values)
    with pytest.raises(ValueError, match="packed in a way that Lockstep does not use"):
        Trace.load(path)


def test_millions_of_zeros_come_back(tmp_path: Path) -> None:
    zeros = TensorFact("x", (5_000_000,), "float32", "cpu", np.zeros(5_000_000, np.float32), None, 1, 0)
    words = tuple((f"name {number}", "0" * 40) for number in range(20_000))
    for trace in (with_tensors(zeros), with_tensors(scalars=words)):
        assert same(Trace.load(trace.save(tmp_path / "x")), trace)


def test_a_file_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Trace.load(tmp_path / "nothing")


def test_states_must_point_at_stops_that_exist(tmp_path: Path) -> None:
    trace = example.deadlock()
    states = (RankState(0, "paused", stop=99), RankState(1, "paused"))
    wrong = replace(trace, positions=(replace(trace.positions[0], states=states),))
    with pytest.raises(ValueError, match="names a stop that is not there"):
        Trace.load(wrong.save(tmp_path / "x"))


def test_objects_cannot_come_in_as_arrays(tmp_path: Path) -> None:
    path = example.ring().save(tmp_path / "x")
    data, values = content(path)
    for dtype in ("|O", "O8", "<f4,<f4", "nonsense", "5f4", 7):
        data["arrays"][0][0] = dtype
        with pytest.raises(ValueError, match="an array is described by"):
            Trace.load(rewrite(path, json.dumps(data), values))


def refusal(path: Path) -> str | None:
    """What is said of a file that cannot be loaded; None where it can."""
    try:
        repr(Trace.load(path))
    except ValueError as refused:
        return str(refused)
    return None


def most_for(path: Path) -> int:
    """Bytes: what `kit.trace.io` promises."""
    return (1 << 24) + 600 * path.stat().st_size


@quick
@given(st.data())
def test_no_damage_to_its_bytes_costs_more_than_promised(tmp_path: Path, data: st.DataObject) -> None:
    path = example.held_ring().save(tmp_path / "x")
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(whole)))
        whole[start : start + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    path.write_bytes(whole)
    said, taken = cost(path)
    assert (said is None or "x is not a trace" in said) and taken < most_for(path)


@pytest.mark.parametrize("piece", ["[],", "{},", "[[]],", '"ab",', "300,", "1.5,", "[0],", '"\u1f600",', '{"a":{}},'])
def test_tables_of_anything_cost_no_more_than_promised(piece: str, tmp_path: Path) -> None:
    path = example.ring().save(tmp_path / "x")
    path.write_bytes(b"")
    text = '{"schema": "lockstep-trace", "version": 2, "tables": [' + piece * 40_000 + "0]}"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(TABLES, text)
        archive.writestr(VALUES, b"")
    before = path.stat().st_size
    said, taken = cost(path)
    assert said is not None and taken < 600 / 16 * before


junk = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just([]), st.just({}),
    st.lists(st.integers(-3, 300), max_size=4),
)  # fmt: skip


@quick
@given(st.data())
def test_no_damage_to_the_tables_raises_anything_but_a_value_error(tmp_path: Path, data: st.DataObject) -> None:
    path = example.held_ring().save(tmp_path / "x")
    whole, values = content(path)
    for _ in range(data.draw(st.integers(1, 3))):
        node: Any = whole
        for _ in range(data.draw(st.integers(1, 5))):
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if isinstance(node[key], (dict, list)) and node[key] and data.draw(st.integers(0, 9)):
                node = node[key]
            else:
                node[key] = data.draw(junk)
                break
    rewrite(path, json.dumps(whole), values)
    said = refusal(path)
    assert said is None or "x is " in said
