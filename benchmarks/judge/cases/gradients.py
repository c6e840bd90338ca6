"""Cases with gradients: inputs and parameters, custom Functions, hooks, and parts under no_grad and enable_grad."""

import torch
from torch import nn

from recapture import case


def leaf(*shape):
    return torch.randn(*shape).requires_grad_()


@case(example=lambda: (leaf(4, 3),), held_out=[lambda: (leaf(4, 3),), lambda: (leaf(2, 3),)])
def doubled(x):
    """Doubles an input that needs a gradient."""
    return x * 2


@case(example=lambda: (leaf(3), leaf(3)), held_out=[lambda: (leaf(3), leaf(3))])
def product(x, y):
    """Multiplies two inputs: the gradient of each is the other."""
    return x * y


@case(example=lambda: (leaf(3), torch.randn(3)), held_out=[lambda: (leaf(3), torch.randn(3))])
def one_of_two(x, y):
    """Only one of two inputs needs a gradient."""
    return x * y + y


@case(example=lambda: (leaf(4),), held_out=[lambda: (leaf(4),)])
def two_results(x):
    """Returns two results with gradients, and one without."""
    return x * 3, x.square(), x.detach() * 2


@case(example=lambda: (leaf(4),), held_out=[lambda: (leaf(4),)])
def partly_without(x):
    """Multiplies with a factor that was computed under no_grad."""
    with torch.no_grad():
        y = x * 2
    return x * y


@case(example=lambda: (leaf(4),), held_out=[lambda: (leaf(4),)])
def enabled_inside(x):
    """Adds a part that enable_grad differentiates inside no_grad."""
    with torch.no_grad(), torch.enable_grad():
        y = x * 3
    return x + y


@case(example=lambda: (leaf(4),), held_out=[lambda: (leaf(4),)])
def detached_part(x):
    """Multiplies with a detached copy."""
    return x * x.detach()


@case(example=lambda: (leaf(4),), held_out=[lambda: (leaf(4),)])
def hooked(x):
    """Registers a hook that multiplies a gradient by ten."""
    y = x * 2
    y.register_hook(lambda gradient: gradient * 10)
    return y + 1


class Clamped(torch.autograd.Function):
    """The identity, whose gradient is a hundredth of the right one."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient / 100


@case(example=lambda: (leaf(4),), held_out=[lambda: (leaf(4),)])
def custom_function(x):
    """Uses a custom Function whose backward is not the derivative of its forward."""
    return Clamped.apply(x) * 2


@case(example=lambda: (leaf(4),), held_out=[lambda: (leaf(4),)])
def backward_inside(x):
    """Runs a backward itself, and leaves a gradient in its argument."""
    (x * x).sum().backward()
    return x.detach() + 1


@case(example=lambda: (leaf(4),), held_out=[lambda: (leaf(4),)])
def returns_its_gradient(x):
    """Returns a gradient that it computes."""
    return torch.autograd.grad((x.sin() * x).sum(), x)[0]


@case(example=lambda: (torch.randn(2, 3),), held_out=[lambda: (torch.randn(5, 3),)])
class Affine(nn.Module):
    """A linear layer in training: gradients of weight and bias."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        return self.linear(x)


@case(example=lambda: (leaf(2, 3),), held_out=[lambda: (leaf(2, 3),)])
class Perceptron(nn.Module):
    """Two layers, with one parameter that is not used and one that needs no gradient."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 1)
        self.unused = nn.Parameter(torch.ones(2))
        self.second.bias.requires_grad_(False)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


@case(example=lambda: (torch.randn(4, 3), torch.randn(4, 1)), held_out=[lambda: (torch.randn(4, 3), torch.randn(4, 1))])
class TrainingStep(nn.Module):
    """Computes a loss, runs its backward and takes a step of an optimizer."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.linear.parameters(), lr=0.1, momentum=0.9)

    def forward(self, x, target):
        self.optimizer.zero_grad()
        loss = (self.linear(x) - target).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


@case(
    example=lambda: (torch.randn(3, dtype=torch.complex64).requires_grad_(),),
    held_out=[lambda: (torch.randn(2, dtype=torch.complex64).requires_grad_(),)],
)
def complex_product(z):
    """Multiplies complex numbers, whose gradients are complex."""
    return z * (2 - 1j)


@case(example=lambda: (leaf(3),), held_out=[lambda: (leaf(3),)])
def sparse_result(x):
    """Returns a sparse tensor."""
    return torch.sparse_coo_tensor(torch.tensor([[0, 2, 3]], device=x.device), x * 2, (5,))


@case(example=lambda: (leaf(3).double(),), held_out=[lambda: (torch.randn(3, dtype=torch.float64).requires_grad_(),)])
def from_a_node(x):
    """Its argument may be no leaf."""
    return x.exp()


@case(example=lambda: (leaf(3),), held_out=[lambda: (leaf(3),)], backward=False)
def no_backward(x):
    """Asks for no backward after the call."""
    return x * 5


@case(example=lambda: (torch.tensor([1, 2, 2]),), held_out=[lambda: (torch.tensor([0, 0, 3]),)])
class Embedded(nn.Module):
    """Looks rows up in a table, whose gradient is zero in most rows."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 2)

    def forward(self, index):
        return self.table(index)
