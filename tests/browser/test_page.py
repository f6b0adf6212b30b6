"""The ground the other browser tests stand on: JupyterLab opens, runs cells, and asks nobody else for anything."""


def test_cells_run_and_widgets_appear(open_notebook, screenshots):
    book = open_notebook(["import ipywidgets\nb = ipywidgets.Button(description='press')\nb.add_class('me')\nb"])
    book.run_all()
    book.page.wait_for_selector("button.me")
    for theme in book.both_themes():
        assert book.screenshot(screenshots / f"{theme}.png").stat().st_size > 10_000


def test_a_request_that_leaves_the_machine_is_seen(open_notebook):
    book = open_notebook(["1"])
    book.requests.append("https://example.org/font.woff2")
    assert book.foreign_requests() == ["https://example.org/font.woff2"]
    book.requests.pop()
