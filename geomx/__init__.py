"""GeoMX: training over several data centres joined by a slow WAN. Importing this package loads nothing heavy."""

__version__ = "0.1.0"
