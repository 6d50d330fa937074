"""What to fix first: the advice of Nsight Compute's rules, weighted by the kernel's share of the time.

A rule estimates how much of its time the kernel would save, in percent: "global" of the kernel as a whole, "local" of
the part that the rule looks at, so that the kernel need not become faster at all. The score of a kernel and rule is
that estimate times the kernel's share of the time of all launches: the part of the whole time, in percent, that would
go. Global advice comes first, local after it. Estimates of several rules overlap: they do not add up.
"""

from collections import defaultdict
from collections.abc import Sequence

from meddpm.profiling.counters import Counted, time_ns
from meddpm.profiling.readers.ncu_files import Rule
from meddpm.profiling.taxonomy import classify
from meddpm.tables import Row

GLOBAL = "global"


def rows(launches: Sequence[Counted]) -> list[Row]:
    """Rows {rank, kernel, category, rule, scope, share, speedup_pct, score_pct, advice}, what to fix first first.

    One row a kernel (all its launch shapes) and rule; `share` (0 to 1) is the kernel's of the time of all launches,
    `speedup_pct` the mean of its launches, weighted by their time, those without the advice as zero.
    """
    total = time_ns(launches)
    if not total:
        return []
    times: dict[str, float] = defaultdict(float)
    saved: dict[tuple[str, str, str], float] = defaultdict(float)
    loudest: dict[tuple[str, str, str], tuple[float, Rule]] = {}
    for each in launches:
        name, time = each.launch.kernel, time_ns([each])
        times[name] += time
        for rule in _once(each.launch.rules):
            key = (name, rule.name, rule.scope)
            saving = time * rule.speedup_pct / 100
            saved[key] += saving
            # The words are of the launches that would gain most.
            loudest[key] = max(loudest.get(key, (-1.0, rule)), (saving, rule), key=lambda pair: pair[0])
    found = [
        {
            "kernel": name,
            "category": classify(name).category,
            "rule": rule,
            "scope": scope,
            "share": times[name] / total,
            "speedup_pct": 100 * saving / times[name] if times[name] else 0.0,
            "score_pct": 100 * saving / total,
            "advice": loudest[name, rule, scope][1].message,
        }
        for (name, rule, scope), saving in saved.items()
    ]
    found.sort(key=lambda row: (row["scope"] != GLOBAL, -row["score_pct"]))
    return [{"rank": rank, **row} for rank, row in enumerate(found, 1)]


def _once(rules: Sequence[Rule]) -> list[Rule]:
    """Of each rule that estimates a speed-up, the largest: some speak once for each unit of the GPU."""
    best: dict[tuple[str, str], Rule] = {}
    for rule in rules:
        if rule.speedup_pct and rule.speedup_pct > best.get((rule.name, rule.scope), rule).speedup_pct - 1e-9:
            best[rule.name, rule.scope] = rule
    return list(best.values())
