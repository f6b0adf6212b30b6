"""Scaling curves: efficiency worked out by hand, what cores allow, and a prediction."""

from __future__ import annotations

import pytest
import torch

from kit.gpt.model import GPTConfig
from kit.topics.data_parallel.scaling import MODES, Mode, Point, Scaling, timed_training

WEAK = Scaling(
    "weak",
    (Point(1, 1000, (0.9, 1.0, 1.1)), Point(2, 2000, (1.25, 1.25, 1.25)), Point(4, 4000, (2.4, 2.5, 4.0))),
    cores=2,
)
STRONG = Scaling("strong", (Point(1, 1000, (1.0,)), Point(4, 1000, (0.5,))))


def test_efficiency_and_speed_up_by_hand() -> None:
    assert [WEAK.efficiency(point) for point in WEAK.points] == [1.0, 0.8, 0.4]
    assert [WEAK.speedup(point) for point in WEAK.points] == [1.0, 1.6, 1.6]
    assert [STRONG.efficiency(point) for point in STRONG.points] == [1.0, 0.5]
    assert STRONG.speedup(STRONG.points[1]) == 2.0
    later = Scaling("weak", (Point(2, 2000, (1.0,)), Point(4, 4000, (1.25,))))
    assert later.efficiency(later.points[1]) == 0.8, "a curve may begin at more than one rank"


def test_what_the_cores_allow() -> None:
    assert [WEAK.ceiling(ranks) for ranks in (1, 2, 4, 8)] == [1.0, 1.0, 0.5, 0.25]
    assert "2 cores and a rank computes with 1 thread: beyond 2 ranks they share" in WEAK.machine()
    assert "4 ranks can reach an efficiency of 50% at most" in WEAK.machine()
    roomy = Scaling("weak", WEAK.points, cores=8, threads=2)
    assert "8 cores and a rank computes with 2 threads: no two of 4 ranks share one" in roomy.machine()
    tight = Scaling("weak", WEAK.points, cores=4, threads=2)
    assert tight.ceiling(4) == 0.5 and "beyond 2 ranks" in tight.machine()
    assert "accelerators" in STRONG.machine() and STRONG.ceiling(4) == 1.0


def test_more_than_the_cores_allow_is_doubted() -> None:
    points = (Point(1, 1000, (1.0,)), Point(2, 2000, (0.6,)), Point(4, 4000, (1.6,)))
    said = Scaling("weak", points, cores=2).machine()
    assert "50% at most" in said and "More was measured on 2 ranks" in said and said.endswith("Run it again.")
    near = (points[0], Point(2, 2000, (0.9,)), Point(4, 4000, (2.1,)))
    assert "More was measured" not in Scaling("weak", near, cores=2).machine()
    assert "More was measured" not in Scaling("weak", points, cores=2, predicted=True).machine()


def test_a_table_in_text_and_html() -> None:
    lines = str(WEAK).splitlines()
    assert lines[0] == "Measured weak scaling: the same batch for each rank"
    assert lines[1].split() == ["ranks", "tokens/step", "step", "tokens/s", "speed-up", "efficiency"]
    assert lines[3].split() == ["2", "2,000", "1.25", "s", "1,600", "1.60", "80%"]
    assert lines[-1] == WEAK.machine()
    markup = WEAK._repr_html_()
    assert markup.count("<tr>") == 4 and "40%" in markup


def alone(tokens: int, seconds: float, mode: Mode = "weak", cores: int | None = None) -> Scaling:
    """What one rank was measured to do."""
    return Scaling(mode, (Point(1, tokens, (seconds,)),), cores)


def test_a_prediction_without_a_network_is_ideal_and_with_cores_is_their_ceiling() -> None:
    def free(mode: Mode, cores: int | None = None) -> Scaling:
        return alone(1200, 0.6, mode, cores).predict(1e6, latency=0.0, bandwidth=1e30, ranks=(1, 2, 4))

    for mode in MODES:
        ideal, shared = free(mode), free(mode, cores=2)
        assert [ideal.efficiency(p) for p in ideal.points] == pytest.approx([1, 1, 1])
        assert [shared.efficiency(p) for p in shared.points] == pytest.approx([1, 1, 0.5])
    assert [p.tokens for p in free("strong").points] == [1200, 1200, 1200]
    assert [p.tokens for p in free("weak").points] == [1200, 2400, 4800]


def test_a_prediction_by_hand() -> None:
    """A step of 0.6 s, 0.4 s of it backward; 100 MB on 1 GB/s, 2 ranks: 0.1 s in one piece, exposed whole."""
    link = {"latency": 0.0, "bandwidth": 1e9}
    one = alone(100, 0.6).predict(1e8, **link, ranks=(1, 2))
    assert one.points[1].seconds == pytest.approx(0.7) and one.efficiency(one.points[1]) == pytest.approx(6 / 7)
    ten = alone(100, 0.6).predict(1e8, **link, ranks=(1, 2), buckets=10)
    assert ten.points[1].seconds == pytest.approx(0.61), "the last bucket alone is exposed"
    slow = alone(100, 0.6).predict(6e8, **link, ranks=(1, 2), buckets=1000)
    assert slow.points[1].seconds == pytest.approx(0.2 + 0.0004 + 0.6), (
        "the link begins with backward and is busy for 0.6 s"
    )
    strong = alone(100, 0.6, "strong").predict(1e8, **link, ranks=(1, 2))
    assert strong.points[1].seconds == pytest.approx(0.4) and strong.predicted
    assert "10 buckets" in str(ten) and "Predicted weak scaling" in str(ten)


def predicted() -> Scaling:
    return alone(1000, 1.0, cores=2).predict(1e8, ranks=(1, 2, 4, 8), latency=1e-4, bandwidth=1e9)


def test_a_prediction_is_for_the_ranks_that_were_measured() -> None:
    assert [p.ranks for p in predicted().points] == [1, 2, 4, 8]
    assert [p.ranks for p in WEAK.predict(1e8, latency=0.0, bandwidth=1e9).points] == [1, 2, 4]


def test_what_makes_no_sense_is_refused() -> None:
    for points in ((), (Point(2, 1, (1.0,)), Point(1, 1, (1.0,)))):
        with pytest.raises(ValueError, match="fewest first"):
            Scaling("weak", points)
    link = {"latency": 0.0, "bandwidth": 1.0}
    with pytest.raises(ValueError, match="10 tokens cannot be shared evenly by 3 ranks"):
        alone(10, 1.0, "strong").predict(1.0, **link, ranks=(1, 3))
    for ranks, buckets in (((), 1), ((0, 1), 1), ((1,), 0)):
        with pytest.raises(ValueError, match="give ranks and buckets of 1 or more"):
            alone(10, 1.0).predict(1.0, **link, ranks=ranks, buckets=buckets)
    with pytest.raises(ValueError, match="starts from one rank, this curve with 2"):
        Scaling("weak", (Point(2, 10, (1.0,)),)).predict(1.0, **link)


@pytest.mark.parametrize("wrong", [{"cores": 0}, {"cores": -1}, {"threads": 0}], ids=str)
def test_a_machine_that_computes_with_nothing_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="cores and threads are 1 or more"):
        Scaling("weak", WEAK.points, **wrong)


@pytest.mark.parametrize(
    "point", [Point(1, 8, ()), Point(1, 8, (0.0,)), Point(1, 0, (1.0,)), Point(1, float("nan"), (1.0,))], ids=str
)
def test_a_point_without_tokens_or_times_is_refused(point: Point) -> None:
    with pytest.raises(ValueError, match="every point of a curve has tokens, and the times"):
        Scaling("weak", (point,))


def test_timed_training_counts_tokens_and_times_each_step() -> None:
    config = GPTConfig(n_layer=1, n_head=2, n_embd=8, block_size=8, vocab_size=11)
    tokens, times, threads = timed_training(3, config, steps=4, warm_up=1, wrap=None)
    assert tokens == 3 * 8 and len(times) == 4 and min(times) > 0
    assert threads == torch.get_num_threads()
