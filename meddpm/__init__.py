"""Med-DDPM on a GPU: what it costs, where the time goes, which optimisation pays, and whether the picture stays."""

__version__ = "0.1.0"
