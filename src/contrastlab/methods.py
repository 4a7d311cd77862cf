"""Every algorithm of the papers as a row of data: five choices and a temperature.

``get("ring/iring")`` is a :class:`Recipe`; ``dataclasses.replace`` makes the cross products no paper tried. Each
paper's folder has them in ``methods.py``, in the order of its tables. Where a paper's text, tables and released code
disagree, the recipe follows the paper and ``note`` says so.
"""

from __future__ import annotations

from contrastlab import domains, keys, negatives
from contrastlab.recipe import CHOICES, Recipe
from contrastlab.support import discovery, errors
from contrastlab.views import Split

__all__ = ["CHOICES", "Recipe", "add", "get", "names"]

_REFERENCES = (
    Recipe("ours/random", "random encoder", keys=None),
    Recipe("ours/random_lab", "random encoders of L and ab", views=Split("lab"), keys=None),
    Recipe(
        "ours/supervised",
        "same encoder, trained with labels",
        keys=keys.Prototypes(),
        negatives=negatives.Every(),
        temperature=0.1,
        note="A reference of ours: the same loop, InfoNCE against one learnt vector per class.",
    ),
)
_RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _REFERENCES}
for _module in discovery.methods():
    _RECIPES.update({recipe.name: recipe for recipe in _module.rows()})
_OURS = frozenset(name.split("/")[0] for name in _RECIPES)


def names(paper: str | None = None) -> tuple[str, ...]:
    """Names of all recipes, or of one paper's (``"ring"``), in the order of its tables."""
    if paper is None:
        return tuple(_RECIPES)
    papers = {name.split("/")[0] for name in _RECIPES}
    if paper not in papers:
        raise errors.unknown("paper", paper, papers)
    return tuple(name for name in _RECIPES if name.startswith(f"{paper}/"))


def add(recipe: Recipe) -> Recipe:
    """Make a recipe of your own known by its name, in this process; :func:`contrastlab.tables.table` does so.

    The name must neither be another recipe's nor begin with a paper's short name.
    """
    first, _, rest = recipe.name.partition("/")
    registered = _RECIPES.get(recipe.name)
    is_new = registered is None or registered.identity() != recipe.identity()
    is_name_of_own = bool(rest) and first not in _OURS
    if is_new and not is_name_of_own:
        accepted = f"a name of your own such as 'mine/{rest or first}', not of {', '.join(sorted(_OURS))}"
        raise errors.reject("name", recipe.name, accepted)
    _RECIPES[recipe.name] = recipe
    return recipe


def get(name: str, paper: str | None = None) -> Recipe:
    """The recipe of that name; with ``paper``, ``"iring"`` is short for ``"ring/iring"``."""
    for full in (name, f"{paper}/{name}", f"ours/{name}"):
        if full in _RECIPES:
            return _RECIPES[full]
    raise domains.unknown("method", name, _RECIPES)
