"""The panel of a sweep: the picture, its words, and what is left of it without widgets."""

from kit.panels import bandwidth_panel
from kit.panels.embed import BandwidthPicture
from kit.views import bandwidth_words
from tests.unit.panels.test_still import picture_of
from tests.unit.views.test_bandwidth import LINK, sweep


def test_the_panel_says_what_the_view_says():
    panel = bandwidth_panel(sweep(), ["send", "gather"], LINK)
    assert panel.text() == bandwidth_words(sweep(), ["send", "gather"], LINK)
    assert "ls-measured" in panel._picture._svg.value


def test_its_still_picture_holds_every_chart():
    text = "".join(picture_of(bandwidth_panel(sweep(), link=LINK)).itertext())
    assert all(f"{name}: time" in text for name in ("send", "all_reduce", "gather"))


def test_a_sweep_makes_its_own_panel():
    assert sweep().plot("send", LINK).text() == bandwidth_words(sweep(), "send", LINK)


def test_bokeh_is_drawn_in_the_theme_of_the_page(monkeypatch):
    import bokeh

    picture = BandwidthPicture(sweep(), None, None)
    made = []
    monkeypatch.setattr("kit.views.bandwidth_plot", lambda *shown, dark: made.append(dark) or real(*shown, dark=dark))
    dark = {"bokeh": bokeh.__version__, "dark": True, "since": 1.0}
    picture.heard(dark)
    assert made == [True] and picture._place.children
    picture.heard(dark)
    assert made == [True], "a picture that stands there stays"
    picture.heard({**dark, "since": 2.0})
    assert made == [True, True], "a page loaded again needs a new one"
    picture.heard({"bokeh": "0.0", "dark": False, "since": 2.0})
    assert not picture._place.children and "ls-measured" in picture._svg.value


def test_bokehjs_is_brought_once_for_all_panels_of_a_page(monkeypatch):
    monkeypatch.setattr("kit.panels.embed._brought", {})
    brought = []
    for page in (1.0, 1.0, 2.0):
        picture = BandwidthPicture(sweep(), None, None)
        monkeypatch.setattr(picture._script, "run", lambda code, page=page: brought.append(page))
        picture.heard({"bokeh": "", "dark": False, "since": page})
    assert brought == [1.0, 2.0]


def real(*shown, dark):
    from kit.views.sweep_bokeh import bandwidth_plot

    return bandwidth_plot(*shown, dark=dark)
