"""Our chat templates against Python's jinja2: template_diff.py on the built driver.

Published chat templates (*.jinja) in the folder that TANDEM_TEMPLATES names, or else in ../shared/data/templates beside the
repository, are compared as well; without them the bundled model's and random ones are, and the output says so.
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
    folder = pathlib.Path(os.environ.get("TANDEM_TEMPLATES", ROOT.parent / "shared" / "data" / "templates"))
    if folder.is_dir():
        command += ["--templates", folder]
    else:
        print(f"no published templates in {folder}: not compared")
    run = subprocess.run(command, capture_output=True, text=True)
    print(run.stdout[-4000:])
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
