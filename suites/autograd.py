"""Gradients: Functions with a backward of their own, hooks, higher derivatives, and where gradients stop."""

import torch
from torch.nn import functional

from recapture import case


class StraightThrough(torch.autograd.Function):
    """Round, and pass gradients through as if nothing had been rounded."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@case(
    example=lambda: (torch.tensor([0.2, 1.7], requires_grad=True),),
    held_out=[lambda: (torch.tensor([-3.4, 0.6], requires_grad=True),)],
)
def straight_through_rounding(x):
    """Rounds with a Function that passes gradients through: derived from the operators, the gradient would be zero."""
    return StraightThrough.apply(x * 2) * 3


class ReverseGradient(torch.autograd.Function):
    """Give the argument back, and scale its gradient by a negative number."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.scale * gradient, None


@case(
    example=lambda: (torch.tensor([1.0, 2.0], requires_grad=True), 0.5),
    held_out=[
        lambda: (torch.tensor([1.0, 2.0], requires_grad=True), 2.0),
        lambda: (torch.tensor([3.0, 4.0], requires_grad=True), -1.0),
    ],
)
def reverses_gradients(x, scale: float):
    """Reverses gradients, scaled by a Python number that `forward` keeps in its context for `backward`."""
    return ReverseGradient.apply(x, scale) * 2


class OnlyWhatIsNeeded(torch.autograd.Function):
    """Multiply, with gradients for those factors alone that need one; they are 10 times the true ones."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, gradient):
        x, y = ctx.saved_tensors
        for_x = gradient * y * 10 if ctx.needs_input_grad[0] else None
        for_y = gradient * x * 10 if ctx.needs_input_grad[1] else None
        return for_x, for_y


@case(
    example=lambda: (torch.tensor([2.0, 3.0], requires_grad=True), torch.tensor([4.0, 5.0])),
    held_out=[
        lambda: (torch.tensor([2.0, 3.0]), torch.tensor([4.0, 5.0], requires_grad=True)),
        lambda: (torch.tensor([2.0, 3.0], requires_grad=True), torch.tensor([4.0, 5.0], requires_grad=True)),
    ],
)
def other_argument_needs_a_gradient(x, y):
    """Asks `ctx.needs_input_grad` in a backward: later the other argument, then both need gradients."""
    return OnlyWhatIsNeeded.apply(x, y)


class DoubleInPlace(torch.autograd.Function):
    """Double a tensor in place, and say so with `mark_dirty`; its gradient is passed on unchanged."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@case(
    example=lambda: (torch.tensor([1.0, 2.0], requires_grad=True),),
    held_out=[lambda: (torch.tensor([-3.0, 4.0], requires_grad=True),)],
)
def function_that_writes_in_place(x):
    """Applies a Function that changes its argument in place and marks it as dirty."""
    y = x + 1
    z = DoubleInPlace.apply(y)
    return y + z


class Largest(torch.autograd.Function):
    """Give the largest element, and where it is, as a float that has no gradient."""

    @staticmethod
    def forward(ctx, x):
        place = x.argmax()
        ctx.save_for_backward(place)
        ctx.size = x.shape[0]
        where = place.to(x.dtype)
        ctx.mark_non_differentiable(where)
        return x.max(), where

    @staticmethod
    def backward(ctx, gradient, _):
        (place,) = ctx.saved_tensors
        return torch.nn.functional.one_hot(place, ctx.size).to(gradient.dtype) * gradient * 3


@case(
    example=lambda: (torch.tensor([1.0, 5.0], requires_grad=True),),
    held_out=[lambda: (torch.tensor([7.0, 5.0], requires_grad=True),)],
)
def result_without_a_gradient(x):
    """Applies a Function that marks one of two results as not differentiable: that one must not require grad."""
    value, where = Largest.apply(x)
    return value, where


class OneOfTwo(torch.autograd.Function):
    """Give two multiples of a tensor, and tell by their gradients which of them were used."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, first, second):
        if second is None:
            return first * 100
        if first is None:
            return second * 1000
        return first + second


@case(
    example=lambda: (torch.tensor([1.0, 2.0], requires_grad=True), 0),
    held_out=[
        lambda: (torch.tensor([1.0, 2.0], requires_grad=True), 1),
        lambda: (torch.tensor([1.0, 2.0], requires_grad=True), 0),
    ],
)
def unused_result_has_no_gradient(x, which: int):
    """Uses one of two results of a Function: with `set_materialize_grads(False)` the other's gradient is None."""
    return OneOfTwo.apply(x)[which]


@case(
    example=lambda: (torch.tensor([1.0, 2.0], requires_grad=True),),
    held_out=[lambda: (torch.tensor([-2.0, 3.0], requires_grad=True),)],
)
def gradient_as_result(x):
    """Returns the gradient of an energy with `torch.autograd.grad`: forces, as in molecular models."""
    energy = (x**2 + torch.sin(x)).sum()
    (force,) = torch.autograd.grad(energy, x)
    return -force


@case(
    example=lambda: (torch.tensor([1.0, 2.0], requires_grad=True),),
    held_out=[lambda: (torch.tensor([-2.0, 3.0], requires_grad=True),)],
)
def gradient_penalty(x):
    """Returns a penalty on a gradient (`create_graph=True`): its backward is a second derivative."""
    (slope,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return (slope**2).sum()


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([-1.0, 4.0]),)],
)
def local_leaf(x):
    """Makes a leaf of its own with `detach().requires_grad_()` and differentiates with respect to it."""
    leaf = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad((leaf.exp() * leaf).sum(), leaf)
    return slope


@case(
    example=lambda: (torch.tensor([1.0, 2.0], requires_grad=True),),
    held_out=[lambda: (torch.tensor([3.0, -4.0], requires_grad=True),)],
    backward=False,
)
def backward_inside(x):
    """Calls `backward` inside and returns a copy of the gradient that it left on the argument."""
    (x * x * 3).sum().backward()
    return x.grad.clone()


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([-1.0, 4.0]),)],
)
def jacobian_inside(x):
    """Returns a Jacobian matrix of `torch.autograd.functional.jacobian`."""
    return torch.autograd.functional.jacobian(lambda t: t**2 + t.sum(), x)


@case(
    example=lambda: (torch.tensor([1.0, 2.0], requires_grad=True), 1.0),
    held_out=[
        lambda: (torch.tensor([30.0, 2.0], requires_grad=True), 1.0),
        lambda: (torch.tensor([30.0, 2.0], requires_grad=True), 5.0),
    ],
)
def hook_clips_a_gradient(x, limit: float):
    """Registers a hook that clips to a limit from the call: the hook is a closure over an argument."""
    y = x * 1
    y.register_hook(lambda gradient: gradient.clamp(max=limit))
    return y * y


@case(
    example=lambda: (torch.tensor([1.0, 2.0], requires_grad=True),),
    held_out=[lambda: (torch.tensor([3.0, -1.0], requires_grad=True),)],
)
def detach_in_place(x):
    """Detaches an intermediate with `detach_`: only the other path carries a gradient."""
    y = torch.sin(x)
    y.detach_()
    return y * x


@case(
    example=lambda: (torch.tensor([1.0, 2.0], requires_grad=True),),
    held_out=[lambda: (torch.tensor([3.0, -1.0], requires_grad=True),)],
    rewrite_of=detach_in_place,
)
def detached_copy(x):
    """The functional form of `detach_`: the detached tensor is another one."""
    return torch.sin(x).detach() * x


@case(
    example=lambda: (torch.tensor([1.0, 2.0], requires_grad=True),),
    held_out=[lambda: (torch.tensor([3.0, -1.0], requires_grad=True),)],
)
def norm_under_no_grad(x):
    """Computes a norm under `no_grad` and divides by it: the norm counts as a constant."""
    with torch.no_grad():
        norm = (x * x).sum()
    return x / (norm + 1)


@case(
    example=lambda: (torch.tensor([1.0, 2.0], requires_grad=True),),
    held_out=[lambda: (torch.tensor([3.0, 4.0], requires_grad=True),)],
)
def enable_grad_inside_no_grad(x):
    """Switches gradients on again inside `no_grad`: of the two results one requires grad."""
    with torch.no_grad():
        off = x * 2
        with torch.enable_grad():
            on = x * 3
    return off, on


@torch.no_grad()
def teacher(x):
    """Give a target that no gradient flows through."""
    return torch.tanh(x * 2)


@case(
    example=lambda: (torch.tensor([1.0, 2.0], requires_grad=True),),
    held_out=[lambda: (torch.tensor([3.0, -0.5], requires_grad=True),)],
)
def calls_a_no_grad_function(x):
    """Calls a function that is decorated with `@torch.no_grad()`, as a teacher network is."""
    return (x - teacher(x)) ** 2


@case(
    example=lambda: (torch.tensor([1.0, 2.0], requires_grad=True), True),
    held_out=[
        lambda: (torch.tensor([1.0, 2.0], requires_grad=True), False),
        lambda: (torch.tensor([3.0, 2.0], requires_grad=True), True),
    ],
)
def gradients_by_argument(x, train: bool):
    """Sets the gradient mode by an argument, `set_grad_enabled(train)`: later the result must not require grad."""
    with torch.set_grad_enabled(train):
        y = x * x
    return y * 2


@case(
    example=lambda: (torch.tensor([1.0, 2.0], requires_grad=True),),
    held_out=[lambda: (torch.tensor([5.0, -2.0], requires_grad=True),)],
)
def gradient_through_a_view(x):
    """Writes into one element of a copy through a view: the gradient must know that its old value is gone."""
    y = x.clone()
    y[0] = y[1] * 4
    return y * y


@case(
    example=lambda: (torch.tensor([1.0, 2.0], requires_grad=True), 2.0, False),
    held_out=[lambda: (torch.tensor([1.0, 2.0], requires_grad=True), 2.0, True)],
)
def overwrites_a_saved_tensor(x, factor: float, overwrite: bool):
    """Overwrites a tensor that a backward still needs: eager notices it, and the backward is a RuntimeError."""
    y = x.exp()
    z = y * y
    if overwrite:
        y.mul_(factor)
    return z


@case(
    example=lambda: (torch.tensor([1.0, 2.0], requires_grad=True),),
    held_out=[lambda: (torch.tensor([1.4, -2.6], requires_grad=True),)],
)
def saved_tensors_are_rounded(x):
    """Rounds what is saved for the backward with `saved_tensors_hooks`: the gradient is that of rounded values."""
    with torch.autograd.graph.saved_tensors_hooks(torch.round, lambda saved: saved):
        return x.pow(2)


class SetUpContext(torch.autograd.Function):
    """Take a cube; `setup_context` saves the argument, apart from `forward`. The gradient is negated."""

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return -3 * x**2 * gradient


@case(
    example=lambda: (torch.tensor([1.0, 2.0], requires_grad=True),),
    held_out=[lambda: (torch.tensor([-1.5, 0.0], requires_grad=True),)],
)
def function_with_setup_context(x):
    """Applies a Function in the newer form, with `setup_context` apart from `forward`."""
    return SetUpContext.apply(x) + 1


@case(
    example=lambda: (torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0], requires_grad=True)),
    held_out=[lambda: (torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([-3.0, 4.0], requires_grad=True))],
)
def result_that_ignores_an_argument(x, y):
    """Uses one argument on one path alone: on the other its gradient is None, and not zero."""
    if y.sum() > 3:
        return x * y
    return x * 2


def images(count, size=4, layout=torch.channels_last):
    """Give images of eight channels, with the elements of a pixel next to each other by default."""
    values = torch.linspace(-2, 2, count * 8 * size * size)[torch.randperm(count * 8 * size * size)]
    return values.reshape(count, 8, size, size).contiguous(memory_format=layout).requires_grad_()


@case(
    example=lambda: (images(2),),
    held_out=[lambda: (images(3),), lambda: (images(2, layout=torch.contiguous_format),), lambda: (images(2, 5),)],
)
def normalizes_pooled_images(x):
    """Pools each channel to one number and normalizes these, as the heads of many networks for images do."""
    return functional.layer_norm(functional.adaptive_avg_pool2d(x, 1).flatten(1), (8,))


@case(
    example=lambda: (images(2), torch.randn(8, 8, 1, 1, requires_grad=True)),
    held_out=[lambda: (images(3), torch.randn(8, 8, 1, 1, requires_grad=True))],
)
def normalizes_a_pooled_convolution(x, weight):
    """Normalizes the channels of a pooled convolution where they are, as ConvNeXt does before its last layer."""
    pooled = functional.adaptive_avg_pool2d(functional.conv2d(x, weight), 1)
    return functional.layer_norm(pooled.permute(0, 2, 3, 1), (8,)).flatten(1)


@case(
    example=lambda: (torch.tensor([1, 1, 2]), torch.randn(4, 64, requires_grad=True)),
    held_out=[
        lambda: (torch.tensor([3, 0, 3, 3]), torch.randn(4, 64, requires_grad=True)),
        lambda: (torch.tensor([0, 1, 2]), torch.randn(4, 64, requires_grad=True)),
    ],
)
def embeds_a_token_twice(tokens, table):
    """Looks up vectors in a table: the gradient of a vector adds up over all places at which its token occurs."""
    return functional.embedding(tokens, table)
