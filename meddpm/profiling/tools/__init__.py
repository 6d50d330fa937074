"""The profilers: `torch_profiler` in this process, `ncu` and `nsys` as programs of their own (`tool` runs them).

`operators` picks what a slow one has to see.
"""
