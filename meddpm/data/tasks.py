"""What a dataset is to the prepare stage: cases that can be made one by one, each with what decides it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meddpm.data.volumes import Case


@dataclass(frozen=True)
class Goal:
    """What the models that use a dataset ask of it.

    `size` is (H, W, D) in voxels, None: each case on its own grid. `labels` are those that any model is shown, `images`
    how many images a case has; empty, None: any. `partly` are labels that some of the models are not shown.
    `whole_head`: label 1 is a whole head, as published weights know it.
    """

    size: tuple[int, int, int] | None = None
    labels: tuple[int, ...] = ()
    images: int | None = None
    partly: tuple[int, ...] = ()
    whole_head: bool = False


@dataclass(frozen=True)
class Made:
    """A prepared case, the columns of its row in cases.tsv that the case itself does not tell, and a word for the
    header of its volumes.
    """

    case: "Case"
    columns: dict[str, Any] = field(default_factory=dict)
    description: str = ""


@dataclass(frozen=True)
class Task:
    """One case to make, of `files`: what each is ("label" or the name of an image), and its path in the dataset.

    `decided_by` gives, as one text, all that decides the result but the code: with the same text nothing is to be made
    anew. Both raise UserError where the case cannot be used.
    """

    id: str
    decided_by: Callable[[], str]
    make: Callable[[], Made]
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Tasks:
    """The cases of a dataset in their order, its layout, its path, and warnings about the whole of it."""

    cases: list[Task]
    layout: str
    path: str
    warnings: list[str] = field(default_factory=list)
