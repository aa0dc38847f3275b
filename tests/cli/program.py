"""Runs the program as a user does. Tests get its path as the first argument: `python3 test_X.py OCTET`."""
import functools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

OCTET = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else None


def checked(method):
    """The test method, which fails if it comes to its end and has asserted nothing."""
    @functools.wraps(method)
    def run(self):
        self.n_checks = 0
        method(self)
        if not self.n_checks:
            raise self.failureException("it has come to its end without an assertion or skipTest()")
    return run


class Checked(unittest.TestCase):
    """A test case whose methods must assert something."""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        for name, method in list(vars(cls).items()):
            if name.startswith("test"):
                setattr(cls, name, checked(method))

    def __getattribute__(self, name):
        if name.startswith("assert"):
            self.n_checks = getattr(self, "n_checks", 0) + 1
        return super().__getattribute__(name)


class Program(Checked):
    """A test case with a folder of its own, in which the program runs."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="octet-test-")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb" if isinstance(text, bytes) else "w") as file:
            file.write(text)
        return path

    def run_octet(self, args, timeout=120, octet=OCTET, **kwargs):
        return subprocess.run([octet] + [str(a) for a in args], cwd=self.folder, text=True, errors="replace",
                              capture_output=True, timeout=timeout, **kwargs)

    def as_nobody(self):
        """How to run the program without root's rights, for whom every file and folder is open."""
        if os.geteuid() != 0:
            return {}
        octet = shutil.copy(OCTET, self.path("octet"))
        os.chmod(octet, 0o755)
        os.chmod(self.folder, 0o777)
        return {"octet": octet, "preexec_fn": lambda: os.setuid(65534)}

    def accepted(self, args, **kwargs):
        result = self.run_octet(args, **kwargs)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result

    def refused_in_shell(self, command, *words, status=1):
        """The same as refused, for what only a shell can say: octet with redirections."""
        result = subprocess.run(["sh", "-c", "%s %s" % (shlex.quote(OCTET), command)], cwd=self.folder, text=True,
                                errors="replace", capture_output=True, timeout=120)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for word in ("octet: ",) + words:
            self.assertIn(word, result.stderr)

    def refused_for(self, args, *lines):
        """Exactly these error lines, in this order, each with what is given of it; status 2."""
        result = self.run_octet(args)
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        errors = result.stderr.splitlines()
        self.assertEqual(len(errors), len(lines), result.stderr)
        for error, line in zip(errors, lines):
            self.assertIn("octet: " + line, error)

    def refused(self, args, *words, status=2, **kwargs):
        """Exactly one error line, on standard error, with all the words in it."""
        result = self.run_octet(args, **kwargs)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        errors = [line for line in result.stderr.splitlines() if line.startswith("octet: ")]
        others = [line for line in result.stderr.splitlines()
                  if not line.startswith(("octet: ", "[titan] "))]
        self.assertEqual(len(errors), 1, result.stderr)
        self.assertEqual(others, [], result.stderr)
        for word in words:
            self.assertIn(word, errors[0])
        return result


def main():
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)  # a skip with its reason
