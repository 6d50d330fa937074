"""The presets of preparation: how each kind of files becomes what a model is shown.

The two of Med-DDPM are its published recipes (Dorjsembe et al. 2023, arXiv 2305.18453): the whole head, and BraTS as
its authors share it. Those of raw BraTS end at the same tensors. A row of `datasets` in config.yaml names a preset and
lays its own keys over it.
"""

from typing import Any

from meddpm.config import ConfigError, FilesConfig, PreparationConfig, from_mapping, to_mapping

# The axis of the body that a direction lies on.
AXIS = {"L": "sides", "R": "sides", "P": "depth", "A": "depth", "I": "height", "S": "height"}

# From files as the BraTS challenge shares them: the crop, scaling and label of the brain that Med-DDPM's authors made.
# Negative intensities outside the head, which resampling leaves, go first: the background is the darkest value then.
_RAW_BRATS = {
    "orientation": "LPS",
    "fit": "crop_or_pad",
    "intensity": "minmax",
    "floor": 0.0,
    "derive": "brain",
    "derived_label": 4,
    "required_label": 4,
}

PREPARATIONS: dict[str, PreparationConfig] = {
    # Label 1 is the whole head, scalp and skull included (about 3.8 L), 2 the tumour.
    "med_ddpm_whole_head": PreparationConfig(
        orientation="RAS", fit="stretch", intensity="med_ddpm_per_slice", source_labels=(1, 2), required_label=1
    ),
    # Labels 1, 2, 3 are the parts of the tumour, 4 the rest of the brain; images are in [-1, 1] already.
    "med_ddpm_brats": PreparationConfig(
        orientation="LPS", fit="crop_or_pad", intensity="as_is", source_labels=(1, 2, 3, 4), required_label=4
    ),
    # The enhancing tumour is 4 in the files, and 3 for the model.
    "brats2021": PreparationConfig(**_RAW_BRATS, remap={4: 3}, source_labels=(1, 2, 4)),
    "brats2023": PreparationConfig(**_RAW_BRATS, source_labels=(1, 2, 3)),
    "general": PreparationConfig(),
}
# The presets whose label 1 is a whole head.
WHOLE_HEAD = ("med_ddpm_whole_head",)
# The preset of the model that each is for; a general one is for any.
MODEL = {
    "med_ddpm_whole_head": "whole_head_128",
    "med_ddpm_brats": "brats_192",
    "brats2021": "brats_192",
    "brats2023": "brats_192",
}
OF_LAYOUT = {
    "med_ddpm_whole_head": "med_ddpm_whole_head",
    "med_ddpm_brats": "med_ddpm_brats",
    "brats2021": "brats2021",
    "brats2023": "brats2023",
    "bids": "general",
    "tsv": "general",
}


def preset_of(settings: FilesConfig, layout: str) -> str:
    """The name of the preset of a dataset whose files were found to lie as `layout` says."""
    return settings.preparation or OF_LAYOUT[layout]


def preparation(settings: FilesConfig, layout: str) -> PreparationConfig:
    """The preset of a dataset with the keys of its row laid over it. Raises ConfigError as `check` does."""
    preset = to_mapping(PREPARATIONS[preset_of(settings, layout)])
    _check({**preset, **settings.changes})
    return from_mapping(PreparationConfig, {**preset, **settings.changes})


def check(settings: FilesConfig) -> None:
    """Raise ConfigError where keys of the preparation contradict each other, as far as the row of the dataset tells.

    Where neither the row nor its layout names the preset, only the files will.
    """
    preset = settings.preparation or OF_LAYOUT.get(settings.layout)
    _check({**(to_mapping(PREPARATIONS[preset]) if preset else {}), **settings.changes})


def _check(keys: dict[str, Any]) -> None:
    codes = keys.get("orientation", "RAS")
    if sorted(AXIS.get(code, code) for code in codes) != sorted(set(AXIS.values())):
        raise ConfigError(f"orientation: {codes} does not name three directions; right would be RAS, LPS or another")
    low, high = keys.get("percentiles", (0, 100))
    if low >= high:
        raise ConfigError(f"percentiles: [{low}, {high}] do not rise; right would be [0.5, 99.5]")
    if keys.get("spacing_mm") and keys.get("fit", "crop_or_pad") != "crop_or_pad":
        raise ConfigError(
            f"spacing_mm: has no use with fit: {keys['fit']}, which makes the spacing; right would be fit: crop_or_pad"
        )
