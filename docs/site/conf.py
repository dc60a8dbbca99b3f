"""Settings of the site: sphinx-build -n -W -c docs/site . build/site

The source folder is the checkout itself, so that pages, notebooks and README keep the links that they have on a forge.
`reference.py` writes one page per public object before Sphinx reads anything.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import external  # noqa: E402
import reference  # noqa: E402

import heterocompute  # noqa: E402

project = "heterocompute"
author = "the authors of heterocompute"
release = heterocompute.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.intersphinx", "sphinx.ext.mathjax", "numpydoc"]
root_doc = "docs/site/index"
include_patterns = [
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "csrc/README.md", "docs/**",
    "notebooks/**",
]  # fmt: skip
exclude_patterns = ["**/.ipynb_checkpoints", "docs/figures/**"]

html_theme = "pydata_sphinx_theme"
html_title = "heterocompute"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navigation_depth": 2,
    "show_nav_level": 1,
    "show_toc_level": 2,
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_static_path = ["static"]
html_css_files = ["site.css"]

myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
myst_dmath_allow_labels = False
myst_dmath_allow_space = False
myst_dmath_allow_digits = False
nb_execution_mode = "off"  # outputs are stored; CI runs every notebook
suppress_warnings = ["misc.highlighting_failure"]  # output of commands in blocks of sh

numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"  # except the names of external.WORDS and of our public classes
numpydoc_xref_aliases = external.aliases(reference.public_objects())
autodoc_typehints = "none"  # numpydoc's sections state the types
autodoc_member_order = "bysource"
add_module_names = False
default_role = "literal"  # names in docstrings: numpydoc has them in single backquotes

reference.write(HERE / "reference", HERE.parent)
intersphinx_mapping = external.inventories(HERE / "reference")


def setup(app: object) -> None:
    """Do nothing; Sphinx requires this function."""
