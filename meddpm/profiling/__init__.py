"""Where the time goes: traces and reports of profilers become one kernel table.

Any file is read by `reading.read`, which finds the reader by the content: `kineto` (torch.profiler), `ncu_files`
(Nsight Compute) or `nsys_file` (Nsight Systems). What they give is a `trace.Trace`. `taxonomy` sorts kernels by their
names, `names` shortens these, `comparing` says what changed from one trace to another, `kernel_csv` writes kernels.

`torch_profiler`, `ncu` and `nsys` make such files of a step; `counters`, `derived`, `ceilings` and `priorities` say how
well the GPU was used.
"""
