"""Given a built tree, installing it brings what an outsider's program and reader need. OCTET_BUILD names the tree,
OCTET_CC the compiler command."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile

from program import Checked, main

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = os.environ["OCTET_BUILD"]
CC = shlex.split(os.environ["OCTET_CC"])
SANITIZED = any(word.startswith("-fsanitize=") for word in CC)
NOBODY = 65534


class Install(Checked):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="octet-test-"))
        self.addCleanup(shutil.rmtree, self.root)

    def install(self, prefix, status=0, **env):
        """tools/install, which `make install` runs after it built; a test can't build, others run meanwhile."""
        result = subprocess.run(["tools/install", BUILD, str(prefix)], cwd=ROOT, env=dict(os.environ, **env), text=True,
                                capture_output=True)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def flags(self, prefix, *options):
        """What pkg-config says when it looks under a prefix at the places where it looks under /usr/local."""
        env = dict(os.environ, PKG_CONFIG_PATH=os.pathsep.join(
            f"{prefix}/{place}/pkgconfig" for place in ("lib", "share")))
        result = subprocess.run(["pkg-config", *options, "octet"], env=env, text=True, capture_output=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        return shlex.split(result.stdout)

    def runs(self, source, flags):
        """Compiles a C program with these flags and gives what it prints. The loader looks for libraries where the linker did,
        as it does under /usr/local after tools/install."""
        program = self.root / "program"
        result = subprocess.run([*CC, "-Wall", "-Werror", str(source), *flags, "-o", str(program)], text=True,
                                capture_output=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        env = dict(os.environ, LD_LIBRARY_PATH=os.pathsep.join(flag[2:] for flag in flags if flag.startswith("-L")))
        return subprocess.run([program], check=True, text=True, capture_output=True, env=env).stdout

    def public_functions(self):
        text = "".join(p.read_text() for p in (ROOT / "include/octet").glob("*.h"))
        text = re.sub(r"/\*.*?\*/|static inline.*?^}", "", text, flags=re.S | re.M)
        names = sorted(set(re.findall(r"^(?!#|typedef)[\w *]*?\b(oct_\w+)\(", text, re.M)))
        self.assertGreater(len(names), 20, names)
        return names

    def test_program_library_headers_and_man_page_are_there(self):
        self.install(self.root)
        for name in ("bin/octet", "lib/liboctet.a", "lib/liboctet.so", "lib/liboctet.so.1", "lib/pkgconfig/octet.pc", "share/man/man1/octet.1"):
            self.assertTrue((self.root / name).is_file(), name)
        self.assertEqual(subprocess.run([self.root / "bin/octet", "--help"], capture_output=True).returncode, 0)
        headers = {p.name for p in (ROOT / "include/octet").glob("*.h")}
        self.assertTrue(headers)
        self.assertEqual(headers, {p.name for p in (self.root / "include/octet").iterdir()})

    def test_the_example_builds_by_pkg_config_and_runs(self):
        self.install(self.root)
        out = self.runs(ROOT / "examples/library.c", self.flags(self.root, "--cflags", "--libs"))
        self.assertRegex(out, r"^relative error of the MXFP8 product: 0\.0[0-9]+\n$")

    def test_users_get_flags_for_what_they_need_and_every_public_function_links_with_them(self):
        self.install(self.root)
        flags = self.flags(self.root, "--cflags", "--libs")
        self.assertEqual([f for f in flags if not f.startswith(("-I" + str(self.root), "-L" + str(self.root)))],
                         ["-pthread", "-loctet", "-lm", "-pthread"])
        names = self.public_functions()
        source = self.root / "all.c"
        source.write_text("#include <octet/octet.h>\n#include <stdio.h>\ntypedef void function(void);\nint main(void) {\n"
                          "    function *all[] = {%s};\n    int n = 0;\n"
                          "    for (unsigned long i = 0; i < sizeof(all) / sizeof(*all); i++)\n        n += all[i] != NULL;\n"
                          "    return printf(\"%%d\\n\", n) < 0;\n}\n" % ", ".join("(function *)" + name for name in names))
        self.assertEqual(self.runs(source, ["-Wno-cast-function-type", *flags]), f"{len(names)}\n")

    def test_the_whole_archive_links_with_the_static_flags(self):
        self.install(self.root)
        flags = self.flags(self.root, "--static", "--cflags", "--libs")
        flags[flags.index("-loctet"):flags.index("-loctet") + 1] = ["-Wl,--whole-archive", "-l:liboctet.a", "-Wl,--no-whole-archive"]
        self.assertTrue(self.runs(ROOT / "examples/library.c", flags))
        self.assertNotIn("liboctet", "".join(self.needed(self.root / "program")))

    def needed(self, binary):
        out = subprocess.run(["readelf", "-d", binary], check=True, text=True, capture_output=True).stdout
        return re.findall(r"\(NEEDED\).*\[(.*)\]", out)

    def test_the_shared_library_shows_the_public_functions_alone_and_needs_the_c_library_alone(self):
        self.install(self.root)
        library = self.root / "lib/liboctet.so"
        shown = subprocess.run(["nm", "-D", "--defined-only", library], check=True, text=True, capture_output=True).stdout
        self.assertEqual([line.split()[-1] for line in shown.splitlines()], self.public_functions())
        out = subprocess.run(["readelf", "-d", library], check=True, text=True, capture_output=True).stdout
        self.assertIn("Library soname: [liboctet.so.1]", out)
        if not SANITIZED:  # a sanitizer is a library of its own
            self.assertLessEqual({name.split(".so")[0] for name in self.needed(library)}, {"libc", "libm", "libpthread", "ld-linux-x86-64"})

    def test_one_tree_installs_under_several_prefixes_even_with_spaces(self):
        for name in ("first", "with a space", "first"):
            prefix = self.root / name
            self.assertIn(f"installed octet under {prefix}\n", self.install(prefix).stdout)
            self.assertTrue(self.runs(ROOT / "examples/library.c", self.flags(prefix, "--cflags", "--libs")))
        self.assertEqual(sorted(p.name for p in self.root.iterdir()), ["first", "program", "with a space"])

    def test_a_prefix_may_be_relative_and_destdir_goes_before_it(self):
        relative = os.path.relpath(self.root / "relative", ROOT)
        self.install(relative)
        self.assertTrue((self.root / "relative/bin/octet").is_file())
        self.install("/opt/octet", DESTDIR=str(self.root / "image"))
        self.assertTrue((self.root / "image/opt/octet/bin/octet").is_file())

    def test_a_running_program_is_replaced_and_the_mode_of_folders_stays(self):
        self.install(self.root)
        (self.root / "lib").chmod(0o2775)
        before = (self.root / "bin/octet").stat().st_ino
        with open(self.root / "bin/octet", "rb"):
            self.install(self.root)
            self.assertNotEqual((self.root / "bin/octet").stat().st_ino, before)
        self.assertEqual((self.root / "lib").stat().st_mode & 0o7777, 0o2775)

    def test_without_rights_one_line_says_what_to_do(self):
        closed = self.root / "closed"
        closed.mkdir(mode=0o555)
        shutil.copytree(ROOT / "tools", self.root / "tools")  # a checkout in /root is closed to others
        user = {}
        if os.getuid() == 0:
            self.root.chmod(0o755)
            user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        result = subprocess.run(["tools/install", BUILD, str(closed / "octet")], cwd=self.root, text=True, capture_output=True, **user)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr.splitlines(), [f"install: can't write to {closed}: sudo make install, or into a folder of "
                                                      "yours: make install PREFIX=$HOME/.local"])

    def test_make_install_gives_the_prefix_as_it_is(self):
        for given, expected in ((["PREFIX=/with a/space"], '"/with a/space"'), ([], '"/usr/local"')):
            out = subprocess.run(["make", "-C", ROOT, "-n", f"BUILD={BUILD}", "install", *given], check=True, text=True,
                                 capture_output=True, env={k: v for k, v in os.environ.items() if k != "PREFIX"}).stdout
            self.assertIn(f"tools/install {BUILD} {expected}\n", out)


if __name__ == "__main__":
    main()
