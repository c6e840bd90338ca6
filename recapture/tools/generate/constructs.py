"""The constructs that programs of Python are made of: one row each, as text with places for what is chosen.

A row has a second spelling that means the same, where there is one: what is inlined, unrolled, or written with another
container or function. In a text, `$new` is the tensor that a step makes, `$a` and `$b` are tensors that there are, `$e`
and `$f` expressions of tensors, and `$k` is a small number. All tensors of a program have the shape of its arguments.
"""

from __future__ import annotations

from typing import NamedTuple

from recapture.tools.generate.operands import Operands

EXACT = frozenset({Operands.INTEGERS, Operands.BYTES, Operands.FLOATS})
"""Operands that a program may write into: those that require no gradient."""


class Construct(NamedTuple):
    """One step of a program: its text in two spellings.

    `rewrite` says in which way the second spelling differs; it is empty where there is none. `operands` are those that
    the step is made with.
    """

    name: str
    what: str
    plain: str
    rewritten: str = ""
    rewrite: str = ""
    operands: frozenset[Operands] = frozenset(Operands)

    @property
    def makes_tensor(self) -> bool:
        """Whether the step makes a tensor that later steps can use; others write into one."""
        return "$new" in self.plain


HELPERS = {
    "noted": '''@contextlib.contextmanager
def noted(entered, value):
    """Note that a block is entered, and that it is left."""
    entered.append(value)
    yield
    entered.append(-value)''',
    "Pair": '''@dataclasses.dataclass
class Pair:
    """A tensor and a factor."""

    tensor: torch.Tensor
    factor: int

    @property
    def scaled(self):
        """The product."""
        return self.tensor * self.factor''',
    "helper": '''def helper(left, right=2):
    """Return a combination of two arguments."""
    return left * 2 + right''',
    "Counted": '''class Counted:
    """What it has made, in a list of the class."""

    made = []

    def __init__(self, value):
        self.value = value
        Counted.made.append(self)''',
    "Tripled": '''class Tripled(torch.autograd.Function):
    """Three times its argument."""

    @staticmethod
    def forward(context, value):
        """Return the product."""
        return value * 3

    @staticmethod
    def backward(context, gradient):
        """Return the gradient of the product."""
        return gradient * 3''',
    "tripled": """LIBRARY = torch.library.Library("generated", "FRAGMENT")
if not hasattr(torch.ops.generated, "tripled"):
    LIBRARY.define("tripled(Tensor value) -> Tensor")
    LIBRARY.impl("tripled", lambda value: value * 3, "CompositeExplicitAutograd")
    LIBRARY.impl("tripled", lambda value: torch.empty_like(value), "Meta")""",
    "BLOCK": '''class Block(torch.nn.Module):
    """A module with an attribute, a buffer that counts calls, and two modes."""

    def __init__(self):
        super().__init__()
        self.factor = 2
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, value):
        """Return the argument changed in one of two ways."""
        self.calls += 1
        return value * self.factor if self.training else value - self.factor


BLOCK = Block()''',
    "Bounded": '''class Bounded:
    """A number that is at most nine."""

    highest = 0

    def __init__(self, value):
        self._value = value

    @property
    def value(self):
        """The number."""
        return self._value

    @value.setter
    def value(self, value):
        self._value = min(value, 9)

    def scaled(self, value):
        """Return the product with another number."""
        return value * self._value''',
    "Completed": '''class Counting(type):
    """A class of classes that notes when one of these makes an object."""

    def __call__(cls, value):
        made = super().__call__()
        made.value = value
        return made


class Completed(metaclass=Counting):
    """An object that its metaclass completes."""

    value = 0''',
    "grown": '''def grown(value, parts=[]):
    """Return the sum of an argument and of the number of calls, which a mutable default counts."""
    parts.append(value)
    return value + len(parts)''',
    "RECENT": """RECENT = collections.deque([1, 2], maxlen=2)""",
    "NUMBERS": '''def numbers():
    """Yield numbers without an end."""
    number = 0
    while True:
        number += 1
        yield number


NUMBERS = numbers()''',
}
"""Definitions of the written files, by the name that programs use; a file has those that it needs."""

CONSTRUCTS = (
    Construct(
        "branch_on_shape",
        "a branch on a size",
        "if x.shape[0] > $k:\n    $new = $e\nelse:\n    $new = $f",
        "$new = ($e) if not x.size(0) <= $k else ($f)",
        "a branch as an expression",
    ),
    Construct(
        "branch_on_number",
        "a branch on a Python number",
        "if n > 2:\n    $new = $e\nelse:\n    $new = $f",
        "$new = [$f, $e][n > 2]",
        "a branch as an index",
    ),
    Construct(
        "branch_on_value",
        "a branch on a tensor's content",
        "if $a.sum() > 0:\n    $new = $e\nelse:\n    $new = $f",
        "$new = ($f) if not bool($a.sum() > 0) else ($e)",
        "a branch as an expression",
    ),
    Construct(
        "branch_on_type",
        "a branch on the type of an argument",
        "if isinstance(n, int) and x.dtype == $a.dtype:\n    $new = $e\nelse:\n    $new = $f",
        "$new = $e",
        "a branch that is always taken",
    ),
    Construct(
        "loop",
        "a loop over numbers",
        "$new = $a\nfor index in range(3):\n    $new = $new * 2 + $b * index",
        "$new = $a\n$new = $new * 2 + $b * 0\n$new = $new * 2 + $b * 1\n$new = $new * 2 + $b * 2",
        "a loop unrolled",
    ),
    Construct(
        "loop_over_rows",
        "a loop over a tensor",
        "rows = []\nfor row in $a:\n    rows.append(row * len(rows))\n$new = torch.stack(rows)",
        "$new = torch.stack([row * index for index, row in enumerate($a.unbind(0))])",
        "a loop as a comprehension",
    ),
    Construct(
        "loop_with_exits",
        "a loop with `continue`, `break` and `else`",
        "$new = $a\nfor index in range(9):\n    if index == 1:\n        continue\n    if index > n:\n        break\n"
        "    $new = $new + index\nelse:\n    $new = $b",
        "$new = $a + (5 if n > 2 else 2)",
        "a loop as its result",
    ),
    Construct(
        "while_loop",
        "a loop until a number is reached",
        "$new, left = $a, n\nwhile left > 0:\n    $new = $new + left\n    left -= 2",
        "$new = $a + sum(range(n, 0, -2))",
        "a loop as its result",
    ),
    Construct(
        "list_that_grows",
        "a loop over a list that grows meanwhile",
        "parts = [$a]\nfor part in parts:\n    if len(parts) < 3:\n        parts.append(part + $k)\n"
        "$new = torch.stack(parts).sum(0)",
        "$new = torch.stack([$a, $a + $k, $a + $k + $k]).sum(0)",
        "a loop unrolled",
    ),
    Construct(
        "containers",
        "a dict of a list",
        "held = {'all': [$e, $b]}\nheld['all'].append($b)\n$new = sum(held['all'])",
        "parts = ($e, $b) + ($b,)\n$new = parts[0] + parts[1] + parts[2]",
        "a tuple for a list",
    ),
    Construct(
        "containers_of_the_library",
        "a deque and a dict with defaults",
        "recent = collections.deque([$a, $b, $a], maxlen=2)\nrecent.rotate(n)\ncounts = collections.defaultdict(int)\n"
        "for part in recent:\n    counts['sum'] = counts['sum'] + part\n$new = counts['sum'] + recent[0]",
        "pair = [$b, $a] if n % 2 == 0 else [$a, $b]\n$new = pair[0] + pair[1] + pair[0]",
        "a list for a deque",
    ),
    Construct(
        "iterators",
        "`map`, `zip` and `filter`",
        "pairs = zip(map(lambda value: value + $k, [$a, $b]), filter(None, [0, 2, 3]))\n"
        "$new = sum(value * factor for value, factor in pairs)",
        "$new = ($a + $k) * 2 + ($b + $k) * 3",
        "a generator unrolled",
    ),
    Construct(
        "closure",
        "a function inside that changes a variable outside",
        "count = 0\ndef inner(value):\n    nonlocal count\n    count += 1\n    return value * count + $b\n"
        "$new = inner($a) + inner($a)",
        "$new = $a * 1 + $b + ($a * 2 + $b)",
        "a helper inlined",
    ),
    Construct(
        "function_with_defaults",
        "a function of the module, with a default and a keyword",
        "$new = helper($a) + helper(right=$b, left=$a)",
        "$new = $a * 2 + 2 + ($a * 2 + $b)",
        "a helper inlined",
    ),
    Construct(
        "generator",
        "a generator that is read in part",
        "def parts():\n    for factor in range(1, 9):\n        yield $a * factor\n"
        "made = parts()\n$new = next(made) + next(made)\nmade.close()",
        "$new = $a * 1 + $a * 2",
        "a generator unrolled",
    ),
    Construct(
        "caught_exception",
        "an exception that is caught after something was changed",
        "$new = $a.clone()\ntry:\n    $new.add_(n)\n    if n > 2:\n        raise ValueError(n)\n    $new.mul_(2)\n"
        "except ValueError as error:\n    $new = $new + error.args[0]\nfinally:\n    $new = $new - 1",
        "$new = $a + n\n$new = ($new + n if n > 2 else $new * 2) - 1",
        "an exception as a branch",
    ),
    Construct(
        "missing_key",
        "an exception of a container",
        "table = {2: $a}\ntry:\n    $new = table[n] * 2\nexcept KeyError as error:\n    $new = $b * error.args[0]",
        "$new = $a * 2 if n == 2 else $b * n",
        "an exception as a branch",
    ),
    Construct(
        "context_manager",
        "a context manager that changes something when it is left",
        "entered = []\nwith noted(entered, n):\n    $new = $a + len(entered)\n$new = $new * len(entered)",
        "$new = ($a + 1) * 2",
        "a context manager inlined",
    ),
    Construct(
        "gradient_mode",
        "a part without gradients",
        "with torch.no_grad():\n    $new = $e\n$new = $new + $a",
        "$new = torch.no_grad()(lambda: $e)() + $a",
        "a decorator for a context manager",
    ),
    Construct(
        "dataclass_with_property",
        "a dataclass with a property",
        "pair = Pair($a, n)\npair.factor += 1\n$new = pair.scaled + $b",
        "$new = $a * (n + 1) + $b",
        "an object inlined",
    ),
    Construct(
        "attribute_of_a_tensor",
        "an attribute that is put on a tensor",
        "$new = $e\n$new.scale = n\n$new = $new * getattr($new, 'scale', 0) + hasattr($new, 'other')",
        "$new = ($e) * n",
        "an attribute as a variable",
    ),
    Construct(
        "list_of_a_class",
        "a list of a class, which its objects change",
        "part = Counted($a)\n$new = part.value + len(Counted.made)",
    ),
    Construct(
        "module_with_modes",
        "a module in one of two modes, with an attribute and a buffer that counts",
        "BLOCK.train(n > 2)\nBLOCK.factor = n\n$new = BLOCK($a) + BLOCK.calls",
        "BLOCK.training, BLOCK.factor = n > 2, n\nBLOCK.calls += 1\n$new = ($a * n if n > 2 else $a - n) + BLOCK.calls",
        "a module inlined",
    ),
    Construct(
        "hook_of_a_module",
        "a hook of a module that replaces its result",
        "hook = BLOCK.register_forward_hook(lambda module, inputs, output: output + inputs[0])\n"
        "BLOCK.eval()\n$new = BLOCK($a)\nhook.remove()",
    ),
    Construct(
        "hook_of_a_gradient",
        "a hook that changes a gradient",
        "$new = $a * 1\n$new.register_hook(lambda gradient: gradient * 2)",
        operands=frozenset({Operands.GRADIENTS}),
    ),
    Construct(
        "autograd_function",
        "an autograd function",
        "$new = Tripled.apply($a) + $b",
        "$new = $a * 3 + $b",
        "an autograd function inlined",
    ),
    Construct(
        "custom_operator",
        "an operator of one's own",
        "$new = torch.ops.generated.tripled($a) + $b",
        "$new = $a * 3 + $b",
        "an operator inlined",
        operands=EXACT,
    ),
    Construct(
        "state_between_calls",
        "a global that counts the calls",
        "STATE['calls'] = STATE.get('calls', 0) + 1\n$new = $a + STATE['calls']",
        "calls = STATE.get('calls', 0)\nSTATE['calls'] = calls + 1\n$new = $a + calls + 1",
        "a variable for a global",
    ),
    Construct(
        "tensor_kept_between_calls",
        "a global that keeps a tensor of the last call",
        "last = STATE.get('last')\n$new = $a if last is None else $a + last.sum()\nSTATE['last'] = $a.detach().clone()",
        "last = STATE['last'] if 'last' in STATE else None\n$new = $a\n"
        "if last is not None:\n    $new = $a + last.sum()\nSTATE.update(last=$a.detach().clone())",
        "another order",
    ),
    Construct(
        "global_variable",
        "a global that is assigned",
        "global LATEST\nLATEST = LATEST + n\n$new = $a + LATEST",
        "global LATEST\nLATEST, $new = LATEST + n, $a + LATEST + n",
        "another order",
    ),
    Construct(
        "globals_of_the_module",
        "a global that is assigned by its name",
        "globals()['LATEST'] += n\n$new = $a + LATEST",
        "setattr(sys.modules[__name__], 'LATEST', LATEST + n)\n$new = $a + LATEST",
        "a function for an index",
    ),
    Construct(
        "bounded_deque_kept",
        "a global deque that drops its oldest item",
        "RECENT.append(n)\n$new = $a + RECENT[0] + RECENT[-1]",
    ),
    Construct(
        "generator_kept",
        "a global generator that is read in each call",
        "$new = $a + next(NUMBERS)",
    ),
    Construct(
        "attribute_of_a_function",
        "an attribute of a function that counts its calls",
        "helper.calls = getattr(helper, 'calls', 0) + 1\n$new = $a + helper.calls",
    ),
    Construct(
        "defaults_of_a_function",
        "a default of a function that is assigned",
        "helper.__defaults__ = (n,)\n$new = helper($a)",
        "helper.__defaults__ = (n,)\n$new = $a * 2 + n",
        "a helper inlined",
    ),
    Construct(
        "mutable_default",
        "a default of a function that the function changes",
        "$new = $a + grown($k)",
    ),
    Construct(
        "setter_of_a_property",
        "a property that is assigned",
        "bounded = Bounded(n)\nbounded.value = 8 + n\n$new = $a + bounded.value",
        "$new = $a + min(8 + n, 9)",
        "an object inlined",
    ),
    Construct(
        "attribute_of_a_class",
        "an attribute of a class that is assigned",
        "Bounded.highest += n\n$new = $a + Bounded.highest",
        "Bounded.highest = Bounded.highest + n\n$new = $a + Bounded(1).highest",
        "an object for its class",
    ),
    Construct(
        "method_replaced",
        "a method of a class that is replaced",
        "bounded = Bounded(n)\nBounded.scaled = lambda self, value: value - $k\n$new = bounded.scaled($a)",
        "Bounded.scaled = lambda self, value: value - $k\n$new = $a - $k",
        "a helper inlined",
    ),
    Construct(
        "metaclass",
        "a metaclass that completes new objects",
        "$new = $a + Completed(n).value",
        "$new = $a + n",
        "an object inlined",
    ),
    Construct(
        "arguments_of_an_exception",
        "what the exception of a container says",
        "try:\n    $new = {}['key']\nexcept KeyError as error:\n    $new = $a + len(error.args[0])",
        "$new = $a + 3",
        "an exception as a branch",
    ),
    Construct(
        "in_place",
        "a write into a tensor that others may be views of",
        "$a.add_($b)",
        "torch.add($a, $b, out=$a)",
        "a function for a method",
        operands=EXACT,
    ),
    Construct(
        "augmented_assignment",
        "an assignment that writes into a tensor",
        "kept = $a\nkept *= 2\nkept -= $b",
        "$a.mul_(2).sub_($b)",
        "a method for an operator",
        operands=EXACT,
    ),
    Construct(
        "write_through_view",
        "a write into a view",
        "$a[0] = $b[1] * $k",
        "$a.select(0, 0).copy_($b.select(0, 1) * $k)",
        "a function for an index",
        operands=EXACT,
    ),
    Construct(
        "write_through_transposed",
        "a write into a view of a view",
        "$a.t()[1].mul_($k)",
        "$a[:, 1] *= $k",
        "another view",
        operands=EXACT,
    ),
    Construct(
        "write_through_flattened",
        "a write into a view of another shape",
        "flat = $a.reshape(-1)\nflat[1::2] += $k",
        "$a.view(-1)[1::2].add_($k)",
        "a method for an operator",
        operands=EXACT,
    ),
    Construct(
        "view_kept",
        "a view that sees a later write",
        "$new = $a[:]\n$a.sub_($k)",
        "$new = $a.view_as($a)\n$a -= $k",
        "a no-op view",
        operands=EXACT,
    ),
    Construct(
        "read_before_a_write",
        "a result that is read before its operand changes",
        "$new = $e\n$a.mul_($k)\n$new = $new + $a",
        "$new = torch.add(input=$e, other=$a.mul_($k))",
        "a function for an operator",
        operands=EXACT,
    ),
    Construct(
        "masked_write",
        "a write where a condition holds",
        "$a.masked_fill_($b > 1, n)",
        "$a[$b > 1] = n",
        "an index for a function",
        operands=EXACT,
    ),
    Construct(
        "out_argument",
        "a result that is written into another tensor",
        "$new = torch.zeros_like($a)\ntorch.sub($a, $b, out=$new)",
        "$new = $a - $b",
        "an operator for a function",
        operands=EXACT,
    ),
    Construct(
        "split_and_joined",
        "parts of a tensor, one changed, joined again",
        "head, tail = $a[:1], $a[1:]\n$new = torch.cat([tail, head.mul(2)])",
        "$new = torch.cat(($a.narrow(0, 1, x.shape[0] - 1), $a.narrow(0, 0, 1) * 2))",
        "a tuple for a list",
    ),
    Construct(
        "unused_results",
        "results that nothing uses",
        "$new = $a + $k",
        "unused = [$e, $f]\n$new = $a + $k\ndel unused",
        "dead code",
    ),
)
"""All constructs."""
