"""Being asked to stop: SIGINT (Ctrl-C) and SIGTERM (a scheduler) become a question that a loop asks between steps."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def noted() -> Iterator[Callable[[], str | None]]:
    """Within the block the first signal is noted; the function yielded gives its name, None before. A second one acts.

    Outside the main thread, where Python takes no signals, nothing is noted, nor is a signal that is ignored (by nohup,
    or by a shell for what it starts in its background).
    """
    name: str | None = None
    if threading.current_thread() is not threading.main_thread():
        yield lambda: name
        return
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    before = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal name
        name = signal.Signals(number).name
        restore()

    for number in before:
        signal.signal(number, note)
    try:
        yield lambda: name
    finally:
        restore()
