"""The examples of the installed torch for `torch.export` (exportdb), each with every compiler.

The release decides which there are, and what they are called: none in torch 2.0; functions in 2.1; modules later.
"""

import ast
import copy
import inspect
import types

import torch

from recapture import case_for_each


def examples():
    """Return torch's own examples by name."""
    from torch._export.db.examples import all_examples

    return all_examples()


def arguments(example, name):
    """Return the arguments of an example, newly made, and the names of those that it takes by keyword."""
    first = getattr(example, "example_args", None)
    given = copy.deepcopy(example.example_inputs if first is None else first)
    keywords = dict(copy.deepcopy(getattr(example, "example_kwargs", None) or {}))
    if type(given).__name__ == "ExportArgs":  # as 2.2 to 2.4 write arguments with keywords
        given, keywords = given.args, {**given.kwargs, **keywords}
    if name == "extra":
        more = getattr(example, "extra_args", None)
        more = copy.deepcopy(getattr(example, "extra_inputs", None) if more is None else more)
        given = getattr(more, "args", more)
        keywords = {**keywords, **getattr(more, "kwargs", {})}
    return (*given, *keywords.values()), tuple(keywords)


def mapped(change, value):
    """Return a value with every tensor in its lists, tuples and dicts changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(mapped(change, one) for one in value)
    return {key: mapped(change, one) for key, one in value.items()} if type(value) is dict else value


def other_values(tensor):
    """Return a tensor with other values: of the other sign, or the other truth."""
    if tensor.dtype == torch.bool:
        return ~tensor
    return -tensor if tensor.is_floating_point() else tensor.clone()


def longer(tensor, dimensions):
    """Return a tensor of the same kind that has one more in some dimensions; a size of 1 stays, for broadcasting."""
    sizes = [size + 1 if place in dimensions and size > 1 else size for place, size in enumerate(tensor.shape)]
    return torch.ones(sizes).to(tensor.dtype) if tensor.dim() else tensor.clone()


def other_sizes(name):
    """Return arguments of other sizes with which eager works: all dimensions longer, or the first one, or none."""
    for dimensions in (range(8), range(1)):
        args, _ = arguments(examples()[name], "")
        args = mapped(lambda tensor, dimensions=dimensions: longer(tensor, dimensions), args)
        call = made(name)
        call = call() if inspect.isclass(call) else call
        try:
            with torch.no_grad():
                call(*copy.deepcopy(args))
        except Exception:  # noqa: S112 - eager does not take these sizes
            continue
        return args
    return mapped(other_values, arguments(examples()[name], "")[0])


def made(name):
    """Return an example as a function or a module class of its name, with every argument by position."""
    example = examples()[name]
    model, (_, keywords) = example.model, arguments(example, "")
    if not isinstance(model, torch.nn.Module):  # the same code under the example's name
        return types.FunctionType(
            model.__code__, model.__globals__, name, model.__defaults__, getattr(model, "__closure__", None)
        )

    def copied(self):
        torch.nn.Module.__init__(self)
        self.__dict__.update(copy.deepcopy(model.__dict__))

    first = len(arguments(example, "")[0]) - len(keywords)

    def forward(self, *args):
        return type(model).forward(self, *args[:first], **dict(zip(keywords, args[first:])))  # noqa: B905 - Python 3.10

    body = {"__init__": copied, "__doc__": type(model).__doc__}
    return type(name, (type(model),), body | ({"forward": forward} if keywords else {}))


def definitions(text):
    """Return the functions and classes of a file of torch, without what names and describes the example.

    That is other from release to release, where the code is the same.
    """
    kept = [node for node in ast.parse(text).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    for node in kept:
        node.decorator_list = []
        node.body = node.body[1:] if ast.get_docstring(node) is not None and node.body[1:] else node.body
    return "\n".join(map(ast.unparse, kept))


@case_for_each(names=lambda: sorted(examples()), since="2.1")
def example(name):
    """Return one example as a case: held out are other values, other sizes, and the inputs that torch adds, if any."""
    one = examples()[name]
    target = made(name)
    said = " ".join((getattr(one, "description", "") or target.__doc__ or "").split())
    level = getattr(getattr(one, "support_level", None), "name", "")
    target.__doc__ = said.split(". ")[0].rstrip(".") + "." + (" torch: not supported." if "NOT" in level else "")
    held_out = [lambda: mapped(other_values, arguments(examples()[name], "")[0]), lambda: other_sizes(name)]
    if getattr(one, "extra_args", None) is not None or getattr(one, "extra_inputs", None) is not None:
        held_out.append(lambda: arguments(examples()[name], "extra")[0])
    code = type(one.model) if isinstance(one.model, torch.nn.Module) else one.model
    return {
        "target": target,
        "example": lambda: arguments(examples()[name], "")[0],
        "held_out": held_out,
        "source": definitions(inspect.getsource(inspect.getmodule(code))),
    }
