"""Sphinx settings: ``make docs`` builds the pages into ``docs/_build/html``.

The teaching examples are py:percent scripts in ``examples/``. They are turned into notebooks in
``docs/teach/`` when this file is read, and run when the pages are built; DSSTAN_QUICK=1 runs
them with fewer copies and iterations.
"""

import hashlib
import os
import sys
from pathlib import Path

import jupytext

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "_ext"))

import dsstan  # noqa: E402

# One BLAS thread, as in the tests: the same numbers on every machine with the same processor.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
# IPython keeps its history and settings in the user's home by default.
os.environ.setdefault("IPYTHONDIR", str(HERE / "_build" / "ipython"))


def state_of_the_code() -> str:
    """A name for the package and the mode: what was run with another is run again."""
    digest = hashlib.sha256(os.environ.get("DSSTAN_QUICK", "").encode())
    for folder in ("dsstan", "stan"):
        for path in sorted((Path(dsstan.__file__).parent.parent / folder).rglob("*")):
            if path.suffix in (".py", ".stan", ".stanfunctions"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


project = "dsstan"
author = "the dsstan developers"
copyright = "the dsstan developers, BSD 3-Clause licence"
version = release = dsstan.__version__
language = "en_GB"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "mathml",
]
exclude_patterns = ["_build", "_ext"]
nitpicky = True
# Types of other packages; links to their pages would need a network.
outside = "numpy|pandas|collections|pathlib|plotnine|geopandas|xarray"
nitpick_ignore_regex = [
    (r"py:.*", rf"({outside})\b.*"),
    # Modules that only their own room uses have no page.
    (r"py:.*", r"dsstan\.table\.formats\.parquet_source\..*|dsstan\.models\.counts\..*"),
    (r"py:mod", r"dsstan\.risk\.intruder\.(variance_grid|known_variances)"),
]

html_theme = "furo"
html_title = f"dsstan {release}"
html_static_path = ["_static"]
html_css_files = ["dsstan.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / f"executed-{state_of_the_code()}")
nb_execution_in_temp = True
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True}
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_param = False
napoleon_preprocess_types = False


def write_notebooks() -> None:
    """One notebook for each teaching example, rewritten only where the script has changed."""
    for script in sorted((ROOT / "examples").glob("[0-9]*.py")):
        notebook = HERE / "teach" / f"{script.stem}.ipynb"
        content = jupytext.read(script, fmt="py:percent")
        title, _, rest = content.cells[0]["source"].partition("\n")
        down = f"{{download}}`This page as a notebook <{notebook.name}>`"
        content.cells[0]["source"] = f"{title}\n\n{down}\n{rest}"
        content.metadata["kernelspec"] = {
            "name": "python3",
            "display_name": "Python 3",
            "language": "python",
        }
        for number, cell in enumerate(content.cells):
            cell["id"] = f"cell-{number}"
        text = jupytext.writes(content, fmt="ipynb")
        if not notebook.exists() or notebook.read_text(encoding="utf-8") != text:
            notebook.write_text(text, encoding="utf-8")


write_notebooks()
