"""In a checkout the folder `tools` answers to the name it is installed under, `nobroker_tools`.

A wheel holds the folder itself under that name and not this file. From a checkout, or an editable
install of one, importing `nobroker_tools` lands here, and this module puts the folder in its own place:
one set of modules, one name, no copy that could go stale.
"""

import importlib.util
import sys
from pathlib import Path

_folder = Path(__file__).resolve().with_name("tools")
_spec = importlib.util.spec_from_file_location(
    __name__, _folder / "__init__.py", submodule_search_locations=[str(_folder)]
)
if _spec is None or _spec.loader is None:
    raise ImportError(f"the folder {_folder} is missing: this checkout of nobroker is incomplete")
_package = importlib.util.module_from_spec(_spec)
sys.modules[__name__] = _package
_spec.loader.exec_module(_package)
