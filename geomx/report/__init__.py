"""`python -m geomx.report RUN...`: one self-contained page about runs, with its pictures beside it.

runs.py finds and reads runs, charts.py says what is drawn, svg.py and png.py draw it, page.py puts it together.
"""
