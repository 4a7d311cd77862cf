"""Clusters of the keys: k-means, who shares a cluster, and the parts that read them.

FAISS clusters keys in main memory; keys on another device are clustered there by the same algorithm.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from contrastlab.scores import ranks
from contrastlab.scores.candidates import Pool
from contrastlab.scores.choices import ROW_PER_ITEM, Choices, Need, Part
from contrastlab.support import host
from contrastlab.support.errors import check_integer, reject
from contrastlab.support.tensors import check_rows


def kmeans(keys: Tensor, clusters: int, runs: int = 1, *, iterations: int = 20, seed: int = 1234) -> Tensor:
    """Cluster labels of unit keys, as LA's released code computes them (20 iterations, seeds 1234 + run).

    Keys ``[N, d]`` give labels ``[N, runs]``, int64 on the same device; run r has the seed ``seed + r``.
    """
    on_host = host.holds(keys.device)
    if on_host:  # a GPU's host would have to wait
        check_rows("keys", keys)
    check_integer("clusters", clusters)
    check_integer("runs", runs)
    if clusters > len(keys):
        raise reject("clusters", clusters, f"at most the number of keys, {len(keys)}")
    cluster = _faiss if on_host else _lloyd
    labels = [cluster(keys, clusters, iterations, seed + run) for run in range(runs)]
    return torch.stack(labels, 1)


def _faiss(keys: Tensor, clusters: int, iterations: int, seed: int) -> Tensor:
    import faiss

    data = keys.detach().float().contiguous().numpy()
    model = faiss.Kmeans(
        data.shape[1],
        clusters,
        niter=iterations,
        seed=seed,
        min_points_per_centroid=1,
        max_points_per_centroid=10**7,
    )
    model.train(data)
    _, nearest_centroid = model.index.search(data, 1)
    return torch.from_numpy(nearest_centroid[:, 0])


def _lloyd(keys: Tensor, clusters: int, iterations: int, seed: int) -> Tensor:
    # FAISS has no PyPI build for every accelerator; Lloyd on the device is two matrix products an iteration.
    generator = torch.Generator().manual_seed(seed)
    centroids = keys[torch.randperm(len(keys), generator=generator)[:clusters].to(keys.device)].float()
    labels = torch.zeros(len(keys), dtype=torch.int64, device=keys.device)
    rows = max(1, min(65536, ranks.KEPT_BYTES // (4 * clusters)))
    for _ in range(iterations + 1):
        half = centroids.square().sum(1) / 2
        labels = torch.cat([(part.float() @ centroids.T).sub_(half).argmax(1) for part in keys.split(rows)])
        sums = torch.zeros_like(centroids).index_add_(0, labels, keys.float())
        counts = torch.bincount(labels, minlength=clusters)[:, None]
        centroids = torch.where(counts > 0, sums / counts.clamp(min=1), centroids)
    return labels


class Clustered(Part):
    """A part that reads the clusters of a memory bank, of several runs of k-means."""

    clusters: int
    runs: int

    def __post_init__(self) -> None:
        check_integer("clusters", self.clusters, 2)
        check_integer("runs", self.runs)

    def needs(self, given: Choices) -> Iterator[Need]:
        why = "clusters are those of a memory bank"
        yield Need(ROW_PER_ITEM, why, f"keys={given.keys!r} holds no row per image")

    @property
    def k_means(self) -> tuple[int, int]:
        return self.clusters, self.runs


def same_cluster(candidates: Pool, indices: Tensor) -> Tensor:
    """``[B, K]`` bool: which keys ``indices`` share a cluster with the query's own row in any run of k-means."""
    if candidates.labels is None or candidates.own is None:
        raise reject("labels", None, "cluster labels of the keys: clusters need a memory bank")
    shared = torch.zeros_like(indices, dtype=torch.bool)
    for labels in candidates.labels.unbind(1):
        shared |= labels[indices] == labels[candidates.own][:, None]
    return shared
