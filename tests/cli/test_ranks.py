"""Training on several processes as a user starts it: mpirun octet train."""
import json
import re
import shutil
import subprocess

from program import OCTET
from ranks import BATCH, ENV, LOW, OnRanks, main


class Ranks(OnRanks):
    def test_given_3_processes_losses_are_those_of_one_and_bytes_those_of_the_plan(self):
        self.accepted(["train", "job.toml", "--job.dump_folder=one"] + BATCH + LOW)
        out = self.train(3, *LOW)
        for one, many in zip(self.metrics("one"), self.metrics()):
            self.assertAlmostEqual(one["loss"], many["loss"], delta=1e-3)
            self.assertAlmostEqual(one["grad_norm"], many["grad_norm"], delta=5e-3)
            self.assertEqual(one["n_tokens"], many["n_tokens"])
        plan = json.loads(self.accepted(["plan", "job.toml", "--json", "--ranks", 3] + BATCH + LOW).stdout)
        for line in self.metrics():
            for name in ("bytes_gather_8bit", "bytes_gather_high", "bytes_reduce_scatter"):
                self.assertEqual(line[name], plan["wire"][name])
            self.assertGreater(line["wire_s_gather_8bit"], 0)
        self.assertEqual(out.count("step:  1  loss"), 1)
        self.assertIn("bytes of step 1: gather_8bit ", out)
        self.assertIn("Gathers of converted weights are %.4f of bf16's bytes, those of all weights %.4f"
                      % (plan["wire"]["converted_to_bf16"], plan["wire"]["whole_to_bf16"]), out)
        self.assertIn("'on-demand' becomes 'all'", out)  # torchtitan's default recompute is selective

    def test_given_4_processes_each_keeps_a_quarter_and_says_so(self):
        even = ["--model.args.dim=128", "--model.args.hidden_dim=128", "--model.args.n_kv_heads=4",
                "--model.args.vocab_size=384"]  # rows that are multiples of 4 x 32
        def kept(n):
            line = next(line for line in self.train(n, *even).splitlines() if "Memory of a process in bytes" in line)
            return [int(figure) for figure in re.findall(r"\d+", line.split("bytes: ")[1])]
        one, four = kept(1), kept(4)
        self.assertEqual(one[:3], [4 * own for own in four[:3]])
        self.assertEqual(one[1:3], [one[0], 2 * one[0]])
        self.assertGreater(one[3], sum(one[:3]))

    def test_given_groups_of_processes_losses_and_bytes_are_as_foretold_too(self):
        groups = ["--parallelism.data_parallel_replicate_degree=2", "--activation_checkpoint.mode=none"]
        self.accepted(["train", "job.toml", "--job.dump_folder=one"] + BATCH + LOW)
        self.train(4, *LOW, *groups)
        self.assertAlmostEqual(self.metrics("one")[-1]["loss"], self.metrics()[-1]["loss"], delta=1e-3)
        plan = self.accepted(["plan", "job.toml", "--json", "--ranks", 4] + BATCH + LOW + groups).stdout
        wire = json.loads(plan)["wire"]
        self.assertEqual(self.metrics()[-1]["bytes_reduce_scatter"], wire["bytes_reduce_scatter"])
        self.assertLess(wire["converted_to_bf16"], 0.52)

    def test_given_a_checkpoint_of_3_processes_any_number_goes_on_from_it(self):
        save = ["--checkpoint.enable", "--checkpoint.interval=3", "--validation.enable", *LOW]
        self.train(3, *save)
        whole = self.metrics()
        def bytes_of(step):
            with open(self.path("out", "checkpoint", step, "model-00001-of-00001.safetensors"), "rb") as file:
                return file.read()
        saved = bytes_of("step-6")
        for n in (1, 2, 3):
            shutil.rmtree(self.path("out", "checkpoint", "step-6"))
            out = self.train(n, *save)
            self.assertIn("Training starts at step 4", out)
            self.assertAlmostEqual(self.metrics()[-1]["loss"], whole[-1]["loss"], delta=1e-3)
        self.assertEqual(bytes_of("step-6"), saved)  # 3 processes again: as if never stopped

    def test_given_a_wrong_job_one_process_speaks_for_all(self):
        result = self.run_ranks(3, ["train", "job.toml", "--training.seq_len=0"])
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(len(self.errors(result)), 1, result.stderr)

    def test_given_degrees_of_another_number_of_processes_both_numbers_are_told(self):
        replicate, shard = ("--parallelism.data_parallel_%s_degree" % name for name in ("replicate", "shard"))
        for args, words in (([replicate + "=3"], (replicate, "divisor of the number of processes, 4; got 3")),
                            ([replicate + "=8"], (replicate, "divisor of the number of processes, 4; got 8")),
                            ([shard + "=3"], (shard, "for 3 processes", "1 x 3", "as many as run, 4")),
                            ([replicate + "=3", shard + "=2"], (replicate, "for 6 processes", "3 x 2", "run, 4"))):
            result = self.run_ranks(4, ["train", "job.toml", *args])
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertEqual(len(self.errors(result)), 1, result.stderr)
            for word in words:
                self.assertIn(word, self.errors(result)[0])

    def test_given_the_launcher_of_another_mpi_library_training_is_refused(self):
        info = self.accepted(["info"]).stdout
        foreign = "PMI_SIZE" if "mpi: Open MPI" in info else "OMPI_COMM_WORLD_SIZE"
        result = self.run_octet(["train", "job.toml"], env=dict(ENV, **{foreign: "2"}))
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("the launcher started 2 processes", self.errors(result)[0])

    def test_given_compare_on_several_processes_it_is_refused(self):
        result = self.run_ranks(2, ["compare", "job.toml"])
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("one process", self.errors(result)[0])

    def test_given_one_process_with_bad_data_all_end_with_its_message(self):
        with open(self.path("job.toml")) as file:
            self.write("bad.toml", file.read().replace("text.txt", "missing.txt"))
        good = self.command(1, ["train", "job.toml"] + BATCH)
        result = subprocess.run(good + [":", "-n", "1", OCTET, "train", "bad.toml"] + BATCH, cwd=self.folder,
                                env=ENV, text=True, capture_output=True, timeout=30)
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(len(self.errors(result)), 1, result.stderr)
        self.assertIn("rank 1: ", self.errors(result)[0])
        self.assertIn("missing.txt", self.errors(result)[0])

    def test_given_one_process_without_memory_in_the_middle_of_a_step_the_job_ends(self):
        args = ["train", "job.toml", "--training.seq_len=512", "--training.local_batch_size=64",
                "--training.global_batch_size=128", "--training.steps=1", "--model.args.n_layers=4"]
        poor = ["sh", "-c", 'ulimit -v 300000; exec "$@"', "sh", OCTET] + args
        result = subprocess.run(self.command(1, args) + [":", "-n", "1"] + poor, cwd=self.folder, env=ENV,
                                text=True, errors="replace", capture_output=True, timeout=30)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("rank 1: out of memory", result.stderr)

    def test_given_a_checkpoint_that_cannot_be_written_nobody_waits(self):
        self.write("out/checkpoint", "a file")
        result = self.run_ranks(3, ["train", "job.toml", "--checkpoint.enable"] + BATCH, timeout=30)
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(len(self.errors(result)), 1, result.stderr)

    def test_given_a_killed_process_the_job_ends_and_no_checkpoint_is_half_written(self):
        self.kill_last(3)


if __name__ == "__main__":
    main()
