"""What a training step is shown: which cases, at which timesteps, under which noise."""

from collections.abc import Mapping

import torch

from meddpm.config import ModelConfig, TrainConfig
from meddpm.data.conditions import encode_batch
from meddpm.training.step import Batch
from meddpm.variants import Applied


class Batches:
    """Batches without end, drawn with replacement from cases that are held in memory.

    `images` (N, C, D, W, H) float32 in [-1, 1] and `labels` (N, D, W, H) uint8 lie on the CPU. Order and timesteps come
    from one generator, the noise from one on the device: a run repeats on the same kind of device.
    """

    def __init__(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        config: ModelConfig,
        settings: TrainConfig,
        applied: Applied,
    ) -> None:
        self.images, self.labels = images, labels
        self.config, self.settings, self.applied = config, settings, applied
        self.order = torch.Generator().manual_seed(settings.seed)
        self.noise = torch.Generator(applied.device).manual_seed(settings.seed + 1)

    def __call__(self) -> Batch:
        """The next batch."""
        size = (self.settings.batch,)
        chosen = torch.randint(len(self.images), size, generator=self.order)
        t = torch.randint(self.config.steps, size, generator=self.order)
        image = self._moved(self.images[chosen])
        noise = torch.randn(image.shape, generator=self.noise, device=self.applied.device)
        condition = encode_batch(self._moved(self.labels[chosen]), self.config)
        return self.applied.tensor(image), self.applied.tensor(condition), self._moved(t), self.applied.tensor(noise)

    def state(self) -> dict[str, torch.Tensor]:
        """The random state: what `restore` needs to draw the batches that would have come next."""
        return {"order": self.order.get_state(), "noise": self.noise.get_state()}

    def restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """Go on from `state`."""
        self.order.set_state(state["order"])
        self.noise.set_state(state["noise"])

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """`tensor` on the device, copied while the device works on the step before."""
        if self.applied.device.type != "cuda":
            return tensor
        return tensor.pin_memory().to(self.applied.device, non_blocking=True)
