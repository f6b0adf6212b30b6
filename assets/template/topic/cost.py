"""What the mean over ranks costs, in theory."""


def bytes_sent(nbytes: int, ranks: int) -> float:
    """Bytes that each rank of a ring sends for the sum of `nbytes`: 2 (n - 1)/n S.

    Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
    """
    return 2 * (ranks - 1) / ranks * nbytes
