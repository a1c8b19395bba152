"""The Debian package's own scripts, on a root of the test's."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = "etc/systemd/system/multi-user.target.wants/tandem.service"


def test_a_purge_takes_the_link_of_the_enabled_service_and_a_removal_keeps_it(tmp_path):
    program = pathlib.Path(os.environ.get("TANDEM_BIN", ROOT / "build/release/tandem"))
    subprocess.run([ROOT / "scripts/deb.sh", tmp_path], check=True, capture_output=True, text=True, env={**os.environ, "TANDEM_RELEASE_DIR": str(program.parent), "TANDEM_CUDA_DIR": "/nonexistent", "TANDEM_DEB_COMPRESSION": "none"})
    package = next(tmp_path.glob("tandem_*.deb"))
    root, scripts = tmp_path / "root", tmp_path / "scripts"
    subprocess.run(["dpkg-deb", "-e", package, scripts], check=True)

    def call(script, *arguments):
        done = subprocess.run([scripts / script, *arguments], capture_output=True, text=True, env={**os.environ, "DPKG_ROOT": str(root), "DPKG_MAINTSCRIPT_PACKAGE": "tandem"})
        assert done.returncode == 0, done.stdout + done.stderr

    def install():
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
        call("postinst", "configure", "")

    def remove():
        call("prerm", "remove")
        (root / "lib/systemd/system/tandem.service").unlink()
        call("postrm", "remove")

    install()
    assert not os.path.lexists(root / LINK)  # the package enables nothing by itself
    (root / LINK).parent.mkdir(parents=True, exist_ok=True)
    (root / LINK).symlink_to("/lib/systemd/system/tandem.service")  # systemctl enable tandem
    remove()
    assert os.path.lexists(root / LINK)  # a setting, as those of /etc/tandem
    install()
    remove()
    call("postrm", "purge")
    assert not os.path.lexists(root / LINK)
    left = [path for path in (root / "etc/systemd", root / "var/lib/systemd") if any(file.name.startswith("tandem") for file in path.rglob("*"))]
    assert left == []
