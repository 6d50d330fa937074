"""Ask SLURM about the jobs at a short, fixed interval: put this folder on PYTHONPATH.

The executor plugin adds seconds to the time between its looks in every round in which no job ended. In the tests, whose
jobs take seconds, that would be most of the time.
"""

import asyncio
import os

if "SLURM_TEST_POLL_S" in os.environ:
    from snakemake_interface_executor_plugins.executors import remote

    async def _sleep(self: object) -> None:
        await asyncio.sleep(float(os.environ["SLURM_TEST_POLL_S"]))

    remote.RemoteExecutor.sleep = _sleep
