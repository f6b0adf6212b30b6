"""My topic: what every rank has, put together."""

from kit import lazy

__getattr__ = lazy.names(__name__, {"cost": "bytes_sent", "figures": "payload_svg", "reference": "mean_over_ranks"})
