"""What the papers say of their own tables, counted from the tables as transcribed.

A function per paper yields a line for each sentence: the name of the statement, whether it is true as printed, whether
what the ledger says instead is true, and the numbers that the entry shows.
"""

import math
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise

import pandas as pd
import pytest

from contrastbook import ledger
from contrastlab import papers

Table = Callable[[int | str], pd.DataFrame]
Answers = Iterator[tuple[str, bool, bool, dict[str, float | int | str]]]


def printed(paper: str, values: str = "value") -> Table:
    """Rows and columns in the order of the paper; a difference is rounded like the numbers it is made of."""

    def table(name: int | str) -> pd.DataFrame:
        frame = papers.published(paper, name)
        wide = frame.pivot_table(index="row", columns="column", values=values)
        return wide.reindex(index=frame["row"].unique(), columns=frame["column"].unique())

    return table


def gains(table: pd.DataFrame, pairs: str) -> pd.Series:
    """``"IRing-IR"``: first row minus second, for every column that has both; labelled row and column."""
    found = {}
    for pair in pairs.split():
        ours, base = (name.replace("_", " ") for name in pair.split("-"))
        for column, value in (table.loc[ours] - table.loc[base]).dropna().items():
            found[f"{ours} on {column}" + (f" over {base}" if pairs.count(f"{ours}-") > 1 else "")] = round(value, 6)
    return pd.Series(found)


def words(values: pd.Series, digits: int = 1) -> str:
    return ", ".join(f"{name} {value:+.{digits}f}" for name, value in values.items())


def methods(gain: pd.Series) -> str:
    """Differences named by the first row alone, without what follows a space or a circumflex."""
    return words(gain.rename(lambda x: x.split()[0].split("^")[0]))


STATISTICS: dict[str, Callable[[pd.Series], float | str]] = {
    "all": len, "better": lambda gain: int((gain > 0).sum()), "least": pd.Series.min, "most": pd.Series.max,
    "least_at": pd.Series.idxmin, "most_at": pd.Series.idxmax,
}  # fmt: skip


def shown(gain: pd.Series, names: str) -> dict[str, float | str]:
    return {name: STATISTICS[name](gain) for name in names.split()}


def above(gain: pd.Series) -> bool:
    return (gain > 0).all()


def clear(values: pd.Series, deviations: pd.Series, ours: str, *bases: str) -> bool:
    """Whether the first is above all others by no less than the deviations of both, as claims have it."""
    return all(values[ours] - values[base] >= math.hypot(deviations[ours], deviations[base]) for base in bases)


RINGS = "IRing-IR CMCRing-CMC MoCoRing-MoCo"


def vince(t: Table) -> Answers:  # noqa: PLR0915
    one, top = t(1), t(1).iloc[:, 0]
    gain = gains(one, "IR^nce-IR LA^nce-LA CMC^nce-CMC")
    yield "up-to-15", gain.max() <= 15, above(gain), {"most": gain.max(), "all": methods(gain)}

    la, *others = gains(one, "LA^nce-LA IR^nce-IR CMC^nce-CMC")
    yield "la-differs-least", la < min(others) / 5, True, {"la": la, "others": min(others)}

    gain = gains(one, "BALL-IR^nce CAVE-IR^nce RING-IR^nce")
    yield "up-to-3", gain.max() <= 3, above(gain), {"all": methods(gain)}

    gain = gains(one, "RING-CAVE RING^Lab-CAVE^Lab")
    yield "ring-above-cave", above(gain), True, {"gain": gain.iloc[0], "lab": gain.iloc[1]}

    gain = gains(one, "RING-LA RING-LA^nce")
    yield "ring-above-la", above(gain), True, {"gain": gain.min()}

    gain = gains(one, "BALL^anneal-IR^nce CAVE^anneal-IR^nce RING^anneal-IR^nce")
    inside = gain.round().between(3, 4)
    yield "anneal-3-4", inside.all(), inside.iloc[1:].all(), {"all": methods(gain)}

    pairs = "BALL^s-neigh|BALL RING^s-neigh|RING BALL^Lab+s-neigh|BALL^Lab RING^Lab+s-neigh|RING^Lab"
    gain = pd.Series({a: round(top[a] - top[b], 6) for a, b in (pair.split("|") for pair in pairs.split())})
    numbers = {"all": len(gain), "worse": int((gain < 0).sum()), "most": gain.min()}
    yield "neighbours-not-always", (gain < 0).any(), True, numbers

    plain, lab = top["RING^s-neigh+anneal"], top["RING^Lab+s-neigh+anneal"]
    by = {"ir": plain - top["IR^nce"], "la": plain - top["LA^nce"], "cmc": lab - top["CMC^nce"]}
    by = {k: round(v, 6) for k, v in by.items()}
    level = [name for name in top.index if top[name] == top.max()]
    right = [round(v) for v in by.values()] == [4, 3, 2] and len(level) == 2
    yield "best-model", right, right, {**by, "level": " and ".join(level)}

    gain, other = round(plain - top["IR"], 6), round(lab - top["CMC"], 6)
    yield "up-to-20", gain <= 20, other < 20, {"gain": gain, "cmc": other}

    own = [name for name in one.index if name not in ("IR", "LA", "CMC")]
    yield "twenty-six", len(one) == 26 and len(own) == 23, True, {"all": len(one), "own": len(own)}

    two = pd.concat([t(f"2{part}") for part in "abcde"], axis=1).dropna()  # rows that have ImageNet only are left out
    assert any("kp" in column for column in two.columns)
    names = {column.rsplit(" ", 1)[0] + (" masks" if "mk" in column else "") for column in two.columns}
    tasks = len(names) + 1  # keypoints of COCO are a task beside its boxes and masks
    yield "five-tasks", tasks == 5, tasks == 6, {"tasks": tasks}

    gain = gains(two, "BALL-IR CAVE-IR")
    yield "consistently-above-ir", above(gain), True, shown(gain, "all least")

    gain = gains(two, "CAVE^anneal-IR CAVE^anneal-LA")
    worse = gain[gain <= 0].rename(lambda x: x.removeprefix("CAVE^anneal on "))
    numbers = {"all": len(gain), "above": len(gain) - len(worse), "worse": words(worse)}
    yield "across-tasks", worse.empty, len(worse) == 2, numbers

    best = t(4).idxmax().unique()
    yield "table-4-pattern", list(best) == ["ANN^kmeans+anneal (=CAVE^anneal)"], True, {"columns": t(4).shape[1]}

    value, spread = (printed("vince", values)(3).iloc[:, 0] for values in ("value", "std"))
    falls = value.is_monotonic_decreasing and value.is_unique
    steps = list(pairwise(value.index[1:]))
    within = [f"from {a} to {b}" for a, b in steps if not clear(value, spread, a, b)]
    numbers = {"rows": len(value) - 2, "times": value["True"] / value.iloc[-1], "steps": len(steps)}
    numbers |= {"within": len(within), "which": " and ".join(within)}
    yield "table-3-order", falls and not within, falls and len(within) == 2, numbers

    gain = gains(two, "BALL^anneal-BALL CAVE^anneal-CAVE")
    yield "annealing-helps", above(gain), True, shown(gain, "all least")

    small, large = t("2a")["ImageNet top1"], printed("jcl")(1)["ImageNet top1"]
    gain = pd.Series([small["LA"] - small["IR"], small["CMC"] - small["IR"]]).round(6)
    right = [round(large[name] - large["InstDisc"], 6) for name in ("LocalAgg", "CMC")]
    numbers = {"la": gain[0], "cmc": gain[1], "large_la": right[0], "large_cmc": right[1]}
    yield "la-6-cmc-10", gain.round().tolist() == [6, 10], [round(x) for x in right] == [6, 10], numbers

    yield "table-5-agrees", top.equals(t(5)["CIFAR10 top1"].rename(top.name)), True, {"rows": len(top)}


def printed_differences(t: Table) -> tuple[list[str], int]:
    """Differences that ring prints beside others' rows and are not those of the rows, and how many it prints."""
    given = []
    for table, base in ((1, "base"), (3, "{}")):
        for pair in RINGS.split():
            ours, theirs = pair.split("-")
            stated = t(table).loc[f"{ours} minus {base.format(theirs)} (printed)"]
            right = gains(t(table), pair)
            given += [(f"{at} in Table {table}", *both) for at, *both in zip(right.index, stated, right, strict=True)]
    for table in ("5b", "5c", "5d"):
        base, ours = t(table)
        notes = papers.published("ring", table).set_index(["row", "column"])["note"]
        for row, value in (t(table)[ours] - t(table)[base]).items():
            note = notes[row, ours]
            given.append((f"{row} in Table {table}", float(note.split("printed delta ")[1].split()[0]), value))
    wrong = [f"{at} {stated:+.1f} for {value:+.1f}" for at, stated, value in given if abs(value - stated) > 1e-6]
    return wrong, len(given)


def printed_ratios(t: Table) -> list[dict[str, float | str]]:
    """Ratios that ring Table 5a prints and that are not those of its rows."""
    notes = papers.published("ring", "5a").set_index(["row", "column"])["note"]
    wrong = []
    for row, column in notes.index[notes.str.contains("ratio")]:
        stated = float(notes[row, column].split("printed ratio ")[1].split("x")[0])
        right = t("5a").loc[row, column] / t("5a").loc[row.replace("Ring", "") if row != "IRing" else "IR", column]
        if round(right, 1) != stated:
            wrong.append({"row": row, "column": column.split()[0], "stated": stated, "right": right})
    return wrong


def ring(t: Table) -> Answers:  # noqa: PLR0915
    first = gains(t(1), RINGS)
    numbers = {**shown(first, "all better"), "level": ", ".join(first.index[first == 0])}
    yield "section-5-every", above(first), (first >= 0).all() and (first > 0).sum() == len(first) - 1, numbers

    gain = gains(t(1), "IRing-LA CMCRing-LA MoCoRing-LA")
    numbers = shown(gain, "most most_at least least_at")
    yield "la-by-4", gain.max() <= 4 and gain.min() > 0, (gain < 0).sum() == 1, numbers

    best = t(1).iloc[:7].idxmax()
    numbers = {"best": "; ".join(f"{row} on {column}" for column, row in best.items()), "rows": best.nunique()}
    yield "different-objectives", 1 < best.nunique() < len(best), True, numbers

    gain = gains(t(2), "IRing_(No_Anneal)-IR")
    yield "naive-detrimental", (gain < 0).any(), True, {"all": words(gain.rename(lambda x: x.split(" on ")[1]))}

    gain = gains(t(2), "IRing_(l=0)-IR")
    yield "ball-above-ir", above(gain), True, {"gain": words(gain.rename(lambda x: x.split(" on ")[1]))}

    third = gains(t(3), RINGS)
    inside = third.between(0.5, 2)
    numbers = {**shown(third, "all least most"), "inside": int(inside.sum()), "lost": int((third < 0).sum())}
    yield "half-to-two", inside.all(), True, numbers

    mean = third.groupby(third.index.str.split(" on ").str[0]).mean()
    numbers = {"lost": int((third < 0).sum()), "all": len(third), "means": words(mean)}
    yield "consistent-transfer", above(third), above(mean), numbers | {"which": words(third[third < 0])}

    gain = gains(t(3), "IRing-LA")
    yield "iring-above-la", (gain > 0).mean() > 0.5, True, shown(gain, "all better")

    speech = gains(t("5c").T, "MoCoRing-MoCo").rename(lambda x: x.removeprefix("MoCoRing on "))
    numbers = {"all": len(speech), "mean": speech.mean()}
    yield "speech-mean", len(speech) == 6 and round(speech.mean(), 1) == 2.2, True, numbers
    yield "speech-1-to-4", speech.round().between(1, 4).all(), above(speech), shown(speech, "least least_at most")

    right = "SimCLRing" in t("5d") and "AudioMNIST" in t("5c").index
    numbers = {"speech": len(t("5c")), "sets": len(t("5d"))}
    yield "table-5-caption", "SimCLRing" in t("5b") and "AudioMNIST" in t("5a").index, right, numbers

    gain = gains(t("5d").T, "SimCLRing-SimCLR")
    yield "simclring", above(gain) and gain.max() < 1, True, shown(gain, "least most")

    low = first[first.round() < 2]
    numbers = {**shown(first, "all least most"), "low": words(low), "count": len(low)}
    yield "two-to-five", first.round().between(2, 5).all(), len(low) == 2, numbers

    without, ball = gains(t(2), "IRing-IRing_(No_Anneal)"), gains(t(2), "IRing-IRing_(l=0)")
    numbers = {"anneal": words(without), "ball": words(ball)}
    yield "ablations", above(ball) and (without.to_numpy() > ball.to_numpy()).all(), True, numbers

    mean = third.groupby(third.index.str.split(" on ").str[1]).mean().sort_values(ascending=False)
    numbers = {"traffic": mean["TrafficSign"], "flower": mean["VGGFlower"], "next": mean.iloc[2]}
    yield "traffic-and-flowers", set(mean.index[:2]) == {"TrafficSign", "VGGFlower"}, True, numbers

    wrong, count = printed_differences(t)
    numbers = {"all": count, "wrong": len(wrong), "which": "; ".join(wrong)}
    yield "printed-differences", not wrong, len(wrong) == 2, numbers

    columns = ("COCO det APbb", "COCO seg APmk", "COCO keypoint APkp", "VOC det APbb")
    gain = gains(t(4), "IRing-IR")[[f"IRing on {column}" for column in columns]]
    yield "downstream-iring", gain.tolist() == [2.3, 2.5, 2.6, 2.1], True, {"all": len(gain)}

    gain = gains(t(4), "MoCoRing-MoCo").rename(lambda x: x.removeprefix("MoCoRing on "))
    whole = gain[[name for name in gain.index if name.endswith(("APbb", "APmk", "APkp"))]]
    numbers = {"all": words(whole), "columns": len(gain)}
    yield "downstream-moco", whole.round().between(1, 3).all() and above(gain), len(whole) == 4, numbers

    cost, more = t("5a"), gains(t("5a"), "IRing-IR MoCoRing-MoCo")
    ratio = pd.concat([cost.loc["IRing"] / cost.loc["IR"], cost.loc["MoCoRing"] / cost.loc["MoCo"]])
    yield "cost-ratio", (ratio <= 1.5).all(), True, shown(ratio, "least most")

    minutes, seconds = more.filter(like="ImageNet"), more.filter(like="seconds")
    yield "cost-imagenet", minutes.round().between(3, 7).all(), True, shown(minutes, "least most")

    sets = {column.split()[0] for column in cost.columns}
    numbers = {**shown(seconds, "least most"), "others": len(sets) - 1}
    yield "cost-others", seconds.between(10, 60).all() and len(sets) == 4, len(sets) == 2, numbers

    ratios = printed_ratios(t)
    yield "cost-printed-ratios", not ratios, len(ratios) == 1, ratios[0]

    gain = (t("5b")["MoCoRing-v2"] - t("5b")["MoCo-v2"]).round(6)
    one = gains(t(1), "MoCoRing-MoCo")
    numbers = {**shown(gain, "least most"), "first": one.min(), "last": one.max(), "large": gain["CIFAR10 ResNet-50"]}
    yield "best-settings", gain.between(one.min(), one.max()).all(), True, numbers


def jcl(t: Table) -> Answers:
    gain = gains(t(2), "JCL-MoCo_v2")
    yield "above-moco-v2", (gain >= 0).all() and (gain > 0).sum() >= 8, True, shown(gain, "all better most")

    half, high = gain["JCL on COCO det APbb50"], gain["JCL on COCO det APbb75"]
    yield "higher-iou", high > half, True, {"half": half, "high": high}

    gain = gains(t(2), "JCL-supervised")
    numbers = {**shown(gain, "all better"), "boxes": int((gain.filter(like="det") > 0).sum())}
    yield "many-scenarios", (gain > 0).mean() > 0.5, True, numbers

    gain = gains(t(2), "supervised-random MoCo-random MoCo_v2-random JCL-random")
    yield "boost-over-random", above(gain), True, shown(gain, "all least")

    one = t(1)[["ImageNet top1", "ImageNet top5"]]
    lead = [round(one[c]["JCL"] - one[c].drop("JCL").max(), 6) for c in one]
    yield "table-1-best", min(lead) > 0, True, {"top1": lead[0], "top5": lead[1], "rows": len(one)}

    size, own = t(1)["params (M)"], t(1).loc["JCL", "params (M)"]
    numbers = {**shown(size, "least most"), "own": own, "same": int((size == own).sum()) - 1, "rows": len(size) - 1}
    yield "similar-size", size.max() < 2 * own, numbers["same"] > 1, numbers

    others = ["RelativePosition", "Jigsaw", "Rotation", "Colorization", "DeepCluster", "BigBiGAN"]
    best = t(1)["ImageNet top1"][others]
    lead = round(t(1)["ImageNet top1"]["JCL"] - best.max(), 6)
    yield "not-contrastive", lead > 5, True, {"lead": lead, "best": best.idxmax()}

    over = (t(2) - t(2).loc["supervised"]).round(6)
    ours, moco = over.loc[["JCL", "MoCo v2"], "COCO seg APmk"]
    numbers = {"ours": ours, "moco": moco, "kp": over.loc["MoCo v2", "COCO keypoint APkp"]}
    yield "masks-above-supervised", ours > 0 > moco, True, numbers


def cmc(t: Table) -> Answers:  # noqa: PLR0915
    gain = gains(t(1), "{Y,DbDr}-{L,ab}")
    yield "ydbdr-by-0-7", gain["{Y,DbDr} on ResNet50x2 top1"] == 0.7, True, shown(gain, "least most")

    both, image, flow = (t(2).loc[f"CMC ({name})", "UCF-101"] for name in ("V+D", "V", "D"))
    numbers = {"image": round(both - image, 6), "flow": round(both - flow, 6)}
    yield "both-streams", both > max(image, flow), True, numbers

    others = t(2).drop(index=["Random", "ImageNet", "CMC (V)", "CMC (D)", "CMC (V+D)"])
    ucf, hmdb = (round(t(2).loc["CMC (V+D)", c] - others[c].max(), 6) for c in ("UCF-101", "HMDB-51"))
    numbers = {"ucf": ucf, "hmdb": hmdb, "best": others["HMDB-51"].idxmax()}
    yield "video-state-of-the-art", min(ucf, hmdb) > 0, ucf > 0, numbers

    metrics = ("mIoU", "pix. acc.")
    ours, random, supervised = (
        pd.concat({m: t(4).loc[f"{who} {m}"] for m in metrics}) for who in ("CMC", "Random", "Supervised")
    )
    over = (ours - supervised).round(6)
    higher, three = over[over > 0], t(3)
    inside = three.loc[["CMC (core-view)", "CMC (full-graph)"]]
    inside = (inside.min() > three.loc["Random"]).all() and (inside.max() < three.loc["Supervised"]).all()
    numbers = {"all": len(over), "which": "{1}, {0}".format(*higher.index[0]), "by": higher.iloc[0]}
    yield "supervised-upper-bound", higher.empty, inside and len(higher) == 1 and above(ours - random), numbers

    gain, left = ours - random, supervised - ours
    yield "above-random", gain.min() > left.max(), True, {"least": gain.min(), "left": left.max()}

    gain = (t(5)["Contrastive (STL-10 acc)"] - t(5)["Predictive (STL-10 acc)"]).dropna()
    yield "contrastive-above-predictive", above(gain), True, shown(gain, "all least most")

    low, high, best = t(5).loc["Random"].max(), t(5).loc["Supervised"].max(), t(5)["Contrastive (STL-10 acc)"].max()
    numbers = {"left": high - best, "gained": best - low, "share": (best - low) / (high - low)}
    yield "stl-10-close", high - best < best - low, True, numbers

    seven = t(7)
    lead = [seven.loc["CMC(Patch) Linear", c] - seven.loc[["DIM", "CPC"], c].max() for c in seven.columns[:3]]
    yield "above-dim-and-cpc", min(lead) > 0, True, {"least": min(lead), "columns": len(lead)}

    others = seven.loc[["AE", "NAT", "BiGAN", "SplitBrain"], ["conv5", "fc7"]].max()
    lead = seven.loc[["DIM", *seven.index[seven.index.str.startswith("CMC")]], others.index] - others
    yield "contrastive-above-others", lead.min(axis=None) > 0, True, {"least": lead.min(axis=None), "rows": len(lead)}

    rows = papers.published("cmc", 7).drop_duplicates("row").set_index("row")["note"].drop(index="Supervised")
    own = rows.filter(like="CMC")
    linear, blank = own.str.contains("Linear").sum(), rows.str.contains("blank").sum()
    numbers = {"linear": int(linear), "own": len(own), "blank": int(blank)}
    yield "table-7-classifier", linear == 0, 0 < linear < len(own), numbers

    conv = round(seven.loc["CMC(Patch) Linear", "conv5"] - seven.loc["SplitBrain", "conv5"], 6)
    others = [row for row in t(1).index if not row.startswith("{")]  # all rows of CMC are named by their colours
    yield "section-4-1-predictive", bool(others), conv > 0, {"conv": conv, "rows": len(t(1))}

    pairs = gains(seven, "CMC(NCE)_Linear-CMC(Patch)_Linear CMC(NCE)_MLP-CMC(Patch)_MLP")
    yield "sub-patches", above(pairs), len(pairs) == 4, shown(pairs, "all least most")

    conv, full = gains(seven, "CMC(Patch)_MLP-SplitBrain").iloc[:2]
    numbers = {"conv": conv, "full": full}
    yield "above-splitbrain", "fc5" in seven, round(conv) == 8 and round(full) == 17 and "fc7" in seven, numbers

    drop = (seven["conv5"] - seven["fc7"]).dropna()
    predictive = drop[["AE", "SplitBrain"]].min()
    contrastive = drop[["DIM", "CMC(Patch) Linear", "CMC(Patch) MLP"]].max()
    yield "stable-layers", predictive > 2 * contrastive, True, {"predictive": predictive, "contrastive": contrastive}

    eight = t(8).drop(index="ImageNet-Labels")
    behind = [c for c in eight if eight[c].idxmax() != "CMC({Y,DbDr})"]
    yield "table-8-best", not behind, len(behind) == 2, {
        "behind": " and ".join(f"{c} ({eight[c].idxmax()} {eight[c].max():.1f})" for c in behind),
        "ahead": eight.shape[1] - len(behind), "columns": eight.shape[1],
    }  # fmt: skip

    own = eight.loc["CMC({Y,DbDr})"]
    yield "higher-layers", own.is_monotonic_increasing, True, {"first": own.iloc[0], "last": own.iloc[-1]}

    top = t(9)["ImageNet-100 top1"]
    gain = (top.filter(like="+") - top["CMC"]).round(6)
    notes = papers.published("cmc", 9).set_index("row")["note"]
    stated = {row: float(note.split("+")[-1]) for row, note in notes.items() if "delta" in note}
    yield "compatible", above(gain) and stated == gain.to_dict(), True, shown(gain, "all least")


OURS = ["KL", "JS", "Pearson", "VLC"]
OTHERS = ["MoCo", "SimCLR", "AU"]


def flat(table: pd.DataFrame) -> dict[tuple[str, str], float]:
    """The cells of fmicl Tables 2 and 10 under common names."""
    return {
        (row.replace("Linear ", "").replace("STS ", "").split(" (")[0], column.split(" (")[0]): value
        for column, values in table.items() for row, value in values.dropna().items()
    }  # fmt: skip


def fmicl(t: Table) -> Answers:  # noqa: PLR0915
    batch, width = t(7)["N batch"], t(7)["d"]
    fits = batch <= width + 1
    which = fits.idxmin()
    yield "batch-size", fits.all(), fits.sum() == len(fits) - 1, {
        "fit": int(fits.sum()), "all": len(fits), "which": which,
        "batch": int(batch[which]), "width": int(width[which]),
    }  # fmt: skip

    best = {row: [c for c in OURS if values[c] == values[OURS].max()] for row, values in t(2).iterrows()}
    distinct = {name for names in best.values() for name in names}
    assert max(map(len, best.values())) > 1 or len(distinct) < len(best)  # not a different one on each data set
    numbers = {"best": "; ".join(f"{' and '.join(names)} on {row.split(' (')[0]}" for row, names in best.items())}
    two, spread = t(2), printed("fmicl", "std")(2)
    level = not clear(two.loc["TinyImageNet"], spread.loc["TinyImageNet"], "Pearson", "JS")
    yield "four-divergences", len(distinct) == 4 == len(best), level, numbers

    others = two[OTHERS]
    lead = (two["KL"] - others.max(axis=1)).round(6)
    leads = [row for row in two.index if clear(two.loc[row], spread.loc[row], "KL", *OTHERS)]
    row = lead.idxmin()
    numbers = {"row": row, "kl": two.loc[row, "KL"], "other": others.loc[row].max(), "name": others.loc[row].idxmax()}
    numbers |= {"leads": " and ".join(leads), "within": words(lead.drop([row, *leads]), 2)}
    yield "kl-tuned", len(leads) == len(two), (lead > 0).sum() == 3 and len(leads) == 1, numbers

    low, high = others.min(axis=1), others.max(axis=1)
    place = {row: "above" if two.loc[row, "KL"] > high[row] else "within" for row in two.index}
    names = {where: [row.split(" (")[0] for row in place if place[row] == where] for where in ("above", "within")}
    words_of = "; ".join(f"{where} on {', '.join(rows)}" for where, rows in names.items())
    numbers = {"all": len(two), "where": words_of, "spread": (high - low)["TinyImageNet"]}
    yield "kl-similar", (two["KL"] >= low).all(), True, numbers

    better = [row for row in two.index if clear(two.loc[row], spread.loc[row], two.loc[row, OURS].idxmax(), "KL")]
    yield "kl-not-always", bool(better), True, {"better": " and ".join(better)}

    lead = (two[OURS].max(axis=1) - others.max(axis=1)).round(6)
    leads = [row for row in two.index if clear(two.loc[row], spread.loc[row], two.loc[row, OURS].idxmax(), *OTHERS)]
    numbers = {"leads": " and ".join(leads), "within": words(lead.drop(leads), 2)} | shown(lead, "all least most")
    yield "generally-outperforms", len(leads) == len(two), above(lead) and len(leads) == 2, numbers

    mean = t(10).loc[[row for row in t(10).index if not row.startswith("k-NN")]].mean()
    rank = mean[[*OURS, "SH", "Tsallis"]].sort_values(ascending=False)
    numbers = {
        "vlc": rank["VLC"],
        "sh": rank["SH"],
        "tsallis": rank["Tsallis"],
        "cell": t(10).loc["STS Wikipedia", "VLC"],
    }
    pictures = t(10).filter(like="Linear", axis=0)[[*OURS, "SH", "Tsallis"]].rename(lambda row: row.split()[1])
    pictures.update(two)  # KL on TinyImageNet, where the tables differ
    pictures = pictures.mean().sort_values(ascending=False).round(6)
    numbers |= {"images": words(pictures[:4]).replace("+", ""), "others": words(pictures[4:]).replace("+", "")}
    assert rank.index[-1] == "VLC"
    yield "four-best-overall", set(rank.index[:4]) == set(OURS), set(pictures.index[:4]) == set(OURS), numbers

    gain = gains(t(4), "Gaussian-Cosine")
    numbers = {**shown(gain, "all least"), "most": gain.drop("Gaussian on VLC").max()}
    four, spread = t(4), printed("fmicl", "std")(4)
    every = [clear(four[name], spread[name], "Gaussian", "Cosine") for name in four]
    yield "gaussian-above-cosine", all(every), True, numbers

    value = t(3).iloc[0]
    gain = round(value["JS"] - value["MoCo v3"], 6)
    others, ours = value[["SwAV", "BYOL", "Barlow Twins", "VICReg", "RenyiCL"]], value[["KL", "Pearson"]]
    numbers = {"least": others.min(), "most": others.max(), "lead": round(value["JS"] - others.max(), 6)}
    inside = ours.between(others.min(), others.max()).all()
    yield "comparable-resnets", inside and value["JS"] > others.max(), True, numbers

    yield "moco-v3", gain == 2.1, gain > 2.1, {"gain": gain, "js": value["JS"], "moco": value["MoCo v3"]}

    first, last = flat(t(2)), flat(t(10))
    both = set(first) & set(last)
    different = [key for key in both if first[key] != last[key]]
    (row, column) = key = different[0]
    numbers = {"row": row, "column": column, "first": first[key], "last": last[key], "both": len(both)}
    yield "table-10", not different, len(different) == 1 and len(both) >= 21, numbers

    best = t(8).idxmax(axis=1)
    lead = min(values["alpha=40"] - values.drop("alpha=40").max() for _, values in t(8).iterrows())
    yield "alpha-40", (best == "alpha=40").all() and len(best) == 2, True, {"least": lead}

    best = t(9).idxmax(axis=1)
    doublings = [n for n in range(40) if 100 * 2**n == t(7).loc["Wikipedia", "alpha"]]
    yield "alpha-409600", (best == "alpha=409600").all() and len(doublings) == 1, True, {"doublings": doublings[0]}

    lead = t(9).max(axis=1) - t(9)["alpha=1e2"]
    assert (t(7).loc[["CIFAR-10", "STL-10", "TinyImageNet", "ImageNet"], "alpha"] == 40).all()
    yield "alpha-bigger", (lead > 1).all(), True, {"least": lead.min()}

    said = 83.58  # appendix D.2, KL with α = 1 after 800 epochs
    neighbours, linear = t(10).loc[["k-NN CIFAR-10", "Linear CIFAR-10"], "SimCLR"]
    yield "alpha-1", said < min(neighbours, linear), True, {"knn": neighbours, "linear": linear}


READ = {read.__name__: read for read in (vince, ring, jcl, cmc, fmicl)}


@cache
def counted(paper: str) -> dict[str, tuple[bool, bool, dict[str, float | int | str]]]:
    answers = list(READ[paper](printed(paper)))
    found = {f"{paper}/{key}": answer for key, *answer in answers}
    assert len(found) == len(answers)
    return found


@pytest.mark.parametrize("name", [entry.name for entry in ledger.statements() if entry.how == "counted"])
def test_counted(name, stated):
    paper, key = name.split("/")
    true, instead, numbers = counted(paper)[name]
    assert bool(true) == (ledger._texts(paper)[key]["verdict"] == "holds")
    assert instead
    stated(name, **{k: v if isinstance(v, str | int) else round(float(v), 6) for k, v in numbers.items()})


def test_every_counted_statement_is_counted():
    decided = {entry.name for entry in ledger.statements() if entry.how == "counted"}
    assert {name for paper in READ for name in counted(paper)} == decided
