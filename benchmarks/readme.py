"""What README shows and nobody types: its picture, and between marks decided claims and profiles (``make kept``)."""

from __future__ import annotations

import re
from pathlib import Path

from contrastbook.evidence import claims, words
from contrastlab import papers, tasks
from contrastlab.tables import results

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "book/_static/samplers.png"


def marked(name: str) -> re.Pattern[str]:
    """What stands between the marks of a part of README."""
    return re.compile(rf"(?<=<!-- {name}: make kept -->\n).*?(?=<!-- end -->)", re.S)


def decided(folder: Path = ROOT / "results") -> str:
    """A Markdown table of the verdicts on each row beside its base; of several metrics on the same data, the first.

    That is chosen before the verdicts are known: a claim that is open by its first metric has no line, whatever another
    one says. Of several profiles it shows the paper's, or else the one whose settings were chosen most widely.
    """
    lines = claims.frame(results.find([folder]))
    rows_of = lines[["paper", "table", "method", "base"]].to_numpy()
    paired = [papers.plan(paper, table).pairs.get(method) == base for paper, table, method, base in rows_of]
    lines = lines[paired].drop_duplicates(["paper", "table", "claim", "dataset", "profile"])
    lines = lines[~lines["verdict"].isin(("open", "not run"))]
    first = {"paper": 0, "fair": 1, "tuned": 2, "regime": 3, "laptop": 4, "features": 5}
    lines = lines.sort_values("profile", key=lambda profiles: profiles.map(first), kind="stable")
    lines = lines.drop_duplicates(["paper", "table", "claim", "dataset"]).sort_index()
    rows = ["| claim | published | measured | seeds, profile | verdict |", "| --- | --- | --- | --- | --- |"]
    for line in lines.to_dict("records"):
        metric = tasks.metric(line["metric"]).label
        where = f"{words.table_of(line)}: {line['claim']}, {words.column_of(line)}, {metric}"
        seeds = f"{words.seeds(line)}, `{line['profile']}`"
        cells = (where, words.published(line), words.measured(line), seeds, words.sentence(line))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def profiles() -> str:
    """A Markdown table of the profiles."""
    return words.profiles() + "\n"


PARTS = {"decided": decided, "profiles": profiles}


def draw() -> None:
    """The picture: the first figure of the chapter on rings."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    page = (ROOT / "book/ring.md").read_text("utf-8")
    cell = re.search(r"```\{code-cell\} ipython3\n:tags: .*?\n(.*?)```", page, re.S)
    assert cell, "the chapter on rings opens without a figure"
    exec(compile(cell[1], "book/ring.md", "exec"), {})  # noqa: S102, our own page
    plt.gcf().savefig(PICTURE, dpi=110, metadata={"Software": None})


def main() -> None:
    """Write all."""
    page = ROOT / "README.md"
    text = page.read_text("utf-8")
    for name, part in PARTS.items():
        begin, end = marked(name).search(text).span()
        text = text[:begin] + part() + text[end:]
    page.write_text(text, "utf-8")
    draw()


if __name__ == "__main__":
    main()
