"""A SLURM cluster: what it has, what a job asks of it, and which jobs of ours are in its queue.

Floor 2, and imports no torch: the Snakefile reads it at every start.
"""
