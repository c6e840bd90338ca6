"""Cells in which a compiler that should change nothing does change something, each looked at by hand."""

from __future__ import annotations

__all__ = ["GENUINE"]

GENUINE: dict[str, str] = {
    "forms::generator::compile:eager": "Dynamo returns a tuple_iterator for a generator.",
    "forms::numpy_results::compile:eager": "Dynamo returns an array without dimensions for a numpy scalar.",
    "state::counts_in_a_class::compile:eager": "Dynamo writes the same number to a class attribute in every call.",
    "control_flow::assert_on_data::compile:eager": "Dynamo makes an assertion of data a RuntimeError.",
    "control_flow::view_or_reshape::compile:eager": "Dynamo does not enter an `except` for what a fake tensor raises.",
    "graphs::asks_whether_compiling::compile:eager": "The case returns something else while it is compiled.",
    "graphs::reads_through_a_cache::compile:eager": "Dynamo traces through `functools.cache`: the cache is not used.",
    "scipy_numpy::scipy_solve::compile:eager": "Dynamo fails in scipy's `raise`.",
    "scipy_numpy::numpy_default_dtypes::compile:eager": "Dynamo's numpy takes torch's default dtype.",
    "scipy_numpy::numpy_random::compile:eager": "Dynamo draws numpy's random numbers from torch's generator.",
    "scipy_numpy::numpy_sums_of_bytes::compile:eager": "Dynamo's numpy sums bytes in bytes.",
    "scipy_numpy::returns_numpy_scalar::compile:eager": "Dynamo returns an array with no dimensions for a scalar.",
    "types::signed_zero::compile:eager": "Dynamo's guard takes -0.0 for 0.0.",
    "strict::nan_payload::equal:rounded-once": "A conversion to a wider dtype and back sets a bit of a NaN.",
}
"""Addresses of cells, each with what the compiler really does there."""
