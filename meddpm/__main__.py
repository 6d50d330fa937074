"""python -m meddpm VERB."""

from meddpm.cli import main

main()
