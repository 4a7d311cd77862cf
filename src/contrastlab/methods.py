"""Every algorithm of the papers as a row of data: five choices and a temperature.

``get("ring/iring")`` is a :class:`Recipe`; ``dataclasses.replace`` makes the cross products no paper
tried. A recipe says nothing of data, encoder or optimiser: that is :class:`contrastlab.settings.Settings`.

Where a paper's text, tables and released code disagree, the recipe follows the paper and ``note`` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from contrastlab import errors, keys, negatives, objectives, positives
from contrastlab.errors import reject
from contrastlab.keys import Keys
from contrastlab.negatives import Negatives
from contrastlab.objectives import Objective
from contrastlab.positives import Positives
from contrastlab.schedules import Linear
from contrastlab.views import Augmented, Split

Views = Augmented | Split


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
        two = isinstance(self.views, Augmented) and self.views.count == 2
        if isinstance(self.views, Augmented) and isinstance(self.keys, keys.Queue | keys.InBatch) and not two:
            raise errors.NotApplicableError(f"{self.name}: keys={self.keys!r} needs two views of each image")

    @property
    def clusters(self) -> tuple[int, int]:
        """Clusters and runs of the k-means the recipe needs; (0, 0) if none."""
        for part in (self.negatives, self.positives):
            if isinstance(part, negatives.Cave | positives.SameCluster):
                return part.clusters, part.runs
        return 0, 0

    def parts(self) -> dict[str, Any]:
        """The five choices by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name in _PARTS}

    def override(self, changes: Mapping[str, Any]) -> Recipe:
        """A copy with some fields of its parts changed, as profiles do: ``{"negatives.k": 512}``.

        A change applies where the recipe's part has the field and it is not ``None`` (MoCo has no
        ``negatives.k``), so that one profile serves all methods of a table.

        Raises:
            UnknownNameError: a part or field that no part of any recipe has.
        """
        recipe = self
        for path, value in changes.items():
            if path not in _paths():
                raise errors.unknown("recipe field", path, _paths())
            part, _, attribute = path.partition(".")
            if not attribute:
                recipe = replace(recipe, **{part: value})
                continue
            old = getattr(recipe, part)
            if getattr(old, attribute, None) is not None:
                recipe = replace(recipe, **{part: replace(old, **{attribute: value})})
        return recipe

    def describe(self) -> dict[str, Any]:
        """All choices as plain values, for a stored result."""
        out: dict[str, Any] = {"name": self.name, "temperature": self.temperature}
        for name, part in self.parts().items():
            out[name] = None if part is None else {"type": type(part).__name__, **asdict(part)}
        return out

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
        rows = "".join(f"| {name} | `{part!r}` |\n" for name, part in self.parts().items())
        note = f"\n\n{self.note}" if self.note else ""
        head = f"**{self.label}** (`{self.name}`)\n\n$$ {self.equation} $$\n\n"
        return f"{head}| choice | part |\n| --- | --- |\n{rows}{note}"


_PARTS = ("views", "keys", "negatives", "positives", "objective")


def _paths() -> set[str]:
    paths = {"temperature"}
    for recipe in _RECIPES.values():
        for name, part in recipe.parts().items():
            if part is not None:
                paths |= {f"{name}.{f.name}" for f in fields(part)}
    return paths


def names(paper: str | None = None) -> tuple[str, ...]:
    """Names of all recipes, or of one paper's (``"ring"``), in the order of its tables."""
    papers = {name.split("/")[0] for name in _RECIPES}
    if paper is not None and paper not in papers:
        raise errors.unknown("paper", paper, papers)
    return tuple(name for name in _RECIPES if paper is None or name.startswith(paper + "/"))


def get(name: str, paper: str | None = None) -> Recipe:
    """The recipe of that name; with ``paper``, ``"iring"`` is short for ``"ring/iring"``.

    Raises:
        UnknownNameError: with near matches.
    """
    for full in (name, f"{paper}/{name}", f"ours/{name}"):
        if full in _RECIPES:
            return _RECIPES[full]
    raise errors.unknown("method", name, _RECIPES)


def _references() -> Iterator[Recipe]:
    yield Recipe("ours/random", "random encoder", keys=None)
    yield Recipe("ours/random_lab", "random encoders of L and ab", views=Split("lab"), keys=None)
    yield Recipe(
        "ours/supervised", "same encoder, trained with labels",
        keys=keys.Prototypes(), negatives=negatives.Every(), temperature=0.1,
        note="A reference of ours: the same loop, InfoNCE against one learnt vector per class.",
    )  # fmt: skip


def _vince() -> Iterator[Recipe]:
    # vince Table 1: 14 algorithms of one stream and 12 of two (L and ab). C.2: α = 0.5, τ = 0.07,
    # K = 4096 terms with the positive; ball and outer ring 10 %, inner ring and inner ball 1 %; the
    # outer edge annealed 100 → 10 over 100 of 200 epochs, the inner ball 0 → 1 from epoch 10 to 100.
    annealed, inner = Linear(100, 10, until=0.5), Linear(0, 1, begin=0.05, until=0.5)
    ir = Recipe(
        "vince/ir", "IR", negatives=negatives.Uniform(4096, own="ranked"), objective=objectives.BinaryNCE(),
        note="With Z = κN the data-set size cancels: K + 1 logistic terms with offset log κK, not the softmax of §2.",
    )  # fmt: skip
    nce = replace(ir, negatives=negatives.Uniform(4095), objective=objectives.InfoNCE())
    la = replace(
        ir,
        name="vince/la",
        label="LA",
        negatives=negatives.Ball(nearest=4096, k=None, own="ranked"),
        positives=positives.SameCluster(),
        objective=objectives.LocalAggregation(),
        note="Background neighbours are those nearest to the current embedding, as in the released code; the text"
        " says nearest to the bank's row.",
    )
    nce = replace(nce, name="vince/ir_nce", label="IR^nce", note="")
    sets: dict[str, tuple[str, negatives.Ball | negatives.Cave | negatives.Ring]] = {
        "ball": ("BALL", negatives.Ball(10, k=4095)),
        "cave": ("CAVE", negatives.Cave(10, k=4095)),
        "ring": ("RING", negatives.Ring(1, 10, k=4095)),
    }
    yield from (ir, nce, la)
    yield replace(la, name="vince/la_nce", label="LA^nce", objective=objectives.InfoNCE(), note="",
                  negatives=negatives.Ball(nearest=4096, k=None))  # fmt: skip
    cmc = replace(
        nce, name="vince/cmc", label="CMC", views=Split("lab"), negatives=negatives.Uniform(4096, own="ranked"),
        objective=objectives.BinaryNCE(kappa=None),
    )  # fmt: skip
    cmc_nce = replace(nce, name="vince/cmc_nce", label="CMC^nce", views=Split("lab"))
    for lab in (False, True):
        if lab:
            yield from (cmc, cmc_nce)
        for slug, (label, region) in sets.items():
            for neighbours in (False, True):
                if slug == "cave" and neighbours:
                    continue  # CAVE with s-neigh is not in the table
                for anneal in (False, True):
                    marks = [m for m, on in (("Lab", lab), ("s-neigh", neighbours), ("anneal", anneal)) if on]
                    name = "_".join([f"vince/{slug}", *(m.replace("-", "").lower() for m in marks)])
                    part: Negatives = replace(region, outer=annealed) if anneal else region
                    near: Positives = positives.Neighbours(inner if anneal else 1.0) if neighbours else positives.One()
                    if anneal and neighbours and isinstance(part, negatives.Ring):
                        # RING's inner edge is the neighbours' ball: both grow together
                        part = replace(part, inner=inner)
                    yield replace(
                        cmc_nce if lab else nce,
                        name=name,
                        label=label + (f"^{'+'.join(marks)}" if marks else ""),
                        negatives=part,
                        positives=near,
                    )


def _ring() -> Iterator[Recipe]:
    # ring Table 1: τ = 0.07, ℓ = 1, u annealed 100 → 10; banks hold the embedding of the last epoch (α = 0).
    annealed = Linear(100, 10, until=0.5)
    duration = "The paper gives u from 100 to 10 but not how long; taken is half the run, as the released code has it."
    ir = Recipe("ring/ir", "IR", keys=keys.Bank(0.0), negatives=negatives.Uniform(4095))
    iring = replace(
        ir, name="ring/iring", label="IRing", negatives=negatives.Ring(1, annealed, k=4095), note=duration
    )  # fmt: skip
    moco = Recipe("ring/moco", "MoCo", views=Augmented(2), keys=keys.Queue(65536, 0.999), negatives=negatives.Every())
    yield ir
    yield iring
    yield replace(ir, name="ring/cmc", label="CMC", views=Split("lab"))
    yield replace(iring, name="ring/cmcring", label="CMCRing", views=Split("lab"))
    yield moco
    yield replace(
        moco,
        name="ring/mocoring",
        label="MoCoRing",
        negatives=negatives.Ring(1, annealed, k=None),
        note=f"{duration} Algorithm 1 leaves the positive out of the denominator and slices the sorted scores by a"
        " step; here the positive is in it (Eq. 1) and the ring is the ranks from ℓ % to u %.",
    )
    yield replace(
        _find("vince/la"), name="ring/la", note="As vince/la: appendix H, which describes it, is not at hand."
    )
    yield replace(iring, name="ring/iring_noanneal", label="IRing (No Anneal)", negatives=negatives.Ring(1, 10, k=4095))
    yield replace(iring, name="ring/iring_l0", label="IRing (l=0)", negatives=negatives.Ball(annealed, k=4095))


def _find(name: str) -> Recipe:
    return _RECIPES[name]


_RECIPES: dict[str, Recipe] = {}
for _rows in (_references, _vince, _ring):
    for _recipe in _rows():
        _RECIPES[_recipe.name] = _recipe
