"""The documentation's configuration."""

project = "satisfice"
author = "The satisfice developers"
copyright = "2026, the satisfice developers"  # noqa: A001 - Sphinx's name for it

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "evidence"]
html_theme = "furo"
html_title = "satisfice"
autodoc_typehints = "none"
napoleon_google_docstring = False
