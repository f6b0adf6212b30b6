"""The schedule bench without a browser: every control is a method, and the words say what the picture shows."""

import json
import re
from dataclasses import dataclass

import pytest

from kit.cost.pipeline import Timeline, Times, simulated
from kit.panels.bench import ScheduleBench, Target
from kit.plan.families import schedule
from kit.plan.flaws import flaws


@dataclass
class Ran:
    timeline: Timeline

    def __str__(self) -> str:
        return "it took a while"


@pytest.fixture
def bench():
    def ran(made):
        return Ran(simulated(made, Times(forward=1.5)))

    return ScheduleBench(schedule("1F1B", 4, 8), Target(idle=0.2, held=4), run=ran)


def news(bench):
    """What the page is told."""
    return json.loads(re.fullmatch(r"<pre hidden>(.*)</pre>", bench._sheet._data.value)[1].replace("&amp;", "&"))


def say(bench, **told):
    """What the page says, as its script does."""
    hand = bench._sheet.widget.children[2]
    hand.value = json.dumps(told)


def test_what_it_begins_with_is_proved_and_priced(bench):
    assert bench.flaws == () and bench.status == "runs"
    assert bench.timeline.idle_share == pytest.approx(3 / 11)
    assert "idle 27.3% of the time (target at most 20.0%, not yet)" in bench.text()
    assert "activations 4 (4, 3, 2, 1 by rank) (target at most 4, reached)" in bench.text()
    assert not bench.reached


def test_a_backward_pass_before_its_forward_is_told_cause_first_and_marked(bench):
    bench.move(2, 0, 3)
    assert bench.text().splitlines()[1] == "2B0 comes before 2F0, which it needs"
    assert "1B0: stage 1 needs the gradient of micro-batch 0 that stage 2 has not sent" in bench.text()
    assert bench.timeline is None and "idle unknown" in bench.text() and bench.status == "4 flaws"
    told = news(bench)
    assert told["halt"] == bench._layout.halt and [2, 1] in told["marks"]  # 2F1 went before 2B0: place 1 is 2B0's
    assert [2, 3, 2, 1, True] in told["links"]  # from 2F0, where it is now, to 2B0
    assert sum(told["blocks"][0]["runs"]) < sum(told["blocks"][0]["counts"])


def test_all_that_has_no_place_in_time_still_stands_in_the_picture(bench):
    bench.edit("9F0,0F0\n")
    assert bench.flaws[0].sentence == "9F0: there is no stage 9, only 0 to 3"
    assert news(bench)["blocks"][0]["counts"] == [2, 0, 0, 0]
    bench.inside()


def test_a_drag_is_one_step_of_the_history_however_often_it_answers(bench):
    began = bench.schedule
    for number, to in enumerate((5, 6, 7), start=1):
        say(bench, what="drag", number=number, rank=0, position=4, to=to, gesture="a", over=to == 7)
        assert news(bench)["answers"] == number
        assert bench.chosen == (0, to)
    assert bench.schedule.rows[0] == began.moved(0, 4, 7).rows[0]
    bench.undo()
    assert bench.schedule == began
    bench.redo()
    assert bench.schedule.rows[0] == began.moved(0, 4, 7).rows[0]


def test_a_drag_that_comes_home_leaves_no_trace(bench):
    began = bench.schedule
    for number, to in enumerate((5, 4), start=1):
        say(bench, what="drag", number=number, rank=0, position=4, to=to, gesture="a", over=to == 4)
    assert bench.schedule == began
    with pytest.raises(ValueError, match="nothing to undo"):
        bench.undo()


def test_arrows_move_what_is_chosen_and_stop_at_the_ends(bench):
    say(bench, what="choose", number=1, rank=1, position=1)
    assert bench.chosen == (1, 1) and "In hand: 1F1, place 1 of rank 1; it needs 0F1" in bench.text()
    bench.earlier()
    bench.earlier()
    assert bench.chosen == (1, 0) and str(bench.schedule.rows[1][0]) == "1F1"
    bench.later()
    bench.next()
    bench.below()
    assert bench.chosen.rank == 2
    began = bench._layout.began
    here = began[1][2]
    assert abs(began[2][bench.chosen.position] - here) == min(abs(one - here) for one in began[2])
    bench.above()
    bench.previous()
    assert bench.chosen.rank == 1


def test_parting_a_backward_pass_and_moving_its_weights_makes_the_bubble_smaller(bench):
    before = bench.timeline.idle_share
    for rank in range(4):
        while whole := [i for i, one in enumerate(bench.schedule.rows[rank]) if one.kind == "B"]:
            bench.choose(rank, whole[0])
            bench.part()
    assert bench.flaws == () and bench.timeline.idle_share < before
    bench.choose(0, 4)
    bench.part()
    assert str(bench.schedule.rows[0][4]) == "0B0"


def test_the_table_is_read_while_it_is_typed_and_written_back_when_it_is_not(bench, tmp_path):
    bench.table()
    text = bench._controls._text
    assert text.value == bench.schedule.text()
    text.value = text.value.replace("0F0,0F1", "0F1,0F0", 1)
    assert str(bench.schedule.rows[0][0]) == "0F1" and bench.flaws == ()
    text.value = text.value.replace("0F1", "0X1", 1)
    assert "'0X1' is no action" in bench.text() and str(bench.schedule.rows[0][0]) == "0F1"
    bench.undo()
    assert text.value == bench.schedule.text() and bench.schedule == schedule("1F1B", 4, 8)
    bench.load("GPipe")
    path = bench.export(tmp_path / "gpipe.csv")
    bench.load("1F1B")
    bench.read(path)
    assert bench.schedule.rows == schedule("GPipe", 4, 8).rows


def test_a_function_makes_a_row_for_each_rank(bench):
    def gpipe(rank, ranks, micro_batches):
        assert (ranks, micro_batches) == (4, 8)
        return [f"{rank}{kind}{j}" for kind in "FB" for j in range(micro_batches)]

    bench.make(gpipe)
    assert bench.schedule.rows == schedule("GPipe", 4, 8).rows and bench.flaws == ()
    with pytest.raises(ValueError, match="for rank 0 there is no row"):
        bench.make(lambda rank, ranks, micro_batches: None)


def test_what_ran_stands_under_the_schedule_that_ran_and_under_no_other(bench):
    bench.run()
    assert bench.measured.seconds > bench.timeline.seconds and "it took a while" in bench.text()
    assert [block["title"].split(":")[0] for block in news(bench)["blocks"]] == ["drawn", "measured"]
    bench.move(0, 0, 1)
    assert bench.measured is None and len(news(bench)["blocks"]) == 1
    bench.undo()
    assert bench.measured is not None


def test_a_schedule_with_flaws_is_refused_before_anything_runs(bench):
    bench.move(2, 0, 3)
    with pytest.raises(ValueError, match="cannot run: 2B0 comes before 2F0"):
        bench.run()
    assert bench._controls._run.disabled


def test_the_target_is_reached_by_a_schedule_that_can_run(bench):
    bench.load("ZBH1")
    assert flaws(bench.schedule) == () and bench.timeline.idle_share <= 0.2
    assert bench.reached and "The target is reached." in bench.text()
    bench.target = Target(idle=0.2, held=3)
    assert not bench.reached


def test_what_cannot_be_is_said_beside_the_buttons_and_raised_to_a_script(bench):
    bench._pressed("undo")
    assert "there is nothing to undo" in bench._controls._notice.value and "nothing to undo" in bench.text()
    with pytest.raises(ValueError, match="no action is chosen"):
        bench.later()
    with pytest.raises(ValueError, match="there is no place 99 in its row"):
        bench.choose(0, 99)
    with pytest.raises(ValueError, match="this bench has 4 ranks; GPipe is for 2"):
        bench.load(schedule("GPipe", 2, 8))


def test_without_a_canvas_there_is_a_picture_and_with_one_the_kernel_draws_none(bench):
    still = bench._sheet._still
    assert "<svg" in still.value
    say(bench, what="painted", number=1)
    drawn = still.value
    bench.load("GPipe")
    assert still.value == drawn and news(bench)["painted"]


def test_of_very_many_actions_a_page_without_scripts_has_the_first_and_a_sentence():
    bench = ScheduleBench(schedule("1F1B", 32, 128))
    picture = bench._sheet._still.value
    assert "8,192 actions: a page that runs scripts paints them all" in picture
    assert "drawn, the first 4,000 actions" in picture
    assert 3_500 < picture.count("<rect") < 4_500
    bench.load("1F1B", 32)
    assert "runs scripts" not in bench._sheet._still.value


def test_a_bench_without_ranks_has_no_button_to_run():
    bench = ScheduleBench(schedule("1F1B", 2, 4))
    assert bench._controls._run not in bench._controls.rows()[0].children
    with pytest.raises(ValueError, match="no ranks to run on"):
        bench.run()


def test_a_schedule_that_does_not_exist_for_these_sizes_says_why(bench):
    bench._controls._families.value = "DualPipe"
    assert bench.schedule.name == "DualPipe"
    bench = ScheduleBench(schedule("1F1B", 3, 8))
    bench._controls._families.value = "DualPipe"
    assert "an even number of ranks" in bench.text() and bench.schedule.name == "1F1B"
    assert bench._controls._families.value == ""
