"""Speedups: eager against every compiler, on workloads; right first, then fast, with an interval and a reason."""
