import base64
import xml.etree.ElementTree as xml

import pytest

from kit.panels.results import record_panel
from kit.panels.stepping import SteppingPanel
from kit.panels.still import WIDTH
from kit.run.cursor import Replay
from tests.traces import example

HTML = "{http://www.w3.org/1999/xhtml}"


def picture_of(panel):
    """The image in a panel's still picture, as a tree: parsing fails when a view's HTML is not well formed."""
    source = panel._repr_mimebundle_()["text/html"].split('src="', 1)[1].split('"', 1)[0]
    head, data = source.split(",", 1)
    assert head == "data:image/svg+xml;base64"
    return xml.fromstring(base64.b64decode(data))


@pytest.mark.parametrize("make", [example.ring, example.held_ring, example.deadlock, example.failure])
def test_every_position_is_a_well_formed_picture_with_its_words(make):
    panel = SteppingPanel(Replay(make()))
    for position in range(len(panel.session.trace.positions)):
        panel.seek(position)
        text = "".join(picture_of(panel).itertext())
        assert panel.session.trace.meta.function in text
        for state in panel.session.state:
            assert str(state).split(" · ")[0].removeprefix(f"rank {state.rank} ") in text


@pytest.mark.parametrize("make", [example.via_root, example.failure, example.overlap])
def test_a_record_has_a_picture_too(make):
    text = "".join(picture_of(record_panel(make())).itertext())
    assert "Traffic by rank" in text


def test_the_picture_is_as_wide_as_the_panel_and_carries_its_own_styles():
    root = picture_of(SteppingPanel(Replay(example.ring())))
    assert int(root.get("width")) == WIDTH
    assert ".lsp-frame" in next(root.iter(f"{HTML}style")).text
    assert not any("http" in (value or "") for node in root.iter() for value in node.attrib.values())
