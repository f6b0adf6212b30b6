"""What theory predicts: formulas with their sources, and traces re-timed by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit import lazy

if TYPE_CHECKING:
    from kit.cost.link import fit_link as fit_link
    from kit.cost.machines import POLARIS as POLARIS
    from kit.cost.memory import gpt_parameters as gpt_parameters
    from kit.cost.retime import predicted_trace as predicted_trace
    from kit.cost.training import elements_sent as elements_sent
    from kit.cost.training import scaled_rate as scaled_rate
    from kit.cost.worlds import simulated as simulated

if not TYPE_CHECKING:  # loaded on first use: a rank that imports a submodule must not load the rest
    __getattr__ = lazy.names(
        __name__,
        {
            "link": "fit_link",
            "machines": "POLARIS",
            "memory": "gpt_parameters",
            "retime": "predicted_trace",
            "training": "elements_sent scaled_rate",
            "worlds": "simulated",
        },
    )
