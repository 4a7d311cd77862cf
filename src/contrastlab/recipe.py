"""A method as data: five choices and a temperature; and as plain values, which are stored and hashed.

A field that has its default leaves no trace in a description, so a new field of a part orphans no stored result. The
price: the default of a field must never change, because it is what stored descriptions without that field mean.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from typing import Any

from contrastlab import keys, negatives, objectives, positives
from contrastlab.keys import Keys
from contrastlab.negatives import Negatives
from contrastlab.objectives import Objective
from contrastlab.positives import Positives
from contrastlab.scores.choices import Choices, Part, view_count
from contrastlab.scores.schedules import Linear
from contrastlab.support import errors
from contrastlab.support.errors import check_positive, reject
from contrastlab.views import Augmented, Views

CHOICES: Mapping[str, type[Part]] = {
    "views": Views,
    "keys": Keys,
    "negatives": Negatives,
    "positives": Positives,
    "objective": Objective,
}
"""The five choices and the base class of what each is chosen from."""


def types_of(choice: str) -> dict[str, type]:
    """The parts of a choice by the names of their types, those included that are defined outside this package."""
    kinds: list[type] = [CHOICES[choice]]
    for kind in kinds:  # grows while it is walked
        kinds += kind.__subclasses__()
    return {kind.__name__: kind for kind in kinds if "__dataclass_fields__" in vars(kind)}


def plain(value: Any) -> Any:
    """A part, a schedule or a number as JSON has it; equal values have equal descriptions (4 and 4.0 are 4).

    A dataclass becomes ``{"type": …}`` and those of its fields that differ from their defaults.
    """
    if is_dataclass(value):
        described = {"type": type(value).__name__}
        for each in fields(value):
            if getattr(value, each.name) != _default(each):
                described[each.name] = plain(getattr(value, each.name))
        return described
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def foreign_code(part: Any) -> str:
    """16 hexadecimal digits over the code of a part that is defined outside this package; empty for one of ours.

    Comments and line breaks do not count.
    """
    kind = type(part)
    if part is None or kind.__module__.startswith("contrastlab."):
        return ""
    try:
        text = ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(kind))))
    except (OSError, TypeError):  # typed at a prompt: what its methods are compiled to
        codes = (value.__code__ for value in vars(kind).values() if inspect.isfunction(value))
        simple = (int, float, str, bytes, bool, type(None))
        text = repr([(c.co_code, c.co_names, [v for v in c.co_consts if isinstance(v, simple)]) for c in codes])
    return hashlib.sha256(f"{kind.__module__}.{kind.__qualname__}\n{text}".encode()).hexdigest()[:16]


def _paths() -> set[str]:
    """What may be overridden: ``temperature`` and every ``choice.field``."""
    paths = {"temperature"}
    for choice in CHOICES:
        for kind in types_of(choice).values():
            paths |= {f"{choice}.{each.name}" for each in fields(kind)}
    return paths


def _split_path(path: str, paths: set[str]) -> tuple[str, str, str]:
    """``negatives.outer.end`` in its three parts, of which the last ones may be empty; refuses all but ``paths``."""
    choice, name, end = [*path.split(".", 2), "", ""][:3]
    if path.removesuffix(f".{end}") not in paths or end not in ("", "start", "end"):
        raise errors.unknown("recipe field", path, paths)
    return choice, name, end


def _default(of: Field[Any]) -> Any:
    return of.default if of.default_factory is MISSING else of.default_factory()


def build(kind: str, described: Mapping[str, Any], types: Mapping[str, type], like: Any = None) -> Any:
    """The part or schedule that a description names; what it leaves out is as in a part ``like`` it."""
    errors.check(isinstance(described, Mapping), kind, described, "a mapping with the name of a type")
    name = described.get("type", "")
    errors.check_name(f"type of {kind}", name, types)
    names = {each.name for each in fields(types[name])}
    values: dict[str, Any] = {}
    if like is not None:
        values = {each.name: getattr(like, each.name) for each in fields(like) if each.name in names}
    for key in sorted(described.keys() - {"type"}):
        errors.check_name(f"field of {name}", key, names)
        value = described[key]
        if isinstance(value, Mapping):
            value = build(key, value, {"Linear": Linear})
        values[key] = value
    return types[name](**values)


@dataclass(frozen=True)
class Recipe(Choices):
    """A contrastive method: five choices and the temperature τ of the logits ``q·k/τ``.

    Its name is ``paper/method``, its label what the paper prints. ``keys=None`` is the untrained encoder. ``note`` says
    where text, table and code of the paper disagree. A ``NotApplicableError`` names a combination that cannot be.
    """

    name: str
    label: str
    views: Views = field(default_factory=Augmented)
    keys: Keys | None = field(default_factory=keys.Bank)
    negatives: Negatives = field(default_factory=negatives.Uniform)
    positives: Positives = field(default_factory=positives.One)
    objective: Objective = field(default_factory=objectives.InfoNCE)
    temperature: float = 0.07
    note: str = ""

    def __post_init__(self) -> None:
        for name, part in self.choices().items():
            if name == "keys" and part is None:
                continue
            if isinstance(part, type) or not isinstance(part, CHOICES[name]):
                raise reject(name, part, f"a part of this choice, such as {next(iter(types_of(name)))}()")
            if "__dataclass_fields__" not in vars(type(part)):  # those of a base class are not its own
                accepted = "a part whose class is a dataclass: @dataclass(frozen=True) stands above it"
                raise reject(name, type(part).__name__, accepted)
        check_positive(temperature=self.temperature)
        offers = {view_count(self.views.count)}.union(*(part.offers for part in self._parts()))
        for part in self._parts():
            for need in part.needs(self):
                if need.offer not in offers:
                    raise errors.NotApplicableError(f"{self.name}: {need.reason}")
        self.objective.check(self.temperature)

    def _parts(self) -> tuple[Part, ...]:
        every = (self.negatives, self.positives, self.objective, self.views, self.keys)  # as their needs are looked at
        return tuple(part for part in every if part is not None)

    def row(self, name: str, label: str, note: str = "", **changes: Any) -> Recipe:
        """This recipe with other choices or another temperature, and a name, label and note of its own."""
        return replace(self, name=name, label=label, note=note, **changes)

    @property
    def bounds_information(self) -> bool:
        """Whether log K minus the loss is a lower bound on the mutual information: InfoNCE as in ring Eq. 1.

        Not with neighbours in the numerator, nor with JCL's variance term, which bounds for λ ≥ 1 only, nor with
        negatives that leave out the closest keys, and for no K above the number of items.
        """
        return all(part.bounds_information for part in self._parts())

    @property
    def k_means(self) -> tuple[int, int]:
        """Clusters and runs of the k-means the recipe needs; (0, 0) if none."""
        return max(part.k_means for part in self._parts())

    @property
    def reads_labels(self) -> bool:
        """Whether a part reads the classes of the items, which must then be known."""
        return any(part.reads_labels for part in self._parts())

    def choices(self) -> dict[str, Any]:
        """The five choices by name."""
        return {name: getattr(self, name) for name in CHOICES}

    def override(self, changes: Mapping[str, Any]) -> Recipe:
        """A copy with some fields of its parts changed, as profiles do: ``{"negatives.k": 512}``.

        A change applies where the recipe's part has the field and it is not ``None`` (MoCo has no ``negatives.k``), so
        that one profile serves all methods of a table. ``{"negatives.outer.end": 0.3}`` changes where a schedule ends;
        a constant is its own end. A whole part is named by its type, ``{"views": {"type": "Dropout"}}``; it keeps the
        fields of the old part that it has, too.
        """
        new_parts: dict[str, Any] = {}
        field_changes: dict[str, Any] = {}
        for name, value in changes.items():
            if name in CHOICES and isinstance(value, Mapping):
                new_parts[name] = build(name, value, types_of(name), getattr(self, name))
            else:
                field_changes[name] = value
        if new_parts:
            return replace(self, **new_parts).override(field_changes)
        paths = _paths()
        direct: dict[str, Any] = {}
        by_part: dict[str, dict[str, Any]] = {}
        for path, value in field_changes.items():
            choice, name, end = _split_path(path, paths)
            if not name:
                direct[choice] = value
            elif self._has_field(choice, name, end):
                by_part.setdefault(choice, {})[name] = self._changed(choice, name, end, value)
        # all at once: half of a change may be impossible
        parts = {choice: replace(getattr(self, choice), **new) for choice, new in by_part.items()}
        return replace(self, **direct, **parts)

    def has(self, path: str) -> bool:
        """Whether :meth:`override` of this path would change the recipe; a name that no recipe has is refused."""
        if path in CHOICES:
            return getattr(self, path) is not None
        choice, name, end = _split_path(path, _paths())
        return not name or self._has_field(choice, name, end)

    def _has_field(self, choice: str, name: str, end: str) -> bool:
        """Whether the recipe's part has a field that is not ``None``, and an ``end`` of it if one is named."""
        part = getattr(self, choice)
        old = None if part is None else vars(part).get(name)
        if end and not isinstance(old, Linear):  # a constant is its own end
            return end == "end" and isinstance(old, int | float)
        return old is not None

    def _changed(self, choice: str, name: str, end: str, value: Any) -> Any:
        old = getattr(getattr(self, choice), name)
        if end and isinstance(old, Linear):
            return replace(old, **{end: value})
        return value

    def identity(self) -> dict[str, Any]:
        """All that determines what the method computes, as plain values; of a part of your own also its code."""
        values: dict[str, Any] = {"temperature": plain(self.temperature)}
        codes: dict[str, str] = {}
        for name, part in self.choices().items():
            values[name] = plain(part)
            code = foreign_code(part)
            if code:
                codes[name] = code
        if codes:
            values["code"] = codes
        return values

    def describe(self) -> dict[str, Any]:
        """:meth:`identity` and the name, for a stored result; fields that have their default are left out."""
        return {"name": self.name, **self.identity()}

    @property
    def equation(self) -> str:
        """The loss and the choices in it, LaTeX without delimiters."""
        if self.keys is None:
            return r"\text{no training: the encoder as initialised}"
        lines = [
            rf"\mathcal L(q)&={self.objective.latex}",
            rf"s_k&=q\cdot k/{self.temperature:g}",
            self.positives.latex.replace("=", "&=", 1),
            self.negatives.latex.replace("=", "&=", 1),
            rf"\text{{keys}}&:\ {self.keys.latex}",
            rf"\text{{views}}&:\ {self.views.latex}",
        ]
        return r"\begin{aligned}" + r"\\ ".join(lines) + r"\end{aligned}"

    def _repr_markdown_(self) -> str:
        rows = "".join(f"| {name} | `{part!r}` |\n" for name, part in self.choices().items())
        note = f"\n\n{self.note}" if self.note else ""
        head = f"**{self.label}** (`{self.name}`)\n\n$$ {self.equation} $$\n\n"
        return f"{head}| choice | part |\n| --- | --- |\n{rows}{note}"
