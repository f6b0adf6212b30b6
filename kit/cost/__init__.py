"""What theory predicts: formulas with their sources, and traces re-timed by them."""

from kit.cost.link import fit_link
from kit.cost.machines import POLARIS
from kit.cost.memory import gpt_parameters
from kit.cost.retime import predicted_trace
from kit.cost.training import elements_sent, scaled_rate
from kit.cost.worlds import simulated

__all__ = ["POLARIS", "elements_sent", "fit_link", "gpt_parameters", "predicted_trace", "scaled_rate", "simulated"]
