"""Where the time goes: traces and reports of profilers become one kernel table.

`taxonomy` sorts kernels by their names, `kineto` reads traces of torch.profiler, `torch_profiler` makes them.
"""
