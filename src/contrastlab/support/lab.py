"""Imported before what the extra ``lab`` installs; says so where that is missing."""

from importlib.util import find_spec

from contrastlab.support.errors import MissingExtraError

for _name in ("filelock", "lightning_fabric", "pandas", "PIL", "pydantic", "safetensors", "torchvision"):
    if find_spec(_name) is None:
        raise MissingExtraError(
            f"{_name} is not installed, which data, training and tables need: pip install 'contrastlab[lab]'"
        )
