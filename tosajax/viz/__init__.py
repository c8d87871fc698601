"""viz: pages with tables and charts, pictures of graphs, and data for Model Explorer.

`Comparison.to_html`, `Comparison.to_model_explorer`, `sweep.Results.to_html` and
`quant.Auto.to_html` write them to files. Charts need matplotlib: pip install 'tosajax[viz]'.
"""

from __future__ import annotations

from tosajax.viz.automatic import auto_page
from tosajax.viz.charts import check_installed
from tosajax.viz.comparison import comparison_page
from tosajax.viz.graph import graph_page, graph_svg, graph_text
from tosajax.viz.model_explorer import node_data
from tosajax.viz.pages import page
from tosajax.viz.sweep import results_page

__all__ = [
    "auto_page",
    "check_installed",
    "comparison_page",
    "graph_page",
    "graph_svg",
    "graph_text",
    "node_data",
    "page",
    "results_page",
]


def __dir__() -> list[str]:
    return __all__
