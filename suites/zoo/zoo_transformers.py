"""Models of the installed transformers, each built from a small configuration with random weights.

No gradients are computed. Held out are other inputs, another batch size and, for text, another length.
"""

import torch

from recapture import case_for_each

TEXT = (
    "albert", "bert", "bloom", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "ernie", "falcon",
    "gemma", "gpt2", "gpt_neo", "gpt_neox", "gptj", "llama", "mistral", "mobilebert", "mpnet", "opt",
    "phi", "qwen2", "roberta", "squeezebert", "xlm-roberta",
)  # fmt: skip
TRANSLATION = ("bart", "marian", "mbart", "pegasus", "t5")
VISION = ("beit", "convnext", "deit", "dinov2", "mobilevit", "poolformer", "resnet", "segformer", "swin", "vit")
SPEECH = ("hubert", "wav2vec2")

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 512,
    "pad_token_id": 0,
}
"""Settings of a small model. A configuration keeps those that it does not know, and they mean nothing there."""

OWN_SIZES = {
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2},
    "gemma": {"head_dim": 16},
    "gptj": {"rotary_dim": 8},
    "mobilebert": {"embedding_size": 64, "intra_bottleneck_size": 64, "true_hidden_size": 64},
    "squeezebert": {"embedding_size": 64},
    "swin": {"window_size": 4, "depths": [2, 2], "num_heads": [2, 4], "embed_dim": 32},
    "t5": {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4},
}
VISION_SIZES = {"image_size": 64}


def names():
    """Return the names of the models that the installed transformers has, as identifiers."""
    from transformers import CONFIG_MAPPING

    return [one.replace("-", "_") for one in (*TEXT, *TRANSLATION, *VISION, *SPEECH) if one in CONFIG_MAPPING]


def kind_of(name):
    """Return a model's name in transformers, and its kind."""
    kinds = {"text": TEXT, "translation": TRANSLATION, "vision": VISION, "speech": SPEECH}
    return next((one, kind) for kind, members in kinds.items() for one in members if one.replace("-", "_") == name)


def built(name):
    """Return a small model with random weights, for inference."""
    from transformers import AutoConfig, AutoModel

    known, kind = kind_of(name)
    hierarchical = known in ("convnext", "mobilevit", "poolformer", "resnet", "segformer", "swin")
    sizes = {} if hierarchical or kind == "translation" else SIZES
    sizes = {**sizes, **(VISION_SIZES if kind == "vision" else {}), **OWN_SIZES.get(known, {})}
    if kind == "translation" and known != "t5":
        sizes = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 128, "vocab_size": 512}
        sizes |= {"decoder_ffn_dim": 128, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "pad_token_id": 0}
    config = AutoConfig.for_model(known, use_cache=False, **sizes)
    return AutoModel.from_config(config).eval().requires_grad_(False)


def inputs(name, batch, length=12, low=0.0):
    """Return the arguments for a batch: words, pairs of sentences, images, or sound."""
    kind = kind_of(name)[1]
    words = [torch.randint(4, 500, (batch, length)) for _ in range(2)]
    if kind == "vision":
        return (low + (1 - low) * torch.rand(batch, 3, 64, 64),)
    if kind == "speech":
        return (low + (1 - low) * torch.rand(batch, 200 * length),)
    return tuple(words) if kind == "translation" else (words[0],)


@case_for_each(names=names, requires=("transformers",))
def model(name):
    """Return one model as a case."""
    kind = kind_of(name)[1]

    def build(self):
        torch.nn.Module.__init__(self)
        self.model = built(name)
        self.eval()

    def forward(self, one):
        return self.model(one).to_tuple()  # a trace cannot return an output of transformers

    def forward_two(self, one, two):
        return self.model(input_ids=one, decoder_input_ids=two).to_tuple()

    body = {"__init__": build, "forward": forward_two if kind == "translation" else forward}
    target = type(name, (torch.nn.Module,), body)
    target.__doc__ = f"A model of transformers for {kind}, from a small configuration."
    held_out = [lambda: inputs(name, 2, low=-1.0), lambda: inputs(name, 3)]
    if kind in ("text", "translation"):
        held_out.append(lambda: inputs(name, 2, length=16))
    return {"target": target, "example": lambda: inputs(name, 2), "held_out": held_out, "backward": False}
