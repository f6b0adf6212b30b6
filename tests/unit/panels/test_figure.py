"""A panel of figures: the picture, its words, Bokeh when the page has it, and what is left without widgets."""

import bokeh
import pytest

from kit.panels.embed import FigureView
from kit.panels.figure import Choice, FigurePanel, FigureSwitch
from kit.panels.results import bandwidth_panel
from kit.plot.bandwidth import bandwidth_figure
from kit.plot.timeline import timeline_figure
from tests.traces import example
from tests.unit.panels.test_still import picture_of
from tests.unit.plot.gallery import FIGURES
from tests.unit.plot.test_bandwidth import LINK, sweep

PAGE = {"bokeh": bokeh.__version__, "dark": True, "since": 1.0, "view": 1}


def test_the_panel_says_what_the_figure_says():
    panel = bandwidth_panel(sweep(), ["send", "gather"], LINK)
    assert panel.text() == bandwidth_figure(sweep(), ["send", "gather"], LINK).words
    assert "ls-dot" in panel._views[0]._svg.value


def test_its_still_picture_holds_every_chart():
    text = "".join(picture_of(bandwidth_panel(sweep(), link=LINK)).itertext())
    assert all(f"{name}: time" in text for name in ("send", "all_reduce", "gather"))


def test_a_sweep_makes_its_own_panel():
    assert sweep().plot("send", LINK).text() == bandwidth_figure(sweep(), "send", LINK).words


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
def test_every_figure_has_a_panel_with_room_for_all_of_it(figure):
    panel = FigurePanel("a figure", figure)
    assert panel.text() == figure.words
    assert int(picture_of(panel).get("height")) >= figure.whole


def test_bokeh_is_drawn_in_the_theme_of_the_page(monkeypatch):
    view, made = FigureView("test", FIGURES["timeline"]), []
    real = view._draw
    monkeypatch.setattr(view, "_draw", lambda: made.append(view._drawn_for[-1]) or real())
    view.heard(PAGE)
    assert made == [True] and view._place.children
    view.heard(PAGE)
    assert made == [True], "a picture that stands there stays"
    view.heard({**PAGE, "since": 2.0})
    assert made == [True, True], "a page loaded again needs a new one"
    view.heard({**PAGE, "since": 2.0, "view": 2})
    assert made == [True, True, True], "and so does a notebook opened again in the same page"
    view.heard({**PAGE, "bokeh": "0.0", "dark": False, "since": 2.0})
    assert not view._place.children and "ls-box" in view._svg.value


def test_bokehjs_is_brought_once_for_all_panels_of_a_page(monkeypatch):
    monkeypatch.setattr("kit.panels.embed._brought", {})
    brought = []
    for page in (1.0, 1.0, 2.0):
        view = FigureView("test", FIGURES["timeline"])
        monkeypatch.setattr(view._script, "run", lambda code, page=page: brought.append(page))
        view.heard({**PAGE, "bokeh": "", "since": page})
    assert brought == [1.0, 2.0]


def test_another_moment_is_shown_in_the_same_bokeh_picture_and_costs_no_svg():
    trace = example.ring(4)
    view = FigureView("test", timeline_figure(trace, 3))
    view.heard(PAGE)
    view._answered()
    model, before = view._model, view._svg.value
    view.show(timeline_figure(trace, 4))
    assert view._model is model and view._svg.value == before
    view.show(FIGURES["traffic"])
    assert view._model is not model and "ls-traffic" in view._svg.value, "another picture is drawn anew"


def test_a_switch_shows_one_of_its_figures():
    trace = example.ring(4)
    choices = {at: Choice(f"stop {at}", f"After {at} steps.", timeline_figure(trace, at)) for at in (3, 9)}
    switch = FigureSwitch("A ring", choices)
    assert switch.chosen == 3 and switch.text().startswith("stop 3. After 3 steps.\nmeasured: rank 0")
    switch.choose(9)
    assert switch.text().endswith(choices[9].figure.words) and switch._views[0].figure is choices[9].figure
    with pytest.raises(ValueError, match="4 is not among the figures here: choose from 3, 9"):
        switch.choose(4)
    assert switch.chosen == 9
