"""The dataset that needs no download: brains made by deforming the ICBM 152 template.

The T1, grey and white matter maps of ICBM 152 2009a come with nilearn. Each case is the template under a rotation, a
scaling and a smooth elastic deformation of its own; where the settings ask for it, with synthetic lesions. A template
is one average: the cases differ in shape, not in anatomy, and stand for no population.
"""

import functools
import json
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from meddpm.config import ConfigError, Icbm152Config, to_mapping
from meddpm.data import lesions
from meddpm.data.conditions import remap
from meddpm.data.tasks import Made, Task, Tasks
from meddpm.data.volumes import Case

if TYPE_CHECKING:
    import torch

NOTE = "synthetic: the ICBM 152 2009a template (one average brain) deformed at random; not a population, no patient"
NOTE_SHORT = "synthetic: deformed ICBM 152 template, not a population"
NOTE_LESIONS = "with synthetic lesions drawn in"
CITATION = (
    "ICBM 152 2009a template: Fonov et al. 2011, NeuroImage 54(1):313-327; Fonov et al. 2009, NeuroImage 47(S1):S102; "
    "Collins et al. 1999, ANIMAL+INSECT, LNCS 1613:210-223. Maps as packaged by nilearn (BSD-3)."
)
LABELS = {1: "cerebrospinal fluid", 2: "grey matter", 3: "white matter", lesions.LABEL: "synthetic lesion"}

# Smoothness of the elastic deformation. At 18 mm, displacements of up to 12 mm keep the brain free of folds.
ELASTIC_SIGMA_MM = 18.0
ELASTIC_LIMIT_MM = 12.0
FIELD_SPACING_MM = 6.0
# The template is read at this spacing or finer before it is averaged to the voxels asked for.
SAMPLING_MM = 2.0
SLAB_POINTS = 2_000_000


@dataclass(frozen=True)
class Template:
    """The template, cut to the box of the brain.

    `maps` is a float32 tensor (4, X, Y, Z): T1 in [0, 1], grey matter, white matter and brain mask, each 0 outside
    the brain. `extent_mm` (3,) is the size of the box and `centre_mm` (3,) its centre in the template's space.
    `low` and `high` are the T1 values that become -1 and 1.
    """

    maps: "torch.Tensor"
    spacing_mm: float
    extent_mm: np.ndarray
    centre_mm: np.ndarray
    low: float
    high: float


def case_ids(settings: Icbm152Config) -> list[str]:
    """The ids of the cases: icbm152-000 and on."""
    return [_case_id(index) for index in range(settings.cases)]


def _case_id(index: int) -> str:
    return f"icbm152-{index:03d}"


def has_lesions(settings: Icbm152Config, index: int) -> bool:
    """Whether case `index` has lesions: every `settings.lesion_every`-th, from the second on."""
    return settings.lesion_every > 0 and index % settings.lesion_every == 1 % settings.lesion_every


def notes(settings: Icbm152Config, index: int) -> tuple[str, str]:
    """What case `index` is, for the table of cases and, within 79 characters, for the header of a volume."""
    if has_lesions(settings, index):
        return f"{NOTE}; {NOTE_LESIONS}", f"{NOTE_SHORT}; synthetic lesions"
    return NOTE, NOTE_SHORT


def tasks(settings: Icbm152Config, size: tuple[int, int, int]) -> Tasks:
    """The cases of the dataset at `size` (H, W, D). Raises ConfigError where a setting or the size can make none."""
    if settings.cases < 1:
        raise ConfigError(f"cases: {settings.cases} is too few; use 1 or more.")
    _check(settings, size)
    load_template()
    cases = [
        Task(id, functools.partial(_decided_by, settings, index, size), functools.partial(_make, settings, index, size))
        for index, id in enumerate(case_ids(settings))
    ]
    return Tasks(cases, settings.source, settings.source)


def _decided_by(settings: Icbm152Config, index: int, size: tuple[int, int, int]) -> str:
    # Neither their number nor whether others have lesions decides a case.
    alone = replace(settings, cases=1, lesion_every=0)
    return json.dumps([to_mapping(alone), index, size, has_lesions(settings, index)])


def _make(settings: Icbm152Config, index: int, size: tuple[int, int, int]) -> Made:
    note, short = notes(settings, index)
    return Made(build(settings, index, size), {"notes": f"{note}. {CITATION}"}, short)


def build(settings: Icbm152Config, index: int, size: tuple[int, int, int]) -> Case:
    """Case `index` of the dataset at `size` (H, W, D) voxels, RAS+, cubic voxels, the brain in the middle.

    Image (H, W, D), float32: T1 in [-1, 1] on one scale for all cases, exactly -1 outside the brain. Label (H, W, D),
    uint8: the tissue of the largest probability (1 CSF, 2 grey, 3 white matter; 4 instead of 3 where most of the white
    matter is synthetic lesion), 0 outside, then `settings.remap`.
    The case depends on `settings.seed` and `index` alone, not on the number of cases; another `size` shows the same
    brain in other voxels. Raises ConfigError where a setting or the size cannot make a brain.
    """
    _check(settings, size)
    template = load_template()
    voxel_mm = _voxel_size(settings, size, template.extent_mm)
    if has_lesions(settings, index):
        template = _with_lesions(template, settings.seed, index)
    t1, grey, white, inside, *lesion = _deformed_maps(settings, index, size, voxel_mm, template)

    brain = inside >= 0.5
    # The mean over the part of a voxel inside the brain: voxels of the rim are as bright as their tissue.
    t1 = t1 / np.maximum(inside, 0.5)
    image = 2 * (np.clip(t1, template.low, template.high) - template.low) / (template.high - template.low) - 1
    image = np.where(brain, image, -1).astype(np.float32)

    fluid = inside - grey - white
    label = (1 + np.argmax(np.stack([fluid, grey, white]), axis=0)) * brain
    for share in lesion:
        label[(label == 3) & (share > white / 2)] = lesions.LABEL
    affine = np.diag([voxel_mm, voxel_mm, voxel_mm, 1.0])
    affine[:3, 3] = template.centre_mm - voxel_mm * (np.array(size) - 1) / 2
    return Case(_case_id(index), image, remap(label.astype(np.uint8), settings.remap), affine)


@functools.cache
def load_template() -> Template:
    """Read the maps that nilearn carries. Nothing is downloaded."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from nilearn import datasets

        t1 = datasets.load_mni152_template(resolution=1)
        grey = datasets.load_mni152_gm_template(resolution=1)
        white = datasets.load_mni152_wm_template(resolution=1)
        mask = datasets.load_mni152_brain_mask(resolution=1)
    inside = np.asarray(mask.dataobj) > 0
    brain = np.argwhere(inside)
    first, last = brain.min(axis=0), brain.max(axis=0)
    box = tuple(slice(low, high + 1) for low, high in zip(first, last, strict=True))
    maps = np.stack([image.get_fdata(dtype=np.float32) * inside for image in (t1, grey, white)] + [inside])
    low, high = np.percentile(maps[0][inside], [0.5, 99.9])
    # The affine of the template is a shift: its voxels are 1 mm cubes along R, A and S.
    return Template(
        maps=torch.from_numpy(np.ascontiguousarray(maps[(slice(None), *box)], dtype=np.float32)),
        spacing_mm=1.0,
        extent_mm=(last - first + 1).astype(float),
        centre_mm=t1.affine[:3, :3] @ ((first + last) / 2) + t1.affine[:3, 3],
        low=float(low),
        high=float(high),
    )


def _with_lesions(template: Template, seed: int, index: int) -> Template:
    """The template with the lesions of case `index` in T1, and their share of each voxel as a fifth map.

    Drawn before the deformation, the lesions lie in the brain and not in the voxels: any size shows the same ones.
    """
    import torch

    maps = lesions.draw(template.maps.numpy(), template.spacing_mm, seed, index)
    return replace(template, maps=torch.from_numpy(maps))


def _check(settings: Icbm152Config, size: tuple[int, int, int]) -> None:
    if min(size) < 8:
        raise ConfigError(f"size {'x'.join(map(str, size))}: a brain needs at least 8 voxels along each axis.")
    if not 0 <= settings.elastic_mm <= ELASTIC_LIMIT_MM:
        raise ConfigError(f"elastic_mm: {settings.elastic_mm} would fold the brain; use 0 to {ELASTIC_LIMIT_MM:g}.")
    if not 0 <= settings.scaling <= 0.5:
        raise ConfigError(f"scaling: {settings.scaling} is out of range; use 0 to 0.5.")
    if not 0 <= settings.rotation_degrees <= 45:
        raise ConfigError(f"rotation_degrees: {settings.rotation_degrees} is out of range; use 0 to 45.")
    if settings.lesion_every < 0:
        raise ConfigError(f"lesion_every: {settings.lesion_every} is out of range; use 0 (none) or more.")


def _voxel_size(settings: Icbm152Config, size: tuple[int, int, int], extent_mm: np.ndarray) -> float:
    """Edge in mm of the cubic voxels that fit every case of the dataset into `size`, with a voxel to spare around.

    The brain is taken as an ellipsoid for the room that its rotation needs.
    """
    angle = min(np.radians(settings.rotation_degrees) * np.sqrt(3), np.pi / 2)
    turned = np.hypot(extent_mm * np.cos(angle), extent_mm.max() * np.sin(angle))
    room = turned * (1 + settings.scaling) + 2 * settings.elastic_mm
    return float((room / (np.array(size) - 2)).max())


def _deformed_maps(
    settings: Icbm152Config, index: int, size: tuple[int, int, int], voxel_mm: float, template: Template
) -> np.ndarray:
    """The maps of the template under the deformation of case `index`: float32 (C, H, W, D), means over each voxel.

    The template is read through the deformation on a grid finer than the voxels and averaged once, rather than
    resampled twice, so that boundaries stay sharp; slab by slab along H, so that the fine grid never stands whole.
    """
    import torch
    from torch.nn.functional import avg_pool3d, grid_sample

    matrix, field, reach_mm = _deformation(settings, index)
    factor = max(2, int(np.ceil(voxel_mm / SAMPLING_MM)))
    fine = [n * factor for n in size]
    axes_mm = [torch.arange(n) * (voxel_mm / factor) - (n - 1) * voxel_mm / factor / 2 for n in fine]
    planes = max(1, SLAB_POINTS // (factor * fine[1] * fine[2]))
    half_mm = torch.tensor([(n - 1) * template.spacing_mm / 2 for n in template.maps.shape[1:]])
    slabs = []
    for start in range(0, size[0], planes):
        rows = axes_mm[0][start * factor : (start + planes) * factor]
        points = torch.stack(torch.meshgrid(rows, axes_mm[1], axes_mm[2], indexing="ij"), dim=-1)
        # grid_sample wants coordinates in [-1, 1] between the centres of the outermost voxels, last axis first.
        where = (points / reach_mm).flip(-1)[None]
        shift = grid_sample(field[None], where, padding_mode="border", align_corners=True)[0]
        source = (points + shift.movedim(0, -1)) @ matrix.T
        maps = grid_sample(template.maps[None], (source / half_mm).flip(-1)[None], align_corners=True)
        slabs.append(avg_pool3d(maps, factor)[0])
    return torch.cat(slabs, dim=1).numpy()


def _deformation(settings: Icbm152Config, index: int) -> tuple["torch.Tensor", "torch.Tensor", float]:
    """How case `index` reads the template: a point p in mm from the centre comes from matrix @ (p + field(p)).

    Returns the matrix (3, 3), rotation times inverse scaling; the field (3, n, n, n) in mm on a lattice that reaches
    from -reach to +reach along each axis; and the reach. The longest displacement is `settings.elastic_mm`. The
    lattice is laid out from the centre in millimetres, so that the case does not depend on the voxels.
    """
    import torch
    from scipy.ndimage import gaussian_filter
    from scipy.spatial.transform import Rotation

    random = np.random.Generator(np.random.Philox(np.random.SeedSequence([settings.seed, index])))
    angles = random.uniform(-settings.rotation_degrees, settings.rotation_degrees, 3)
    scales = 1 + random.uniform(-settings.scaling, settings.scaling, 3)
    matrix = Rotation.from_euler("xyz", angles, degrees=True).as_matrix() @ np.diag(1 / scales)

    cells = 20
    noise = random.standard_normal((3, 2 * cells + 1, 2 * cells + 1, 2 * cells + 1))
    sigma = ELASTIC_SIGMA_MM / FIELD_SPACING_MM
    field = gaussian_filter(noise, sigma=(0, sigma, sigma, sigma), mode="reflect")
    field *= settings.elastic_mm / np.linalg.norm(field, axis=0).max()
    reach_mm = cells * FIELD_SPACING_MM
    return torch.from_numpy(matrix).float(), torch.from_numpy(field).float(), reach_mm
