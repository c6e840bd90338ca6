"""Modules: parameters, buffers, hooks, modes and attributes that a call reads or changes."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize

from recapture import case


@case(
    example=lambda: (torch.randn(6, 3), True),
    held_out=[lambda: (torch.randn(6, 3) + 3, False), lambda: (torch.rand(6, 3), True)],
)
class NormModeByArgument(nn.Module):
    """Switches batch normalisation between training and evaluation by an argument of each call."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x, train: bool):
        self.norm.train(train)
        return self.norm(x)


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.ones(2),), lambda: (torch.zeros(2),)],
)
class LeavesTrainingMode(nn.Module):
    """Calls `eval()` on itself in the first call, which ran in training mode: the second takes the other path."""

    def forward(self, x):
        if self.training:
            self.eval()
            return x * 2
        return x - 1


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.full((2,), 2.0),), lambda: (torch.full((2,), 4.0),)],
)
class RebindsItsBuffer(nn.Module):
    """Assigns a new tensor to its buffer at each call instead of writing into the old one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x):
        self.total = self.total + x
        return self.total * 1


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.full((2,), 5.0),), lambda: (torch.full((2,), 7.0),)],
)
class RemembersTheLastInput(nn.Module):
    """Keeps its last argument in a plain attribute, which is None before the first call."""

    def __init__(self):
        super().__init__()
        self.last = None

    def forward(self, x):
        change = x if self.last is None else x - self.last
        self.last = x.clone()
        return change


@case(
    example=lambda: (torch.ones(3),),
    held_out=[lambda: (torch.ones(5),), lambda: (torch.full((5,), 2.0),)],
)
class CachesATable(nn.Module):
    """Builds a table for a length and keeps it until the length changes, as rotary embeddings do."""

    def __init__(self):
        super().__init__()
        self.table = None

    def forward(self, x):
        if self.table is None or self.table.shape[0] != x.shape[0]:
            self.table = torch.linspace(0, 1, x.shape[0], device=x.device)
        return x + self.table


@case(
    example=lambda: (torch.ones(2), False),
    held_out=[lambda: (torch.ones(2), True), lambda: (torch.zeros(2), False)],
)
class SwapsASubmodule(nn.Module):
    """Assigns another submodule to an attribute by an argument: the capture may hold on to the first."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.second = nn.Tanh()
        self.active = self.first

    def forward(self, x, other: bool):
        self.active = self.second if other else self.first
        return self.active(x)


@case(
    example=lambda: (torch.tensor([-1.0, 2.0]), "relu"),
    held_out=[lambda: (torch.tensor([-1.0, 2.0]), "tanh"), lambda: (torch.tensor([-3.0, 0.5]), "relu")],
)
class SubmoduleByName(nn.Module):
    """Picks a module from an `nn.ModuleDict` with a string that the caller gives."""

    def __init__(self):
        super().__init__()
        self.activations = nn.ModuleDict({"relu": nn.ReLU(), "tanh": nn.Tanh()})

    def forward(self, x, name: str):
        return self.activations[name](x)


@case(
    example=lambda: (torch.ones(2), 1),
    held_out=[lambda: (torch.ones(2), 3), lambda: (torch.ones(2), 0)],
)
class DepthByArgument(nn.Module):
    """Runs through the first layers of an `nn.ModuleList`: how many the caller says."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))

    def forward(self, x, depth: int):
        for layer in self.layers[:depth]:
            x = torch.tanh(layer(x))
        return x


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.tensor([3.0, -1.0]),)],
)
class HookOnItself(nn.Module):
    """Has a hook that changes its own argument before each call, and one that changes its result."""

    def __init__(self):
        super().__init__()
        self.register_forward_pre_hook(lambda module, arguments: (arguments[0] + 1,))
        self.register_forward_hook(lambda module, arguments, result: -result)

    def forward(self, x):
        return x * 2


@case(
    example=lambda: (torch.ones(2), False),
    held_out=[lambda: (torch.ones(2), True), lambda: (torch.zeros(2), False)],
)
class AddsAHookLater(nn.Module):
    """Registers a hook on a submodule in a later call: from then on each call must run it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x, hooked: bool):
        if hooked:
            self.layer.register_forward_hook(lambda module, arguments, result: result + 100)
        return self.layer(x)


@case(
    example=lambda: (torch.ones(1, 2, requires_grad=True),),
    held_out=[lambda: (torch.tensor([[3.0, -1.0]], requires_grad=True),)],
)
class BackwardHook(nn.Module):
    """Has a full backward hook on a submodule that scales the gradient of its argument."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.layer.register_full_backward_hook(lambda module, given, received: tuple(one * 10 for one in given))

    def forward(self, x):
        return self.layer(x * 2)


class Symmetric(nn.Module):
    """Make a matrix symmetric."""

    def forward(self, weight):
        return weight.triu() + weight.triu(1).t()


@case(
    example=lambda: (torch.randn(2, 3),),
    held_out=[lambda: (torch.rand(2, 3),)],
)
class ParametrizedWeight(nn.Module):
    """Computes its weight from another parameter at each access: `torch.nn.utils.parametrize`."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        parametrize.register_parametrization(self.layer, "weight", Symmetric())

    def forward(self, x):
        return self.layer(x)


@case(
    example=lambda: (torch.randn(2, 3),),
    held_out=[lambda: (torch.rand(2, 3),), lambda: (torch.randn(2, 3),)],
)
class SpectralNorm(nn.Module):
    """Normalises a weight by an estimate of its norm, which every call in training mode improves in a buffer."""

    def __init__(self):
        super().__init__()
        self.layer = parametrizations.spectral_norm(nn.Linear(3, 2))

    def forward(self, x):
        return self.layer(x)


@case(
    example=lambda: (torch.randn(2, 3),),
    held_out=[lambda: (torch.rand(2, 3),)],
)
class TiedWeights(nn.Module):
    """Uses one parameter in two layers: its gradient is the sum over both uses."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(3, 3, bias=False)
        self.decoder = nn.Linear(3, 3, bias=False)
        self.decoder.weight = self.encoder.weight

    def forward(self, x):
        return self.decoder(torch.tanh(self.encoder(x)))


@case(
    example=lambda: (torch.randn(2, 2), False),
    held_out=[lambda: (torch.randn(2, 2), True), lambda: (torch.randn(2, 2), False)],
)
class FreezesALayer(nn.Module):
    """Freezes a layer by an argument (`requires_grad_`): later it must get no gradient, then one again."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(2, 2)
        self.head = nn.Linear(2, 1)

    def forward(self, x, freeze: bool):
        self.body.requires_grad_(not freeze)
        return self.head(self.body(x))


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.ones(2),), lambda: (torch.zeros(2),)],
)
class DecaysItsWeight(nn.Module):
    """Halves its own parameter under `no_grad` at each call, after it was used."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((2,), 8.0))

    def forward(self, x):
        y = x + self.weight.detach()
        with torch.no_grad():
            self.weight.mul_(0.5)
        return y


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.full((2,), 3.0),)],
)
class ReturnsItsWeight(nn.Module):
    """Returns its parameter itself and a view of it beside a result: whoever writes to them changes the module."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 2))

    def forward(self, x):
        return self.weight @ x, self.weight, self.weight.detach()[0]


@case(
    example=lambda: (torch.randn(2, 2), 0.0),
    held_out=[lambda: (torch.randn(2, 2), 0.5), lambda: (torch.rand(2, 2), 2.0)],
)
class PenaltyOnParameters(nn.Module):
    """Adds a penalty over `self.named_parameters()` except biases, as losses with weight decay do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x, strength: float):
        penalty = sum(one.pow(2).sum() for name, one in self.named_parameters() if "bias" not in name)
        return self.layer(x).sum() + penalty * strength


@case(
    example=lambda: (torch.randn(4, 2),),
    held_out=[lambda: (torch.randn(4, 2) + 5,)],
)
class NormUsedTwice(nn.Module):
    """Holds one batch normalisation under two names and runs it twice: its counter rises by two."""

    def __init__(self):
        super().__init__()
        self.before = nn.BatchNorm1d(2)
        self.after = self.before

    def forward(self, x):
        return self.after(self.before(x) * 2 + 1)


@case(
    example=lambda: (torch.randn(4, 2),),
    held_out=[lambda: (torch.randn(2, 2),), lambda: (torch.randn(1, 2),)],
)
class BatchNormOfOne(nn.Module):
    """Normalises a batch in training mode: a batch of one has no variance and is a ValueError."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(2)

    def forward(self, x):
        return self.norm(x)


@case(
    example=lambda: (torch.randn(4, 2),),
    held_out=[lambda: (torch.randn(4, 2) + 5,), lambda: (torch.randn(4, 2) - 3,)],
)
class CumulativeBatchNorm(nn.Module):
    """Averages over all batches so far (`momentum=None`): the factor is one over a counter in a buffer."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(2, momentum=None)

    def forward(self, x):
        return self.norm(x)


@case(
    example=lambda: (torch.randn(1, 3, 4), True),
    held_out=[lambda: (torch.randn(1, 3, 4), False), lambda: (torch.randn(2, 2, 4), True)],
    codegen_on=("cuda",),
)
class AttentionWeightsOnDemand(nn.Module):
    """Returns attention weights, or None where the caller does not ask for them."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x, weights: bool):
        return self.attention(x, x, x, need_weights=weights)


@case(
    example=lambda: (torch.tensor([0, 2]),),
    held_out=[lambda: (torch.tensor([1, 1]),), lambda: (torch.tensor([3, 0]),)],
)
class EmbeddingWithMaximumNorm(nn.Module):
    """Looks up vectors with `max_norm`: those looked up are scaled down in the weight itself."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4, 2, max_norm=1.0)
        with torch.no_grad():
            self.table.weight.copy_(torch.arange(1.0, 9.0).reshape(4, 2))

    def forward(self, index):
        return self.table(index) * 2


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.tensor([3.0, -1.0]),)],
)
class ForwardReplacedOnAnInstance(nn.Module):
    """Puts another `forward` on one submodule, as adapters and quantisation tools do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        original = self.layer.forward
        self.layer.forward = lambda x: original(x) * 10

    def forward(self, x):
        return self.layer(x) + 1


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.full((2,), 3.0),), lambda: (torch.full((2,), 3.0),)],
)
class BufferOutsideTheStateDict(nn.Module):
    """Counts its calls in a buffer that is not persistent, and divides by the count."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x):
        self.calls += 1
        return functional.relu(x) / self.calls
