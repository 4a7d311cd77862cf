"""A page that was just opened has no unsaved changes: its metadata are already those that JupyterLab would write."""

from ipykernel.ipkernel import IPythonKernel
from jupyter_client.kernelspec import KernelSpecManager
from jupytext import AsyncTextFileContentsManager

SPEC = KernelSpecManager().get_kernel_spec("python3")
OPENED = {
    "kernelspec": {"name": "python3", "display_name": SPEC.display_name, "language": SPEC.language},
    "language_info": IPythonKernel.language_info,
}


class Pages(AsyncTextFileContentsManager):
    """Reads and writes as jupytext does; Python's notebooks say which Python runs them."""

    async def get(self, *args, **kwargs):
        """The model of a file or folder."""
        model = await super().get(*args, **kwargs)
        if model["type"] == "notebook" and model["content"]:
            model["content"]["metadata"].update(OPENED)
        return model


get_config().ServerApp.contents_manager_class = Pages  # noqa: F821 - Jupyter's, where it reads this file
