"""Given a built tree, installing it brings what an outsider's program and reader need. OCTET_BUILD names the tree."""
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = os.environ["OCTET_BUILD"]


class Install(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", self.root], check=True)

    def found(self, name):
        found = [p for p in self.root.rglob(name) if p.is_file()]
        self.assertEqual(len(found), 1, f"{name}: {found}")
        return found[0]

    def test_program_library_headers_and_man_page_are_there(self):
        for name in ("octet", "liboctet.a", "octet.pc", "octet.1"):
            self.found(name)
        headers = {p.name for p in (ROOT / "include" / "octet").glob("*.h")}
        installed = {p.name for p in self.root.rglob("*.h")}
        self.assertTrue(headers and headers <= installed, f"missing: {headers - installed}")

    def test_the_example_builds_by_pkg_config_and_runs(self):
        env = dict(os.environ, PKG_CONFIG_PATH=str(self.found("octet.pc").parent),
                   PKG_CONFIG_SYSROOT_DIR=str(self.root))
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "octet"], env=env, check=True,
                               capture_output=True, text=True).stdout.split()
        program = self.root / "library"
        subprocess.run(["cc", ROOT / "examples" / "library.c", *flags, "-lm", "-o", program], check=True)
        out = subprocess.run([program], check=True, capture_output=True, text=True).stdout
        self.assertTrue(out.strip())

    def test_make_install_installs_where_it_is_told_to(self):
        told = self.root / "told"
        for given, expected in (([f"PREFIX={told}"], f"--prefix {told}"), ([], None)):
            out = subprocess.run(["make", "-C", ROOT, "-n", f"BUILD={BUILD}", "install", *given], check=True,
                                 capture_output=True, text=True).stdout
            if expected:
                self.assertIn(expected, out)
            else:
                self.assertNotIn("--prefix", out)


if __name__ == "__main__":
    unittest.main(argv=["test_install"])
