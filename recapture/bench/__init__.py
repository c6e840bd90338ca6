"""Speedups of every compiler over eager, on workloads: results are checked first, then timed, with intervals."""
