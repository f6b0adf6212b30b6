"""What theory predicts: formulas with their sources, and traces re-timed by them."""

from kit.cost.simulate import predict

__all__ = ["predict"]
