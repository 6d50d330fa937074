"""What the executor plugin for SLURM is made to do otherwise, in the process that submits.

Tried on version 2.8. tests/slurm holds all of it.
"""

from meddpm.slurm import queue

# Looks at the queue, each 20 s or more after the one before.
GONE_AFTER = 5
LONGEST_S = 60


def adapt(executor):
    """Change the ways of an executor of the plugin before its first job."""
    # It guesses an account by a call of sacct that fails; without one SLURM takes the user's own.
    executor._fallback_account_arg = ""
    keep_what_cannot_be_asked_for(executor)
    cancel_what_is_being_submitted(executor)


def keep_what_cannot_be_asked_for(executor):
    """A controller that is away for a while ends no run: the plugin would forget the jobs, and wait for ever.

    And it would wait for ever for a job that was preempted for good, or that the controller has forgotten.
    """
    check = executor.check_active_jobs
    unseen = {}  # SLURM id to the looks in a row at which it was not in the queue, and had not ended either

    async def check_active_jobs(active_jobs):
        answers = executor._status_query_calls
        left = [job async for job in check(active_jobs)]
        if executor._status_query_calls == answers:
            left = active_jobs
        queued = queue.jobs(".")
        for job in left:
            number = job.external_jobid
            seen = queued is None or any(each.id == number for each in queued)
            unseen[number] = 0 if seen else unseen.get(number, 0) + 1
            if unseen[number] < GONE_AFTER:
                yield job
            else:
                # Snakemake looks for its files, and takes it for failed where they are missing.
                executor.report_job_success(job)
        # The controller forgets what has ended after some minutes.
        executor.next_seconds_between_status_checks = min(executor.next_seconds_between_status_checks, LONGEST_S)

    executor.check_active_jobs = check_active_jobs


def cancel_what_is_being_submitted(executor):
    """Ctrl-C leaves no job: the plugin would cancel those that it knows of, and go on submitting the others."""

    def cancel_jobs(active_jobs):
        executor._job_submission_executor.shutdown(wait=True, cancel_futures=True)
        queue.cancel_left_over(".")

    executor.cancel_jobs = cancel_jobs
