"""What the tests of pages in a browser share."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture
def offline_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """``offline_page(address, until, width=390)``: a page that must not raise nor ask anybody for anything.

    It is returned once the JavaScript ``until`` is true. ``own`` are beginnings of addresses that are not foreign; more
    options are those of a browser's context.
    """
    contexts = []
    wrong: list[str] = []

    def opened(
        address: str, until: str, *, width: int = 1300, own: tuple[str, ...] = ("file:",), **options: Any
    ) -> Any:
        context = browser.new_context(offline=True, viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: request.url.startswith(own) or wrong.append(request.url))
        page.goto(address)
        page.wait_for_function(until)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not wrong
