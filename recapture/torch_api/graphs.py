"""The graphs that compilers capture, as numbers of operators and as text, on every supported release."""

from __future__ import annotations

import contextlib
import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

CALLS = ("call_function", "call_method", "call_module")
"""Kinds of nodes of an FX graph that compute something."""


@contextmanager
def graphs_of_dynamo(seen: Callable[[Any], object]) -> Iterator[None]:
    """Call `seen` with every FX graph that Dynamo hands to a backend.

    It is ``OutputGraph.call_user_compiler`` that hands it over, from 2.0.1 to 2.15.0. A release without it shows none.
    """
    try:
        kind: Any = importlib.import_module("torch._dynamo.output_graph").OutputGraph
        hand_over = kind.call_user_compiler
    except Exception:  # torch._dynamo cannot be imported, or has another form: the graphs are unknown
        yield
        return

    def hand_over_and_tell(self: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
        seen(graph)
        return hand_over(self, graph, *args, **kwargs)

    kind.call_user_compiler = hand_over_and_tell
    try:
        yield
    finally:
        kind.call_user_compiler = hand_over


@contextmanager
def exports(seen: Callable[[Any], object]) -> Iterator[None]:
    """Call `seen` with every program that ``torch.export.export`` returns; nothing is seen on 2.0."""
    import torch

    place: Any = getattr(torch, "export", None)
    original = getattr(place, "export", None)
    with ExitStack() as stack:
        if original is not None:

            def export_and_tell(*args: Any, **kwargs: Any) -> Any:
                program = original(*args, **kwargs)
                seen(program)
                return program

            place.export = export_and_tell
            stack.callback(setattr, place, "export", original)
        yield


def operators_of(captured: Any) -> dict[str, int] | None:
    """Return how often a captured callable or program has each operator; None if it shows no graph."""
    graph = _fx_graph(captured)
    if graph is not None:
        names = [_name(node, captured) for node in graph.nodes if node.op in CALLS]
        return dict(sorted(Counter(names).items()))
    script = _script_graph(captured)
    if script is None:
        return None
    counts: Counter[str] = Counter()
    _count(script, counts)
    return dict(sorted(counts.items()))


def _fx_graph(captured: Any) -> Any:
    import torch.fx

    graph = getattr(captured, "graph", None)
    return graph if isinstance(graph, torch.fx.Graph) else None


def _script_graph(captured: Any) -> Any:
    graph: Any = getattr(captured, "inlined_graph", None)
    return graph if hasattr(graph, "nodes") and callable(graph.nodes) else None


def _name(node: Any, captured: Any) -> str:
    """Return the name of a node's operator: ``aten.sin.default``, ``sin``, ``.sum`` for a method, a module's class."""
    target = node.target
    if node.op == "call_method":
        return f".{target}"
    if node.op == "call_module":
        try:
            return type(captured.get_submodule(target)).__name__
        except Exception:  # a graph without its module
            return str(target)
    if hasattr(target, "overloadpacket"):
        return str(target)
    return str(getattr(target, "__name__", target))


def _count(graph: Any, counts: Counter[str]) -> None:
    """Count the operators of a TorchScript graph, those of its branches and loops included; constants are none."""
    for node in graph.nodes():
        kind = str(node.kind())
        if kind.partition("::")[0] != "prim" or kind in ("prim::If", "prim::Loop", "prim::CallFunction"):
            counts[kind] += 1
        for block in node.blocks():
            _count(block, counts)


def graph_text(graph: Any) -> str:
    """Return an FX graph module as Python text with the shapes of its values, where the release prints them."""
    with contextlib.suppress(Exception):  # 2.0 has no such argument; a user's module may raise anything
        text = graph.print_readable(print_output=False)
        if isinstance(text, str):
            return text
    return str(getattr(graph, "code", graph))


def texts_of(captured: Any) -> dict[str, str]:
    """Return what a captured callable or program can show of itself as texts, by file name."""
    makers: dict[str, Callable[[], str]] = {}
    if _fx_graph(captured) is not None and hasattr(captured, "code"):
        makers["fx_code.py"] = lambda: graph_text(captured)
        makers["fx_graph.txt"] = lambda: str(captured.graph)
    elif hasattr(captured, "graph_signature"):
        makers["exported_program.txt"] = lambda: str(captured)
    elif _script_graph(captured) is not None:
        makers["torchscript_graph.txt"] = lambda: str(captured.inlined_graph)
        makers["torchscript_code.py"] = lambda: str(captured.code)
    texts = {}
    for name, make in makers.items():
        try:
            texts[name] = make()
        except Exception as error:  # a part that cannot be shown, such as the code of a module without forward
            texts[name] = f"cannot be shown: {type(error).__name__}\n"
    return texts
