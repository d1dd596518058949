"""The examples of the seed's techniques hold the loops that its page prints, statement by statement, and the scripts
that start them are there."""

import ast
import os
import subprocess
from pathlib import Path

import pytest
import seed_page

ROOT = Path(__file__).parents[2]
SCRIPTS = {"run_vanilla_hips": "cnn.py", "run_bisparse_compression": "cnn_bsc.py", "run_fp16": "cnn_fp16.py",
           "run_mixed_precision": "cnn_mpq.py", "run_dgt": "cnn.py", "run_p3": "cnn.py",
           "run_multi_gps": "cnn.py", "run_tsengine": "cnn.py"}  # fmt: skip


class AsPrinted(ast.NodeTransformer):
    """What an example may put in the place of the page's dots and numbers."""

    def visit_Constant(self, node):
        return ast.Name("compression_ratio", ast.Load()) if node.value == 0.01 else node

    def visit_Attribute(self, node):
        self.generic_visit(node)
        is_ratio = node.attr == "bisparse_compression_ratio"
        return ast.Name("compression_ratio", ast.Load()) if is_ratio else node


def statements(code):
    """Dumps of a program's statements, imports left out."""
    tree = AsPrinted().visit(ast.parse(code))
    return [s for s in tree.body if not isinstance(s, ast.Import | ast.ImportFrom)]


def own_program(loop):
    tree = AsPrinted().visit(ast.parse((ROOT / "examples" / f"cnn_{loop}.py").read_text()))
    (main,) = [s for s in tree.body if isinstance(s, ast.FunctionDef) and s.name == "main"]
    return main.body


def without_fillings(epochs):
    """The loop over epochs with dots again where forward and backward stand, and without the printing of progress."""
    batches = epochs.body[0]
    assert isinstance(batches.body[0], ast.With)
    assert ast.unparse(batches.body[1]) == "loss.backward()"
    assert ast.unparse(batches.body[-1]) == "progress.step(epoch)"
    batches.body[:2] = [ast.Expr(ast.Constant(...))]
    del batches.body[-1]
    return epochs


@pytest.mark.parametrize("loop", seed_page.LOOPS)
def test_every_printed_statement_is_in_the_example_in_order(loop):
    own = [ast.dump(without_fillings(s) if ast.unparse(s).startswith("for epoch") else s) for s in own_program(loop)]
    at = 0
    for printed in statements(seed_page.printed(loop)):
        assert ast.dump(printed) in own[at:], f"cnn_{loop}.py lacks, or has too early:\n{ast.unparse(printed)}"
        at = own.index(ast.dump(printed), at) + 1


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_starts_its_example(script, device):
    path = ROOT / "launchers" / device / f"{script}.sh"
    assert os.access(path, os.X_OK)
    assert f'example.sh" {device} {SCRIPTS[script]} ' in path.read_text()
    assert (ROOT / "examples" / SCRIPTS[script]).exists()


def test_a_gpu_script_without_a_gpu_says_so_and_stops(tmp_path):
    without = tmp_path / "python"
    without.write_text("#!/bin/sh\nexit 1\n")
    without.chmod(0o755)
    done = subprocess.run(["sh", ROOT / "launchers/gpu/run_fp16.sh"], env={**os.environ, "PYTHON": str(without)},
                          capture_output=True, text=True, timeout=55)  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "MXNet has no usable GPU here; launchers/cpu has the same run without one\n"
