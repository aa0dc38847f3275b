"""tools/job-table: what becomes of a folder of job files, and a document that says so."""
import pathlib
import subprocess

import program
from program import main
from training import JOB, Training

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "job-table"
DOCUMENT = "Before.\n<!-- jobs: ours -->\n<!-- end -->\nAfter.\n"
HUGE = "[model]\nname = \"deepseek_v3\"\nflavor = \"671B\"\n"
ROWS = """| file | what becomes of it |
| --- | --- |
| `deep/good.toml` | trains |
| `deep/huge.toml` | plans: 9985 GiB of weights, gradients and moments |
| `other.yaml` | no: model.model_id: the model isn't supported; got "mamba" |
| `ranks.toml` | plans: it is for 2 processes at least |
| `wrong.toml` | no: training.steps: the value is impossible; got 0 |
"""


class Jobs(Training):
    def folder_of_jobs(self):
        for path, text in (("deep/good.toml", JOB), ("deep/huge.toml", HUGE), ("other.yaml", "model: {model_id: mamba}\n"),
                           ("ranks.toml", "[model]\nname = \"qwen3\"\nflavor = \"demo_moe\"\n"
                                          "[parallelism]\nexpert_parallel_degree = 2\n"),
                           ("wrong.toml", "[training]\nsteps = 0\n"), ("notes.txt", "no job"), ("pyproject.toml", "[tool]\n")):
            self.write("jobs/" + path, text)
        self.write("jobs.md", DOCUMENT)

    def table(self, *args):
        return subprocess.run([TOOL, "--octet", program.OCTET, *args], cwd=self.folder, text=True, capture_output=True)

    def test_given_a_folder_each_job_has_the_row_of_what_becomes_of_it(self):
        self.folder_of_jobs()
        written = self.table("jobs.md", "ours", "jobs", "--write")
        self.assertEqual(written.returncode, 0, written.stderr)
        with open(self.path("jobs.md")) as file:
            document = file.read()
        self.assertEqual(document, "Before.\n<!-- jobs: ours -->\n%s<!-- end -->\nAfter.\n" % ROWS)
        self.assertEqual(self.table("jobs.md", "ours", "jobs").returncode, 0)
        self.write("jobs.md", document.replace("| trains |", "| plans |"))
        checked = self.table("jobs.md", "ours", "jobs")
        self.assertEqual(checked.returncode, 1)
        self.assertIn("the table of ours has other rows", checked.stderr)

    def test_given_no_such_table_or_no_jobs_it_says_so(self):
        self.folder_of_jobs()
        self.assertIn("no table 'theirs'", self.table("jobs.md", "theirs", "jobs").stderr)
        self.assertIn("no job files", self.table("jobs.md", "ours", "none").stderr)


if __name__ == "__main__":
    main()
