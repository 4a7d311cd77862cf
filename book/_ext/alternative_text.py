"""Words for those who do not see a figure."""

from __future__ import annotations

import re


def alternative(source: str, caption: str, section: str) -> str:
    """What stands for a figure: its caption, or a sentence on its titles and one on its axes, as ``source`` has them.

    A figure without title is named by the section that it stands in. Titles of legends are left out.
    """
    titles = _words(r"""(?<!legend\()title\w*[=(]\s*f?"([^"{}]{3,})\"""", source)
    axes = _words(r"""[xy]label\w*[=(]\s*f?"([^"{}]{3,})\"""", source)
    if caption:
        first = caption.rstrip(".")
    elif titles:
        first = f"Chart titled {_listed([f'“{title}”' for title in titles])}"
    else:
        first = f"Chart of the section “{section}”"
    second = f" Its axes show {_listed(axes)}." if axes and not caption else ""
    return f"{first}.{second}"


def _words(pattern: str, source: str) -> list[str]:
    return list(dict.fromkeys(word.replace("\\n", " ") for word in re.findall(pattern, source)))


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
