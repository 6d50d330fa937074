"""Files of profilers, each read into a `meddpm.profiling.trace.Trace`.

`reading` tells by the content which reader a file needs: `kineto` (with `chrome_trace` and `kineto_ranges`),
`ncu_files` (with `ncu_csv`, `ncu_labels`, `ncu_numbers`, `ncu_report_file` and `demangle`) or `nsys_file`.
"""
