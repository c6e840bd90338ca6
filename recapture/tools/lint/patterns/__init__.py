"""The patterns: what in a syntax tree shows which behaviour; a file for each kind.

A pattern is a function that yields places in the tree. It is tied to one or more behaviours, and `lint` in
``suites/behaviours.toml`` says in words what it looks for. Which compilers and releases are affected is not
written in a pattern: the records say it.
"""

from recapture.tools.lint.patterns import arrays as arrays
from recapture.tools.lint.patterns import conditions as conditions
from recapture.tools.lint.patterns import modules as modules
from recapture.tools.lint.patterns import numbers as numbers
from recapture.tools.lint.patterns import outside as outside
from recapture.tools.lint.patterns import results as results
from recapture.tools.lint.patterns import side_effects as side_effects
from recapture.tools.lint.patterns import writes as writes
from recapture.tools.lint.reader import BEHAVIOURS_LOOKED_FOR as BEHAVIOURS_LOOKED_FOR
from recapture.tools.lint.reader import Found as Found
from recapture.tools.lint.reader import Reader as Reader
