"""Where the time goes: traces and reports of profilers become one kernel table.

`readers` reads the files of profilers, `tools` makes them of a step. Between the two stands `trace.Trace`, what a
profiler saw. `taxonomy` sorts kernels by their names, `names` shortens these, `comparing` says what changed from one
trace to another, `kernel_csv` writes kernels. `counters`, `derived`, `ceilings`, `work` and `priorities` say how well
the GPU was used; `proof` holds the kernels against the flags.
"""
