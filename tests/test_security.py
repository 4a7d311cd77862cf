"""Nothing that is read is run, no name becomes markup, no list leads out of its folder, no small file becomes large."""

import ast
import gzip
import json
import os
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import gallery
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from matplotlib.cbook import is_math_text
from mdit_py_plugins.dollarmath import dollarmath_plugin
from PIL import Image

from contrastbook import evidence
from contrastbook.figures import atlas, pictures, senses, thumbnails, widgets
from contrastbook.figures.results import forest
from contrastbook.studies import Study
from contrastlab import __main__, data, encoders, papers
from contrastlab.domains.clips import data as videos
from contrastlab.pictures import limits
from contrastlab.pictures.sets import StreamedImages
from contrastlab.support import doctor, escape
from contrastlab.support.errors import ArgumentError, CorruptFileError, TooLargeError
from contrastlab.support.paths import check_inside
from contrastlab.tables import execution, notebook, report, results
from contrastlab.tables.report import Unavailable
from test_report import PLAN, result

ROOT = Path(__file__).parents[1]
CLAIMS = evidence.claims.frame([], [])

# Code

MODULES = {
    "_pickle", "cloudpickle", "code", "codeop", "dill", "joblib", "marshal", "pickle", "runpy", "shelve", "telnetlib",
}  # fmt: skip
CALLS = {
    "__import__", "compile", "eval", "exec", "np.fromregex", "numpy.lib.format.read_array", "os.popen", "os.system",
    "pd.eval", "pd.read_pickle", "subprocess.getoutput", "tempfile.mktemp", "torch.hub.load", "torch.jit.load",
    "torch.load", "torch.save", "yaml.load", "yaml.unsafe_load",
}  # fmt: skip
METHODS = {"read_pickle", "to_pickle", "query", "extractall"}
KEYWORDS = dict.fromkeys(("allow_pickle", "shell", "trust_remote_code", "resolve_entities"), True)
KEYWORDS["weights_only"] = False


def dangers(source: str) -> list[str]:
    """What would run, or unpickle, something that was read."""
    out = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            out += [alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module:
            out += [node.module] * (node.module.partition(".")[0] in MODULES)
            out += [f"{node.module}.{a.name}" for a in node.names if f"{node.module}.{a.name}" in CALLS]
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            last = name.rpartition(".")[2]
            out += [name] * (name in CALLS or ("." in name and last in METHODS))
            named = {word.arg: word.value for word in node.keywords}
            constants = {name: value.value for name, value in named.items() if isinstance(value, ast.Constant)}
            told = named.keys() & KEYWORDS.keys()
            out += [f"{name}=…" for name in told if constants.get(name, KEYWORDS[name]) is KEYWORDS[name]]
            out += [name] * (last == "from_pretrained" and not {"use_safetensors", "trust_remote_code"} <= named.keys())
    return out


@pytest.mark.parametrize("source", [
    "import pickle", "from joblib import load", "eval('1')", "exec(text)", "torch.load(path)",
    "torch.load(path, weights_only=True)", "np.load(path, allow_pickle=True)", "np.load(path, allow_pickle=flag)",
    "frame.query(text)", "pd.read_pickle(path)", "subprocess.run(x, shell=True)", "yaml.load(x)",
    "from torch import load", "M.from_pretrained(path)", "stored.extractall(place)", "compile(text, '', 'exec')",
    "M.from_config(c, trust_remote_code=True)",
])  # fmt: skip
def test_the_search_for_code_that_is_read_finds_it(source: str) -> None:
    assert dangers(source)


def test_nothing_that_is_read_is_run_or_unpickled() -> None:
    # the one archive that is unpacked whole is that of an installed package, and zipfile keeps it in its folder
    allowed = {"src/contrastlab/domains/text/augmentation.py": ["stored.extractall"]}
    # state dicts of other trainers: tensors and plain values alone (weights_only), see test_foreign
    allowed["src/contrastlab/pictures/foreign_networks.py"] = ["pickle", "torch.load"]
    # a plain state dict for other programs, written where it is asked for
    allowed["src/contrastlab/tables/exchange.py"] = ["torch.save"]
    seen = 0
    for folder in ("src", "nbs"):
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            assert dangers(path.read_text(encoding="utf-8")) == allowed.get(name, []), name
            seen += 1
    assert seen > 200


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md", "book/reproduce.md"])
def test_where_no_pickle_is_promised_the_one_of_submitit_is_named(page: str) -> None:
    (line,) = [line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if "pickle" in line.lower()]
    assert "submitit" in line


def test_an_encoder_file_names_no_other_folder_of_weights(tmp_path: Path) -> None:
    net = torch.nn.ModuleList([encoders.build("tiny", dim=4)])
    build = {"arch": "tiny", "stem": "imagenet", "head": "linear", "dim": 4, "width": 1.0}
    encoders.save(net, tmp_path, ("all",), build)
    assert len(encoders.load(tmp_path)) == 1
    encoders.save(net, tmp_path, ("all",), {**build, "weights": "/somewhere"})
    with pytest.raises(CorruptFileError, match="build.weights='/somewhere'"):
        encoders.load(tmp_path)


# Names

NASTY = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "a|b", "$x$", r"$\frac{1$", "two\nlines",
    "[link](javascript:alert(3))", "`code` **bold** _i_", "# head", "\x1b[2J\u202eright", "&lt;b&gt;", "![i](x.png)",
)  # fmt: skip
TOGETHER = (" ".join(NASTY), "_".join(reversed(NASTY)))
PLAIN = "plainname"


class Tags(HTMLParser):
    """Elements with the names of their attributes, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[Any] = []
        self.text = ""
        self.values: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *sorted(name for name, _ in attrs)))
        self.values += [value or "" for _, value in attrs]

    def handle_data(self, text: str) -> None:
        self.text += text


def same_page(nasty: str, plain: str, name: str) -> None:
    """The name adds no element and no attribute, and stands there to the letter."""
    got, expected = Tags(nasty), Tags(plain)
    assert got.tags == expected.tags
    assert escape.line(name) in got.text + " ".join(got.values)
    assert PLAIN in expected.text + " ".join(expected.values)


MARKDOWN = MarkdownIt("gfm-like", {"linkify": False, "html": True}).use(dollarmath_plugin)


def structure(text: str) -> list[str]:
    return [
        inner.type
        for token in MARKDOWN.parse(text)
        for inner in (token, *(token.children or ()))
        if inner.type not in ("text", "text_special", "inline")
    ]


def table_of(name: str) -> report.Report:
    """A table in which the name is data set, note of data, note of a row, reason, and label."""
    data_set = f"folder:{name}"
    note = f"image files of {name}"
    made = [
        result(row, 0, value, dataset="shapes", profile="smoke", note=note).model_copy(update={"dataset": data_set})
        for row, value in (("ours/random", 20.0), ("ring/ir", 50.0), ("ring/iring", 60.0))
    ]
    return report.table(PLAN, [*made, Unavailable("ring/cmc", f"needs data: {name}")], data_set, "smoke")


@pytest.mark.parametrize("name", NASTY)
def test_a_name_in_a_report_is_shown_to_the_letter(name: str) -> None:
    nasty, plain = table_of(name), table_of(PLAIN)
    same_page(nasty.html(), plain.html(), name)
    same_page(report.image(nasty.figure()), report.image(plain.figure()), name)
    assert structure(nasty.markdown()) == structure(plain.markdown())
    assert structure(nasty.summary._repr_markdown_()) == structure(plain.summary._repr_markdown_())
    for text in (nasty.text(), repr(nasty)):
        assert all(line.isprintable() for line in text.splitlines())
    assert nasty.text().count("\n") == plain.text().count("\n")
    axes = nasty.figure().axes[0]
    for label in (axes.get_xlabel(), *(tick.get_text() for tick in axes.get_yticklabels())):
        assert not is_math_text(label)


@pytest.mark.parametrize("name", TOGETHER)
def test_a_name_in_claims_matrix_and_atlas_is_shown_to_the_letter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def claims(of: str) -> pd.DataFrame:
        made = [result(row, 0, 60.0, dataset="cifar10") for row in ("ring/ir", "ring/iring")]
        return evidence.claims.frame(made, [PLAN]).assign(column=of, claim=of)

    nasty, plain = claims(name), claims(PLAIN)
    same_page(evidence.words.html(nasty), evidence.words.html(plain), name)
    figure = forest(nasty)
    assert Tags(report.image(figure)).tags == Tags(report.image(forest(plain))).tags
    assert not any(is_math_text(tick.get_text()) for tick in figure.axes[0].get_yticklabels())

    pages = [gallery.matrix([], plain, {papers.catalogue()[0].name: {"laptop": each}}) for each in (name, PLAIN)]
    same_page(*pages, name)

    made = [
        result("ring/ir", 0, 50.0, dataset="shapes", profile="smoke").model_copy(update={"dataset": f"folder:{each}"})
        for each in (name, PLAIN)
    ]
    cards = [atlas.card("ring/ir", [each]) for each in made]
    assert structure(cards[0]) == structure(cards[1])
    grid = atlas.grid("vince")
    monkeypatch.setattr(atlas, "grid", lambda _: grid.rename(index={grid.index[0]: name}))
    mine = atlas.table()
    monkeypatch.setattr(atlas, "grid", lambda _: grid.rename(index={grid.index[0]: PLAIN}))
    same_page(mine, atlas.table(), name)


def stamp() -> go.Figure:
    return go.Figure(go.Scatter(x=[0, 1], y=[0, 1]))


@pytest.mark.parametrize("name", TOGETHER)
def test_a_name_in_a_figure_is_shown_to_the_letter(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pages = [thumbnails.cards([(f"{each}.html", each, each, each, stamp())]) for each in (name, PLAIN)]
    same_page(*pages, name)
    drawn = pictures.segmentations(torch.zeros(1, 4, 8, 8), {name: torch.zeros(1, 8, 8)}, ("a", "b"))
    drawn.savefig(tmp_path / "scenes.png")
    assert not any(is_math_text(axes.get_title()) for axes in drawn.axes)
    (title,) = [axes.get_title() for axes in senses.spectrograms([torch.zeros(4, 4)], [name]).axes if axes.images]
    assert not is_math_text(title)
    own = data.load("silhouettes", n_train=1, n_test=1).test
    rows = [{"method": name, "picture": 0, "score": 0.1, "found": "{}"}]
    config = {"rows": {name: ""}}
    study = Study.model_construct(study="found", profile="smoke", config=config, rows=rows, provenance={})
    assert Tags(pictures.objects(study, own, pictures=1).layout.annotations[1].text).tags == []

    said = []
    monkeypatch.setattr(widgets, "display", said.append)

    def refuse() -> go.Figure:
        raise ArgumentError(name)

    widgets.live(refuse).update()
    assert Tags(said[0].value).tags == [("p", "class", "role")]
    claim = notebook.ShownClaims((PLAN.model_copy(update={"claim": name}),))._repr_html_()
    plain = notebook.ShownClaims((PLAN.model_copy(update={"claim": PLAIN}),))._repr_html_()
    same_page(claim, plain, name)


def test_dollars_of_a_report_are_no_formula_for_mathjax() -> None:
    for page in (table_of("$x$").html(), gallery.matrix([], CLAIMS), atlas.table(), thumbnails.cards([])):
        assert "tex2jax_ignore mathjax_ignore" in page


@pytest.mark.parametrize("name", TOGETHER)
def test_a_name_in_a_terminal_adds_no_line_and_no_colour(name: str, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    there = tmp_path / "data" / name.replace("/", "")
    there.mkdir(parents=True)
    monkeypatch.setenv("CONTRASTLAB_DATA", str(there.parent))
    said = "\n".join(doctor.lines(tmp_path / "runs"))
    assert all(line.isprintable() for line in said.splitlines())
    (tmp_path / "data" / PLAIN).mkdir()
    assert said.count("\n") == "\n".join(doctor.lines(tmp_path / "runs")).count("\n")
    assert escape.line(there.name) in said
    folder = tmp_path / "runs" / "encoders" / "0"
    folder.mkdir(parents=True)
    record = {
        "schema": 1, "hash": "0" * 64, "recipe": {"name": name}, "dataset": name, "seed": 0, "history": [],
        "seconds": 1.0, "images": 1,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    capsys.readouterr()
    assert __main__.main(["encoders"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert all(line.isprintable() for line in shown)
    (folder / "run.json").write_text(
        json.dumps(record | {"recipe": {"name": PLAIN}, "dataset": PLAIN}), encoding="utf-8"
    )
    assert __main__.main(["encoders"]) == 0
    assert len(shown) == len(capsys.readouterr().out.splitlines())


def test_a_path_that_was_written_is_printed_on_its_line(tmp_path, capsys) -> None:
    assert __main__.main(["notebook", "ring/table1", "--to", str(tmp_path / "\x1b[2J\n.ipynb")]) == 0
    assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())
    execution.say("folder:\x1b[2J")
    assert capsys.readouterr().out == "folder:\\x1b[2J\n"


def test_a_page_full_of_names_runs_nothing_in_a_browser(tmp_path: Path, browser: Any) -> None:
    body = []
    for name in NASTY:
        table = table_of(name)
        body += [table.html(), report.image(table.figure()), thumbnails.cards([(*[name] * 4, stamp())])]
        body.append(gallery.matrix([], CLAIMS, {"ring/table1": {"laptop": name}}))
    path = tmp_path / "page.html"
    path.write_text(f'<!doctype html><html><meta charset="utf-8"><body>{"".join(body)}', encoding="utf-8")
    page, opened = browser.new_page(), []
    page.on("dialog", lambda dialog: (opened.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: opened.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_timeout(300)
    assert page.evaluate("document.scripts.length") == 0
    assert page.evaluate("[...document.querySelectorAll('*')].filter(e => e.onerror || e.onclick).length") == 0
    text = page.inner_text("body")
    page.close()
    assert [each for each in opened if not each.startswith(("data:", path.as_uri()))] == []
    assert not [name for name in NASTY if " ".join(escape.line(name).split()) not in text]


# Paths


@given(st.text(min_size=1, max_size=30), st.text(min_size=1, max_size=30))
@example("../../x", "/etc/passwd")
@example("a/../../b", "..")
@example("..", "x/y")
def test_a_result_is_stored_below_its_folder_whatever_its_names(one: str, two: str) -> None:
    root = Path("/results")
    for changes in ({"method": one, "dataset": two}, {"task": one, "on": two}, {"profile": one, "hash_": two}):
        given_ = {"dataset": "d", "profile": "p", "method": "m", "task": "t", "hash_": "h", "on": "", **changes}
        path = results.location(root, seed=0, **given_)  # type: ignore[arg-type]
        assert path.relative_to(root).parts[0] == "cells"
        assert len(path.relative_to(root).parts) == 4
        assert ".." not in path.parts
        assert os.path.normpath(path) == str(path)


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "..", "a/..", "a\0b", "\udcff"])
def test_a_list_names_files_of_its_own_folder(path: str, tmp_path: Path) -> None:
    labels = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(ArgumentError, match="^paths="):
        data.StreamedImages("x", tmp_path, (path,), labels, ("a",))
    with pytest.raises(ArgumentError, match="^paths="):
        videos.VideoFiles("x", tmp_path, (path,), labels, ("a",))
    for good in ("a..b/c.png", "...", "a/b", "..a", "a b"):
        check_inside("paths", [good])


# Sizes


def test_archives_are_unpacked_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.writestr("small", b"x" * 100)
        packed.writestr("large", b"x" * 101)
    (tmp_path / "small.gz").write_bytes(gzip.compress(b"x" * 100))
    (tmp_path / "large.gz").write_bytes(gzip.compress(b"x" * 101))
    monkeypatch.setattr(limits, "MAX_BYTES", 100)
    with zipfile.ZipFile(tmp_path / "a.zip") as packed:
        assert len(limits.unpacked(packed, "small")) == 100
        with pytest.raises(TooLargeError, match="large in .*a.zip has 101 bytes"):
            limits.unpacked(packed, "large")
    assert len(limits.gunzipped(tmp_path / "small.gz")) == 100
    with pytest.raises(TooLargeError, match="large.gz unpacks to more than the 100 bytes"):
        limits.gunzipped(tmp_path / "large.gz")


def test_a_video_is_decoded_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    av = pytest.importorskip("av")
    path = tmp_path / "a.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for _ in range(5):
            for packet in stream.encode(av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    assert len(videos.decode(path)) == 5
    monkeypatch.setattr(limits, "MAX_FRAMES", 4)
    with pytest.raises(TooLargeError, match="a.mp4 has 5 frames or more"):
        videos.decode(path)
    monkeypatch.setattr(limits, "MAX_PIXELS", 64 * 48 - 1)
    with pytest.raises(TooLargeError, match="a.mp4 has 64x48 pixels"):
        videos.decode(path)


def test_every_reader_of_pictures_looks_at_their_size_first(tmp_path) -> None:
    """``Image.open`` stands in one place, which checks."""
    places = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Image.open", "PIL.Image.open"):
                places.append(path.relative_to(ROOT / "src" / "contrastlab").as_posix())
    assert places == ["pictures/sets.py"]
    Image.new("RGB", (60_000, 1)).save(tmp_path / "long.png")
    one = StreamedImages("one", tmp_path, ("long.png",), torch.zeros(1, dtype=torch.int64), ("a",))
    message = r"long.png, its shorter side resized to 256, has 15360000x256 pixels: accepted are at most"
    with pytest.raises(TooLargeError, match=message):
        one[0]
    assert Image.MAX_IMAGE_PIXELS is None or limits.MAX_PIXELS < Image.MAX_IMAGE_PIXELS
    limits.check_pixels(8192, 8192, "a.png")
