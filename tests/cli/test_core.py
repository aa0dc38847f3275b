"""Given a machine with a C compiler, Meson and nothing that training needs, liboctet builds alone and programs link with it alone.

OCTET_CC names the compiler. pkg-config is shown an empty folder, so that no package is found; what was read is checked besides, as
headers of packages that are installed here lie where the compiler looks anyway."""
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile

from program import Checked, main

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ("jansson", "libfyaml", "pcre2", "onig", "utf8proc", "xxhash", "toml++", "mpi.h", "cmocka")


class Core(Checked):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="octet-test-"))
        self.addCleanup(shutil.rmtree, self.root)
        (self.root / "no packages").mkdir()
        self.env = {k: v for k, v in os.environ.items() if k not in ("PKG_CONFIG_PATH", "CXX", "CFLAGS", "LDFLAGS", "DESTDIR")}
        self.env.update(PKG_CONFIG_LIBDIR=str(self.root / "no packages"), CC=os.environ["OCTET_CC"])

    def run_there(self, *command, **env):
        result = subprocess.run(command, cwd=ROOT, env=dict(self.env, **env), text=True, capture_output=True)
        self.assertEqual(result.returncode, 0, result.stdout[-2000:] + result.stderr[-2000:])
        return result.stdout

    def test_the_library_alone_is_built_installed_and_used_without_any_package(self):
        build, prefix = self.root / "build", self.root / "prefix"
        # Not optimized: this is about what is needed, and takes a machine's minute otherwise.
        self.run_there("meson", "setup", str(build), "-Dtraining=disabled", "-Dtests=false", "-Doptimization=0", f"--prefix={prefix}")
        self.run_there("meson", "compile", "-C", str(build), "-j", "2")
        read = self.run_there("ninja", "-C", str(build), "-t", "deps")
        self.assertIn("octet/quantize.h", read)
        self.assertEqual([package for package in PACKAGES if package in read], [])
        self.run_there("meson", "install", "-C", str(build), "--no-rebuild")
        self.assertEqual({str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir() and path.suffix != ".h"},
                         {"lib/liboctet.a", "lib/liboctet.so", "lib/liboctet.so.1", "lib/liboctet.so.1.0.0", "lib/pkgconfig/octet.pc"})
        flags = shlex.split(self.run_there("pkg-config", "--cflags", "--libs", "octet", PKG_CONFIG_LIBDIR=f"{prefix}/lib/pkgconfig"))
        for library in ("-loctet", "-l:liboctet.a"):
            program = self.root / "program"
            chosen = [library if flag == "-loctet" else flag for flag in flags]
            self.run_there(*shlex.split(self.env["CC"]), "examples/library.c", *chosen, "-o", str(program))
            out = self.run_there(str(program), LD_LIBRARY_PATH=str(prefix / "lib"))
            self.assertRegex(out, r"^relative error of the MXFP8 product: 0\.0[0-9]+\n$")
            # The oldest languages that the headers are for; linked so, a program needs nothing of this machine but its C library.
            for compiler, source in ((["OCTET_CC", "-std=c11"], "quantize_weight.c"), (["OCTET_CXX", "-std=c++17"], "compare_rules.cpp")):
                command = [*shlex.split(os.environ[compiler[0]]), compiler[1], "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
                self.run_there(*command, f"examples/{source}", *chosen, "-lm", "-o", str(program))
                out = self.run_there(str(program), LD_LIBRARY_PATH=str(prefix / "lib"))
                self.assertRegex(out, r"scales")


if __name__ == "__main__":
    main()
