"""python -m geomx.report RUN... [--out DIRECTORY] [--no-mlflow]"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from geomx.cli import command
from geomx.errors import ConfigError
from geomx.report import png
from geomx.report.charts import charts
from geomx.report.page import page
from geomx.report.runs import Run, find, fold

FILE = "report.html"
log = logging.getLogger("geomx")


@command
def main(arguments: Sequence[str] | None = None) -> int:
    """0; 2 for what is no run."""
    parser = argparse.ArgumentParser(prog="python -m geomx.report", description="One page about runs, with pictures.")
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="directory of a run or of a sweep, or an MLflow run's id"
    )
    parser.add_argument("--out", type=Path, help="where it goes; default: the directory of the run or of the sweep")
    parser.add_argument("--no-mlflow", action="store_true", help="don't log it to the runs' MLflow run")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    runs = find(given.runs)
    made = write(runs, given.out or _place(runs))
    if not given.no_mlflow:
        _log(runs, made)
    print(made[0])
    return 0


def write(runs: Sequence[Run], out: Path) -> list[Path]:
    """report.html and the PNGs; their paths, the page first. Raises ConfigError."""
    groups = fold([r for r in runs if r.is_finished])
    drawn = charts(groups) if groups else []
    text = page(runs, groups, drawn)
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / FILE).write_text(text, encoding="utf-8")
        return [out / FILE, *png.write(drawn, out)]
    except OSError as e:
        raise ConfigError(
            f"report: {e.filename or out} can't be written: {e.strerror}; --out names another folder"
        ) from None


def _place(runs: Sequence[Run]) -> Path:
    """The run's own directory, the sweep's, else a new one here."""
    if len(runs) == 1:
        return runs[0].directory
    parents = {r.directory.parent for r in runs}
    is_sweep = len(parents) == 1 and (next(iter(parents)) / "multirun.yaml").exists()
    return next(iter(parents)) if is_sweep else Path("report").absolute()


def _log(runs: Sequence[Run], files: Sequence[Path]) -> None:
    """To the sweep's run where there is one, else to the only run; several loose runs have none in common."""
    from geomx.tracking.mlflow import PARENT, client, default_uri

    parent = runs[0].directory.parent / PARENT
    if len(runs) > 1 and parent.exists() and len({r.directory.parent for r in runs}) == 1:
        uri, _, run_id = parent.read_text().rpartition(" ")
    elif len(runs) == 1 and runs[0].summary.get("mlflow_run_id"):
        uri = (runs[0].summary["config"].get("tracking") or {}).get("uri") or default_uri()
        run_id = runs[0].summary["mlflow_run_id"]
    else:
        return
    try:
        store = client(uri)
        for file in files:
            store.log_artifact(run_id, str(file), "report")
    except Exception as e:  # the page is there; that it isn't in MLflow too is a pity, no failure
        log.warning("the report is not in MLflow: %s: %s", type(e).__name__, (str(e).splitlines() or [""])[0])


if __name__ == "__main__":
    sys.exit(main())
