"""Random numbers. Every call starts from the same seed, so that eager repeats.

A code generator may draw from a stream of its own: the first cases compare the stream and show who does. The others
compare what must hold for every stream.
"""

import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from recapture import case


@case(
    example=lambda: (torch.ones(16),),
    held_out=[lambda: (torch.full((16,), 2.0),)],
)
def draws_like_its_argument(x):
    """Multiplies by uniform numbers: with the same seed eager gives the same numbers, and Inductor its own."""
    return x * torch.rand_like(x)


@case(
    example=lambda: (torch.ones(4), 3),
    held_out=[lambda: (torch.ones(4), 5)],
)
def draws_as_many_as_asked(x, count: int):
    """Draws as many numbers as an argument says, and returns how many lie between zero and one."""
    drawn = torch.rand(count, device=x.device)
    return x + ((drawn >= 0) & (drawn < 1)).sum()


@case(
    example=lambda: (torch.arange(8.0),),
    held_out=[lambda: (torch.arange(8.0) * 3 - 4,), lambda: (torch.arange(5.0),)],
)
def permutes_and_sorts(x):
    """Permutes its argument at random and sorts it again: every value is there once, whatever the order."""
    shuffled = x[torch.randperm(x.shape[0], device=x.device)]
    return shuffled.sort().values


@case(
    example=lambda: (torch.ones(64, requires_grad=True),),
    held_out=[lambda: (torch.full((64,), 3.0, requires_grad=True),)],
)
def dropout_mask_of_the_gradient(x):
    """Drops values and returns how far the scaled mask is from the values: gradient and result use one mask."""
    dropped = functional.dropout(x, 0.5, training=True)
    mask = (dropped != 0).to(x.dtype) * 2
    return dropped - x * mask.detach()


@case(
    example=lambda: (torch.ones(32),),
    held_out=[lambda: (torch.full((32,), 2.0),), lambda: (torch.zeros(32),)],
)
class DropoutTurnedOff(nn.Module):
    """Dropout with probability zero and then one inside training mode: nothing, then everything is dropped."""

    def __init__(self):
        super().__init__()
        self.none = nn.Dropout(0.0)
        self.all = nn.Dropout(1.0)

    def forward(self, x):
        return self.none(x), self.all(x)


@case(
    example=lambda: (torch.tensor([0.0, 1.0, 0.0, 1.0]),),
    held_out=[lambda: (torch.tensor([1.0, 1.0, 0.0, 0.0]),)],
)
def certain_coin_flips(p):
    """Flips coins whose probabilities are zero and one: the outcome is certain."""
    return torch.bernoulli(p)


@case(
    example=lambda: (torch.tensor([0.0, 0.0, 5.0]),),
    held_out=[lambda: (torch.tensor([2.0, 0.0, 0.0]),)],
)
def certain_choice(weights):
    """Draws indexes by weights of which one alone is not zero."""
    return torch.multinomial(weights, 4, replacement=True)


@case(
    example=lambda: (torch.zeros(3),),
    held_out=[lambda: (torch.ones(3),)],
)
def two_draws_differ(x):
    """Draws twice and asks whether the two draws are equal: merging equal calls would make them so."""
    return x + torch.equal(torch.rand(8, device=x.device), torch.rand(8, device=x.device))


@case(
    example=lambda: (torch.zeros(3), 7),
    held_out=[lambda: (torch.zeros(3), 7), lambda: (torch.ones(3), 8)],
)
def seeds_inside(x, seed: int):
    """Seeds inside and draws: the numbers belong to the seed, and not to what was drawn before."""
    torch.manual_seed(seed)
    return x + torch.rand(3).to(x.device)


@case(
    example=lambda: (torch.zeros(3), 7),
    held_out=[lambda: (torch.zeros(3), 8)],
)
def own_generator(x, seed: int):
    """Draws from a generator of its own, seeded with an argument: the global stream is left alone."""
    generator = torch.Generator().manual_seed(seed)
    return x + torch.rand(3, generator=generator).to(x.device)


@case(
    example=lambda: (torch.zeros(3),),
    held_out=[lambda: (torch.ones(3),)],
)
def state_saved_and_restored(x):
    """Draws, restores the state from before, and draws again: both draws are equal."""
    state = torch.get_rng_state()
    first = torch.rand(3)
    torch.set_rng_state(state)
    return x + (torch.rand(3) - first).to(x.device)


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.ones(2),), lambda: (torch.zeros(2),)],
    reset=lambda: random.seed(3),
)
def python_random_branch(x):
    """Takes one of two paths by a number from Python's `random`: it is drawn at every call anew."""
    return x + 1 if random.random() < 0.4 else x - 1  # noqa: S311


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.ones(2),), lambda: (torch.zeros(2),)],
)
def python_random_seeded(x):
    """Seeds Python's `random` and draws an integer, which a tracer keeps as a constant anyway."""
    random.seed(int(x.shape[0]))
    return x * random.randint(1, 100)  # noqa: S311


@case(
    example=lambda: (torch.ones(3), 5),
    held_out=[lambda: (torch.ones(3), 6)],
)
def numpy_generator(x, seed: int):
    """Draws from a numpy generator that is seeded with an argument."""
    return x + torch.from_numpy(np.random.default_rng(seed).random(3)).to(x)


@case(
    example=lambda: (torch.zeros(4, 3),),
    held_out=[lambda: (torch.zeros(2, 5),)],
)
def initialises_in_place(x):
    """Fills its argument with random numbers in place, and returns which lie in the range."""
    x.uniform_(2, 3)
    inside = (x >= 2) & (x < 3)
    x.zero_()
    return inside
