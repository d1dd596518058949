"""How a run is carried out: which nodes there are, their processes, what they report, and how it ends.

Launchers (geomx.launchers) say where nodes run; everything here is the same for all of them.
"""
