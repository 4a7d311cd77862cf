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
from contrastlab.keys import InBatch, Keys, Queue
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
        plain: dict[str, Any] = {}
        parts: dict[str, dict[str, Any]] = {}
        for path, value in changes.items():
            if path not in _paths():
                raise errors.unknown("recipe field", path, _paths())
            part, _, attribute = path.partition(".")
            if not attribute:
                plain[part] = value
            elif getattr(getattr(self, part), attribute, None) is not None:
                parts.setdefault(part, {})[attribute] = value
        # all at once: half of a change may be impossible
        return replace(self, **plain, **{name: replace(getattr(self, name), **new) for name, new in parts.items()})

    def describe(self) -> dict[str, Any]:
        """All choices as plain values, for a stored result."""
        out: dict[str, Any] = {"name": self.name, "temperature": self.temperature}
        for name, part in self.parts().items():
            out[name] = None if part is None else {"type": type(part).__name__, **_told(part)}
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


def _told(part: Any) -> dict[str, Any]:
    # a field marked quiet is left out at its default: results stored before it existed keep their hash
    quiet = {f.name for f in fields(part) if f.metadata.get("quiet") and getattr(part, f.name) == f.default}
    return {name: value for name, value in asdict(part).items() if name not in quiet}


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

    # ring Table 5(b): MoCo-v2 (τ 0.2; head, cosine schedule and blur are settings). 5(d): SimCLR.
    v2 = replace(moco, name="ring/moco_v2", label="MoCo-v2", temperature=0.2)
    yield v2
    yield replace(
        v2, name="ring/mocoring_v2", label="MoCoRing-v2", negatives=negatives.Ring(1, annealed, k=None), note=duration
    )
    simclr = Recipe(
        "ring/simclr", "SimCLR", views=Augmented(2), keys=keys.InBatch(), negatives=negatives.Every(), temperature=0.5,
        note="The paper's temperature, batch and head are in an appendix that is not at hand; taken are SimCLR's own"
        " for CIFAR-10.",
    )  # fmt: skip
    yield simclr
    yield replace(
        simclr, name="ring/simclring", label="SimCLRing", negatives=negatives.Ring(1, annealed, k=None),
        note=f"{simclr.note} {duration} Ranks are those within the batch: with fewer than 100 candidates the closest"
        " 1 % is nobody. The positive is never removed.",
    )  # fmt: skip


def _jcl() -> Iterator[Recipe]:
    # jcl §4.1: M' = 5, τ = 0.2, λ = 4, K = 65,536; otherwise MoCo v2 on 8 GPUs.
    moco = Recipe(
        "jcl/moco_v2", "MoCo v2", views=Augmented(2), keys=keys.Queue(65536, 0.999, parts=8),
        negatives=negatives.Every(), temperature=0.2,
    )  # fmt: skip
    jcl = replace(
        moco, name="jcl/jcl", label="JCL", views=Augmented(6), positives=positives.Joint(5, 4.0),
        note="The queue holds the mean key of each image, as in the released code. That code has M' = 4 and lets λ grow"
        " from 0 to 2 over the run.",
    )  # fmt: skip
    yield moco
    yield jcl
    yield replace(
        jcl, name="jcl/vanilla", label="five keys, averaged loss", positives=positives.Many(5),
        note="jcl Figure 1(b), Eq. 2–3: the mean of M losses; the queue holds the first key of each image.",
    )  # fmt: skip
    yield replace(
        jcl, name="jcl/released", label="JCL as released", views=Augmented(5),
        positives=positives.Joint(4, Linear(0, 2, until=1)), note="M' = 4 and λ from 0 to 2, as the released script.",
    )  # fmt: skip
    # jcl Figure 2: one number changed at a time.
    for keys_ in (2, 9):
        yield replace(
            jcl, name=f"jcl/keys{keys_}", label=f"JCL, M' = {keys_}", views=Augmented(1 + keys_),
            positives=positives.Joint(keys_, 4.0), note="",
        )  # fmt: skip
    for strength in (0.0, 1.0, 10.0):
        note = "The mean key alone: what is left of JCL without its covariance." if not strength else ""
        part = positives.Joint(5, strength)
        yield replace(jcl, name=f"jcl/lambda{strength:g}", label=f"JCL, λ = {strength:g}", positives=part, note=note)
    for temperature in (0.07, 0.5):
        label = f"JCL, τ = {temperature:g}"
        yield replace(jcl, name=f"jcl/tau{temperature:g}", label=label, temperature=temperature, note="")


def _fmicl() -> Iterator[Recipe]:
    # fmicl Algorithm 1: σ² = 1/2, μ = 1, α = 40; negatives within one view of the batch.
    batch = keys.InBatch("within", symmetric=False)
    kl = Recipe(
        "fmicl/kl", "KL", views=Augmented(2), keys=batch, negatives=negatives.Every(),
        objective=objectives.FMICL("kl"), temperature=0.5,
    )  # fmt: skip
    named = {
        "kl": "KL", "js": "JS", "pearson": "Pearson", "hellinger": "SH", "tsallis": "Tsallis-3",
        "vincze_le_cam": "VLC", "vincze_le_cam_printed": "VLC as printed", "reverse_kl": "RKL", "neyman": "Neyman",
    }  # fmt: skip
    notes = {
        "vincze_le_cam": "With the right composition f*∘f′; fmicl Tables 1 and 6 print another.",
        "vincze_le_cam_printed": "With the composition 3 − 4/(u + 1) of fmicl Tables 1 and 6, which is not f*∘f′.",
        "reverse_kl": "Fails fmicl Eq. 20: nothing asks for equal distances.",
        "neyman": "Fails fmicl Eq. 20: the negatives' term is concave in the squared distance.",
    }
    for divergence, label in named.items():
        yield replace(
            kl, name=f"fmicl/{divergence}", label=label, objective=objectives.FMICL(divergence),
            note=notes.get(divergence, ""),
        )  # fmt: skip
    for divergence in ("kl", "js", "pearson", "hellinger", "tsallis", "vincze_le_cam"):
        # raw cosines reach 1; three conjugates end at or below it
        bounded = divergence in ("js", "hellinger", "vincze_le_cam")
        note = (
            "The raw cosine reaches 1, where f* or its slope is infinite; scores are halved. The paper does not say"
            " what it did (its Vincze–Le Cam cell is 10.00 %, chance)."
        )
        yield replace(
            kl, name=f"fmicl/cosine_{divergence}", label=f"{named[divergence]}, cosine",
            objective=objectives.FMICL(divergence, similarity="cosine"), temperature=2.0 if bounded else 1.0,
            note=note if bounded else "",
        )  # fmt: skip
    for divergence in ("kl", "js"):
        for weight in (0.1, 1.0, 10.0, 20.0, 30.0, 50.0):  # 40 is the row above
            yield replace(
                kl, name=f"fmicl/{divergence}_alpha{weight:g}", label=f"{named[divergence]}, α = {weight:g}",
                objective=objectives.FMICL(divergence, weight=weight),
            )  # fmt: skip
    yield replace(
        kl, name="fmicl/simclr", label="SimCLR", keys=keys.InBatch(), objective=objectives.InfoNCE(),
        note="The paper gives no temperature; taken is SimCLR's own for CIFAR-10.",
    )  # fmt: skip
    yield replace(
        _find("ring/moco_v2"), name="fmicl/moco", label="MoCo",
        note="The version of MoCo and its queue are not stated; taken is v2.",
    )  # fmt: skip
    yield replace(
        kl, name="fmicl/au", label="AU", keys=keys.InBatch("within"), objective=objectives.AlignUniform(),
        temperature=1.0, note="Weights 1 and 1, t = 2: the defaults of its authors.",
    )  # fmt: skip
    yield replace(
        kl, name="fmicl/spectral", label="spectral contrastive", objective=objectives.Spectral(), temperature=1.0,
        note="fmicl Eq. 19 with cosine similarity.",
    )  # fmt: skip
    # fmicl Table 3: MoCo v3, symmetric, momentum encoder, no queue. Its predictor and ViT are not here.
    v3 = Recipe(
        "fmicl/moco_v3", "MoCo v3", views=Augmented(2), keys=keys.InBatch("across", momentum=0.99),
        negatives=negatives.Every(), temperature=0.2, note="Without the predictor of MoCo v3.",
    )  # fmt: skip
    yield v3
    for divergence in ("kl", "js", "pearson"):
        yield replace(
            v3, name=f"fmicl/moco_v3_{divergence}", label=f"{named[divergence]} on MoCo v3",
            objective=objectives.FMICL(divergence), temperature=0.5,
        )  # fmt: skip


def _find(name: str) -> Recipe:
    return _RECIPES[name]


_RECIPES: dict[str, Recipe] = {}
for _rows in (_references, _vince, _ring, _jcl, _fmicl):
    for _recipe in _rows():
        _RECIPES[_recipe.name] = _recipe
