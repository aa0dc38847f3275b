"""What the scripts under tools/ promise to someone on a fresh machine. Commands that only root could run are stand-ins."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Tools(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="octet-test-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_tool(self, *command, path=os.environ["PATH"]):
        return subprocess.run(command, cwd=ROOT, env=dict(os.environ, PATH=path), text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, start_new_session=True)  # no terminal to ask


class InstallPackages(Tools):
    def machine(self, **commands):
        """A PATH with nothing but these commands, scripts of one line, and what the tool itself needs."""
        for name in ("bash", "dirname", "env", "grep", "tail", "sh", "cat"):
            os.symlink(shutil.which(name), self.folder / name)
        for name, line in commands.items():
            (self.folder / name.replace("_", "-")).write_text(f"#!/bin/sh\n{line}\n")
            (self.folder / name.replace("_", "-")).chmod(0o755)
        return self.run_tool(ROOT / "tools/install-packages", "demo", "lint", path=str(self.folder))

    def given_up(self, reason, **commands):
        result = self.machine(**commands)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(result.stderr.splitlines()[-1],
                         f"octet needs packages that {reason}; as root: apt-get update && apt-get install "
                         "bible-kjv-text clang-format-14 clang-tidy-14")
        return result

    HAS = 'case $* in *"bible-kjv") echo installed ;; *) exit 1 ;; esac'

    def test_given_all_packages_nothing_is_run_and_nothing_said(self):
        result = self.machine(dpkg_query="echo installed", apt_get="exit 9", id="echo 0")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    def test_given_root_the_missing_ones_are_installed(self):
        result = self.machine(dpkg_query=self.HAS, id="echo 0", apt_get=f'echo "$@" >>{self.folder}/log')
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "installing from Debian: bible-kjv-text clang-format-14 clang-tidy-14\n")
        called = (self.folder / "log").read_text().splitlines()
        self.assertEqual(len(called), 1, called)
        self.assertTrue(called[0].endswith(" install -y --no-install-recommends bible-kjv-text clang-format-14 clang-tidy-14"), called)

    def test_given_no_package_lists_they_are_fetched_and_it_goes_on(self):
        lists = self.folder / "lists"
        result = self.machine(dpkg_query=self.HAS, id="echo 0",
                              apt_get=f'case "$*" in *update) echo >{lists} ;; *) [ -e {lists} ] ;; esac')
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_given_no_sudo_one_line_says_what_to_do(self):
        result = self.given_up("only root can install, and there is no sudo", dpkg_query=self.HAS, id="echo 1000", apt_get="exit 9")
        self.assertEqual(len(result.stderr.splitlines()), 1)

    def test_given_a_sudo_that_cannot_ask_one_line_says_what_to_do(self):
        result = self.given_up("only root can install, and sudo wants a password", dpkg_query=self.HAS, id="echo 1000",
                               apt_get="exit 9", sudo="exit 1")
        self.assertEqual(len(result.stderr.splitlines()), 1)

    def test_given_a_failing_apt_get_its_words_are_shown(self):
        result = self.given_up("apt-get didn't install", dpkg_query=self.HAS, id="echo 0", apt_get="echo E: no network; exit 100")
        self.assertIn("E: no network\n", result.stderr)

    def test_given_another_system_the_packages_are_named_and_it_goes_on(self):
        result = self.machine(id="echo 1000")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "no apt-get here, so these Debian packages are taken to be present under this system's "
                                        "names: bible-kjv bible-kjv-text clang-format-14 clang-tidy-14\n")


class RunReadme(Tools):
    def readme(self, text):
        (self.folder / "A.md").write_text(text)
        return self.run_tool("tools/run-readme", self.folder / "A.md")

    def test_command_blocks_run_as_they_stand_and_others_do_not(self):
        result = self.readme(f"""# A
```sh
echo one >{self.folder}/one   # a remark
[ -f Makefile ]
```
```console
$ touch {self.folder}/two
```
```
touch {self.folder}/three
```
```sh
cat {self.folder}/one
```
""")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(sorted(os.listdir(self.folder)), ["A.md", "one"])
        self.assertIn("\nA.md:12: ok, ", result.stdout)
        self.assertTrue(result.stdout.endswith("\n2 passed, 0 failed\n"), result.stdout)

    def test_a_block_fails_at_its_first_failing_command_and_the_next_still_runs(self):
        for failing in ("false", "false | true", "no-such-command", "cat nothing.txt"):
            result = self.readme(f"```sh\n{failing}\necho after\n```\n```sh\necho next\n```\n")
            self.assertEqual(result.returncode, 1)
            self.assertNotIn("\nafter\n", result.stdout)
            self.assertIn("\nnext\n", result.stdout)
            self.assertIn("\nA.md:1: FAILED with status ", result.stdout)
            self.assertTrue(result.stdout.endswith("\n1 passed, 1 failed\n"), result.stdout)

    def test_a_file_without_commands_and_a_block_without_an_end_fail(self):
        for text in ("# A\n```text\nls\n```\n", "```sh\nls\n"):
            result = self.readme(text)
            self.assertEqual(result.returncode, 1)
            self.assertTrue(result.stdout.endswith("\n0 passed, 1 failed\n"), result.stdout)


if __name__ == "__main__":
    unittest.main()
