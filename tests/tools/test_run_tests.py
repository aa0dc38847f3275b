"""What tools/run-tests counts of what cmocka, unittest and other programs print: `test_run_tests.py STORIES`."""
import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "cli"))
from program import OCTET as STORIES, Checked, main  # noqa: E402

loader = importlib.machinery.SourceFileLoader("run_tests", str(TESTS.parent / "tools" / "run-tests"))
run_tests = importlib.util.module_from_spec(importlib.util.spec_from_loader("run_tests", loader))
sys.dont_write_bytecode = True
loader.exec_module(run_tests)

METHODS = """
import unittest
from program import Checked, main
class Some(Checked):
    def test_right(self):
        self.assertTrue(True)
    def test_wrong(self):
        self.assertTrue(False)
    def test_idle(self):
        pass
    @unittest.skip("no such disk")
    def test_skipped(self):
        pass
    def test_parts(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertEqual(i, 1)
main()
"""


def entry(result, output="", name="octet:fast / some", command=("some",)):
    return {"name": name, "result": result, "stdout": output, "stderr": "", "command": list(command)}


def on_ranks(n, result, output):
    return entry(result, output, "octet:fast / some_%d" % n, ["/usr/bin/mpirun.x", "--bind-to", "none", "-n", str(n), "some"])


def ran(command, env=None):
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    return {"name": "octet:fast / some", "result": "FAIL" if done.returncode else "OK", "stdout": done.stdout,
            "stderr": done.stderr, "command": command}


class RunTests(Checked):
    def counted(self, *entries):
        counts, lines = run_tests.count(entries)
        return (counts["passed"], counts["failed"], counts["skipped"]), lines

    def test_of_a_cmocka_program_each_story_counts_and_one_without_an_assertion_fails(self):
        counts, lines = self.counted(ran([STORIES]))
        self.assertEqual(counts, (1, 2, 1))
        self.assertEqual(lines, ["some: Skipped: there is nothing here", "some: skipped: given_skip_it_is_skipped"])

    def test_told_to_stop_a_cmocka_program_ends_at_its_first_failure(self):
        done = ran([STORIES], dict(os.environ, OCTET_STOP_AT_FAILURE="1"))
        self.assertIn("stopped at given_no_assertion_it_fails", done["stdout"])
        self.assertNotIn("given_a_false_one_it_fails", done["stdout"])
        self.assertEqual(done["result"], "FAIL")

    def test_of_a_python_program_each_method_counts_and_one_without_an_assertion_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "methods.py")
            path.write_text(METHODS)
            counts, lines = self.counted(ran([sys.executable, str(path), "octet"], dict(os.environ, PYTHONPATH=str(TESTS / "cli"))))
        self.assertEqual(counts, (1, 3, 1))
        self.assertEqual(len(lines), 1)
        self.assertRegex(lines[0], "^some: test_skipped .*skipped 'no such disk'$")

    def test_another_program_is_one_test_whatever_its_end(self):
        self.assertEqual(self.counted(entry("OK"))[0], (1, 0, 0))
        for end in ("FAIL", "TIMEOUT", "ERROR"):
            self.assertEqual(self.counted(entry(end))[0], (0, 1, 0))
        self.assertEqual(self.counted(entry("SKIP", "SKIP: no torch")), ((0, 0, 1), ["some: SKIP: no torch"]))
        self.assertEqual(self.counted(entry("SKIP")), ((0, 0, 1), ["some: skipped, without saying why"]))

    def test_a_story_counts_once_a_number_of_ranks_and_one_failing_rank_fails_it(self):
        good = "[ RUN      ] given_a\n[       OK ] given_a\n" * 3
        self.assertEqual(self.counted(entry("OK", good, "octet:fast / some_1"), on_ranks(2, "OK", good), on_ranks(4, "OK", good)),
                         ((3, 0, 0), []))
        bad = good + "[  FAILED  ] given_a\n"  # on one rank
        self.assertEqual(self.counted(entry("OK", good), on_ranks(2, "FAIL", bad), on_ranks(4, "OK", good))[0], (2, 1, 0))
        skip = "[ RUN      ] given_a\n[  SKIPPED ] given_a\n"
        self.assertEqual(self.counted(entry("OK", good), on_ranks(2, "OK", skip))[0], (1, 0, 1))

    def test_a_program_that_crashes_fails_the_story_it_was_in(self):
        output = "[ RUN      ] given_a\n[       OK ] given_a\n[ RUN      ] given_b\n"
        self.assertEqual(self.counted(entry("FAIL", output))[0], (1, 1, 0))

    def test_a_program_that_fails_after_its_stories_has_failed(self):
        self.assertEqual(self.counted(entry("FAIL", "[ RUN      ] given_a\n[       OK ] given_a\n"))[0], (1, 1, 0))

    def test_a_program_of_no_stories_has_failed(self):
        self.assertEqual(self.counted(entry("OK", "[==========] tests: Running 0 test(s).\n"))[0], (0, 1, 0))
        self.assertEqual(self.counted(entry("OK", "Ran 0 tests in 0.000s\n\nOK\n"))[0], (0, 1, 0))


if __name__ == "__main__":
    main()
