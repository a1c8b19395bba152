"""Our chat templates against Python's jinja2: template_diff.py on the built driver.

TANDEM_TEMPLATES may name a folder of published chat templates (*.jinja); they are compared as well.
"""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def driver():
    if "TANDEM_TEMPLATE_DRIVER" in os.environ:
        return pathlib.Path(os.environ["TANDEM_TEMPLATE_DRIVER"])
    for found in sorted((ROOT / "build" / "release").rglob("template_driver")):
        if os.access(found, os.X_OK) and found.is_file():
            return found
    pytest.fail("build/release holds no template_driver; build it or name it in TANDEM_TEMPLATE_DRIVER")


def test_templates_render_as_in_python():
    command = [sys.executable, ROOT / "tests" / "text" / "template_diff.py", driver(), "--random", "5000", "--rounds", "150"]
    folder = os.environ.get("TANDEM_TEMPLATES")
    if folder:
        command += ["--templates", folder]
    run = subprocess.run(command, capture_output=True, text=True)
    print(run.stdout[-4000:])
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
