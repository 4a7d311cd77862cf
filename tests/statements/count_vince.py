"""Sentences of *On Mutual Information in Contrastive Learning* on its own tables."""

from itertools import pairwise

import pandas as pd
from counting import Count, above, by_method, clear, difference, gains, sentences_of, statistics, tables_of, words

t = tables_of("vince")
sentence = sentences_of("vince")

NEIGHBOURS = (
    ("BALL^s-neigh", "BALL"),
    ("RING^s-neigh", "RING"),
    ("BALL^Lab+s-neigh", "BALL^Lab"),
    ("RING^Lab+s-neigh", "RING^Lab"),
)
PLAIN_BEST, LAB_BEST = "RING^s-neigh+anneal", "RING^Lab+s-neigh+anneal"


def accuracies() -> pd.Series:
    """Top-1 accuracies of Table 1 by row."""
    return t(1).iloc[:, 0]


def transfer() -> pd.DataFrame:
    """Tables 2a to 2e side by side; rows that have ImageNet only are left out."""
    return pd.concat([t(f"2{part}") for part in "abcde"], axis=1).dropna()


@sentence
def up_to_15() -> Count:
    gain = gains(t(1), "IR^nce-IR LA^nce-LA CMC^nce-CMC")
    return Count(gain.max() <= 15, above(gain), {"most": gain.max(), "all": by_method(gain)})


@sentence
def la_differs_least() -> Count:
    la, *others = gains(t(1), "LA^nce-LA IR^nce-IR CMC^nce-CMC")
    return Count(la < min(others) / 5, True, {"la": la, "others": min(others)})


@sentence
def up_to_3() -> Count:
    gain = gains(t(1), "BALL-IR^nce CAVE-IR^nce RING-IR^nce")
    return Count(gain.max() <= 3, above(gain), {"all": by_method(gain)})


@sentence
def ring_above_cave() -> Count:
    gain = gains(t(1), "RING-CAVE RING^Lab-CAVE^Lab")
    return Count(above(gain), True, {"gain": gain.iloc[0], "lab": gain.iloc[1]})


@sentence
def ring_above_la() -> Count:
    gain = gains(t(1), "RING-LA RING-LA^nce")
    return Count(above(gain), True, {"gain": gain.min()})


@sentence
def anneal_3_4() -> Count:
    gain = gains(t(1), "BALL^anneal-IR^nce CAVE^anneal-IR^nce RING^anneal-IR^nce")
    inside = gain.round().between(3, 4)
    return Count(inside.all(), inside.iloc[1:].all(), {"all": by_method(gain)})


@sentence
def neighbours_not_always() -> Count:
    top = accuracies()
    gain = pd.Series([difference(top[close], top[base]) for close, base in NEIGHBOURS])
    numbers = {"all": len(gain), "worse": int((gain < 0).sum()), "most": gain.min()}
    return Count((gain < 0).any(), True, numbers)


@sentence
def best_model() -> Count:
    top = accuracies()
    leads = {
        "ir": difference(top[PLAIN_BEST], top["IR^nce"]),
        "la": difference(top[PLAIN_BEST], top["LA^nce"]),
        "cmc": difference(top[LAB_BEST], top["CMC^nce"]),
    }
    best = top.index[top == top.max()]
    right = [round(lead) for lead in leads.values()] == [4, 3, 2] and len(best) == 2
    return Count(right, right, {**leads, "level": " and ".join(best)})


@sentence
def up_to_20() -> Count:
    top = accuracies()
    gain, cmc = difference(top[PLAIN_BEST], top["IR"]), difference(top[LAB_BEST], top["CMC"])
    return Count(gain <= 20, cmc < 20, {"gain": gain, "cmc": cmc})


@sentence
def twenty_six() -> Count:
    rows = t(1).index
    own = rows.drop(["IR", "LA", "CMC"])
    return Count(len(rows) == 26 and len(own) == 23, True, {"all": len(rows), "own": len(own)})


@sentence
def five_tasks() -> Count:
    columns = transfer().columns
    assert any("kp" in column for column in columns)
    names = {column.rsplit(" ", 1)[0] + (" masks" if "mk" in column else "") for column in columns}
    tasks = len(names) + 1  # keypoints of COCO are a task beside its boxes and masks
    return Count(tasks == 5, tasks == 6, {"tasks": tasks})


@sentence
def consistently_above_ir() -> Count:
    gain = gains(transfer(), "BALL-IR CAVE-IR")
    return Count(above(gain), True, statistics(gain, "all least"))


@sentence
def across_tasks() -> Count:
    gain = gains(transfer(), "CAVE^anneal-IR CAVE^anneal-LA")
    worse = gain[gain <= 0].rename(lambda label: label.removeprefix("CAVE^anneal on "))
    numbers = {"all": len(gain), "above": len(gain) - len(worse), "worse": words(worse)}
    return Count(worse.empty, len(worse) == 2, numbers)


@sentence
def table_4_pattern() -> Count:
    best = t(4).idxmax().unique()
    return Count(list(best) == ["ANN^kmeans+anneal (=CAVE^anneal)"], True, {"columns": t(4).shape[1]})


@sentence
def table_3_order() -> Count:
    value, deviation = t(3).iloc[:, 0], tables_of("vince", "std")(3).iloc[:, 0]
    falls = value.is_monotonic_decreasing and value.is_unique
    steps = list(pairwise(value.index[1:]))
    within = [f"from {high} to {low}" for high, low in steps if not clear(value, deviation, high, low)]
    numbers = {
        "rows": len(value) - 2,
        "times": value["True"] / value.iloc[-1],
        "steps": len(steps),
        "within": len(within),
        "which": " and ".join(within),
    }
    return Count(falls and not within, falls and len(within) == 2, numbers)


@sentence
def annealing_helps() -> Count:
    gain = gains(transfer(), "BALL^anneal-BALL CAVE^anneal-CAVE")
    return Count(above(gain), True, statistics(gain, "all least"))


@sentence
def la_6_cmc_10() -> Count:
    small, large = t("2a")["ImageNet top1"], tables_of("jcl")(1)["ImageNet top1"]
    la, cmc = difference(small["LA"], small["IR"]), difference(small["CMC"], small["IR"])
    large_la = difference(large["LocalAgg"], large["InstDisc"])
    large_cmc = difference(large["CMC"], large["InstDisc"])
    numbers = {"la": la, "cmc": cmc, "large_la": large_la, "large_cmc": large_cmc}
    return Count([round(la), round(cmc)] == [6, 10], [round(large_la), round(large_cmc)] == [6, 10], numbers)


@sentence
def table_5_agrees() -> Count:
    top = accuracies()
    return Count(top.equals(t(5)["CIFAR10 top1"].rename(top.name)), True, {"rows": len(top)})
