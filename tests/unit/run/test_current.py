"""Which runner a kernel's cells get, without starting one."""

from __future__ import annotations

from typing import Any

import pytest

from kit.run import current


class Refuses:
    """In place of a cluster: there is no GPU here."""

    def __init__(self, *wishes: Any, **more: Any) -> None:
        raise ValueError("no such accelerator was found. Write device='auto'.")


def test_no_other_ranks_are_started_in_place_of_those_that_were_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_held": None, "_refused": None, "LiveRunner": Refuses}.items():
        monkeypatch.setattr(current, name, value)
    with pytest.raises(ValueError, match=r"^no such accelerator"):
        current.start_or_join(device="cuda", replay="00_ranks")
    with pytest.raises(ValueError, match=r"no such accelerator .* Nothing runs before kit.cluster"):
        current.runner()
