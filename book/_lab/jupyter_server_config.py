"""JupyterLab opens pages of the book as ``pages.py`` beside this file says."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from pages import Pages

configuration = get_config()  # noqa: F821 - Jupyter's, where it reads this file
configuration.ServerApp.contents_manager_class = Pages
if hasattr(os, "getuid") and os.getuid() == 0:
    configuration.ServerApp.allow_root = True
    print("JupyterLab runs as root, as in a container: whoever has its address and token can change any file.")
