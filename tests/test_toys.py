"""Made data: known information, samples that have it, spirals where they should be."""

import json
import math

import numpy as np
import pytest
import torch

from contrastbook import studies
from contrastlab.information.toys import JointGaussian, shifted, spirals
from contrastlab.support.errors import CorruptFileError
from made_runs import generator


@pytest.mark.parametrize(("rho", "dimension"), [(0.2, 1), (-0.7, 3), (0.8, 20), (0.0, 2)])
def test_correlated_information(rho, dimension):
    known = -dimension / 2 * math.log1p(-(rho**2))
    assert JointGaussian.correlated(rho, dimension, 3.0).mutual_information == pytest.approx(known, abs=1e-12)
    for nats, size in ((0.0, 1), (0.5, 1), (10.0, 20)):
        assert JointGaussian.with_information(nats, size).mutual_information == pytest.approx(nats, abs=1e-10)


def test_samples_have_the_covariance_and_the_critic_has_the_information():
    root = np.random.default_rng(0).standard_normal((5, 5))
    gaussian = JointGaussian(root @ root.T + np.eye(5), 2)
    x, y = gaussian.sample(100_000, generator())
    assert x.shape == (100_000, 2)
    assert y.shape == (100_000, 3)
    measured = np.cov(torch.cat([x, y], 1).double().numpy().T)
    assert np.abs(measured - gaussian.covariance).max() < 0.03 * np.abs(gaussian.covariance).max()
    values = torch.cat([gaussian.log_ratio(a, b).diagonal() for a, b in zip(x.split(500), y.split(500), strict=True)])
    assert abs(float(values.mean()) - gaussian.mutual_information) < 4 * float(values.std()) / math.sqrt(len(values))


def test_the_critic_is_the_density_ratio():
    gaussian = JointGaussian.correlated(0.6, variance=2.0)
    x, y = torch.tensor([[0.3], [-1.0]]), torch.tensor([[0.5], [2.0], [0.0]])

    def log_density(v: float, variance: float) -> float:
        return -0.5 * (v * v / variance + math.log(2 * math.pi * variance))

    for i, j in np.ndindex(2, 3):
        a, b = float(x[i]), float(y[j])
        conditional = log_density(b - 0.6 * a, 2.0 * (1 - 0.36))
        assert float(gaussian.log_ratio(x, y)[i, j]) == pytest.approx(conditional - log_density(b, 2.0), abs=1e-6)


@pytest.mark.parametrize("handedness", ["same", "opposite"])
def test_spirals_stay_in_their_box_and_take_turns(handedness):
    points, labels = spirals(2001, generator(), handedness=handedness, turns=1.5, radius=2.0)
    assert float(points.abs().max()) <= 2
    assert labels.tolist() == [i % 2 for i in range(2001)]
    angle = torch.atan2(points[:, 1], points[:, 0])
    radius = points.norm(dim=1)
    turned = 2 * math.pi * 1.5 * radius / 2.0
    start = torch.where(labels == 1, math.pi, 0.0)
    sign = torch.where((labels == 1) & (handedness == "opposite"), -1.0, 1.0)
    wrapped = torch.remainder(angle - start - sign * turned + math.pi, 2 * math.pi) - math.pi
    assert float((wrapped.abs() * radius).max()) < 1e-4


def test_views_are_shifted_by_what_the_paper_prints():
    points = torch.zeros(5000, 2)
    one_sided = shifted(points, 0.4, generator())
    assert 0 <= float(one_sided.min()) < 0.01
    assert 0.39 < float(one_sided.max()) <= 0.4
    assert torch.equal(shifted(points, 0, generator()), points)


def test_a_study_is_measured_once(tmp_path):
    calls = []

    def run():
        calls.append(1)
        return [{"x": 1.5, "name": "a", "missing": None}]

    config = {"seeds": [0, 1], "rate": 0.1}
    first = studies.measure("toy_table1", "smoke", config, run, out_dir=tmp_path)
    again = studies.measure("toy_table1", "smoke", config, run, out_dir=tmp_path / "other", read_also=[tmp_path])
    assert first == again
    assert first.rows == [{"x": 1.5, "name": "a", "missing": None}]
    assert len(calls) == 1
    assert {"git_commit", "started", "finished", "wall_s"} <= set(first.provenance)
    studies.measure("toy_table1", "smoke", config | {"rate": 0.2}, run, out_dir=tmp_path)
    assert len(calls) == 2


def test_a_cut_off_or_infinite_study_leaves_nothing(tmp_path):
    def run():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        studies.measure("toy_table1", "smoke", {}, run, out_dir=tmp_path)
    assert not list(tmp_path.rglob("*.*"))
    with pytest.raises(ValueError, match="finite"):
        studies.measure("toy_table1", "smoke", {}, lambda: [{"x": math.nan}], out_dir=tmp_path)
    assert not list(tmp_path.rglob("*.json"))


def test_an_altered_study_is_refused(tmp_path):
    studies.measure("toy_table1", "smoke", {"a": 1}, lambda: [{"x": 1}], out_dir=tmp_path)
    path = studies.location(tmp_path, "toy_table1", "smoke", {"a": 1})
    raw = json.loads(path.read_text())
    path.write_text(json.dumps(raw | {"config": {"a": 2}}))
    with pytest.raises(CorruptFileError, match="altered after it was written"):
        studies.read(path)
    older = {name: value for name, value in raw.items() if name != "checksum"}
    path.write_text(json.dumps(older))
    assert studies.read(path).rows == [{"x": 1}]
    none = "is not a stored study"
    for content, words in (
        (json.dumps(older | {"config": {"a": 2}}).encode(), "altered or renamed"), (b'{"study": "\xff"}', none),
        (b"{", none),
    ):  # fmt: skip
        path.write_bytes(content)
        with pytest.raises(CorruptFileError, match=words):
            studies.read(path)
