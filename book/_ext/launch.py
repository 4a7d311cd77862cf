"""Buttons on chapters and notebooks that open them on Binder and Colab. They are links: the page itself asks no host.

The repository's address stands in one place, ``repository: url`` of ``book/_config.yml``; CONTRASTLAB_REPOSITORY goes
before it. While both are empty there are no buttons. Binder opens the page from the branch; Colab reads notebooks
only, so it opens the copy that ``book/colab.py`` makes, from the branch ``colab``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

VARIABLE = "CONTRASTLAB_REPOSITORY"
COPIES = "colab"
"""The branch that holds the copies for Colab."""


def address(configured: str, environment: Mapping[str, str] = os.environ) -> str:
    """The repository's address, without a slash or ``.git`` at its end; empty where none is given.

    Raises:
        ValueError: it is not that of a repository on GitHub, which is what Colab opens.
    """
    given = environment.get(VARIABLE) or configured or ""
    plain = given.rstrip("/").removesuffix(".git")
    if plain and not re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+", plain):
        raise ValueError(
            f"{VARIABLE}, or repository: url of book/_config.yml: {given!r}: expected https://github.com/OWNER/NAME"
        )
    return plain


def group(repository: str, branch: str, page: str, suffix: str) -> dict[str, Any]:
    """The launch buttons of a page, as the theme wants them.

    Args:
        repository: address.
        branch: that the book is built from.
        page: such as ``book/ring``.
        suffix: of its source, ``.md`` or ``.ipynb``.
    """
    name = repository.removeprefix("https://github.com/")
    links = (
        ("Binder", f"https://mybinder.org/v2/gh/{name}/{branch}?urlpath=lab/tree/{page}{suffix}", "logo_binder.svg"),
        ("Colab", f"https://colab.research.google.com/github/{name}/blob/{COPIES}/{page}.ipynb", "logo_colab.png"),
    )
    buttons = [
        {
            "type": "link",
            "text": text,
            "tooltip": f"Run this page on {text}",
            "icon": f"_static/images/{icon}",
            "url": url,
        }
        for text, url, icon in links
    ]
    return {"type": "group", "tooltip": "Run this page", "icon": "fas fa-rocket", "buttons": buttons, "label": "launch"}


def runs_alone(page: str, source: str) -> bool:
    """Whether a page can be run away from the repository: a chapter, or the notebook of a table."""
    return page.startswith("nbs/") or (page.startswith("book/") and "\n(ch:" in source)


def add(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Put the buttons into a page's header."""
    options = app.config.html_theme_options
    repository = address(options.get("repository_url", ""))
    if not repository or doctree is None:
        return
    path = app.env.doc2path(pagename)
    with open(path, encoding="utf-8") as file:
        if runs_alone(pagename, file.read()):
            suffix = os.path.splitext(path)[1]
            branch = options.get("repository_branch") or "main"
            context["header_buttons"].append(group(repository, branch, pagename, suffix))


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("html-page-context", add, priority=502)  # after the theme has begun its list
    return {"parallel_read_safe": True, "parallel_write_safe": True}
