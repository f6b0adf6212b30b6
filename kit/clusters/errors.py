"""Errors of a cluster's own processes, as opposed to the learner's."""


class ClusterError(RuntimeError):
    """The cluster's own processes failed; the text says which and what to do."""


class Unavailable(ValueError):
    """What was asked for makes sense, and this machine cannot give it; the text says what would help."""


class Lacking(Unavailable):
    """It lacks something in particular. found: what is the matter, fix: what to do; the text is both."""

    def __init__(self, found: str, fix: str) -> None:
        super().__init__(f"{found}: {fix}")
        self.found = found
        self.fix = fix
