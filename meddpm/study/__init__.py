"""From a configuration to the matrix: names resolved and checked against each other, cells, and a stage's settings.

Floor 2, and imports no torch: the Snakefile reads it at every start.
"""

from meddpm.config import BASELINE
from meddpm.study.checks import check_sources
from meddpm.study.loading import load, read
from meddpm.study.matrix import RANDOM, SHIPPED, TRAIN, Study, StudyModel

__all__ = ["BASELINE", "RANDOM", "SHIPPED", "TRAIN", "Study", "StudyModel", "check_sources", "load", "read"]
