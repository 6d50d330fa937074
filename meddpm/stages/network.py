"""The network of a job, with its weights, and what errors of the device mean for its cell."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from meddpm.config import ModelConfig, UserError
from meddpm.log import logger
from meddpm.model import build_model, weights
from meddpm.model.formats import card
from meddpm.status import FAILED, CannotRun, first_line

RANDOM_WEIGHTS_SEED = 0


def load(config: ModelConfig, path: Path | str | None) -> torch.nn.Module:
    """The network on the CPU in evaluation mode, with the weights at `path`, or seeded random ones where it is None.

    Raises UserError if the file holds no weights of this model.
    """
    model = build_model(config)
    if path:
        differ = card.disagreements(weights.load(path, model, config.steps), config)
        if differ:
            raise UserError(f"{path}: is for {'; '.join(differ)}; right would be a row that agrees, or other weights")
    else:
        weights.fill(model, RANDOM_WEIGHTS_SEED)
    return model.eval()


@contextmanager
def device_errors() -> Iterator[None]:
    """Turn an error of the device or of a compiler into CannotRun with status failed; the traceback goes to the log."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        logger.exception("out of memory")
        raise CannotRun(FAILED, f"out of memory: {first_line(error)}") from None
    except torch.AcceleratorError as error:
        logger.exception("the device failed")
        raise CannotRun(FAILED, f"the device failed: {first_line(error)}") from None
    except RuntimeError as error:
        if "DefaultCPUAllocator" in str(error):
            logger.exception("out of memory")
            raise CannotRun(FAILED, f"out of memory: {first_line(error)}") from None
        # By module name, because importing the compiler's exceptions takes two seconds.
        if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise
        logger.exception("torch.compile failed")
        raise CannotRun(FAILED, f"torch.compile failed: {first_line(error)}") from None
