"""What the start and the end of a run do: plan, jobs of a dead run, failed cells as rows.

Output: results/run/, which `python -m meddpm status` reads.
"""

import contextlib
import inspect
import io
import signal
import subprocess

from snakemake.cli import parse_args

from meddpm.log import REFUSED, refusal, show_progress
from meddpm.runs import lock, plan

# What can still be made where jobs of the cells have failed.
AFTER_FAILURES = [
    *("not_run", "evaluate", "timing_table", "environment_table", "kernels_table", "counters_table"),
    *("priorities_table", "quality_table", "claims"),
    *("run_config", "report", "archive"),
]
# The file that holds the lock of this run.
RUN_LOCK = []
OF_A_CELL = ["prepare", "train", *(stage for stage in CELL_STAGES if stage != "evaluate")]


def planned(job):
    """A job of Snakemake's as the library knows one."""
    needed = bool(workflow.dag.needrun(job))
    outputs, inputs = [str(path) for path in job.output], [str(path) for path in job.input]
    return plan.PlannedJob(
        job.rule.name, dict(job.wildcards_dict), outputs, (*map(str, job.log), None)[0], needed, inputs
    )


def where_typed():
    """The folder in which the command was typed: with --directory Snakemake has left it, and PWD may be another."""
    apis = (getattr(each.frame.f_locals.get("self"), "workflow_api", None) for each in inspect.stack())
    handler = next(api._workdir_handler for api in apis if api)
    return handler.olddir or "."


def second_pass(targets):
    """Make `targets` by a run of the same command in which the jobs that failed are rows."""
    typed = where_typed()
    with contextlib.redirect_stderr(io.StringIO()), contextlib.chdir(typed):  # it looks for the profile
        _, given = parse_args(sys.argv[1:])
    words = sys.argv[1:]
    tail = words[words.index("--") + 1 :] if "--" in words else []
    words = words[: len(words) - len(tail) - 1] if "--" in words else words
    for target in set(given.targets or ()) - set(tail):
        # The last one: an option before it may have the same value.
        words.reverse()
        words.remove(target)
        words.reverse()
    command = [PYTHON, "-m", "snakemake", "--allowed-rules", *AFTER_FAILURES, "--nolock", *words, "--", *targets]
    # Ctrl-C reaches both; subprocess would kill the one that is to cancel its jobs.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    # It holds the lock of the run too: where this process is killed, it goes on alone.
    done = subprocess.run(command, cwd=typed, env=os.environ | dict(MEDDPM_SECOND_PASS="1"), pass_fds=RUN_LOCK)
    if done.returncode == 0:
        plan.settle(".", targets)


@contextlib.contextmanager
def in_one_line():
    """A fault that the user can mend, in the block, ends Snakemake with a line."""
    try:
        with show_progress():
            yield
    except UserError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("stopped by Ctrl-C")
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        sys.exit(refusal(error))


def tell_of_another():
    """Say that a run is alive in this folder: Snakemake says only that the folder is locked, and how to unlock it."""
    dry = any(re.fullmatch(r"--dry-?run|-[a-zA-Z]*n[a-zA-Z]*", word) for word in sys.argv[1:])
    if workflow.is_main_process and not SECOND_PASS and not dry and (holder := lock.holder(".")):
        print(f"A run is alive in this folder ({holder}): `python -m meddpm status` shows it.", file=sys.stderr)


def begin():
    """Before the first job: end what a run that was killed left in the queue, and write the plan."""
    if SECOND_PASS:
        return
    with in_one_line():
        RUN_LOCK.append(lock.take("."))
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
    with in_one_line():
        found = failures.collect(".", next(iter(logs), None), lost, failed)
        print(failures.in_words(found), file=sys.stderr)
        failures.write(".", found)
    # The evaluation of a model that failed is rows, and what comes after another one of the rest cannot be made.
    dead = {path for job in lost if job.rule not in (*OF_A_CELL, "evaluate") for path in job.outputs}
    left = [job for job in unfinished if job not in lost and job.rule in AFTER_FAILURES]
    while blocked := [job for job in left if not dead.isdisjoint(job.inputs)]:
        dead |= {path for job in blocked for path in job.outputs}
        left = [job for job in left if job not in blocked]
    targets = [path for job in left for path in job.outputs]
    if targets and workflow.execution_settings.keep_going:
        print("The report is made with them as rows.", file=sys.stderr)
        second_pass(targets)
        print(failures.in_words(found), file=sys.stderr)  # again, below what that run has printed


tell_of_another()


onstart:
    if workflow.executor_plugin.name == "slurm":
        if STUDY.cluster is None:
            sys.exit("--configfile: no file says how the cluster is asked; name slurm/site.yaml too, last")
        adapt(workflow.scheduler._executor)
    begin()


onerror:
    end(log)
