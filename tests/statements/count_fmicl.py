"""Sentences of *f-MICL* on its own tables."""

import pandas as pd
from counting import Count, above, clear, difference, gains, sentences_of, statistics, tables_of, words

t = tables_of("fmicl")
deviations = tables_of("fmicl", "std")
sentence = sentences_of("fmicl")

OURS = ["KL", "JS", "Pearson", "VLC"]
OTHERS = ["MoCo", "SimCLR", "AU"]


def clearly_best(columns: list[str], bases: list[str]) -> list[str]:
    """Data sets of Table 2 whose best of some columns is clearly above all of some others."""
    table, spread = t(2), deviations(2)
    best = table[columns].idxmax(axis=1)
    return [row for row in table.index if clear(table.loc[row], spread.loc[row], best[row], *bases)]


def without_size(row: str) -> str:
    """A data set's name without what stands in brackets."""
    return row.split(" (")[0]


@sentence
def batch_size() -> Count:
    batch, width = t(7)["N batch"], t(7)["d"]
    fits = batch <= width + 1
    which = fits.idxmin()
    numbers = {
        "fit": int(fits.sum()),
        "all": len(fits),
        "which": which,
        "batch": int(batch[which]),
        "width": int(width[which]),
    }
    return Count(fits.all(), fits.sum() == len(fits) - 1, numbers)


@sentence
def four_divergences() -> Count:
    table = t(2)
    best = {row: [name for name in OURS if values[name] == values[OURS].max()] for row, values in table.iterrows()}
    distinct = {name for names in best.values() for name in names}
    assert max(map(len, best.values())) > 1 or len(distinct) < len(best)  # not a different one on each data set
    level = not clear(table.loc["TinyImageNet"], deviations(2).loc["TinyImageNet"], "Pearson", "JS")
    in_words = "; ".join(f"{' and '.join(names)} on {without_size(row)}" for row, names in best.items())
    return Count(len(distinct) == 4 == len(best), level, {"best": in_words})


@sentence
def kl_tuned() -> Count:
    table = t(2)
    lead = (table["KL"] - table[OTHERS].max(axis=1)).round(6)
    leads = clearly_best(["KL"], OTHERS)
    row = lead.idxmin()
    best = table.loc[row, OTHERS]
    numbers = {
        "row": row,
        "kl": table.loc[row, "KL"],
        "other": best.max(),
        "name": best.idxmax(),
        "leads": " and ".join(leads),
        "within": words(lead.drop([row, *leads]), 2),
    }
    return Count(len(leads) == len(table), (lead > 0).sum() == 3 and len(leads) == 1, numbers)


@sentence
def kl_similar() -> Count:
    table = t(2)
    low, high = table[OTHERS].min(axis=1), table[OTHERS].max(axis=1)
    higher = table["KL"] > high
    parts = []
    for where, rows in (("above", table.index[higher]), ("within", table.index[~higher])):
        parts.append(f"{where} on {', '.join(map(without_size, rows))}")
    numbers = {"all": len(table), "where": "; ".join(parts), "spread": (high - low)["TinyImageNet"]}
    return Count((table["KL"] >= low).all(), True, numbers)


@sentence
def kl_not_always() -> Count:
    better = clearly_best(OURS, ["KL"])
    return Count(bool(better), True, {"better": " and ".join(better)})


@sentence
def generally_outperforms() -> Count:
    table = t(2)
    lead = (table[OURS].max(axis=1) - table[OTHERS].max(axis=1)).round(6)
    leads = clearly_best(OURS, OTHERS)
    numbers = {
        "leads": " and ".join(leads),
        "within": words(lead.drop(leads), 2),
        **statistics(lead, "all least most"),
    }
    return Count(len(leads) == len(table), above(lead) and len(leads) == 2, numbers)


@sentence
def four_best_overall() -> Count:
    columns = [*OURS, "SH", "Tsallis"]
    linear = t(10).loc[[row for row in t(10).index if not row.startswith("k-NN")]]
    rank = linear.mean()[columns].sort_values(ascending=False)
    assert rank.index[-1] == "VLC"
    pictures = t(10).filter(like="Linear", axis=0)[columns].rename(lambda row: row.split()[1])
    pictures.update(t(2))  # KL on TinyImageNet, where the tables differ
    on_pictures = pictures.mean().sort_values(ascending=False).round(6)
    numbers = {
        "vlc": rank["VLC"],
        "sh": rank["SH"],
        "tsallis": rank["Tsallis"],
        "cell": t(10).loc["STS Wikipedia", "VLC"],
        "images": words(on_pictures[:4]).replace("+", ""),
        "others": words(on_pictures[4:]).replace("+", ""),
    }
    return Count(set(rank.index[:4]) == set(OURS), set(on_pictures.index[:4]) == set(OURS), numbers)


@sentence
def gaussian_above_cosine() -> Count:
    table, spread = t(4), deviations(4)
    gain = gains(table, "Gaussian-Cosine")
    every = [clear(table[name], spread[name], "Gaussian", "Cosine") for name in table]
    return Count(all(every), True, {**statistics(gain, "all least"), "most": gain.drop("Gaussian on VLC").max()})


@sentence
def comparable_resnets() -> Count:
    value = t(3).iloc[0]
    others, ours = value[["SwAV", "BYOL", "Barlow Twins", "VICReg", "RenyiCL"]], value[["KL", "Pearson"]]
    numbers = {"least": others.min(), "most": others.max(), "lead": difference(value["JS"], others.max())}
    inside = ours.between(others.min(), others.max()).all()
    return Count(inside and value["JS"] > others.max(), True, numbers)


@sentence
def moco_v3() -> Count:
    value = t(3).iloc[0]
    gain = difference(value["JS"], value["MoCo v3"])
    return Count(gain == 2.1, gain > 2.1, {"gain": gain, "js": value["JS"], "moco": value["MoCo v3"]})


def cells(table: pd.DataFrame) -> dict[tuple[str, str], float]:
    """The cells of Tables 2 and 10 under common names."""
    named = {}
    for column, values in table.items():
        for row, value in values.dropna().items():
            row_name = without_size(row.replace("Linear ", "").replace("STS ", ""))
            named[row_name, without_size(column)] = value
    return named


@sentence
def table_10() -> Count:
    first, last = cells(t(2)), cells(t(10))
    both = set(first) & set(last)
    different = [key for key in both if first[key] != last[key]]
    row, column = key = different[0]
    numbers = {"row": row, "column": column, "first": first[key], "last": last[key], "both": len(both)}
    return Count(not different, len(different) == 1 and len(both) >= 21, numbers)


@sentence
def alpha_40() -> Count:
    best = t(8).idxmax(axis=1)
    lead = min(values["alpha=40"] - values.drop("alpha=40").max() for _, values in t(8).iterrows())
    return Count((best == "alpha=40").all() and len(best) == 2, True, {"least": lead})


@sentence
def alpha_409600() -> Count:
    best = t(9).idxmax(axis=1)
    doublings = [n for n in range(40) if 100 * 2**n == t(7).loc["Wikipedia", "alpha"]]
    return Count((best == "alpha=409600").all() and len(doublings) == 1, True, {"doublings": doublings[0]})


@sentence
def alpha_bigger() -> Count:
    lead = t(9).max(axis=1) - t(9)["alpha=1e2"]
    assert (t(7).loc[["CIFAR-10", "STL-10", "TinyImageNet", "ImageNet"], "alpha"] == 40).all()
    return Count((lead > 1).all(), True, {"least": lead.min()})


@sentence
def alpha_1() -> Count:
    printed = 83.58  # appendix D.2, KL with α = 1 after 800 epochs
    neighbours, linear = t(10).loc[["k-NN CIFAR-10", "Linear CIFAR-10"], "SimCLR"]
    return Count(printed < min(neighbours, linear), True, {"knn": neighbours, "linear": linear})
