"""Sentences of *Joint Contrastive Learning* on its own tables."""

from counting import Count, above, difference, gains, sentences_of, statistics, tables_of

t = tables_of("jcl")
sentence = sentences_of("jcl")

NOT_CONTRASTIVE = ["RelativePosition", "Jigsaw", "Rotation", "Colorization", "DeepCluster", "BigBiGAN"]


@sentence
def above_moco_v2() -> Count:
    gain = gains(t(2), "JCL-MoCo_v2")
    return Count((gain >= 0).all() and (gain > 0).sum() >= 8, True, statistics(gain, "all better most"))


@sentence
def higher_iou() -> Count:
    gain = gains(t(2), "JCL-MoCo_v2")
    half, high = gain["JCL on COCO det APbb50"], gain["JCL on COCO det APbb75"]
    return Count(high > half, True, {"half": half, "high": high})


@sentence
def many_scenarios() -> Count:
    gain = gains(t(2), "JCL-supervised")
    numbers = {**statistics(gain, "all better"), "boxes": int((gain.filter(like="det") > 0).sum())}
    return Count((gain > 0).mean() > 0.5, True, numbers)


@sentence
def boost_over_random() -> Count:
    gain = gains(t(2), "supervised-random MoCo-random MoCo_v2-random JCL-random")
    return Count(above(gain), True, statistics(gain, "all least"))


@sentence
def table_1_best() -> Count:
    leads = {}
    for top in ("top1", "top5"):
        accuracy = t(1)[f"ImageNet {top}"]
        leads[top] = difference(accuracy["JCL"], accuracy.drop("JCL").max())
    return Count(min(leads.values()) > 0, True, {**leads, "rows": len(t(1))})


@sentence
def similar_size() -> Count:
    size = t(1)["params (M)"]
    own = size["JCL"]
    same = int((size == own).sum()) - 1
    numbers = {**statistics(size, "least most"), "own": own, "same": same, "rows": len(size) - 1}
    return Count(size.max() < 2 * own, same > 1, numbers)


@sentence
def not_contrastive() -> Count:
    accuracy = t(1)["ImageNet top1"]
    others = accuracy[NOT_CONTRASTIVE]
    lead = difference(accuracy["JCL"], others.max())
    return Count(lead > 5, True, {"lead": lead, "best": others.idxmax()})


@sentence
def masks_above_supervised() -> Count:
    gain = (t(2) - t(2).loc["supervised"]).round(6)
    ours, moco = gain.loc[["JCL", "MoCo v2"], "COCO seg APmk"]
    numbers = {"ours": ours, "moco": moco, "kp": gain.loc["MoCo v2", "COCO keypoint APkp"]}
    return Count(ours > 0 > moco, True, numbers)
