import asyncio
import subprocess
import sys

import pytest

from kit.panels.one_at_a_time import running_loop
from kit.panels.stepping import SteppingPanel
from kit.plot.traffic import traffic_figure
from tests.traces import example


@pytest.fixture
def panel(session):
    return SteppingPanel(session)


@pytest.fixture
def ring(session):
    """A stepping panel over the ring of four, at its first position."""
    return SteppingPanel(type(session)(example.ring()))


def test_every_control_is_a_method_and_returns_where_the_ranks_came_to(panel, session):
    assert panel.step() is session.state
    panel.over(), panel.back(), panel.start(), panel.end()
    assert session.position == 2
    panel.next_collective()
    assert panel.finish()[0].phase == "finished"
    panel.seek(1)
    assert session.position == 1
    panel.reset()
    assert [call for call, _ in session.calls] == ["step", "over", "to_collective", "finish", "reset"]
    assert session.position == 0


def test_into_and_out_reach_the_session(panel, session):
    panel.into()
    panel.out()
    assert [call for call, _ in session.calls] == ["into", "out"]


def test_hold_and_release_show_on_the_switches_and_in_the_motions(panel, session):
    panel.hold(1)
    panel.step()
    assert session.calls == [("step", [0])]
    assert [switch.value for switch in panel._transport.switches] == [False, True]
    panel.release()
    assert panel.held == frozenset()
    assert [switch.value for switch in panel._transport.switches] == [False, False]


def test_a_switch_pressed_in_the_page_holds_its_rank(panel):
    panel._transport.switches[0].value = True
    assert panel.held == {0}


def test_a_rank_that_does_not_exist_is_named(panel):
    with pytest.raises(ValueError, match="no rank 7"):
        panel.hold(7)


def test_buttons_do_what_methods_do(panel, session):
    for button in (panel._transport.step, panel._transport.collective, panel._transport.back):
        button.click()
    assert session.calls == [("step", None), ("to_collective", None)]
    assert session.position == 1


def test_a_press_that_cannot_be_is_explained_beside_the_buttons(panel):
    panel.hold(0, 1)
    panel._transport.step.click()
    assert "let one go" in panel._transport.notice.value
    assert "let one go" in panel.text()
    panel.release(0)
    panel._transport.step.click()
    assert panel._transport.notice.value == ""


def test_the_slider_seeks_and_follows(panel, session):
    panel.step(), panel.step()
    slider = panel._transport.slider
    assert (slider.max, slider.value) == (2, 2)
    slider.value = 1
    assert session.position == 1 and len(session.calls) == 2


def test_text_reads_the_whole_panel(ring):
    ring.step()
    text = ring.text()
    assert text.startswith("ring_all_reduce · stop 1 · recorded 1 · live")
    assert text.count("rank ") == 4


def test_status_tells_live_replay_finished_and_why_it_ended(panel, session):
    assert panel.status == "live"
    panel.step(), panel.back()
    assert panel.status == "replay"
    panel.finish()
    assert panel.status == "finished"
    panel.reset()
    session.lost = "the ranks were reset"
    assert panel.status == "the ranks were reset"


def test_controls_rest_when_they_would_do_nothing(panel):
    transport = panel._transport
    assert transport.back.disabled and transport.end.disabled and not transport.step.disabled
    panel.finish()
    assert transport.step.disabled and not transport.back.disabled


def test_a_step_sends_only_what_has_changed(ring):
    ring.step()
    sent = []
    for widget in (ring._header, ring.areas._source, ring.areas._tensors, ring.areas._words):
        widget.observe(lambda change: sent.append(change["owner"]), "value")
    ring.paint()
    assert sent == []
    ring.step()
    assert ring._header in sent and ring.areas._source in sent


def test_the_variable_follows_the_code_until_one_is_chosen(ring):
    choice = ring.areas._variables
    assert choice.value == "x"
    for _ in range(3):
        ring.step()
    followed = choice.value
    ring.select("x")
    assert choice.value == "x" and "x, per rank" in ring.areas._tensors.value
    ring.select(None)
    assert choice.value == followed != "x"


def test_before_any_tensor_the_choice_says_that_it_follows(ring, monkeypatch):
    monkeypatch.setattr("kit.panels.areas.default_name", lambda trace, position: None)
    ring.paint()
    assert ring.areas._variables.label == "follow the code"


def test_flow_and_messages_share_a_place(ring):
    ring.show("flow")
    areas = ring.areas
    assert (areas._messages.layout.visibility, areas._flow.widget.layout.visibility) == ("hidden", "visible")
    ring.show("messages")
    assert (areas._messages.layout.visibility, areas._flow.widget.layout.visibility) == ("visible", "hidden")
    with pytest.raises(ValueError, match="'messages' or 'flow'"):
        ring.show("cake")


def test_a_topics_own_picture_of_the_moment_follows(session):
    drawn = []

    def moment(trace, position):
        drawn.append(position)
        return traffic_figure(example.via_root())

    panel = SteppingPanel(type(session)(example.ring()), moment=moment)
    panel.step()
    assert drawn[-1] == panel.session.position == 1 and "ls-traffic" in panel.areas._own._svg.value
    alone, plain = (one.inside() for one in (panel, SteppingPanel(type(session)(example.ring()))))
    assert alone[0].count("ls-traffic") == 1 and "ls-traffic" not in plain[0]
    assert alone[1] > plain[1], "a still picture has room for it"


def test_play_runs_to_the_end_without_a_loop(ring):
    assert running_loop() is None
    ring.play()
    assert ring.status == "finished"


def test_play_in_a_loop_stops_when_paused(panel, session, monkeypatch):
    monkeypatch.setattr("kit.panels.stepping.PLAY_EVERY", 0.01)

    async def scene():
        panel.play()
        assert panel._transport.play.description == "Pause"
        while session.position < 2:
            await asyncio.sleep(0.005)
        panel.pause()
        at = session.position
        await asyncio.sleep(0.1)
        assert session.position <= at + 1
        assert panel._transport.play.description == "Play"

    asyncio.run(scene())


def test_play_stops_by_itself_at_a_deadlock(session):
    panel = SteppingPanel(type(session)(example.deadlock()))
    panel.play()
    assert panel.session.state.verdict is not None


def test_a_cold_notebook_gets_a_still_picture_and_the_words(ring):
    bundle = ring._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == ring.text()
    assert f'alt="{ring.text()}"' in bundle["text/html"]


def test_every_button_has_a_name(panel):
    import ipywidgets

    def walk(widget):
        yield widget
        for child in getattr(widget, "children", ()):
            yield from walk(child)

    buttons = [w for w in walk(panel) if isinstance(w, ipywidgets.Button | ipywidgets.ToggleButton)]
    assert len(buttons) == 14
    assert all(button.description and button.tooltip for button in buttons)
    assert len({button.description for button in buttons}) == len(buttons)


def test_a_panel_without_a_page_loads_neither_bokeh_nor_torch():
    code = (
        "import sys; from tests.traces import example;"
        "from kit.panels.stepping import SteppingPanel; from kit.run.cursor import Replay;"
        "p = SteppingPanel(Replay(example.ring())); p.step();"
        "print(sorted({'torch', 'bokeh', 'jupyter_bokeh'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_prediction_is_made_once_for_each_trace_and_stands_above_the_measured_times(session):
    from kit.cost import predicted_trace

    made = []

    def retimed(trace):
        made.append(trace)
        return predicted_trace(trace, latency=1e-3, bandwidth=1e6)

    panel = SteppingPanel(type(session)(example.ring(), revealed=9), retimed)
    assert "predicted" in panel.areas._time._svg.value
    panel.back()
    assert len(made) == 1
    panel.end(), panel.step()
    assert [len(trace.positions) for trace in made] == [9, 10]
