"""What the start and the end of a run do: plan, jobs of a dead run, failed cells as rows.

Output: results/run/, which `python -m meddpm status` reads.
"""

import contextlib
import io
import signal
import subprocess

from snakemake.cli import parse_args

from meddpm.log import REFUSED, show_progress
from meddpm.runs import plan

# What can still be made where jobs of the cells have failed.
AFTER_FAILURES = [
    *("not_run", "evaluate", "timing_table", "environment_table", "kernels_table", "quality_table"),
    *("run_config", "report", "archive"),
]
OF_A_CELL = ["prepare", "train", "sample", "bench", "profile"]


def planned(job):
    """A job of Snakemake's as the library knows one."""
    needed = bool(workflow.dag.needrun(job))
    outputs, inputs = [str(path) for path in job.output], [str(path) for path in job.input]
    return plan.PlannedJob(
        job.rule.name, dict(job.wildcards_dict), outputs, (*map(str, job.log), None)[0], needed, inputs
    )


def second_pass(targets):
    """Make `targets` by a run of the same command in which the jobs that failed are rows."""
    with contextlib.redirect_stderr(io.StringIO()):
        _, given = parse_args(sys.argv[1:])
    words = [word for word in sys.argv[1:] if word != "--" and word not in (given.targets or ())]
    command = [PYTHON, "-m", "snakemake", "--allowed-rules", *AFTER_FAILURES, "--nolock", *words, "--", *targets]
    # Ctrl-C reaches both; subprocess would kill the one that is to cancel its jobs.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    subprocess.run(command, env=os.environ | dict(MEDDPM_SECOND_PASS="1"))


@contextlib.contextmanager
def in_one_line():
    """A fault that the user can mend, in the block, ends Snakemake with a line."""
    try:
        with show_progress():
            yield
    except UserError as error:
        sys.exit(str(error))
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        sys.exit(f"{error.filename or 'results'}: {error.strerror}; make room or mend the permissions")


def begin():
    """Before the first job: end what a run that was killed left in the queue, and write the plan."""
    if SECOND_PASS:
        return
    with in_one_line():
        if workflow.executor_plugin.name == "slurm":
            queue.cancel_left_over(".")
        failures.clear(".")
        plan.write(".", [planned(job) for job in workflow.dag.jobs], " ".join(sys.argv))


def end(logs):
    """After the last job, some of which failed: say why, and make of the others what can be made."""
    scheduler = workflow.scheduler
    if SECOND_PASS or scheduler.running or scheduler._user_kill:
        return  # Ctrl-C or SIGTERM: the others did not have their turn
    failed = {str(job.output[0]) for job in scheduler.failed}
    unfinished = [planned(job) for job in workflow.dag.needrun_jobs() if job.output]
    # Those of the cells, and what failed itself; the rest may yet be made.
    lost = [job for job in unfinished if job.rule in OF_A_CELL or job.outputs[0] in failed]
    found = failures.collect(".", next(iter(logs), None), lost, failed)
    print(failures.in_words(found), file=sys.stderr)
    with in_one_line():
        failures.write(".", found)
    targets = [path for job in unfinished if job not in lost for path in job.outputs if job.rule in AFTER_FAILURES]
    if targets and workflow.execution_settings.keep_going:
        print("The report is made with them as rows.", file=sys.stderr)
        second_pass(targets)


onstart:
    if workflow.executor_plugin.name == "slurm":
        adapt(workflow.scheduler._executor)
    begin()


onerror:
    end(log)
