"""What the papers say of their own tables, counted from the tables as transcribed.

A claim is a function of the paper's tables that returns whether the sentence is true as printed, whether what the
ledger says instead is true, and the numbers that the entry shows. Its name is the name of the statement.
"""

from collections.abc import Callable

import pandas as pd
import pytest

from contrastbook import ledger
from contrastlab import papers

Table = Callable[[int | str], pd.DataFrame]
Answer = tuple[bool, bool, dict[str, float | int | str]]
CLAIMS: dict[str, Callable[[Table], Answer]] = {}


def claim(name: str) -> Callable[[Callable[[Table], Answer]], None]:
    def register(function: Callable[[Table], Answer]) -> None:
        assert name not in CLAIMS
        CLAIMS[name] = function

    return register


def printed(paper: str) -> Table:
    """Rows and columns in the order of the paper; a difference is rounded like the numbers it is made of."""

    def table(name: int | str) -> pd.DataFrame:
        frame = papers.published(paper, name)
        wide = frame.pivot_table(index="row", columns="column", values="value")
        return wide.loc[frame["row"].unique(), frame["column"].unique()]

    return table


def gains(table: pd.DataFrame, pairs: str) -> pd.Series:
    """``"IRing-IR"``: first row minus second, for every column that has both; labelled row and column."""
    found = {}
    for pair in pairs.split():
        ours, base = (name.replace("_", " ") for name in pair.split("-"))
        for column, value in (table.loc[ours] - table.loc[base]).dropna().items():
            found[f"{ours} on {column}" + (f" over {base}" if pairs.count(f"{ours}-") > 1 else "")] = round(value, 6)
    return pd.Series(found)


def words(values: pd.Series) -> str:
    return ", ".join(f"{name} {value:+.1f}" for name, value in values.items())


STATISTICS: dict[str, Callable[[pd.Series], float | str]] = {
    "all": len, "better": lambda gain: int((gain > 0).sum()), "least": pd.Series.min, "most": pd.Series.max,
    "least_at": pd.Series.idxmin, "most_at": pd.Series.idxmax,
}  # fmt: skip
Sentence = Callable[[pd.Series], bool]


def above(gain: pd.Series) -> bool:
    return (gain > 0).all()


def of_gains(
    name: str, table: int | str | Callable[[Table], pd.DataFrame], pairs: str, true: Sentence, shown: str = "",
    instead: Sentence = lambda gain: True, **more: Callable[[pd.Series], float | str],
) -> None:  # fmt: skip
    """A claim on the :func:`gains` of one table; ``shown`` are names of ``STATISTICS``, ``more`` are others."""

    @claim(name)
    def _(t: Table) -> Answer:
        gain = gains(table(t) if callable(table) else t(table), pairs)
        numbers = {key: STATISTICS[key] for key in shown.split()} | more
        return true(gain), instead(gain), {key: show(gain) for key, show in numbers.items()}


def methods(gain: pd.Series) -> str:
    """Differences named by the first row alone, without what follows a space or a circumflex."""
    return words(gain.rename(lambda x: x.split()[0].split("^")[0]))


RINGS = "IRing-IR CMCRing-CMC MoCoRing-MoCo"


of_gains(
    "vince/up-to-15", 1, "IR^nce-IR LA^nce-LA CMC^nce-CMC", lambda gain: gain.max() <= 15, "most", above, all=methods
)
of_gains(
    "vince/la-differs-least", 1, "LA^nce-LA IR^nce-IR CMC^nce-CMC",
    lambda gain: gain.iloc[0] < gain.iloc[1:].min() / 5,
    la=lambda gain: gain.iloc[0], others=lambda gain: gain.iloc[1:].min(),
)  # fmt: skip
of_gains(
    "vince/up-to-3", 1, "BALL-IR^nce CAVE-IR^nce RING-IR^nce", lambda gain: gain.max() <= 3, instead=above, all=methods
)
of_gains(
    "vince/ring-above-cave", 1, "RING-CAVE RING^Lab-CAVE^Lab", above,
    gain=lambda gain: gain.iloc[0], lab=lambda gain: gain.iloc[1],
)  # fmt: skip
of_gains("vince/ring-above-la", 1, "RING-LA RING-LA^nce", above, gain=pd.Series.min)
of_gains(
    "vince/anneal-3-4", 1, "BALL^anneal-IR^nce CAVE^anneal-IR^nce RING^anneal-IR^nce",
    lambda gain: gain.round().between(3, 4).all(),
    instead=lambda gain: gain.iloc[1:].round().between(3, 4).all(), all=methods,
)  # fmt: skip


@claim("vince/neighbours-not-always")
def _(t: Table) -> Answer:
    pairs = "BALL^s-neigh|BALL RING^s-neigh|RING BALL^Lab+s-neigh|BALL^Lab RING^Lab+s-neigh|RING^Lab"
    top = t(1).iloc[:, 0]
    gain = pd.Series({a: round(top[a] - top[b], 6) for a, b in (pair.split("|") for pair in pairs.split())})
    return (gain < 0).any(), True, {"all": len(gain), "worse": int((gain < 0).sum()), "most": gain.min()}


@claim("vince/best-model")
def _(t: Table) -> Answer:
    top = t(1).iloc[:, 0]
    plain, lab = top["RING^s-neigh+anneal"], top["RING^Lab+s-neigh+anneal"]
    by = {"ir": plain - top["IR^nce"], "la": plain - top["LA^nce"], "cmc": lab - top["CMC^nce"]}
    by = {k: round(v, 6) for k, v in by.items()}
    level = [name for name in top.index if top[name] == top.max()]
    right = [round(v) for v in by.values()] == [4, 3, 2] and len(level) == 2
    return right, right, {**by, "level": " and ".join(level)}


@claim("vince/up-to-20")
def _(t: Table) -> Answer:
    top = t(1).iloc[:, 0]
    gain = round(top["RING^s-neigh+anneal"] - top["IR"], 6)
    other = round(top["RING^Lab+s-neigh+anneal"] - top["CMC"], 6)
    return gain <= 20, other < 20, {"gain": gain, "cmc": other}


@claim("vince/twenty-six")
def _(t: Table) -> Answer:
    own = [name for name in t(1).index if name not in ("IR", "LA", "CMC")]
    return len(t(1)) == 26 and len(own) == 23, True, {"all": len(t(1)), "own": len(own)}


def transfer(t: Table) -> pd.DataFrame:
    """Table 2 without the rows that have ImageNet only."""
    return pd.concat([t(f"2{part}") for part in "abcde"], axis=1).dropna()


@claim("vince/five-tasks")
def _(t: Table) -> Answer:
    names = {column.rsplit(" ", 1)[0] + (" masks" if "mk" in column else "") for column in transfer(t).columns}
    tasks = len(names) + 1  # keypoints of COCO are a task beside its boxes and masks
    assert any("kp" in column for column in transfer(t).columns)
    return tasks == 5, tasks == 6, {"tasks": tasks}


of_gains("vince/consistently-above-ir", transfer, "BALL-IR CAVE-IR", above, "all least")


@claim("vince/across-tasks")
def _(t: Table) -> Answer:
    gain = gains(transfer(t), "CAVE^anneal-IR CAVE^anneal-LA")
    worse = gain[gain <= 0]
    less = worse.rename(lambda x: x.removeprefix("CAVE^anneal on "))
    return worse.empty, (gain > 0).sum() == len(gain) - len(worse) and len(worse) == 2, {
        "all": len(gain), "above": int((gain > 0).sum()), "worse": words(less),
    }  # fmt: skip


@claim("vince/table-4-pattern")
def _(t: Table) -> Answer:
    best = t(4).idxmax().unique()
    return list(best) == ["ANN^kmeans+anneal (=CAVE^anneal)"], True, {"columns": t(4).shape[1]}


@claim("vince/table-3-order")
def _(t: Table) -> Answer:
    value = t(3).iloc[:, 0]
    falls = value.is_monotonic_decreasing and value.is_unique
    return falls, True, {"rows": len(value) - 2, "times": value["True"] / value.iloc[-1]}


@claim("vince/table-5-agrees")
def _(t: Table) -> Answer:
    one, five = t(1).iloc[:, 0], t(5)["CIFAR10 top1"]
    return one.equals(five.rename(one.name)), True, {"rows": len(one)}


of_gains(
    "ring/section-5-every", 1, RINGS, above, "all better",
    instead=lambda gain: (gain >= 0).all() and (gain > 0).sum() == len(gain) - 1,
    level=lambda gain: ", ".join(gain.index[gain == 0]),
)  # fmt: skip
of_gains(
    "ring/la-by-4", 1, "IRing-LA CMCRing-LA MoCoRing-LA", lambda gain: gain.max() <= 4 and gain.min() > 0,
    "most most_at least least_at", instead=lambda gain: (gain < 0).sum() == 1,
)  # fmt: skip
of_gains(
    "ring/ball-above-ir", 2, "IRing_(l=0)-IR", above,
    gain=lambda gain: words(gain.rename(lambda x: x.split(" on ")[1])),
)  # fmt: skip
of_gains(
    "ring/half-to-two", 3, RINGS, lambda gain: gain.between(0.5, 2).all(), "all least most",
    inside=lambda gain: int(gain.between(0.5, 2).sum()), lost=lambda gain: int((gain < 0).sum()),
)  # fmt: skip
of_gains("ring/iring-above-la", 3, "IRing-LA", lambda gain: (gain > 0).mean() > 0.5, "all better")
of_gains(
    "ring/speech-mean", lambda t: t("5c").T, "MoCoRing-MoCo",
    lambda gain: len(gain) == 6 and round(gain.mean(), 1) == 2.2, "all", mean=pd.Series.mean,
)  # fmt: skip
of_gains(
    "ring/simclring", lambda t: t("5d").T, "SimCLRing-SimCLR",
    lambda gain: (gain > 0).all() and gain.max() < 1, "least most",
)  # fmt: skip


@claim("ring/two-to-five")
def _(t: Table) -> Answer:
    gain = gains(t(1), RINGS)
    low = gain[gain < 2]
    return gain.round().between(2, 5).all(), gain.between(gain.min(), gain.max()).all() and len(low) == 4, {
        "all": len(gain), "least": gain.min(), "most": gain.max(), "low": words(low), "count": len(low),
    }  # fmt: skip


@claim("ring/ablations")
def _(t: Table) -> Answer:
    without, ball = gains(t(2), "IRing-IRing_(No_Anneal)"), gains(t(2), "IRing-IRing_(l=0)")
    return (without > 0).all() and (ball > 0).all() and (without.to_numpy() > ball.to_numpy()).all(), True, {
        "anneal": words(without), "ball": words(ball),
    }  # fmt: skip


@claim("ring/traffic-and-flowers")
def _(t: Table) -> Answer:
    gain = gains(t(3), RINGS)
    mean = gain.groupby(gain.index.str.split(" on ").str[1]).mean().sort_values(ascending=False)
    return set(mean.index[:2]) == {"TrafficSign", "VGGFlower"}, True, {
        "traffic": mean["TrafficSign"], "flower": mean["VGGFlower"], "next": mean.iloc[2],
    }  # fmt: skip


@claim("ring/printed-differences")
def _(t: Table) -> Answer:
    wrong, all_of_them = [], 0
    for table, names in ((1, "IRing-IR:IRing_minus_base_(printed) CMCRing-CMC:CMCRing_minus_base_(printed) "
                             "MoCoRing-MoCo:MoCoRing_minus_base_(printed)"),
                         (3, "IRing-IR:IRing_minus_IR_(printed) CMCRing-CMC:CMCRing_minus_CMC_(printed) "
                             "MoCoRing-MoCo:MoCoRing_minus_MoCo_(printed)")):  # fmt: skip
        for name in names.split():
            pair, row = name.split(":")
            shown, right = t(table).loc[row.replace("_", " ")], gains(t(table), pair)
            all_of_them += len(right)
            wrong += [
                f"{at} in Table {table} {stated:+.1f} for {value:+.1f}"
                for (at, value), stated in zip(right.items(), shown, strict=True) if abs(value - stated) > 1e-6
            ]  # fmt: skip
    notes = papers.published("ring", "5b").set_index(["row", "column"])["note"]
    for row, value in (t("5b")["MoCoRing-v2"] - t("5b")["MoCo-v2"]).items():
        stated = float(notes[row, "MoCoRing-v2"].split("printed delta ")[1].split()[0])
        all_of_them += 1
        if abs(stated - value) > 1e-6:
            wrong.append(f"{row} in Table 5b {stated:+.1f} for {value:+.1f}")
    return not wrong, len(wrong) == 2, {"all": all_of_them, "wrong": len(wrong), "which": "; ".join(wrong)}


@claim("ring/downstream-iring")
def _(t: Table) -> Answer:
    gain = gains(t(4), "IRing-IR")[
        [f"IRing on {c}" for c in ("COCO det APbb", "COCO seg APmk", "COCO keypoint APkp", "VOC det APbb")]
    ]
    return gain.tolist() == [2.3, 2.5, 2.6, 2.1], True, {"all": len(gain)}


@claim("ring/downstream-moco")
def _(t: Table) -> Answer:
    gain = gains(t(4), "MoCoRing-MoCo")
    whole = gain[[name for name in gain.index if name.endswith(("APbb", "APmk", "APkp"))]]
    return whole.between(1, 3).all(), (gain > 0).all(), {
        "all": words(whole.rename(lambda x: x.removeprefix("MoCoRing on ")))
    }  # fmt: skip


@claim("ring/cost-ratio")
def _(t: Table) -> Answer:
    cost = t("5a")
    ratio = pd.concat([cost.loc["IRing"] / cost.loc["IR"], cost.loc["MoCoRing"] / cost.loc["MoCo"]])
    return (ratio <= 1.5).all(), True, {"least": ratio.min(), "most": ratio.max()}


@claim("ring/cost-imagenet")
def _(t: Table) -> Answer:
    more = gains(t("5a"), "IRing-IR MoCoRing-MoCo").filter(like="ImageNet")
    return more.round().between(3, 7).all(), True, {"least": more.min(), "most": more.max()}


@claim("ring/cost-others")
def _(t: Table) -> Answer:
    more = gains(t("5a"), "IRing-IR MoCoRing-MoCo").filter(like="seconds")
    sets = {column.split()[0] for column in t("5a").columns}
    return more.between(10, 60).all() and len(sets) == 4, len(sets) == 2, {
        "least": more.min(), "most": more.max(), "others": len(sets) - 1,
    }  # fmt: skip


@claim("ring/cost-printed-ratios")
def _(t: Table) -> Answer:
    notes = papers.published("ring", "5a").set_index(["row", "column"])["note"]
    wrong = []
    for row, column in notes.index[notes.str.contains("ratio")]:
        stated = float(notes[row, column].split("printed ratio ")[1].split("x")[0])
        right = t("5a").loc[row, column] / t("5a").loc[row.replace("Ring", "") if row != "IRing" else "IR", column]
        if round(right, 1) != stated:
            wrong.append((row, column.split()[0], stated, right))
    row, column, stated, right = wrong[0]
    return not wrong, len(wrong) == 1, {"row": row, "column": column, "stated": stated, "right": right}


@claim("ring/speech-1-to-4")
def _(t: Table) -> Answer:
    gain = gains(t("5c").T, "MoCoRing-MoCo").rename(lambda x: x.removeprefix("MoCoRing on "))
    return gain.round().between(1, 4).all(), (gain > 0).all(), {
        "least": gain.min(), "least_at": gain.idxmin(), "most": gain.max(),
    }  # fmt: skip


@claim("ring/best-settings")
def _(t: Table) -> Answer:
    gain = (t("5b")["MoCoRing-v2"] - t("5b")["MoCo-v2"]).round(6)
    table_1 = gains(t(1), "MoCoRing-MoCo")
    return gain.between(table_1.min(), table_1.max()).all(), True, {
        "least": gain.min(), "most": gain.max(), "first": table_1.min(), "last": table_1.max(),
    }  # fmt: skip


of_gains(
    "jcl/above-moco-v2", 2, "JCL-MoCo_v2", lambda gain: (gain >= 0).all() and (gain > 0).sum() >= 8, "all better most"
)
of_gains(
    "jcl/higher-iou", 2, "JCL-MoCo_v2",
    lambda gain: gain["JCL on COCO det APbb75"] > gain["JCL on COCO det APbb50"],
    half=lambda gain: gain["JCL on COCO det APbb50"], high=lambda gain: gain["JCL on COCO det APbb75"],
)  # fmt: skip
of_gains(
    "jcl/many-scenarios", 2, "JCL-supervised", lambda gain: (gain > 0).mean() > 0.5, "all better",
    boxes=lambda gain: int((gain.filter(like="det") > 0).sum()),
)  # fmt: skip
of_gains(
    "jcl/boost-over-random", 2, "supervised-random MoCo-random MoCo_v2-random JCL-random", above, "all least"
)  # fmt: skip
of_gains(
    "cmc/ydbdr-by-0-7", 1, "{Y,DbDr}-{L,ab}",
    lambda gain: gain["{Y,DbDr} on ResNet50x2 top1"] == 0.7, "least most",
)  # fmt: skip


@claim("jcl/table-1-best")
def _(t: Table) -> Answer:
    one = t(1)[["ImageNet top1", "ImageNet top5"]]
    lead = [one[c]["JCL"] - one[c].drop("JCL").max() for c in one]
    return min(lead) > 0, True, {"top1": round(lead[0], 6), "top5": round(lead[1], 6), "rows": len(one)}


@claim("jcl/not-contrastive")
def _(t: Table) -> Answer:
    others = ["RelativePosition", "Jigsaw", "Rotation", "Colorization", "DeepCluster", "BigBiGAN"]
    best = t(1)["ImageNet top1"][others]
    lead = round(t(1)["ImageNet top1"]["JCL"] - best.max(), 6)
    return lead > 5, True, {"lead": lead, "best": best.idxmax()}


@claim("jcl/masks-above-supervised")
def _(t: Table) -> Answer:
    masks = "COCO seg APmk"
    ours, moco = (round(t(2).loc[row, masks] - t(2).loc["supervised", masks], 6) for row in ("JCL", "MoCo v2"))
    keypoints = round(t(2).loc["MoCo v2", "COCO keypoint APkp"] - t(2).loc["supervised", "COCO keypoint APkp"], 6)
    return ours > 0 > moco, True, {"ours": ours, "moco": moco, "kp": keypoints}


@claim("cmc/both-streams")
def _(t: Table) -> Answer:
    both, image, flow = (t(2).loc[f"CMC ({name})", "UCF-101"] for name in ("V+D", "V", "D"))
    return both > max(image, flow), True, {"image": round(both - image, 6), "flow": round(both - flow, 6)}


@claim("cmc/video-state-of-the-art")
def _(t: Table) -> Answer:
    others = t(2).drop(index=["Random", "ImageNet", "CMC (V)", "CMC (D)", "CMC (V+D)"])
    lead = {c: round(t(2).loc["CMC (V+D)", c] - others[c].max(), 6) for c in ("UCF-101", "HMDB-51")}
    return min(lead.values()) > 0, lead["UCF-101"] > 0, {
        "ucf": lead["UCF-101"], "hmdb": lead["HMDB-51"], "best": others["HMDB-51"].idxmax(),
    }  # fmt: skip


@claim("cmc/supervised-upper-bound")
def _(t: Table) -> Answer:
    four = t(4)
    over = {
        f"{view}, {metric}": round(four.loc[f"CMC {metric}", view] - four.loc[f"Supervised {metric}", view], 6)
        for metric in ("mIoU", "pix. acc.") for view in four.columns
    }  # fmt: skip
    above = {k: v for k, v in over.items() if v > 0}
    return not above, len(above) == 1, {"all": len(over), "which": next(iter(above)), "by": next(iter(above.values()))}


@claim("cmc/above-random")
def _(t: Table) -> Answer:
    four = t(4)
    gain = pd.concat([four.loc[f"CMC {m}"] - four.loc[f"Random {m}"] for m in ("mIoU", "pix. acc.")])
    left = pd.concat([four.loc[f"Supervised {m}"] - four.loc[f"CMC {m}"] for m in ("mIoU", "pix. acc.")])
    return gain.min() > left.max(), True, {"least": gain.min(), "left": left.max()}


@claim("cmc/contrastive-above-predictive")
def _(t: Table) -> Answer:
    gain = (t(5)["Contrastive (STL-10 acc)"] - t(5)["Predictive (STL-10 acc)"]).dropna()
    return (gain > 0).all(), True, {"all": len(gain), "least": gain.min(), "most": gain.max()}


@claim("cmc/above-dim-and-cpc")
def _(t: Table) -> Answer:
    seven = t(7)
    lead = [seven.loc["CMC(Patch) Linear", c] - seven.loc[["DIM", "CPC"], c].max() for c in seven.columns[:3]]
    return min(lead) > 0, True, {"least": round(min(lead), 6), "columns": len(lead)}


@claim("cmc/table-7-classifier")
def _(t: Table) -> Answer:
    rows = papers.published("cmc", 7).drop_duplicates("row").set_index("row")["note"].drop(index="Supervised")
    own = rows.filter(like="CMC")
    linear, blank = own.str.contains("Linear").sum(), rows.str.contains("blank").sum()
    return linear == 0, 0 < linear < len(own), {"linear": int(linear), "own": len(own), "blank": int(blank)}


@claim("cmc/above-splitbrain")
def _(t: Table) -> Answer:
    gain = gains(t(7), "CMC(Patch)_MLP-SplitBrain")
    conv, full = gain.iloc[0], gain.iloc[1]
    return "fc5" in t(7).columns, round(conv) == 8 and round(full) == 17 and "fc7" in t(7).columns, {
        "conv": conv, "full": full,
    }  # fmt: skip


@claim("cmc/stable-layers")
def _(t: Table) -> Answer:
    drop = (t(7)["conv5"] - t(7)["fc7"]).dropna()
    predictive, contrastive = drop[["AE", "SplitBrain"]], drop[["DIM", "CMC(Patch) Linear", "CMC(Patch) MLP"]]
    return predictive.min() > 2 * contrastive.max(), True, {
        "predictive": predictive.min(), "contrastive": contrastive.max(),
    }  # fmt: skip


@claim("cmc/table-8-best")
def _(t: Table) -> Answer:
    eight = t(8).drop(index="ImageNet-Labels")
    behind = [c for c in eight if eight[c].idxmax() != "CMC({Y,DbDr})"]
    return not behind, len(behind) == 2, {
        "behind": " and ".join(f"{c} ({eight[c].idxmax()} {eight[c].max():.1f})" for c in behind),
        "ahead": eight.shape[1] - len(behind), "columns": eight.shape[1],
    }  # fmt: skip


@claim("cmc/higher-layers")
def _(t: Table) -> Answer:
    own = t(8).loc["CMC({Y,DbDr})"]
    return own.is_monotonic_increasing, True, {"first": own.iloc[0], "last": own.iloc[-1]}


@claim("cmc/compatible")
def _(t: Table) -> Answer:
    top = t(9)["ImageNet-100 top1"]
    gain = (top.filter(like="+") - top["CMC"]).round(6)
    notes = papers.published("cmc", 9).set_index("row")["note"]
    stated = {row: float(note.split("+")[-1]) for row, note in notes.items() if "delta" in note}
    return (gain > 0).all() and stated == gain.to_dict(), True, {"all": len(gain), "least": gain.min()}


@claim("fmicl/batch-size")
def _(t: Table) -> Answer:
    fits = t(7)["N batch"] <= t(7)["d"] + 1
    return fits.all(), fits.sum() == len(fits) - 1, {
        "fit": int(fits.sum()), "all": len(fits), "which": fits.idxmin(),
        "batch": int(t(7).loc[fits.idxmin(), "N batch"]), "width": int(t(7).loc[fits.idxmin(), "d"]),
    }  # fmt: skip


OURS = ["KL", "JS", "Pearson", "VLC"]
OTHERS = ["MoCo", "SimCLR", "AU"]


@claim("fmicl/four-divergences")
def _(t: Table) -> Answer:
    best = {row: [c for c in OURS if values[c] == values[OURS].max()] for row, values in t(2).iterrows()}
    distinct = {name for names in best.values() for name in names}
    apart = max(map(len, best.values())) == 1 and len(distinct) == len(best)
    assert not apart  # not a different one on each data set
    return len(distinct) == 4 == len(best), True, {
        "best": "; ".join(f"{' and '.join(names)} on {row.split(' (')[0]}" for row, names in best.items())
    }  # fmt: skip


@claim("fmicl/kl-tuned")
def _(t: Table) -> Answer:
    lead = t(2)["KL"] - t(2)[OTHERS].max(axis=1)
    row = lead.idxmin()
    return (lead > 0).all(), (lead > 0).sum() == 3, {
        "better": int((lead > 0).sum()), "all": len(lead), "row": row, "kl": t(2).loc[row, "KL"],
        "other": t(2).loc[row, OTHERS].max(), "name": t(2).loc[row, OTHERS].idxmax(),
    }  # fmt: skip


@claim("fmicl/generally-outperforms")
def _(t: Table) -> Answer:
    lead = (t(2)[OURS].max(axis=1) - t(2)[OTHERS].max(axis=1)).round(6)
    return (lead > 0).all(), True, {"all": len(lead), "least": lead.min(), "most": lead.max()}


@claim("fmicl/four-best-overall")
def _(t: Table) -> Answer:
    mean = t(10).loc[[row for row in t(10).index if not row.startswith("k-NN")]].mean()
    rank = mean[[*OURS, "SH", "Tsallis"]].sort_values(ascending=False)
    return set(rank.index[:4]) == set(OURS), rank.index[-1] == "VLC", {
        "vlc": rank["VLC"], "sh": rank["SH"], "tsallis": rank["Tsallis"],
    }  # fmt: skip


of_gains(
    "fmicl/gaussian-above-cosine", 4, "Gaussian-Cosine", above, "all least",
    most=lambda gain: gain.drop("Gaussian on VLC").max(),
)  # fmt: skip


@claim("fmicl/moco-v3")
def _(t: Table) -> Answer:
    value = t(3).iloc[0]
    gain = round(value["JS"] - value["MoCo v3"], 6)
    return gain == 2.1, gain > 2.1, {"gain": gain, "js": value["JS"], "moco": value["MoCo v3"]}


@claim("fmicl/table-10")
def _(t: Table) -> Answer:
    def flat(table: int) -> dict[tuple[str, str], float]:
        return {
            (row.replace("Linear ", "").replace("STS ", "").split(" (")[0], column.split(" (")[0]): value
            for column, values in t(table).items() for row, value in values.dropna().items()
        }  # fmt: skip

    first, last = flat(2), flat(10)
    both = set(first) & set(last)
    different = [key for key in both if first[key] != last[key]]
    (row, column) = different[0]
    return not different, len(different) == 1 and len(both) >= 21, {
        "row": row, "column": column, "first": first[row, column], "last": last[row, column], "both": len(both),
    }  # fmt: skip


@claim("fmicl/alpha-40")
def _(t: Table) -> Answer:
    best = t(8).idxmax(axis=1)
    lead = min(values["alpha=40"] - values.drop("alpha=40").max() for _, values in t(8).iterrows())
    return (best == "alpha=40").all() and len(best) == 2, True, {"least": round(lead, 6)}


@claim("fmicl/alpha-409600")
def _(t: Table) -> Answer:
    best = t(9).idxmax(axis=1)
    doublings = [n for n in range(40) if 100 * 2**n == t(7).loc["Wikipedia", "alpha"]]
    return (best == "alpha=409600").all() and len(doublings) == 1, True, {"doublings": doublings[0]}


@claim("fmicl/alpha-1")
def _(t: Table) -> Answer:
    said = 83.58  # appendix D.2, KL with α = 1 after 800 epochs
    neighbours, linear = t(10).loc["k-NN CIFAR-10", "SimCLR"], t(10).loc["Linear CIFAR-10", "SimCLR"]
    return said < min(neighbours, linear), True, {"knn": neighbours, "linear": linear}


@pytest.mark.parametrize("name", CLAIMS)
def test_counted(name, stated):
    paper, key = name.split("/")
    verdict = ledger._texts(paper)[key]["verdict"]
    true, instead, numbers = CLAIMS[name](printed(paper))
    assert bool(true) == (verdict == "holds")
    assert instead
    stated(name, **{k: v if isinstance(v, str | int) else round(float(v), 6) for k, v in numbers.items()})


def test_every_counted_statement_is_counted():
    assert set(CLAIMS) == {entry.name for entry in ledger.statements() if entry.how == "counted"}
