"""One model of each family of the installed timm (a family is a file of it): the smallest, by its name.

Weights are random, and no gradients are computed. Images have the size that the model is made for, except for three
models that would take minutes. Held out are other images, and another batch size.
"""

import torch

from recapture import case_for_each

SMALL = ("femto", "pico", "atto", "nano", "tiny", "small", "_s", "xxs", "_xs", "18", "_0")
"""Parts of the names of small models, the smallest first."""

LARGE_IMAGES = {"gemma4_vit_167m": {}, "mobilenetv5_300m": {}, "samvit_base_patch16": {"img_size": 256}}
"""Models whose own images, of 768×768 or more, take minutes on one core, and timm's options for 256×256 instead."""


def of_each_family():
    """Return the name of a small model of each family."""
    import timm

    families = (timm.list_models(module=family) for family in timm.list_modules())
    return sorted({min(family, key=size) for family in families if family})


def names():
    """Return the names of the models that get images of the size they are made for."""
    return [name for name in of_each_family() if name not in LARGE_IMAGES]


def names_with_large_images():
    """Return the names of the other models."""
    return [name for name in of_each_family() if name in LARGE_IMAGES]


def size(name):
    """Return a sort key that puts small models first."""
    return next((place for place, part in enumerate(SMALL) if part in name), len(SMALL)), len(name), name


def images(name, batch, low=0.0):
    """Return a batch of random images of the size that the model is made for, with values from `low` to 1."""
    import timm

    found = timm.get_pretrained_cfg(name)
    sizes = (3, 224, 224) if found is None else found.input_size
    return (low + (1 - low) * torch.rand(batch, *sizes),)


@case_for_each(names=names, requires=("timm",))
def model(name):
    """Return one model as a case."""

    def build(self):
        import timm

        torch.nn.Module.__init__(self)
        self.model = timm.create_model(name, pretrained=False).eval().requires_grad_(False)
        self.eval()

    def forward(self, images):
        return self.model(images)

    target = type(name, (torch.nn.Module,), {"__init__": build, "forward": forward})
    target.__doc__ = "A model of timm."
    return {
        "target": target,
        "example": lambda: images(name, 2),
        "held_out": [lambda: images(name, 2, low=-1.0), lambda: images(name, 3)],
        "backward": False,
    }


@case_for_each(names=names_with_large_images, requires=("timm",))
def model_with_smaller_images(name):
    """Return one of the models with large images as a case that ends in seconds.

    It changes what `model` returns, so that the other cases, and their results, stay as they are.
    """

    def build(self):
        import timm

        torch.nn.Module.__init__(self)
        self.model = timm.create_model(name, pretrained=False, **LARGE_IMAGES[name]).eval().requires_grad_(False)
        self.eval()

    def smaller(batch, low=0.0):
        return (low + (1 - low) * torch.rand(batch, 3, 256, 256),)

    options = model(name)
    target = type(name, (options["target"],), {"__init__": build})
    target.__doc__ = "A model of timm."
    return {
        **options,
        "target": target,
        "example": lambda: smaller(2),
        "held_out": [lambda: smaller(2, low=-1.0), lambda: smaller(3)],
    }
