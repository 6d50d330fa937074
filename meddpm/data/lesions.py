"""Synthetic lesions, drawn into the white matter of a template: what they look like and where they lie.

Irregular dark blobs, most of them beside the ventricles, after the look of multiple sclerosis on T1. They give a model
a second kind of label to follow; they are no model of a disease. Nothing here is taken from a patient.
"""

from dataclasses import dataclass

import numpy as np

LABEL = 4
# Joins the seed, so that the lesions take no number from the deformation. Not 0: SeedSequence would not see it.
STREAM = 4

COUNT = (6, 12)
# Half axes. The first lesion is the largest, and deep enough to fill a voxel of 7 mm.
FIRST_RADIUS_MM = (8.0, 10.0)
RADIUS_MM = (2.5, 7.0)
STRETCH = 1.4
# The outline: how far it strays from the ellipsoid, over which length, and how wide its edge is.
ROUGHNESS = 0.35
ROUGHNESS_SIGMA_MM = 2.5
EDGE_MM = 4.0
# How much darker T1 is inside. White matter of the template has 0.84, grey matter 0.65, fluid about 0.35: what is left
# is darker than grey matter and brighter than fluid.
DARKENING = (0.28, 0.46)

# Where a lesion may have its centre: so far from the edge of the white matter, and from the ventricles.
FIRST_DEPTH_MM = 6.0
DEPTH_MM = 3.0
PERIVENTRICULAR_MM = 12.0
PERIVENTRICULAR_SHARE = 0.75
# Distances are measured on every second voxel of the template, which is enough to choose a place.
STRIDE = 2


@dataclass(frozen=True)
class _Places:
    """Voxels of the template, (n, 3) each, where the first lesion, a periventricular and any other may lie."""

    first: np.ndarray
    periventricular: np.ndarray
    deep: np.ndarray


def draw(maps: np.ndarray, spacing_mm: float, seed: int, index: int) -> np.ndarray:
    """The template's maps with the lesions of case `index`: float32 (5, X, Y, Z) of float32 (4, X, Y, Z).

    `maps` are T1 in [0, 1], grey matter, white matter and brain mask, of cubic voxels of `spacing_mm`. T1 comes back
    darker inside lesions, the other three as they are. The fifth map is the share of each voxel that is lesion, never
    more than its white matter. The same `seed` and `index` give the same lesions.
    """
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, index, STREAM])))
    places = _places(maps, spacing_mm)
    white = maps[2]
    lesion, darkening = np.zeros_like(white), np.zeros_like(white)
    for number in range(random.integers(*COUNT, endpoint=True)):
        if number == 0:
            radius_mm, where = random.uniform(*FIRST_RADIUS_MM), places.first
        else:
            radius_mm = random.uniform(*RADIUS_MM)
            near = random.random() < PERIVENTRICULAR_SHARE
            where = places.periventricular if near else places.deep
        box, blob = _blob(random, random.choice(where), radius_mm, spacing_mm, white.shape)
        share = np.minimum(blob, white[box])
        lesion[box] = np.maximum(lesion[box], share)
        darkening[box] = np.maximum(darkening[box], share * np.float32(random.uniform(*DARKENING)))
    return np.stack([maps[0] * (1 - darkening), *maps[1:], lesion])


def _places(maps: np.ndarray, spacing_mm: float) -> _Places:
    from scipy.ndimage import binary_dilation, distance_transform_edt, label

    _, grey, white, inside = maps[:, ::STRIDE, ::STRIDE, ::STRIDE]
    step_mm = STRIDE * spacing_mm
    # The ventricles: the largest pool of fluid that does not reach the surface of the brain.
    pools, _ = label((inside > 0) & (inside - grey - white > 0.5))
    sizes = np.bincount(pools.ravel())
    surface = binary_dilation(np.pad(inside == 0, 1, constant_values=True))[1:-1, 1:-1, 1:-1]
    sizes[np.unique(pools[surface])] = 0
    sizes[0] = 0
    from_ventricle = distance_transform_edt(pools != np.argmax(sizes), sampling=step_mm)
    depth = distance_transform_edt(white > 0.5, sampling=step_mm)
    near = from_ventricle < PERIVENTRICULAR_MM

    def voxels(mask: np.ndarray) -> np.ndarray:
        return STRIDE * np.argwhere(mask)

    return _Places(
        first=voxels(near & (depth >= FIRST_DEPTH_MM)),
        periventricular=voxels(near & (depth >= DEPTH_MM)),
        deep=voxels(~near & (depth >= DEPTH_MM)),
    )


def _blob(
    random: np.random.Generator, centre: np.ndarray, radius_mm: float, spacing_mm: float, shape: tuple[int, ...]
) -> tuple[tuple[slice, ...], np.ndarray]:
    """One lesion: its box in a volume of `shape`, and the share of each voxel there that it fills, float32 in [0, 1].

    An ellipsoid turned at random, its distance disturbed by smooth noise. `centre` (3,) is in voxels.
    """
    from scipy.ndimage import gaussian_filter
    from scipy.spatial.transform import Rotation

    reach = int(np.ceil((STRETCH * (1 + 2 * ROUGHNESS) * radius_mm + EDGE_MM) / spacing_mm))
    axes = Rotation.from_rotvec(random.uniform(-np.pi, np.pi, 3)).as_matrix()
    stretch = STRETCH ** random.uniform(-1, 1, 3)
    noise = gaussian_filter(random.standard_normal((2 * reach + 1,) * 3), ROUGHNESS_SIGMA_MM / spacing_mm)
    offsets = spacing_mm * np.stack(np.meshgrid(*[np.arange(-reach, reach + 1)] * 3, indexing="ij"), axis=-1)
    distance = np.linalg.norm(offsets @ axes / stretch, axis=-1) - radius_mm
    distance += ROUGHNESS * radius_mm * noise / noise.std()
    share = np.clip(0.5 - distance / EDGE_MM, 0, 1).astype(np.float32)
    low, high = np.maximum(centre - reach, 0), np.minimum(centre + reach + 1, shape)
    inner = tuple(slice(a, b) for a, b in zip(low - centre + reach, high - centre + reach, strict=True))
    return tuple(slice(a, b) for a, b in zip(low, high, strict=True)), share[inner]
