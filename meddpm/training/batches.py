"""What a training step is shown: which cases, at which timesteps, under which noise."""

import math
from collections.abc import Mapping

import torch

from meddpm.config import ModelConfig, TrainConfig
from meddpm.data.conditions import encode_batch
from meddpm.training.cases import Cases
from meddpm.training.step import Batch
from meddpm.variants import Applied


class Batches:
    """Batches without end, drawn with replacement from `cases`.

    Order and timesteps come from one generator, the noise from one on the device: a run repeats on the same kind of
    device, wherever the cases lie.
    """

    def __init__(self, cases: Cases, config: ModelConfig, settings: TrainConfig, applied: Applied) -> None:
        self.cases, self.config, self.settings, self.applied = cases, config, settings, applied
        self.order = torch.Generator().manual_seed(settings.seed)
        self.noise = torch.Generator(applied.device).manual_seed(settings.seed + 1)

    def __call__(self) -> Batch:
        """The next batch."""
        chosen, t = self._drawn(self.order)
        images, labels = self.cases.take(chosen.tolist(), self._coming())
        image = self._moved(images)
        noise = torch.randn(image.shape, generator=self.noise, device=self.applied.device)
        condition = encode_batch(self._moved(labels), self.config)
        return self.applied.tensor(image), self.applied.tensor(condition), self._moved(t), self.applied.tensor(noise)

    def state(self) -> dict[str, torch.Tensor]:
        """The random state: what `restore` needs to draw the batches that would have come next."""
        return {"order": self.order.get_state(), "noise": self.noise.get_state()}

    def restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """Go on from `state`."""
        self.order.set_state(state["order"])
        self.noise.set_state(state["noise"])

    def _drawn(self, order: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Numbers of cases (B,) and timesteps (B,) of a batch."""
        size = (self.settings.batch,)
        chosen = torch.randint(len(self.cases), size, generator=order)
        return chosen, torch.randint(self.config.steps, size, generator=order)

    def _coming(self) -> list[int]:
        """The cases of the next batches, as many as can be read ahead; drawn from a copy of the random state."""
        order = torch.Generator()
        order.set_state(self.order.get_state())
        batches = math.ceil(self.cases.ahead / self.settings.batch)
        return [number for _ in range(batches) for number in self._drawn(order)[0].tolist()]

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """`tensor` on the device, copied while the device works on the step before."""
        if self.applied.device.type != "cuda":
            return tensor
        return tensor.pin_memory().to(self.applied.device, non_blocking=True)
