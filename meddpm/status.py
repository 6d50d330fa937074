"""The status of a cell, and how a stage says that a cell does not run here."""

OK, UNSUPPORTED, UNAVAILABLE, FAILED = "ok", "unsupported", "unavailable", "failed"


class CannotRun(Exception):
    """A cell that does not run here: `status` is unsupported, unavailable or failed, `reason` one line for its row."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def first_line(error: BaseException) -> str:
    """The first line of an error's text, for the reason of a row."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
