"""Being asked to stop: the first signal is a question answered between steps, the second one acts."""

import signal
import threading
from collections.abc import Iterator

import pytest

from meddpm import interrupt


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Handlers as Python starts with, whatever started the tests; afterwards as they were."""
    before = {number: signal.getsignal(number) for number in interrupt.SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", interrupt.SIGNALS)
def test_the_first_signal_is_noted_and_the_handlers_come_back(number: signal.Signals) -> None:
    with interrupt.noted() as asked:
        assert asked() is None
        signal.raise_signal(number)
        assert asked() == number.name
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert asked() == number.name


def test_a_second_one_acts() -> None:
    with interrupt.noted() as asked:
        signal.raise_signal(signal.SIGTERM)
        assert asked() == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_after_the_block_a_signal_is_what_it_was() -> None:
    with interrupt.noted() as asked:
        pass
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert asked() is None


def test_the_handlers_come_back_after_an_error() -> None:
    with pytest.raises(ValueError, match="x"), interrupt.noted():
        raise ValueError("x")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupt.noted() as asked:
        signal.raise_signal(signal.SIGINT)
        assert asked() is None
        signal.raise_signal(signal.SIGTERM)
        assert asked() == "SIGTERM"
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def test_in_another_thread_nothing_is_noted() -> None:
    answers = []

    def work() -> None:
        with interrupt.noted() as asked:
            answers.append(asked())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert answers == [None]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
