"""A method as data: five choices and a temperature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from contrastlab import errors, keys, negatives, objectives, positives
from contrastlab.errors import reject
from contrastlab.keys import InBatch, Keys, Queue
from contrastlab.methods.description import CHOICES, plain, types_of
from contrastlab.negatives import Negatives
from contrastlab.objectives import Objective
from contrastlab.positives import Positives
from contrastlab.views import Augmented, Split, Views


@dataclass(frozen=True)
class Recipe:
    """A contrastive method.

    Args:
        name: ``paper/method``.
        label: as the paper prints it.
        views: what two pictures of the same thing are compared.
        keys: where the embeddings to compare against live; ``None`` is the untrained encoder.
        negatives: which keys count as negatives.
        positives: which keys count as positives beside the query's own.
        objective: how scores become a number to minimise.
        temperature: τ of the logits ``q·k/τ``.
        note: where text, table and code of the paper disagree.

    Raises:
        NotApplicableError: a combination that cannot be computed, with the reason.
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
        if not self.temperature > 0:
            raise reject("temperature", self.temperature, "a positive number")
        cave = isinstance(self.negatives, negatives.Cave)
        same = isinstance(self.positives, positives.SameCluster)
        if (cave or same) and not isinstance(self.keys, keys.Bank):
            raise errors.NotApplicableError(
                f"{self.name}: clusters are those of a memory bank; keys={self.keys!r} holds no row per image"
            )
        if same and (not isinstance(self.negatives, negatives.Ball) or self.negatives.k is not None):
            raise errors.NotApplicableError(
                f"{self.name}: SameCluster picks positives from the background neighbours, so negatives must be"
                f" a whole Ball(k=None); given is {self.negatives!r}"
            )
        if isinstance(self.objective, objectives.LocalAggregation) and not same:
            raise errors.NotApplicableError(f"{self.name}: LocalAggregation needs positives=SameCluster()")
        if isinstance(self.views, Augmented) and isinstance(self.keys, keys.Bank) and self.views.count != 1:
            raise errors.NotApplicableError(
                f"{self.name}: a memory bank takes one view of each image (it holds the other); given: {self.views!r}"
            )
        several = isinstance(self.positives, positives.Many | positives.Joint)
        if several and not isinstance(self.keys, keys.Queue):
            raise errors.NotApplicableError(
                f"{self.name}: positives={self.positives!r} are keys of a momentum encoder, so keys must be a Queue;"
                f" given: {self.keys!r}"
            )
        if isinstance(self.keys, keys.Queue | keys.InBatch):
            self._check_views(self.keys)
        if isinstance(self.positives, positives.Joint) and not isinstance(self.objective, objectives.InfoNCE):
            raise errors.NotApplicableError(
                f"{self.name}: Joint is the closed form of InfoNCE's expectation over Gaussian keys; with"
                f" objective={self.objective!r} take positives=Many({self.positives.count})"
            )
        alone = isinstance(self.positives, positives.One)
        if isinstance(self.objective, objectives.BinaryNCE) and not alone:
            raise errors.NotApplicableError(
                f"{self.name}: {self.objective!r} decides about one positive key per image; given:"
                f" positives={self.positives!r}"
            )
        pairwise = isinstance(self.objective, objectives.FMICL | objectives.AlignUniform | objectives.Spectral)
        if pairwise and not (alone or isinstance(self.positives, positives.Many)):
            raise errors.NotApplicableError(
                f"{self.name}: {self.objective!r} averages over pairs; neighbours in a numerator have no place in it"
            )
        if isinstance(self.objective, objectives.FMICL):
            self.objective.check(self.temperature)
        if isinstance(self.keys, keys.InBatch) and self.keys.against == "within" and not alone:
            raise errors.NotApplicableError(f"{self.name}: neighbours within the query's own view are not positives")

    def _check_views(self, choice: Queue | InBatch) -> None:
        many = self.positives if isinstance(self.positives, positives.Many | positives.Joint) else None
        asked = 1 if many is None else many.count
        if isinstance(self.views, Split) and many is None:
            if self.views.count != 1:
                raise errors.NotApplicableError(f"{self.name}: {self.views!r} has views that nothing asks for")
        elif self.views.count != 1 + asked:
            number = {2: "two", 3: "three"}.get(1 + asked, str(1 + asked))
            raise errors.NotApplicableError(
                f"{self.name}: keys={choice!r} with positives={self.positives!r} needs {number} views of each image;"
                f" given: {self.views!r}"
            )

    @property
    def bounds_information(self) -> bool:
        """Whether log K minus the loss is a lower bound on the mutual information: InfoNCE as in ring Eq. 1.

        Not with neighbours in the numerator, nor with JCL's variance term, which bounds for λ ≥ 1 only.
        """
        plain = isinstance(self.positives, positives.One | positives.Many)
        return plain and isinstance(self.objective, objectives.InfoNCE) and not isinstance(self.keys, keys.Prototypes)

    @property
    def clusters(self) -> tuple[int, int]:
        """Clusters and runs of the k-means the recipe needs; (0, 0) if none."""
        for part in (self.negatives, self.positives):
            if isinstance(part, negatives.Cave | positives.SameCluster):
                return part.clusters, part.runs
        return 0, 0

    def choices(self) -> dict[str, Any]:
        """The five choices by name."""
        return {name: getattr(self, name) for name in CHOICES}

    def override(self, changes: Mapping[str, Any]) -> Recipe:
        """A copy with some fields of its parts changed, as profiles do: ``{"negatives.k": 512}``.

        A change applies where the recipe's part has the field and it is not ``None`` (MoCo has no
        ``negatives.k``), so that one profile serves all methods of a table.

        Raises:
            UnknownNameError: a choice or field that no part has.
        """
        known = {"temperature"}
        known |= {f"{name}.{f.name}" for name in CHOICES for kind in types_of(name).values() for f in fields(kind)}
        direct: dict[str, Any] = {}
        nested: dict[str, dict[str, Any]] = {}
        for path, value in changes.items():
            if path not in known:
                raise errors.unknown("recipe field", path, known)
            choice, _, attribute = path.partition(".")
            part = getattr(self, choice)
            if not attribute:
                direct[choice] = value
            elif (
                part is not None
                and attribute in {f.name for f in fields(part)}
                and getattr(part, attribute) is not None
            ):
                nested.setdefault(choice, {})[attribute] = value
        # all at once: half of a change may be impossible
        return replace(self, **direct, **{name: replace(getattr(self, name), **new) for name, new in nested.items()})

    def identity(self) -> dict[str, Any]:
        """All that determines what the method computes, as plain values: rows of two tables may share it."""
        return {"temperature": plain(self.temperature), **{name: plain(part) for name, part in self.choices().items()}}

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
