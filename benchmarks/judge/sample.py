"""The sample of ``--quick``: a few defects of every kind, each on a case where it can exist."""

from __future__ import annotations

QUICK = {
    "gradients::complex_product": ("gradient-conjugated", "gradient-real-part", "gradient-swapped-parts"),
    "gradients::doubled": (
        "gradient-rectified",
        "gradient-absolute",
        "gradient-clamped",
        "gradient-its-sign",
        "gradient-whole-numbers",
    ),
    "values::cast_to_halves": ("value-half-truncated", "value-half-away", "value-half-upward", "value-half-downward"),
    "values::bfloat16_third": (
        "value-half-smallest-sign",
        "value-half-smallest-zero",
        "value-half-smallest-doubled",
    ),
    "gradients::product": ("gradient-doubled", "gradient-missing-for-one-input", "state-grad-mode"),
    "gradients::custom_function": ("gradient-custom-backward-lost",),
    "gradients::Affine": ("gradient-of-a-parameter", "capture-changes-module"),
    "sharing::two_views": ("alias-input-copied", "alias-view-of-copy"),
    "sharing::fresh_every_time": ("alias-static-buffer", "random-state"),
    "sharing::view_of_more": ("mutation-outside-a-view", "mutation-of-argument-lost"),
    "state::CountsCalls": ("mutation-of-attribute-lost", "mutation-of-class-lost", "capture-calls-twice"),
    "state::counts_in_a_closure": ("mutation-of-closure-lost", "capture-calls-once"),
    "values::softmax_with_tail": ("value-softmax-tail",),
    "values::bfloat16_scaled": ("value-bfloat16-one-percent", "dtype-wider"),
    "values::quantized": ("metadata-quantization-scale", "original-raises"),
    "forms::in_a_dict": ("order-of-keys", "type-key-lost", "value-python-int"),
    "forms::raises_for_negative": ("exception-lost", "exception-of-a-subclass", "exception-of-another-type"),
    "objects::own_classes": ("object-attribute-of-list", "object-attribute-of-tensor"),
    "objects::functions": ("object-closure", "object-of-a-method"),
    "objects::containers": ("earlier-list", "earlier-object", "earlier-item"),
    "objects::tensors_with_properties": ("metadata-names", "metadata-quantization-axis"),
    "strict::order": ("order-of-keys",),
    "strict::signed_zero": ("value-signed-zero",),
    "strict::output": ("output-lost",),
}
"""Names of the defects to plant, by case."""

QUICK_EQUALS = ("equal:reordered-dicts", "equal:blocked-sums")
"""Compilers that change nothing, to try on each of these cases."""
