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
from typing import Any, NamedTuple

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
    return {kind.__name__: kind for kind in kinds if _is_dataclass_itself(kind)}


def _is_dataclass_itself(kind: type) -> bool:
    """Whether a class has fields of its own, and not only those of a base class."""
    return "__dataclass_fields__" in vars(kind)


def plain(value: Any) -> Any:
    """A part, a schedule or a number as JSON has it; equal values have equal descriptions (4 and 4.0 are 4).

    A dataclass becomes ``{"type": …}`` and those of its fields that differ from their defaults.
    """
    if is_dataclass(value):
        description = {"type": type(value).__name__}
        for each in fields(value):
            field_value = getattr(value, each.name)
            if field_value != _default(each):
                description[each.name] = plain(field_value)
        return description
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
        source = textwrap.dedent(inspect.getsource(kind))
        text = ast.unparse(ast.parse(source))
    except (OSError, TypeError):  # typed at a prompt
        text = _compiled_code(kind)
    return hashlib.sha256(f"{kind.__module__}.{kind.__qualname__}\n{text}".encode()).hexdigest()[:16]


def _compiled_code(kind: type) -> str:
    """What the methods of a class are compiled to, with their names and constants."""
    methods = []
    for value in vars(kind).values():
        if inspect.isfunction(value):
            code = value.__code__
            constants = [constant for constant in code.co_consts if isinstance(constant, _SIMPLE)]
            methods.append((code.co_code, code.co_names, constants))
    return repr(methods)


_SIMPLE = (int, float, str, bytes, bool, type(None))


def _field_names(choice: str) -> set[str]:
    """Names of the fields of all parts that a choice is made from."""
    return {each.name for kind in types_of(choice).values() for each in fields(kind)}


def _paths() -> set[str]:
    """What may be overridden: ``temperature`` and every ``choice.field``."""
    paths = {"temperature"}
    for choice in CHOICES:
        paths |= {f"{choice}.{name}" for name in _field_names(choice)}
    return paths


class _Path(NamedTuple):
    """What is overridden, such as ``negatives.outer.end``; ``temperature`` is a choice without a field."""

    choice: str
    field: str
    end: str  # of a schedule: start, end, or empty


def _is_path(text: str) -> bool:
    """Whether ``text`` is one of :func:`_paths`; looks at the parts of one choice only."""
    choice, _, name = text.partition(".")
    if choice in CHOICES:
        return name in _field_names(choice)
    return text == "temperature"


def _parse_path(text: str) -> _Path:
    """The parts of ``negatives.outer.end``, of which the last ones may be left out; refuses all but :func:`_paths`."""
    choice, _, rest = text.partition(".")
    name, _, end = rest.partition(".")
    if not _is_path(text.removesuffix(f".{end}")) or end not in ("", "start", "end"):
        raise errors.unknown("recipe field", text, _paths())
    return _Path(choice, name, end)


def _default(of: Field[Any]) -> Any:
    if of.default_factory is MISSING:
        return of.default
    return of.default_factory()


def build(kind: str, described: Mapping[str, Any], types: Mapping[str, type], like: Any = None) -> Any:
    """The part or schedule that a description names; what it leaves out is as in a part ``like`` it."""
    errors.check(isinstance(described, Mapping), kind, described, "a mapping with the name of a type")
    name = described.get("type", "")
    errors.check_name(f"type of {kind}", name, types)
    names = {each.name for each in fields(types[name])}
    values: dict[str, Any] = {}
    if like is not None:
        shared_names = [each.name for each in fields(like) if each.name in names]
        values = {shared: getattr(like, shared) for shared in shared_names}
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
            if name != "keys" or part is not None:
                _check_part(name, part)
        check_positive(temperature=self.temperature)
        offers = {view_count(self.views.count)}
        for part in self._parts():
            offers |= part.offers
        for part in self._parts():
            for need in part.needs(self):
                if need.offer not in offers:
                    raise errors.NotApplicableError(f"{self.name}: {need.message}", reason=need.reason)
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
        descriptions: dict[str, Mapping[str, Any]] = {}
        field_changes: dict[str, Any] = {}
        for name, value in changes.items():
            if name in CHOICES and isinstance(value, Mapping):
                descriptions[name] = value
            else:
                field_changes[name] = value
        return self._with_parts(descriptions)._with_fields(field_changes)

    def _with_parts(self, descriptions: Mapping[str, Mapping[str, Any]]) -> Recipe:
        """A copy with the parts that are described in place of its own."""
        if not descriptions:
            return self
        parts: dict[str, Any] = {}
        for choice, description in descriptions.items():
            parts[choice] = build(choice, description, types_of(choice), getattr(self, choice))
        return replace(self, **parts)

    def _with_fields(self, changes: Mapping[str, Any]) -> Recipe:
        """A copy with the changes of fields that apply to it."""
        if not changes:
            return self
        own_fields: dict[str, Any] = {}
        fields_of_parts: dict[str, dict[str, Any]] = {}
        for text, value in changes.items():
            path = _parse_path(text)
            if not path.field:
                own_fields[path.choice] = value
            elif self._has_field(path):
                fields_of_parts.setdefault(path.choice, {})[path.field] = self._changed(path, value)
        # all at once: half of a change may be impossible
        parts = {choice: replace(getattr(self, choice), **new) for choice, new in fields_of_parts.items()}
        return replace(self, **own_fields, **parts)

    def has(self, path: str) -> bool:
        """Whether :meth:`override` of this path would change the recipe; a name that no recipe has is refused."""
        if path in CHOICES:
            return getattr(self, path) is not None
        parsed = _parse_path(path)
        return not parsed.field or self._has_field(parsed)

    def _has_field(self, path: _Path) -> bool:
        """Whether the recipe's part has a field that is not ``None``, and an end of it if one is named."""
        part = getattr(self, path.choice)
        if part is None:
            return False
        value = vars(part).get(path.field)
        if not path.end or isinstance(value, Linear):
            return value is not None
        return path.end == "end" and isinstance(value, int | float)  # a constant is its own end

    def _changed(self, path: _Path, value: Any) -> Any:
        """The new value of a field; of a schedule of which one end changes, the schedule with it."""
        old_value = getattr(getattr(self, path.choice), path.field)
        if path.end and isinstance(old_value, Linear):
            return replace(old_value, **{path.end: value})
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
        lines = [f"**{self.label}** (`{self.name}`)", "", f"$$ {self.equation} $$", ""]
        lines += ["| choice | part |", "| --- | --- |"]
        for name, part in self.choices().items():
            lines.append(f"| {name} | `{part!r}` |")
        text = "\n".join(lines) + "\n"
        if self.note:
            text += f"\n\n{self.note}"
        return text


def _check_part(choice: str, part: Any) -> None:
    """Refuse what is no part of a choice."""
    if isinstance(part, type) or not isinstance(part, CHOICES[choice]):
        raise reject(choice, part, f"a part of this choice, such as {next(iter(types_of(choice)))}()")
    if not _is_dataclass_itself(type(part)):
        accepted = "a part whose class is a dataclass: @dataclass(frozen=True) stands above it"
        raise reject(choice, type(part).__name__, accepted)
