"""GeneSys's performance model: designs, tiles, and the costs of layers on both arrays."""

from .design import Design
from .performance import Performance, layer_costs, network_costs
from .systolic import SystolicLayer, Tile, published_tile, systolic_costs
from .tiler import search_tile
from .vector import VectorLayer, vector_costs

__all__ = [
    "Design",
    "Performance",
    "SystolicLayer",
    "Tile",
    "VectorLayer",
    "layer_costs",
    "network_costs",
    "published_tile",
    "search_tile",
    "systolic_costs",
    "vector_costs",
]
