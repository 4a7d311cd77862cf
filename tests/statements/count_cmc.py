"""Sentences of *Contrastive Multiview Coding* on its own tables."""

import pandas as pd
from counting import Count, above, difference, gains, sentences_of, statistics, tables_of

from contrastlab import papers

t = tables_of("cmc")
sentence = sentences_of("cmc")


@sentence
def ydbdr_by_0_7() -> Count:
    gain = gains(t(1), "{Y,DbDr}-{L,ab}")
    return Count(gain["{Y,DbDr} on ResNet50x2 top1"] == 0.7, True, statistics(gain, "least most"))


@sentence
def both_streams() -> Count:
    both, image, flow = (t(2).loc[f"CMC ({streams})", "UCF-101"] for streams in ("V+D", "V", "D"))
    numbers = {"image": difference(both, image), "flow": difference(both, flow)}
    return Count(both > max(image, flow), True, numbers)


@sentence
def video_state_of_the_art() -> Count:
    own = t(2).loc["CMC (V+D)"]
    others = t(2).drop(index=["Random", "ImageNet", "CMC (V)", "CMC (D)", "CMC (V+D)"])
    ucf = difference(own["UCF-101"], others["UCF-101"].max())
    hmdb = difference(own["HMDB-51"], others["HMDB-51"].max())
    numbers = {"ucf": ucf, "hmdb": hmdb, "best": others["HMDB-51"].idxmax()}
    return Count(min(ucf, hmdb) > 0, ucf > 0, numbers)


def segmentation(row: str) -> pd.Series:
    """A row of Table 4 by metric and column."""
    return pd.concat({metric: t(4).loc[f"{row} {metric}"] for metric in ("mIoU", "pix. acc.")})


def between_random_and_supervised() -> bool:
    """Whether CMC's rows of Table 3 lie between the two, in every column."""
    table = t(3)
    own = table.loc[["CMC (core-view)", "CMC (full-graph)"]]
    return bool((own.min() > table.loc["Random"]).all() and (own.max() < table.loc["Supervised"]).all())


@sentence
def supervised_upper_bound() -> Count:
    ours, random, supervised = segmentation("CMC"), segmentation("Random"), segmentation("Supervised")
    over = (ours - supervised).round(6)
    higher = over[over > 0]
    metric, column = higher.index[0]
    corrected = between_random_and_supervised() and len(higher) == 1 and above(ours - random)
    return Count(higher.empty, corrected, {"all": len(over), "which": f"{column}, {metric}", "by": higher.iloc[0]})


@sentence
def above_random() -> Count:
    ours, random, supervised = segmentation("CMC"), segmentation("Random"), segmentation("Supervised")
    gain, left = ours - random, supervised - ours
    return Count(gain.min() > left.max(), True, {"least": gain.min(), "left": left.max()})


@sentence
def contrastive_above_predictive() -> Count:
    gain = (t(5)["Contrastive (STL-10 acc)"] - t(5)["Predictive (STL-10 acc)"]).dropna()
    return Count(above(gain), True, statistics(gain, "all least most"))


@sentence
def stl_10_close() -> Count:
    low, high = t(5).loc["Random"].max(), t(5).loc["Supervised"].max()
    best = t(5)["Contrastive (STL-10 acc)"].max()
    numbers = {"left": high - best, "gained": best - low, "share": (best - low) / (high - low)}
    return Count(high - best < best - low, True, numbers)


@sentence
def above_dim_and_cpc() -> Count:
    table = t(7)
    leads = [
        table.loc["CMC(Patch) Linear", column] - table.loc[["DIM", "CPC"], column].max() for column in table.columns[:3]
    ]
    return Count(min(leads) > 0, True, {"least": min(leads), "columns": len(leads)})


@sentence
def contrastive_above_others() -> Count:
    table = t(7)[["conv5", "fc7"]]
    others = table.loc[["AE", "NAT", "BiGAN", "SplitBrain"]].max()
    contrastive = table.loc[["DIM", *table.index[table.index.str.startswith("CMC")]]]
    lead = contrastive - others
    least = lead.min(axis=None)
    return Count(least > 0, True, {"least": least, "rows": len(lead)})


@sentence
def table_7_classifier() -> Count:
    notes = papers.published("cmc", 7).drop_duplicates("row").set_index("row")["note"].drop(index="Supervised")
    own = notes.filter(like="CMC")
    linear, blank = int(own.str.contains("Linear").sum()), int(notes.str.contains("blank").sum())
    return Count(linear == 0, 0 < linear < len(own), {"linear": linear, "own": len(own), "blank": blank})


@sentence
def section_4_1_predictive() -> Count:
    others = [row for row in t(1).index if not row.startswith("{")]  # all rows of CMC are named by their colours
    gain = difference(t(7).loc["CMC(Patch) Linear", "conv5"], t(7).loc["SplitBrain", "conv5"])
    return Count(bool(others), gain > 0, {"conv": gain, "rows": len(t(1))})


@sentence
def sub_patches() -> Count:
    gain = gains(t(7), "CMC(NCE)_Linear-CMC(Patch)_Linear CMC(NCE)_MLP-CMC(Patch)_MLP")
    return Count(above(gain), len(gain) == 4, statistics(gain, "all least most"))


@sentence
def above_splitbrain() -> Count:
    conv, full = gains(t(7), "CMC(Patch)_MLP-SplitBrain").iloc[:2]
    corrected = round(conv) == 8 and round(full) == 17 and "fc7" in t(7)
    return Count("fc5" in t(7), corrected, {"conv": conv, "full": full})


@sentence
def stable_layers() -> Count:
    drop = (t(7)["conv5"] - t(7)["fc7"]).dropna()
    predictive = drop[["AE", "SplitBrain"]].min()
    contrastive = drop[["DIM", "CMC(Patch) Linear", "CMC(Patch) MLP"]].max()
    return Count(predictive > 2 * contrastive, True, {"predictive": predictive, "contrastive": contrastive})


@sentence
def table_8_best() -> Count:
    table = t(8).drop(index="ImageNet-Labels")
    behind = [column for column in table if table[column].idxmax() != "CMC({Y,DbDr})"]
    better = [f"{column} ({table[column].idxmax()} {table[column].max():.1f})" for column in behind]
    numbers = {"behind": " and ".join(better), "ahead": table.shape[1] - len(behind), "columns": table.shape[1]}
    return Count(not behind, len(behind) == 2, numbers)


@sentence
def higher_layers() -> Count:
    own = t(8).loc["CMC({Y,DbDr})"]
    return Count(own.is_monotonic_increasing, True, {"first": own.iloc[0], "last": own.iloc[-1]})


@sentence
def compatible() -> Count:
    accuracy = t(9)["ImageNet-100 top1"]
    gain = (accuracy.filter(like="+") - accuracy["CMC"]).round(6)
    notes = papers.published("cmc", 9).set_index("row")["note"]
    printed = {row: float(note.split("+")[-1]) for row, note in notes.items() if "delta" in note}
    return Count(above(gain) and printed == gain.to_dict(), True, statistics(gain, "all least"))
