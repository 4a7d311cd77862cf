"""Sentences of *Conditional Negative Sampling* on its own tables."""

from typing import NamedTuple

import pandas as pd
from counting import Count, above, by_column, gains, sentences_of, statistics, tables_of, words

from contrastlab import papers

t = tables_of("ring")
sentence = sentences_of("ring")

RINGS = "IRing-IR CMCRing-CMC MoCoRing-MoCo"


class Stated(NamedTuple):
    """A difference that the paper prints, and that of its rows."""

    where: str
    printed: float
    right: float


def first() -> pd.Series:
    """Gains of the three rings in Table 1."""
    return gains(t(1), RINGS)


def third() -> pd.Series:
    """Gains of the three rings in Table 3."""
    return gains(t(3), RINGS)


@sentence
def section_5_every() -> Count:
    gain = first()
    numbers = {**statistics(gain, "all better"), "level": ", ".join(gain.index[gain == 0])}
    all_but_one = (gain >= 0).all() and (gain > 0).sum() == len(gain) - 1
    return Count(above(gain), all_but_one, numbers)


@sentence
def la_by_4() -> Count:
    gain = gains(t(1), "IRing-LA CMCRing-LA MoCoRing-LA")
    printed = gain.max() <= 4 and gain.min() > 0
    return Count(printed, (gain < 0).sum() == 1, statistics(gain, "most most_at least least_at"))


@sentence
def different_objectives() -> Count:
    best = t(1).iloc[:7].idxmax()
    numbers = {"best": "; ".join(f"{row} on {column}" for column, row in best.items()), "rows": best.nunique()}
    return Count(1 < best.nunique() < len(best), True, numbers)


@sentence
def naive_detrimental() -> Count:
    gain = gains(t(2), "IRing_(No_Anneal)-IR")
    return Count((gain < 0).any(), True, {"all": by_column(gain)})


@sentence
def ball_above_ir() -> Count:
    gain = gains(t(2), "IRing_(l=0)-IR")
    return Count(above(gain), True, {"gain": by_column(gain)})


@sentence
def half_to_two() -> Count:
    gain = third()
    inside = gain.between(0.5, 2)
    numbers = {**statistics(gain, "all least most"), "inside": int(inside.sum()), "lost": int((gain < 0).sum())}
    return Count(inside.all(), True, numbers)


@sentence
def consistent_transfer() -> Count:
    gain = third()
    lost = gain[gain < 0]
    mean = gain.groupby(gain.index.str.split(" on ").str[0]).mean()
    numbers = {"lost": len(lost), "all": len(gain), "means": words(mean), "which": words(lost)}
    return Count(above(gain), above(mean), numbers)


@sentence
def iring_above_la() -> Count:
    gain = gains(t(3), "IRing-LA")
    return Count((gain > 0).mean() > 0.5, True, statistics(gain, "all better"))


def speech() -> pd.Series:
    """Gains of MoCoRing in Table 5c by data set."""
    return gains(t("5c").T, "MoCoRing-MoCo").rename(lambda label: label.removeprefix("MoCoRing on "))


@sentence
def speech_mean() -> Count:
    gain = speech()
    return Count(len(gain) == 6 and round(gain.mean(), 1) == 2.2, True, {"all": len(gain), "mean": gain.mean()})


@sentence
def speech_1_to_4() -> Count:
    gain = speech()
    return Count(gain.round().between(1, 4).all(), above(gain), statistics(gain, "least least_at most"))


@sentence
def table_5_caption() -> Count:
    as_in_caption = "SimCLRing" in t("5b") and "AudioMNIST" in t("5a").index
    right = "SimCLRing" in t("5d") and "AudioMNIST" in t("5c").index
    return Count(as_in_caption, right, {"speech": len(t("5c")), "sets": len(t("5d"))})


@sentence
def simclring() -> Count:
    gain = gains(t("5d").T, "SimCLRing-SimCLR")
    return Count(above(gain) and gain.max() < 1, True, statistics(gain, "least most"))


@sentence
def two_to_five() -> Count:
    gain = first()
    low = gain[gain.round() < 2]
    numbers = {**statistics(gain, "all least most"), "low": words(low), "count": len(low)}
    return Count(gain.round().between(2, 5).all(), len(low) == 2, numbers)


@sentence
def ablations() -> Count:
    anneal, ball = gains(t(2), "IRing-IRing_(No_Anneal)"), gains(t(2), "IRing-IRing_(l=0)")
    printed = above(ball) and (anneal.to_numpy() > ball.to_numpy()).all()
    return Count(printed, True, {"anneal": words(anneal), "ball": words(ball)})


@sentence
def traffic_and_flowers() -> Count:
    gain = third()
    mean = gain.groupby(gain.index.str.split(" on ").str[1]).mean().sort_values(ascending=False)
    numbers = {"traffic": mean["TrafficSign"], "flower": mean["VGGFlower"], "next": mean.iloc[2]}
    return Count(set(mean.index[:2]) == {"TrafficSign", "VGGFlower"}, True, numbers)


def differences_beside_rows() -> list[Stated]:
    """Differences that rows of Tables 1 and 3 print."""
    every = []
    for table, base_of in ((1, "base"), (3, "{}")):
        for pair in RINGS.split():
            ours, theirs = pair.split("-")
            printed = t(table).loc[f"{ours} minus {base_of.format(theirs)} (printed)"]
            right = gains(t(table), pair)
            for label, stated, value in zip(right.index, printed, right, strict=True):
                every.append(Stated(f"{label} in Table {table}", stated, value))
    return every


def differences_in_cells() -> list[Stated]:
    """Differences that cells of Tables 5b to 5d print."""
    every = []
    for table in ("5b", "5c", "5d"):
        base, ours = t(table)
        notes = papers.published("ring", table).set_index(["row", "column"])["note"]
        for row, value in (t(table)[ours] - t(table)[base]).items():
            printed = notes[row, ours].split("printed delta ")[1].split()[0]
            every.append(Stated(f"{row} in Table {table}", float(printed), value))
    return every


@sentence
def printed_differences() -> Count:
    every = [*differences_beside_rows(), *differences_in_cells()]
    wrong = [stated for stated in every if abs(stated.right - stated.printed) > 1e-6]
    which = "; ".join(f"{stated.where} {stated.printed:+.1f} for {stated.right:+.1f}" for stated in wrong)
    return Count(not wrong, len(wrong) == 2, {"all": len(every), "wrong": len(wrong), "which": which})


@sentence
def downstream_iring() -> Count:
    columns = ("COCO det APbb", "COCO seg APmk", "COCO keypoint APkp", "VOC det APbb")
    gain = gains(t(4), "IRing-IR")[[f"IRing on {column}" for column in columns]]
    return Count(gain.tolist() == [2.3, 2.5, 2.6, 2.1], True, {"all": len(gain)})


@sentence
def downstream_moco() -> Count:
    gain = gains(t(4), "MoCoRing-MoCo").rename(lambda label: label.removeprefix("MoCoRing on "))
    whole = gain[[name for name in gain.index if name.endswith(("APbb", "APmk", "APkp"))]]
    printed = whole.round().between(1, 3).all() and above(gain)
    return Count(printed, len(whole) == 4, {"all": words(whole), "columns": len(gain)})


@sentence
def cost_ratio() -> Count:
    cost = t("5a")
    ratio = pd.concat([cost.loc["IRing"] / cost.loc["IR"], cost.loc["MoCoRing"] / cost.loc["MoCo"]])
    return Count((ratio <= 1.5).all(), True, statistics(ratio, "least most"))


@sentence
def cost_imagenet() -> Count:
    minutes = gains(t("5a"), "IRing-IR MoCoRing-MoCo").filter(like="ImageNet")
    return Count(minutes.round().between(3, 7).all(), True, statistics(minutes, "least most"))


@sentence
def cost_others() -> Count:
    seconds = gains(t("5a"), "IRing-IR MoCoRing-MoCo").filter(like="seconds")
    sets = {column.split()[0] for column in t("5a").columns}
    numbers = {**statistics(seconds, "least most"), "others": len(sets) - 1}
    return Count(seconds.between(10, 60).all() and len(sets) == 4, len(sets) == 2, numbers)


@sentence
def cost_printed_ratios() -> Count:
    notes = papers.published("ring", "5a").set_index(["row", "column"])["note"]
    base_of = {"IRing": "IR", "MoCoRing": "MoCo"}
    wrong = []
    for row, column in notes.index[notes.str.contains("ratio")]:
        printed = float(notes[row, column].split("printed ratio ")[1].split("x")[0])
        right = t("5a").loc[row, column] / t("5a").loc[base_of[row], column]
        if round(right, 1) != printed:
            wrong.append({"row": row, "column": column.split()[0], "stated": printed, "right": right})
    return Count(not wrong, len(wrong) == 1, wrong[0])


@sentence
def best_settings() -> Count:
    gain = (t("5b")["MoCoRing-v2"] - t("5b")["MoCo-v2"]).round(6)
    before = gains(t(1), "MoCoRing-MoCo")
    numbers = {
        **statistics(gain, "least most"),
        "first": before.min(),
        "last": before.max(),
        "large": gain["CIFAR10 ResNet-50"],
    }
    return Count(gain.between(before.min(), before.max()).all(), True, numbers)
