"""What the executor plugin for SLURM is made to do otherwise, in the process that submits.

Tried on version 2.8: each of these is a test of tests/slurm.
"""

from meddpm.slurm import queue


def adapt(executor):
    """Change the ways of an executor of the plugin before its first job."""
    # It guesses an account by a call of sacct that fails; without one SLURM takes the user's own.
    executor._fallback_account_arg = ""
    keep_what_cannot_be_asked_for(executor)
    cancel_what_is_being_submitted(executor)


def keep_what_cannot_be_asked_for(executor):
    """A controller that is away for a while ends no run: the plugin would forget the jobs, and wait for ever."""
    check = executor.check_active_jobs

    async def check_active_jobs(active_jobs):
        answers = executor._status_query_calls
        async for job in check(active_jobs):
            yield job
        if executor._status_query_calls == answers:
            for job in active_jobs:
                yield job

    executor.check_active_jobs = check_active_jobs


def cancel_what_is_being_submitted(executor):
    """Ctrl-C leaves no job: the plugin would cancel those that it knows of, and go on submitting the others."""

    def cancel_jobs(active_jobs):
        executor._job_submission_executor.shutdown(wait=True, cancel_futures=True)
        queue.cancel_left_over(".")

    executor.cancel_jobs = cancel_jobs
