"""The form in which a guess is made: fields or choices, and Commit. It decides nothing; `Prediction` does.

Where no kernel answers, after a restart or in a notebook opened cold, the question stands there as text, and says that
its cell is to be run again. Beneath the form there is a second output for that, as `kit.panels.still` has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from html import escape
from typing import Any

import ipywidgets as widgets

from kit.grade.predict import Prediction
from kit.resources import assets

_STYLE = "font-size:13px;line-height:1.5"
_FORM, _TEXT = ".ls-predict:not(.jupyter-widgets-disconnected)", ".ls-predict-text"
_ONE_OF_BOTH = (
    f".jp-OutputArea-child:has({_FORM})+.jp-OutputArea-child:has({_TEXT}),"
    f".jp-OutputArea-child:has(+.jp-OutputArea-child {_TEXT}):not(:has({_FORM})){{display:none}}"
)


class PredictionForm(Prediction):
    """A `Prediction` that shows itself as a form in a notebook. `commit(...)` does the same as the button."""

    def __init__(
        self, identity: str, question: str, choices: Sequence[str] | None = None, units: dict[str, str] | None = None
    ) -> None:
        super().__init__(identity, question, choices, units)
        self._box: widgets.VBox | None = None

    def commit(self, choice: str | None = None, **numbers: float) -> None:
        super().commit(choice, **numbers)
        if self._box is not None:
            self._show_committed()

    def form(self) -> widgets.VBox:
        """The form's widgets; made once."""
        if self._box is None:
            self._box = self._build()
            if self.committed:
                self._show_committed()
        return self._box

    def press(self) -> None:
        """What the Commit button does: takes what stands in the fields, or says what is missing."""
        self.form()
        try:
            if self.choices:
                self.commit(self._radio.value)
            else:
                self.commit(**{name: field.value for name, field in self._fields.items()})
        except ValueError as error:
            self._notice.value = f'<span style="{_STYLE}">{escape(str(error))}</span>'

    def _build(self) -> widgets.VBox:
        keys = escape(f"({_keys()})(this)")
        asked = f'<b style="{_STYLE}">{escape(self.question)}</b><img src="data:," alt="" hidden onerror="{keys}">'
        question = widgets.HTML(asked)
        self._notice = widgets.HTML()
        self._button = widgets.Button(description="Commit", tooltip="Take this guess", button_style="primary")
        self._button.add_class("ls-commit")
        self._button.on_click(lambda _: self.press())
        rows: list[widgets.Widget] = [question]
        if self.choices:
            self._radio = widgets.RadioButtons(options=self.choices, value=None, layout=widgets.Layout(width="auto"))
            rows.append(self._radio)
        else:
            self._fields = {name: _field(name) for name in self.units}
            units = [widgets.HTML(f'<span style="{_STYLE}">{escape(unit)}</span>') for unit in self.units.values()]
            rows += [widgets.HBox(pair) for pair in zip(self._fields.values(), units, strict=True)]
        rows.append(widgets.HBox([self._button, self._notice]))
        box = widgets.VBox(rows)
        box.add_class("ls-predict")
        box.layout.padding = "6px 0"
        return box

    def _show_committed(self) -> None:
        if self.choices:
            self._radio.value = self.choice
            self._radio.disabled = True
        else:
            for name, field in self._fields.items():
                field.value = f"{self.numbers[name]:g}"
                field.disabled = True
        self._button.disabled = True
        self._notice.value = f'<span style="{_STYLE}">Committed. Run on and see.</span>'

    def text_html(self) -> str:
        """The question where no kernel answers."""
        asked = "".join(f"<li>{escape(each)}</li>" for each in self.choices or map(_asked, self.units.items()))
        return (
            f'<div class="ls-predict-text" style="{_STYLE}"><style>{_ONE_OF_BOTH}</style><b>{escape(self.question)}</b>'
            f"<ul>{asked}</ul>Run this cell again to answer.</div>"
        )

    def _ipython_display_(self, **_: Any) -> None:
        from IPython import get_ipython
        from IPython.display import display

        if get_ipython() is None:
            print(repr(self))
            return
        display(self._repr_mimebundle_(), raw=True)
        display({"text/html": self.text_html(), "text/plain": "Run this cell again to answer."}, raw=True)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {**self.form()._repr_mimebundle_(), "text/plain": repr(self)}


def predict(identity: str, question: str, choices: Sequence[str] | None = None, **units: str) -> PredictionForm:
    """Ask for a guess before a run: with `choices=[...]`, or with named numbers and their units, as in `rank_0="MB"`.

    Show the result as the last line of a cell. `.commit(...)` takes the guess from code, `.reveal(...)` sets it beside
    what came out. Raises ValueError for a question with neither choices nor numbers, or both.
    """
    return PredictionForm(identity, question, choices, units)


@cache
def _keys() -> str:
    return (assets() / "panel" / "question.js").read_text(encoding="utf-8")


def _asked(named: tuple[str, str]) -> str:
    name, unit = named
    return f"{name.replace('_', ' ')}: ? {unit}".rstrip()


def _field(name: str) -> widgets.Text:
    shown = {
        "layout": {"width": "270px"},
        "style": {"description_width": "140px"},
    }  # 'halving and doubling' is read whole
    field = widgets.Text(description=name.replace("_", " "), **shown)
    field.add_class(f"ls-guess-{name.replace('_', '-')}")
    return field
