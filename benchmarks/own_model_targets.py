"""Models of timm and transformers as a user would give them to ``recapture check``, and inputs of other shapes.

Each function without arguments makes a model with random weights from its configuration: nothing is downloaded. The
names of timm's models are its own; transformers has one function for each architecture, with few and narrow layers.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

TIMM_PREFIX = "timm_"
DTYPE_PREFIXES = ("bfloat16_", "float16_")


def __getattr__(name: str) -> Any:
    """Return the factory of a model of timm, ``timm_NAME``, or of torchvision in a dtype, ``bfloat16_NAME``."""
    if name.startswith(DTYPE_PREFIXES):
        dtype, _, model = name.partition("_")
        return lambda: _torchvision_model(model, getattr(torch, dtype))
    if not name.startswith(TIMM_PREFIX):
        raise AttributeError(name)

    def factory() -> Any:
        import timm

        return timm.create_model(name[len(TIMM_PREFIX) :], pretrained=False)

    return factory


def _torchvision_model(name: str, dtype: Any) -> Any:
    import torchvision

    make = torchvision.models.get_model_builder(name)
    parameters = inspect.signature(make).parameters
    without = {"weights": None, "weights_backbone": None}  # random weights, so that nothing is downloaded
    return make(**{key: value for key, value in without.items() if key in parameters}).to(dtype)


# --- transformers ---------------------------------------------------------------------------------------------------

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
"""The size of a model whose configuration uses the usual names."""


def _model(kind: str, config: str, **sizes: Any) -> Any:
    import transformers

    return getattr(transformers, kind)(getattr(transformers, config)(**sizes))


def bert() -> Any:
    """Make an encoder of text."""
    return _model("BertModel", "BertConfig", vocab_size=100, **SMALL)


def roberta() -> Any:
    """Make an encoder that derives positions from its padding."""
    return _model("RobertaModel", "RobertaConfig", vocab_size=100, **SMALL)


def albert() -> Any:
    """Make an encoder whose layers share weights."""
    return _model("AlbertModel", "AlbertConfig", vocab_size=100, embedding_size=32, **SMALL)


def distilbert() -> Any:
    """Make a smaller encoder."""
    return _model("DistilBertModel", "DistilBertConfig", vocab_size=100, dim=64, n_layers=2, n_heads=4, hidden_dim=128)


def gpt2() -> Any:
    """Make a decoder with learned positions; it returns its cache."""
    return _model("GPT2LMHeadModel", "GPT2Config", vocab_size=100, n_embd=64, n_layer=2, n_head=4, n_positions=64)


def llama() -> Any:
    """Make a decoder with rotary positions; it returns its cache."""
    return _model("LlamaForCausalLM", "LlamaConfig", vocab_size=100, num_key_value_heads=2, **SMALL)


def qwen2() -> Any:
    """Make a decoder without a cache."""
    return _model("Qwen2ForCausalLM", "Qwen2Config", vocab_size=100, num_key_value_heads=2, use_cache=False, **SMALL)


def opt() -> Any:
    """Make a decoder that derives positions from its mask."""
    return _model(
        "OPTForCausalLM",
        "OPTConfig",
        vocab_size=100,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=128,
        word_embed_proj_dim=64,
        max_position_embeddings=64,
    )


def t5() -> Any:
    """Make an encoder of relative positions."""
    return _model(
        "T5EncoderModel", "T5Config", vocab_size=100, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4
    )


def vit() -> Any:
    """Make a classifier of images."""
    return _model("ViTForImageClassification", "ViTConfig", image_size=64, patch_size=16, **SMALL)


# --- inputs ---------------------------------------------------------------------------------------------------------


def tokens() -> tuple[Any, ...]:
    """Make the token numbers of two texts, of twelve tokens each."""
    return (torch.randint(2, 10, (2, 12)),)


def photographs() -> tuple[Any, ...]:
    """Make what a detector takes: a list of images of any sizes."""
    return ([torch.rand(3, 96, 128), torch.rand(3, 96, 96)],)


def two_frames() -> tuple[Any, ...]:
    """Make what a model of optical flow takes: two batches of images."""
    return torch.rand(1, 3, 128, 128) * 2 - 1, torch.rand(1, 3, 128, 128) * 2 - 1
