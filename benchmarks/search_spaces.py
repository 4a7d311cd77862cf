"""What each recorded search tries: lists of trials for ``first``; for ``laptop`` draws from ranges, or all of them.

A random search of a family of methods draws the same settings for all of its rows. Half of the trials keep the numbers
that the paper prints (such as a temperature of 0.07); the others draw them, too. So one search says which settings are
best as printed and which are best when the printed numbers are tuned with the rest. Where runs are cheap, a search
tries every combination of its ranges at the length of the profile.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from contrastlab import papers
from contrastlab.settings import Settings

Trial = tuple[str, str, str, dict[str, Any]]
"""Name of the trial, data set, row, changes to where the search begins."""


@dataclass(frozen=True)
class Search:
    """One recorded search.

    Args:
        name: of its file.
        what: it measures, in words.
        held_out: items of training that neither encoders nor probes are trained on.
        start: settings that all trials share.
        listed: trials by hand: data set, changes to ``start``, rows.
        rows: of a search over ranges.
        ranges: path in the settings, or in ``overrides``, to the values drawn from.
        free: the same for what the paper prints; half of the trials leave these alone.
        lengths: (images, epochs) drawn from: images often seen, or many images.
        count: random trials; 0 tries every combination of ``ranges``.
        metric: that scores, in percent.
        data: the set whose table takes what wins.
        validation: a set whose test part is held out already; empty: the last training items of ``data`` are.
        longer: epochs of a run in the profile for each epoch of a run here.
        unordered: the set has its items in no order, so the last of all are held out, not the last of each class.
        by_row: each row takes the trial that is best for it; else all take the trial with the highest mean.
        climbs_from: by path, where a climb over the grid of ``ranges`` begins; see ``search.climb``. Empty: no climb.
        column: of ring Table 4, profile ``laptop``, seed 0: a detector on these encoders is searched, and no encoder.
    """

    name: str
    what: str
    held_out: int
    start: Mapping[str, Any]
    listed: Mapping[str, tuple[str, dict[str, Any], tuple[str, ...]]] = field(default_factory=dict)
    rows: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    free: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    lengths: tuple[tuple[int, int], ...] = ()
    count: int = 0
    metric: str = "linear"
    data: str = "cifar10"
    validation: str = ""
    longer: int = 3
    column: str = ""
    unordered: bool = False
    by_row: bool = False
    climbs_from: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stated(self) -> dict[str, Any]:
        """What a search draws from, as stored beside its runs."""
        if not self.rows:
            return {}
        stated = {
            "rows": list(self.rows),
            "ranges": {name: list(values) for name, values in self.ranges.items()},
            "free": {name: list(values) for name, values in self.free.items()},
            "lengths": [list(length) for length in self.lengths],
            "metric": self.metric,
            "data": self.data,
            "longer": self.longer,
        }
        if self.by_row:
            stated["by_row"] = True
        if self.climbs_from:
            stated["climbs_from"] = dict(self.climbs_from)
        return stated

    def trials(self) -> Iterator[Trial]:
        """Every run of the search, trial after trial."""
        for trial, (name, changes, rows) in self.listed.items():
            for row in rows:
                yield trial, name, row, changes
        for printed in (True, False) if self.free else (False,):
            drawn = self.draws(printed)
            for k, changes in enumerate(drawn):
                for row in self.rows:
                    yield f"{k} as printed" if printed else str(k), self.validation or self.data, row, changes

    def next_of_climb(self, accuracies: Mapping[str, float | None]) -> Trial | None:
        """The next trial of a climb over the grid of ``ranges``; ``None`` at an optimum that lies inside the grid.

        A climb moves to a neighbour, which differs by one step in one range, as soon as that neighbour is better. It
        ends where all neighbours were tried and none is.

        Args:
            accuracies: by name of the trial, of what was measured; ``None`` where training failed.

        Raises:
            ValueError: the best trial lies at the end of a range, so the range must be widened.
        """
        here = dict(self.climbs_from)
        while True:
            if self._name(here) not in accuracies:
                return self._trial(here)
            better = None
            for neighbour in self._neighbours(here):
                if self._name(neighbour) not in accuracies:
                    return self._trial(neighbour)
                if _height(accuracies[self._name(neighbour)]) > _height(accuracies[self._name(here)]):
                    better = neighbour
                    break
            if better is None:
                self._check_interior(here)
                return None
            here = better

    def _neighbours(self, here: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        for path, values in self.ranges.items():
            place = values.index(here[path])
            for step in (-1, 1):
                if 0 <= place + step < len(values):
                    yield {**here, path: values[place + step]}

    def _check_interior(self, here: Mapping[str, Any]) -> None:
        for path, values in self.ranges.items():
            if here[path] in (values[0], values[-1]):
                raise ValueError(f"search {self.name}: the best {path}, {here[path]}, lies at the end of {values}")

    def _name(self, here: Mapping[str, Any]) -> str:
        return ", ".join(f"{path} = {here[path]}" for path in self.ranges)

    def _trial(self, here: Mapping[str, Any]) -> Trial:
        return self._name(here), self.validation or self.data, self.rows[0], self._changes(here)

    def draws(self, printed: bool) -> list[dict[str, Any]]:
        """Settings of the trials; a range of a random one is a shuffled list that holds all values equally often."""
        ranges = {**self.ranges, **({} if printed else self.free)}
        if not self.count:
            drawn = [dict(zip(ranges, values, strict=True)) for values in itertools.product(*ranges.values())]
            return [self._changes(chosen) for chosen in drawn]
        count = self.count // 2 if self.free else self.count
        columns = {
            path: self._shuffled(f"{path} {printed}", values, count)
            for path, values in {"": self.lengths, **ranges}.items()
        }
        out = []
        for k in range(count):
            images, epochs = columns[""][k]
            chosen = {path: column[k] for path, column in columns.items() if path}
            out.append({"train_images": images, "epochs": epochs, **self._changes(chosen)})
        return out

    def _changes(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """What was chosen, as changes of settings: what belongs to the recipe lies in ``overrides``."""
        plain: dict[str, Any] = {}
        inner = dict(self.start.get("overrides", {}))
        for path, value in chosen.items():
            task, _, name = path.rpartition(".")
            if task in Settings.model_fields:
                plain[task] = {**plain.get(task, {}), name: value}
            elif task or path == "temperature":
                inner[path] = value
            else:
                plain[path] = value
        return {**plain, "overrides": inner}

    def _shuffled(self, path: str, values: tuple[Any, ...], count: int) -> list[Any]:
        generator = random.Random(f"{self.name} {path}")
        out: list[Any] = []
        while len(out) < count:
            out += generator.sample(values, len(values))
        return out[:count]


def _height(accuracy: float | None) -> float:
    return -1.0 if accuracy is None else accuracy


RANDOM = ("ours/random", "ours/random_lab")
IR, LA, CMC, MOCO = "ring/ir", "ring/la", "ring/cmc", "ring/moco"
RINGS = ("ring/iring", "ring/cmcring", "ring/mocoring")

# Where the search for `first` began: what is now profile `pilot`, shortened, in bfloat16.
START: dict[str, Any] = {
    "train_images": 2000,
    "image_size": 32,
    "augmentation": "instdisc",
    "arch": "tiny",
    "stem": "cifar",
    "epochs": 60,
    "batch_size": 128,
    "lr": 0.1,
    "weight_decay": 5e-4,
    "schedule": "cosine",
    "milestones": [],
    "knn_every": 0,
    "precision": "bf16-mixed",
    "linear": {"solver": "lbfgs", "features": "pooled", "train_images": 5000},
    "overrides": {
        "negatives.k": 1023,
        "negatives.nearest": 512,
        "keys.size": 512,
        "keys.momentum": 0.99,
        "positives.clusters": 200,
        "positives.runs": 1,
    },
}

CROP = {"augmentation": "cmc"}  # crop and flip, no colour jitter
SLOW = {**CROP, "warmup_epochs": 5}
BASE = {**SLOW, "overrides": {"keys.rate": 0.9, "keys.shuffle_groups": 8}}


def _base(**more: Any) -> dict[str, Any]:
    return {**BASE, **more, "overrides": {**BASE["overrides"], **more.get("overrides", {})}}


FIRST = Search(
    "first",
    "accuracy (percent) of ring Table 1's rows on held-out training images: choice of profile first",
    held_out=3000,
    start=START,
    unordered=True,
    # on the full set, where it began; on the plain one, the choice
    listed={
        "plain: random": ("plain_shapes", {}, RANDOM),
        "plain: base": ("plain_shapes", BASE, (IR, MOCO, CMC, *RINGS)),
        "plain: LA, 500 clusters": ("plain_shapes", _base(overrides={"positives.clusters": 500}), (LA,)),
        # an own row that is still random lies outside the ball, where LA has no gradient, unless that is the whole bank
        "plain: LA, 500 clusters, all nearest": (
            "plain_shapes",
            _base(overrides={"positives.clusters": 500, "negatives.nearest": 2000}),
            (LA,),
        ),
        "plain: LA, 200 clusters, all nearest": ("plain_shapes", _base(overrides={"negatives.nearest": 2000}), (LA,)),
        "plain: LA, rate 0.5, 500 clusters": (
            "plain_shapes",
            _base(overrides={"keys.rate": 0.5, "positives.clusters": 500}),
            (LA,),
        ),
        "plain: rate 0.5": ("plain_shapes", _base(overrides={"keys.rate": 0.5}), (LA, IR)),
        "plain: 1 part": ("plain_shapes", _base(overrides={"keys.shuffle_groups": 1}), (MOCO,)),
        "plain: jitter": ("plain_shapes", _base(augmentation="instdisc"), (IR, MOCO)),
        "plain: no warm-up": ("plain_shapes", _base(warmup_epochs=0), (IR, MOCO)),
        "full: random": ("shapes", {}, RANDOM),
        "full: start": ("shapes", {}, (IR, CMC, MOCO)),
        "full: crop and flip alone": ("shapes", CROP, (IR, CMC, MOCO)),
        "full: base, 1,000 images": ("shapes", _base(train_images=1000, epochs=120), (IR, MOCO)),
        "full: base, 4,000 images": ("shapes", _base(train_images=4000, epochs=30), (IR, MOCO)),
    },
)

# A third of the length of profile `laptop`, or less: about 80 to 120 core-seconds a run.
SHORT: dict[str, Any] = {
    "image_size": 32,
    "arch": "small",
    "stem": "cifar",
    "schedule": "cosine",
    "milestones": [],
    "warmup_epochs": 1,
    "knn_every": 0,
    "precision": "bf16-mixed",
    "linear": {"solver": "lbfgs", "features": "pooled", "train_images": 10000},
    "overrides": {"negatives.k": 1023, "positives.runs": 1},
}
OPTIMISER = {"lr": (0.03, 0.06, 0.12, 0.24), "batch_size": (64, 128, 256), "weight_decay": (1e-4, 5e-4)}
JITTERED = ("instdisc", "mocov2", "simclr")
VALIDATION = "accuracy (percent) on 5,000 held-out training images of CIFAR-10, 500 of each class: "


def _family(name: str, rows: tuple[str, ...], images: int, **more: Any) -> Search:
    """A random search of 10 trials, each run of which sees about ``images`` images."""
    lengths = tuple((n, max(1, round(images / n))) for n in (5000, 10000, 25000))
    given = {"ranges": OPTIMISER, "count": 10, **more}
    return Search(name, f"{VALIDATION}{', '.join(rows)}", 5000, SHORT, rows=rows, lengths=lengths, **given)


# Every combination of rate and batch at the length of the profile, with all else as the profile of the table has it.
RANGES = {"lr": (0.01, 0.03, 0.1), "batch_size": (64, 128)}
VIDEO = Search(
    "video",
    "accuracy (percent) of action recognition on 200 held-out training clips of 'clips'",
    200,
    {
        "image_size": 32,
        "augmentation": "cmc",
        "arch": "caffenet",
        "stem": "cifar",
        "width": 0.25,
        "epochs": 40,
        "weight_decay": 1e-4,
        "schedule": "cosine",
        "milestones": [],
        "knn_every": 0,
        "precision": "auto",
        "dim": 128,
        "overrides": {"views.stack": 4, "views.k": 3},
        "action": {"epochs": 60, "batch_size": 64, "milestones": [40], "frames": 8, "crops": 1, "train_clips": 400},
    },
    rows=("cmc/video_v", "cmc/video_d", "cmc/video_vd"),
    ranges=RANGES,
    metric="action",
    data="clips",
    longer=1,
)
# The smallest encoder on few images often seen, with what all such searches share.
SMALLEST: dict[str, Any] = {
    **SHORT,
    "arch": "tiny",
    "train_images": 5000,
    "batch_size": 128,
    "weight_decay": 1e-4,
    "precision": "auto",
    "linear": {"solver": "lbfgs", "features": "pooled"},
    "overrides": {},
}
# Small networks at full length. The printed rate of the bank, 0.5, is for runs of 240 epochs; like a queue's momentum,
# it is chosen anew for short ones.
COLOURS = Search(
    "colours",
    f"{VALIDATION}cmc/lab, cmc/ydbdr",
    5000,
    {**SMALLEST, "augmentation": "cmc", "epochs": 60, "overrides": {"negatives.k": 1023}},
    rows=("cmc/lab", "cmc/ydbdr"),
    ranges={"keys.rate": (0.5, 0.9), "lr": (0.03, 0.06, 0.12)},
    longer=1,
)
# A row of cmc Table 9 at the length of its profile: how slowly should the keys of two streams follow in a short run?
STREAM_QUEUES = Search(
    "stream-queues",
    f"{VALIDATION}cmc/cmc_moco",
    5000,
    {
        "image_size": 32,
        "augmentation": "cmc",
        "arch": "small",
        "stem": "cifar",
        "width": 0.5,
        "train_images": 5000,
        "epochs": 60,
        "batch_size": 128,
        "lr": 0.03,
        "weight_decay": 1e-4,
        "schedule": "cosine",
        "milestones": [],
        "warmup_epochs": 1,
        "knn_every": 0,
        "precision": "auto",
        "linear": {"solver": "lbfgs", "features": "pooled"},
        "overrides": {"keys.size": 4096, "keys.shuffle_groups": 4},
    },
    rows=("cmc/cmc_moco",),
    ranges={"keys.momentum": (0.99, 0.996, 0.999)},
    longer=1,
)
# The smallest encoder, for tables of many rows. The rate of a bank is searched beside the learning rate, and the row
# with logistic terms is one of those that choose.
VINCE = Search(
    "vince",
    f"{VALIDATION}vince/ir, vince/ir_nce, vince/ball",
    5000,
    {**SMALLEST, "augmentation": "simclr", "epochs": 20, "overrides": {"negatives.k": 1023}},
    rows=("vince/ir", "vince/ir_nce", "vince/ball"),
    ranges={"lr": (0.01, 0.03, 0.1, 0.003), "keys.rate": (0.5, 0.9)},
    longer=3,
)
# Rows with rings and close neighbours, at the length of the profile, with the bank's rate as that search chose it.
VINCE_NEIGHBOURS = Search(
    "vince-neighbours",
    f"{VALIDATION}vince/ball, vince/ball_sneigh, vince/ring, vince/ring_sneigh",
    5000,
    {
        **SMALLEST,
        "augmentation": "simclr",
        "epochs": 60,
        "overrides": {"negatives.k": 1023, "keys.rate": 0.9},
    },
    rows=("vince/ball", "vince/ball_sneigh", "vince/ring", "vince/ring_sneigh"),
    ranges={"lr": (0.01, 0.03, 0.003)},
    longer=1,
)
# Each row of VINCE Table 1 has a rate of its own, chosen at the full length of the profile. Every row tried the first
# four rates, and then the next one beyond its best for as long as the best lay at an edge.
VINCE_ROWS = tuple(papers.plan("vince", 1).rows)
VINCE_RATES, VINCE_LAB_RATES = (
    Search(
        name,
        f"{VALIDATION}{what} of vince Table 1, each with its own winner",
        5000,
        {
            **SMALLEST,
            "augmentation": augmentation,
            "epochs": 60,
            "overrides": {
                "negatives.k": 1023,
                "negatives.nearest": 1024,
                "positives.clusters": 100,
                "positives.runs": 1,
                "keys.rate": 0.9,
            },
        },
        rows=rows,
        ranges={"lr": (0.01, 0.003, 0.03, 0.1, 0.3, 0.001, 0.0003, 1.0)},
        longer=1,
        by_row=True,
    )
    for name, what, augmentation, rows in (
        ("vince-rates", "the rows of one stream", "simclr", VINCE_ROWS[:14]),
        ("vince-rates-lab", "the rows of two streams, L and ab", "cmc", VINCE_ROWS[14:]),
    )
)
IN_BATCH = Search(
    "in-batch",
    f"{VALIDATION}fmicl/kl, fmicl/simclr, fmicl/au",
    5000,
    {**SMALLEST, "head": "mlp", "epochs": 20},
    rows=("fmicl/kl", "fmicl/simclr", "fmicl/au"),
    ranges={"lr": (0.02, 0.06, 0.18, 0.006), "augmentation": ("mocov2", "simclr")},
    longer=2,
)
# What scales a loss and nobody else can choose for it, at the length of the profile: α and σ² of f-MICL (α was tuned by
# its authors, too), the temperature of SimCLR, weight and rate of uniformity. Values of the papers come first.
BATCH_LENGTH = {
    **SMALLEST,
    "head": "mlp",
    "epochs": 40,
    "lr": 0.02,
    "augmentation": "mocov2",
    "overrides": {},
}


def _scales(row: str, **ranges: tuple[float, ...]) -> Search:
    values = {path.replace("__", "."): those for path, those in ranges.items()}
    name = f"in-batch-{row.partition('/')[2]}"
    return Search(name, f"{VALIDATION}{row}", 5000, BATCH_LENGTH, rows=(row,), ranges=values, longer=1)


SCALES = (
    *(
        _scales(f"fmicl/{f}", temperature=(0.5, 0.2, 0.1, 0.05), objective__weight=(40.0, 10.0, 20.0, 4.0, 100.0))
        for f in ("kl", "js", "pearson", "vincze_le_cam")
    ),
    _scales("fmicl/simclr", temperature=(0.5, 0.2, 0.1, 1.0, 0.05, 0.07)),
    _scales("fmicl/au", objective__t=(2.0, 4.0, 1.0), objective__uniform=(1.0, 2.0, 0.5, 4.0)),
)
# A fair trial of f-MICL's Table 2. The augmentation and the three-layer head are the paper's. Each row climbs from
# where the searches above left it, over rate, scale and weight together, until no neighbour on the grid is better. A
# grid is widened where the best lies at its edge. α = 40, σ² = 1/2 and a rate of 0.1 are on the grids. A climb takes as
# many trials as it needs, more for a row with more scales, which favours that row where accuracies are noisy.
FAIR_LENGTH: dict[str, Any] = {
    **SMALLEST,
    "augmentation": "fmicl",
    "head": "mlp3",
    "train_images": 20000,
    "epochs": 20,
}
FAIR_RATES = (0.00078125, 0.0015625, 0.003125, 0.00625, 0.0125, 0.025, 0.05, 0.1, 0.2, 0.4)
FAIR_SCALES = (0.003125, 0.00625, 0.0125, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
FAIR_WEIGHTS = (1.25, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)


def _fair(row: str, ranges: Mapping[str, tuple[float, ...]], begin: Mapping[str, float], **fixed: Any) -> Search:
    """A climb of one row; ``fixed``: overrides that all of its trials share."""
    return Search(
        f"fair-{row.partition('/')[2]}",
        f"{VALIDATION}{row}, by a climb over rate and scales",
        5000,
        {**FAIR_LENGTH, "overrides": fixed},
        rows=(row,),
        ranges={"lr": FAIR_RATES, **ranges},
        climbs_from={"lr": 0.025, **begin},
        longer=1,
    )


def _scales_of(divergence: str) -> tuple[float, ...]:
    """Those at which a loss is a float32 number."""
    least = {"hellinger": 0.00625, "reverse_kl": 0.0125, "neyman": 0.025}.get(divergence, 0.0)
    return tuple(scale for scale in FAIR_SCALES if scale >= least)


FAIR_DIVERGENCES = {  # where each divergence begins: rate, σ² (the temperature) and α
    "kl": (0.025, 0.05, 40.0),
    "js": (0.025, 0.1, 40.0),
    "pearson": (0.025, 0.05, 20.0),
    "vincze_le_cam": (0.025, 0.05, 40.0),
    "vincze_le_cam_printed": (0.025, 0.05, 40.0),
    "hellinger": (0.025, 0.1, 40.0),
    "tsallis": (0.025, 0.1, 40.0),
    "reverse_kl": (0.025, 0.2, 40.0),
    # Two climbs from a rate of 0.025, σ² of 0.2 and 1 and α = 40 went on where every encoder ends at one point or two
    # poles and is worse than an untrained one. Training losses of three epochs showed where it fills more dimensions.
    "neyman": (0.003125, 2.0, 5.0),
}
FAIR = (
    *(
        _fair(
            f"fmicl/{divergence}",
            {"temperature": _scales_of(divergence), "objective.weight": FAIR_WEIGHTS},
            {"lr": rate, "temperature": scale, "objective.weight": weight},
        )
        for divergence, (rate, scale, weight) in FAIR_DIVERGENCES.items()
    ),
    _fair("fmicl/simclr", {"temperature": FAIR_SCALES}, {"temperature": 0.1}),
    _fair(
        "fmicl/au",
        {"objective.t": (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0), "objective.uniform": (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)},
        {"objective.t": 4.0, "objective.uniform": 0.5},
    ),
    _fair(
        "fmicl/moco",
        {"temperature": FAIR_SCALES, "keys.momentum": (0.9, 0.99, 0.996, 0.999)},
        {"temperature": 0.2, "keys.momentum": 0.99},
        **{"keys.size": 4096, "keys.shuffle_groups": 1},
    ),
    _fair("fmicl/spectral", {"temperature": FAIR_SCALES}, {"temperature": 0.5}),
    _fair(
        "jcl/jcl",
        {
            "lr": (*FAIR_RATES, 0.8, 1.6, 3.2),
            "temperature": FAIR_SCALES,
            "positives.strength": (0.0, 0.5, 1.0, 2.0, 4.0, 8.0),
        },
        {"temperature": 0.2, "positives.strength": 4.0},
        **{"keys.size": 4096, "keys.momentum": 0.99, "keys.shuffle_groups": 1},
    ),
)
# f-MICL's Table 8 as a fair trial: what the weight α does where all else is as the climbs above left it. Each row has
# its own rate. The rows are those that the table's claims compare; KL's row of α = 40 is that of its climb.
FAIR_ALPHA = tuple(
    Search(
        f"fair-alpha-{divergence}",
        f"k-nearest-neighbour {VALIDATION}f-MICL by {divergence.upper()} with several weights, each with its own rate",
        5000,
        {**FAIR_LENGTH, "overrides": {"temperature": scale}},
        rows=rows,
        ranges={"lr": rates},
        metric="knn200",
        longer=1,
        by_row=True,
    )
    for divergence, scale, rates, rows in (
        ("kl", 0.025, (0.0125, 0.00625, 0.025), ("fmicl/kl_alpha0.1", "fmicl/kl_alpha10", "fmicl/kl_alpha50")),
        ("js", 0.2, (0.025, 0.0125, 0.05), ("fmicl/js_alpha0.1", "fmicl/js_alpha10", "fmicl/js", "fmicl/js_alpha50")),
    )
)
# The comparison of the book's tenth chapter: f-MICL's Table 2 of profile laptop on pictures of half the side and for
# half the epochs, so that a run takes a minute. Each method climbs over its rate, and over its temperature where the
# paper sets one, from one rate and from the paper's temperature.
LATER_RATES = (0.00078125, 0.0015625, 0.003125, 0.00625, 0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
LATER_TEMPERATURES = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


def _later(row: str, temperature: float | None = None, *, optimiser: str = "sgd", **fixed: Any) -> Search:
    """A climb of one row; ``fixed``: overrides that all of its trials share."""
    ranges: dict[str, tuple[float, ...]] = {"lr": LATER_RATES}
    begin = {"lr": 0.025}
    start = {
        **SMALLEST,
        "image_size": 16,
        "head": "mlp",
        "epochs": 20,
        "augmentation": "mocov2",
        "overrides": fixed,
    }
    if temperature is not None:
        ranges["temperature"] = LATER_TEMPERATURES
        begin["temperature"] = temperature
    if optimiser == "adam":
        start["optimiser"] = {"name": "adam"}
        begin["lr"] = 0.0015625
    return Search(
        f"later-{row.partition('/')[2]}",
        f"{VALIDATION}{row}, by a climb",
        5000,
        start,
        rows=(row,),
        ranges=ranges,
        climbs_from=begin,
        longer=1,
    )


LATER = (
    _later("decoupled/simclr", 0.1),
    _later("decoupled/dcl", 0.1),
    _later("debiased/debiased", 0.5),
    _later("hard/hard", 0.5),
    _later("rince/rince", 0.5),
    # As in its paper, by Adam. The loss is a sum over 128 keys, and its first gradient of the learnt scale is hundreds
    # of nats: one step of SGD takes the scale to zero, after which all pairs have the same score.
    _later("siglip/sigmoid", optimiser="adam"),
    _later("fmicl/au"),
    _later("fmicl/spectral", 1.0),
    _later("barlow/barlow"),
    _later("vicreg/vicreg"),
    # A run has 780 steps, so the momentum is 0.99, as for queues of such runs. The predictor is as wide as SimSiam's.
    _later("byol/byol", **{"keys.momentum": 0.99, "keys.predictor": 512}),
    _later("simsiam/simsiam"),
    _later("supcon/out", 0.1),
)
# JCL's six views a step; parts of the batch-norm and the queue's length as the search ``queue`` chose them.
JOINT = Search(
    "joint",
    f"{VALIDATION}jcl/jcl, jcl/lambda0",
    5000,
    {
        **SMALLEST,
        "augmentation": "mocov2",
        "head": "mlp",
        "epochs": 15,
        "overrides": {"keys.size": 4096, "keys.momentum": 0.99, "keys.shuffle_groups": 1},
    },
    rows=("jcl/jcl", "jcl/lambda0"),
    ranges={"lr": (0.02, 0.06, 0.18)},
    longer=1,
)
# The same with a queue of 256 keys, where the own image is a large part of the sum: what λ does should show there.
JOINT_SHORT_QUEUE = Search(
    "joint-short-queue",
    f"{VALIDATION}jcl/jcl, jcl/lambda0, jcl/lambda1",
    5000,
    {**JOINT.start, "overrides": {**JOINT.start["overrides"], "keys.size": 256}},
    rows=("jcl/jcl", "jcl/lambda0", "jcl/lambda1"),
    ranges={"lr": (0.02, 0.06, 0.18)},
    longer=1,
)


# Two layers on a frozen network's features. A climb of the base row alone found 0.00375 for IR and 0.03 for MoCo; here
# both rows of a pair are tried at the rates around it.
def _on_features(name: str, rows: tuple[str, ...], *rates: float) -> Search:
    """Every rate for both rows of a pair."""
    return Search(
        f"features-{name}",
        f"accuracy (percent) on 2,000 held-out training pictures, 200 of each class: {', '.join(rows)} on features",
        2000,
        {
            "epochs": 20,
            "schedule": "cosine",
            "milestones": [],
            "knn_every": 0,
            "linear": {"solver": "lbfgs", "features": "pooled"},
            "overrides": {
                "negatives.k": 2047,
                "keys.size": 8192,
                "keys.momentum": 0.99,
                "keys.shuffle_groups": 1,
                "positives.clusters": 100,
                "positives.runs": 1,
            },
        },
        rows=rows,
        ranges={"lr": rates},
        data="cifar10_lite0",
        longer=1,
    )


FEATURES = (
    _on_features("bank", ("ring/ir", "ring/iring"), 0.001875, 0.00375, 0.0075, 0.015),
    _on_features("queue", ("ring/moco", "ring/mocoring"), 0.0075, 0.015, 0.03, 0.06),
)
# MoCo and its ring part from one MoCo, as in profile regime. Most of the closest 1 % of these pictures are of the own
# class after few epochs.
BRANCHES = Search(
    "branches",
    "accuracy (percent) on 5,000 held-out training pictures of Fashion-MNIST, 500 of each class",
    5000,
    {
        **SMALLEST,
        "augmentation": "mocov2",
        "train_images": 20000,
        "epochs": 20,
        "knn_every": 5,
        "start": {"method": MOCO, "epochs": 30},
        "overrides": {"keys.size": 4096, "keys.momentum": 0.996, "keys.shuffle_groups": 1},
    },
    rows=(MOCO, "ring/mocoring"),
    ranges={"lr": (0.06, 0.03, 0.12)},
    data="fashionmnist",
    longer=1,
)
# The same rows on 200 classes, where half a percent of the keys are of the own class: a ring could skip all.
MANY_CLASSES = Search(
    "many-classes",
    "accuracy (percent) on 5,000 held-out training images of Tiny ImageNet, 25 of each class",
    5000,
    {
        **SMALLEST,
        "augmentation": "mocov2",
        "train_images": 50000,
        "epochs": 16,
        "knn_every": 4,
        "overrides": {"keys.size": 16384, "keys.momentum": 0.996, "keys.shuffle_groups": 1},
    },
    rows=(MOCO, "ring/mocoring"),
    ranges={"lr": (0.06, 0.03, 0.12)},
    data="tinyimagenet32",
    longer=1,
)
ROOMS = Search(
    "rooms",
    "mean intersection over union (percent) of pixels' classes in 200 validation rooms",
    200,
    {
        "image_size": 64,
        "augmentation": "crop",
        "arch": "scene",
        "width": 0.25,
        "dim": 64,
        "epochs": 20,
        "optimiser": {"name": "adam", "betas": [0.5, 0.999]},
        "weight_decay": 0.0,
        "schedule": "steps",
        "milestones": [13, 16, 19],
        "gamma": 0.2,
        "knn_every": 0,
        "precision": "auto",
        "segmentation": {"epochs": 30, "batch_size": 32, "lr": 3e-3, "width": 8},
        "overrides": {},
    },
    rows=("cmc/views_2", "cmc/core_4", "cmc/full_4", "cmc/views_1", "cmc/views_3"),
    ranges={"lr": (0.001, 0.003, 0.01), "batch_size": (32, 64)},
    metric="miou_L",
    data="rooms",
    validation="rooms_validation",
    longer=1,
)


def _after_rooms(name: str, rows: tuple[str, ...], path: str, values: tuple[float, ...], **more: Any) -> Search:
    """A search of one rate for each row on rooms, with all else as the winner of ``ROOMS`` has it.

    ``more`` changes ``ROOMS``; ``segmentation`` in it changes the settings of the decoder.
    """
    chosen = {**ROOMS.start, "lr": 3e-3, "batch_size": 32}
    segmentation = {**ROOMS.start["segmentation"], **more.pop("segmentation", {})}
    start = {**chosen, "segmentation": segmentation, "linear": {"solver": "lbfgs", "features": "pooled"}}
    given = {"start": start, "rows": rows, "ranges": {path: values}, "by_row": True, **more}
    return replace(ROOMS, name=name, **given)


# Claims of CMC's Tables 3 to 5 set rows against others that ROOMS does not have. Supervised rows are trained by their
# task alone, so their rate is that of the decoder, and rows with a frozen encoder get as many rates of theirs.
DECODER_RATES = (0.001, 0.003, 0.01)
AFTER_ROOMS = (
    _after_rooms("rooms-decoders", ("cmc/scenes_random", "cmc/core_4", "cmc/full_4"), "segmentation.lr", DECODER_RATES),
    _after_rooms(
        "rooms-supervised",
        ("cmc/scenes_supervised",),
        "segmentation.lr",
        DECODER_RATES,
        segmentation={"end_to_end": True},
    ),
    _after_rooms(
        "rooms-supervised-long",
        ("cmc/scenes_supervised_long",),
        "segmentation.lr",
        DECODER_RATES,
        segmentation={"end_to_end": True, "epochs": 150},
    ),
    _after_rooms(
        "rooms-predictive",
        (
            "cmc/predict_depth",
            "cmc/contrast_depth",
            "cmc/predict_normal",
            "cmc/contrast_normal",
            "cmc/predict_label",
            "cmc/contrast_label",
        ),
        "lr",
        (0.003, 0.001, 0.01),
        what="accuracy (percent) of a linear classifier of the kind of room on 200 validation rooms",
        metric="linear_L",
    ),
)
SPEECH = Search(
    "speech",
    "accuracy (percent) of a linear classifier of digits on 300 held-out training utterances of 'fsdd'",
    300,
    {
        "augmentation": "none",
        "arch": "tiny",
        "stem": "cifar",
        "head": "linear",
        "dim": 128,
        "epochs": 12,
        "weight_decay": 5e-4,
        "schedule": "cosine",
        "warmup_epochs": 1,
        "milestones": [],
        "knn_every": 0,
        "precision": "auto",
        "linear": {"solver": "lbfgs", "features": "map"},
        "speech": {
            "rate": 8000,
            "window": 512,
            "hop": 128,
            "mean": -68.68,
            "std": 21.43,
            "frequency_mask": 20,
            "time_mask": 20,
        },
        "overrides": {"keys.size": 1024, "keys.momentum": 0.99},
    },
    rows=(MOCO, "ring/mocoring"),
    ranges={"lr": (0.03, 0.1, 0.3), "batch_size": (64, 128)},
    data="fsdd",
    longer=1,
)


# Detectron2's rate, 0.02, is for 16 pictures a step.
SHORT_DETECTOR = {"steps": 200, "milestones": [133, 183], "warmup_steps": 50}


def _detector(kind: str, column: str, held_out: int, start: Mapping[str, Any], *rates: float) -> Search:
    what = {"boxes": "VOC's AP of boxes", "masks": "AP of masks", "keypoints": "AP of keypoints"}[kind]
    metric = {"boxes": "detection_ap", "masks": "mask_ap", "keypoints": "keypoint_ap"}[kind]
    return Search(
        f"detector-{kind}",
        f"{what} on {held_out} held-out training pictures of ring Table 4's column {column}",
        held_out,
        {kind: dict(start)},
        rows=("ours/random", MOCO, "ours/supervised"),
        ranges={f"{kind}.lr": rates},
        metric=metric,
        data="tinyimagenet32",
        longer=1,
        column=column,
    )


def _profile(table: str, row: str) -> dict[str, Any]:
    """What profile laptop trains a row of a table with on CIFAR-10."""
    settings = papers.plan(*table.split()).settings("cifar10", row, "laptop")
    return settings.model_dump(mode="json", exclude_defaults=True, exclude={"boxes", "masks", "keypoints"})


# What a search at a third or half of the length chose, once more at the length of the profile.
FULL_LENGTH = Search(
    "full-length",
    f"{VALIDATION}winners of shortened searches at full length",
    5000,
    {},
    listed={
        name: ("cifar10", _profile(table, rows[0]), rows)
        for name, table, rows in (
            ("vince", "vince 1", VINCE.rows),
            ("in-batch", "fmicl 2", IN_BATCH.rows),
            ("bank", "ring 1", (IR, "ring/iring")),
            ("queue", "ring 1", (MOCO, "ring/mocoring")),
            ("two-stream", "ring 1", (CMC, "ring/cmcring")),
        )
    },
)
# Lesions of ring Table 2 have the settings that "bank" chose for IR and IRing. Does a rate of its own help a lesion?
LESIONS = Search(
    "lesions",
    f"{VALIDATION}IRing and its lesions, each with its own rate",
    5000,
    _profile("ring 2", "ring/iring"),
    rows=("ring/iring", "ring/iring_noanneal", "ring/iring_l0"),
    ranges={"lr": (0.06, 0.03, 0.12)},
    longer=1,
    by_row=True,
)
BANK_FREE = {"temperature": (0.1, 0.15, 0.2, 0.3), "keys.rate": (0.5, 0.9)}
QUEUE = {"keys.size": (1024, 4096, 8192), "keys.momentum": (0.99, 0.996), "keys.shuffle_groups": (1, 8)}
SEARCHES: dict[str, Search] = {
    search.name: search
    for search in (
        FIRST,
        COLOURS,
        STREAM_QUEUES,
        VINCE,
        VINCE_NEIGHBOURS,
        VINCE_RATES,
        VINCE_LAB_RATES,
        IN_BATCH,
        FULL_LENGTH,
        LESIONS,
        *SCALES,
        *FAIR,
        *FAIR_ALPHA,
        *LATER,
        JOINT,
        JOINT_SHORT_QUEUE,
        BRANCHES,
        *FEATURES,
        MANY_CLASSES,
        ROOMS,
        *AFTER_ROOMS,
        SPEECH,
        VIDEO,
        _detector("boxes", "bccd", 72, SHORT_DETECTOR, 0.0025, 0.005, 0.01),
        _detector("masks", "scenes_mask", 200, SHORT_DETECTOR, 0.0025, 0.005, 0.01, 0.02),
        _detector("keypoints", "lsp", 200, {}, 0.0025, 0.005, 0.01, 0.02),
        _family(
            "bank",
            (IR, "ring/iring"),
            150_000,
            ranges={**OPTIMISER, "augmentation": ("cmc", *JITTERED)},
            free=BANK_FREE,
        ),
        _family(
            "queue",
            (MOCO, "ring/mocoring"),
            100_000,
            ranges={**OPTIMISER, **QUEUE, "augmentation": JITTERED},
            free={"temperature": (0.1, 0.15, 0.2, 0.3)},
        ),
        _family(
            "two-stream",
            (CMC, "ring/cmcring"),
            100_000,
            ranges={**OPTIMISER, "augmentation": ("cmc", "cmc_jitter")},
            free=BANK_FREE,
        ),
        _family(
            "local-aggregation",
            (LA,),
            150_000,
            ranges={
                **OPTIMISER,
                "augmentation": ("cmc", *JITTERED),
                "positives.clusters": (100, 300, 1000),
                "negatives.nearest": (512, 1024, 4096),
            },
            free=BANK_FREE,
        ),
    )
}
"""By name of the file."""
