"""Every model of the installed torchvision: classification, segmentation, detection, video, optical flow, quantization.

Weights are random, inputs small, and no gradients are computed. Held out are other images, and another batch size.
"""

import torch

from recapture import case_for_each

KINDS = ("detection", "optical_flow", "quantization", "segmentation", "video")
LARGE = ("maxvit", "s3d", "vit_")
"""Beginnings of the names of models that need images of 224×224."""


def names():
    """Return the names of all models."""
    import torchvision

    return torchvision.models.list_models()


def kind_of(name):
    """Return the kind of a model: the module of torchvision that it is in."""
    import torchvision

    kinds = [kind for kind in KINDS if name in torchvision.models.list_models(getattr(torchvision.models, kind))]
    return kinds[0] if kinds else "classification"


def built(name, kind):
    """Return a model with random weights, for inference."""
    import torchvision

    options = {"weights_backbone": None} if kind in ("detection", "segmentation") else {}
    if kind == "detection":
        options |= detection_options(name)
    if name.endswith(("googlenet", "inception_v3")):
        options |= {"init_weights": False, "aux_logits": False, "transform_input": False}
    model = torchvision.models.get_model(name, weights=None, **options).eval().requires_grad_(False)
    if hasattr(model, "_has_warned"):  # a scripted model warns once that it returns a tuple, and sets this
        model._has_warned = True  # noqa: SLF001 - it has no other name
    return model


def detection_options(name):
    """Return options under which a model of detection is quick, and finds boxes although its weights are random."""
    sizes = {} if name.startswith("ssd") else {"min_size": 64, "max_size": 128}  # else it enlarges images to 800
    if "rcnn" not in name:
        return {**sizes, "score_thresh": 0.0, "topk_candidates": 50, "detections_per_img": 10}
    proposals = {"rpn_pre_nms_top_n_test": 100, "rpn_post_nms_top_n_test": 50}
    return {**sizes, **proposals, "box_score_thresh": 0.0, "box_detections_per_img": 10}


def images(name, kind, batch, low=0.0):
    """Return the arguments for a batch of random images with values from `low` to 1."""
    side = 224 if name.startswith((*LARGE, "mvit")) else 96 if name.endswith("inception_v3") else 64

    def made(*sizes):
        return low + (1 - low) * torch.rand(sizes)

    if kind == "detection":
        return ([made(3, 64, 64 + 16 * number) for number in range(batch)],)
    if kind == "optical_flow":
        return made(batch, 3, 128, 128), made(batch, 3, 128, 128)
    if kind == "video":
        return (made(batch, 3, 8 if side == 64 else 16, side, side),)
    return (made(batch, 3, side, side),)


@case_for_each(names=names, requires=("torchvision",))
def model(name):
    """Return one model as a case."""
    kind = kind_of(name)

    def build(self):
        torch.nn.Module.__init__(self)
        self.model = built(name, kind)
        self.eval()

    def forward(self, images):
        return self.model(images)

    def forward_list(self, images: list[torch.Tensor]):  # `jit.script` takes what has no annotation for a tensor
        return self.model(images)

    def forward_two(self, first, second):
        return self.model(first, second)

    forwards = {"detection": forward_list, "optical_flow": forward_two}
    body = {"__init__": build, "forward": forwards.get(kind, forward)}
    target = type(name, (torch.nn.Module,), body)
    target.__doc__ = f"A model of torchvision for {kind.replace('_', ' ')}."
    return {
        "target": target,
        "example": lambda: images(name, kind, 2),
        "held_out": [lambda: images(name, kind, 2, low=-1.0), lambda: images(name, kind, 3)],
        "backward": False,
    }
