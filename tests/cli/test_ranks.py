"""Training on several processes as a user starts it: mpirun octet train."""
import json
import os
import re
import shlex
import shutil
import subprocess

from program import OCTET
from ranks import BATCH, ENV, LOW, MPIRUN, OnRanks, main


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

    def test_given_documents_that_do_not_see_each_other_losses_are_those_of_one_process(self):
        block = ["--training.dataset_path=lines.jsonl", "--model.args.attn_mask_type=block_causal"]
        self.write("lines.jsonl", "".join(json.dumps({"text": "go down to egypt " * (i % 5)}) + "\n" for i in range(900)))
        self.accepted(["train", "job.toml", "--job.dump_folder=one"] + BATCH + block)
        self.accepted(["train", "job.toml", "--job.dump_folder=causal"] + BATCH + block[:1])
        out = self.train(2, *block)
        self.assertEqual(out.count("Attention stays inside its document"), 1)
        for one, many, causal in zip(self.metrics("one"), self.metrics(), self.metrics("causal")):
            self.assertAlmostEqual(one["loss"], many["loss"], delta=1e-5)
            self.assertNotAlmostEqual(one["loss"], causal["loss"], delta=1e-5)

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

    def test_given_an_update_that_overflows_a_weight_all_end_with_one_message_and_nothing_is_saved(self):
        # weights of the first processes may still be finite: those of one are enough
        result = self.run_ranks(3, ["train", "job.toml", "--checkpoint.enable", "--checkpoint.interval=1", *BATCH,
                                    "--lr_scheduler.warmup_steps=0", "--optimizer.lr=3.3e38", "--optimizer.weight_decay=1e38"])
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(len(self.errors(result)), 1, result.stderr)
        self.assertRegex(self.errors(result)[0], r"step 1: after the update \(learning rate 3.3e\+38, eps 1e-08\) the value of "
                                                 r"tok_embeddings.weight\[\d+, \d+\] is not finite")
        self.assertFalse(os.path.exists(self.path("out", "checkpoint")))

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

    def test_given_processes_of_one_launch_that_find_no_common_world_each_is_refused(self):
        """What a launcher leaves in the environment of a process that is alone all the same."""
        torchrun = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}
        open_mpi = "mpi: Open MPI" in self.accepted(["info"]).stdout
        mpirun = {"PMI_SIZE" if open_mpi else "OMPI_COMM_WORLD_SIZE": "2"}
        srun = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2", "SLURM_PROCID": "1"}
        pmi2 = {**srun, "PMI_SIZE": "2"}
        old = {"SLURM_STEP_ID": "3", "SLURM_NTASKS": "2"}
        for env, launcher, unset in ((torchrun, "torchrun", "WORLD_SIZE and RANK"),
                                     (mpirun, "MPICH's mpirun" if open_mpi else "Open MPI's mpirun", next(iter(mpirun))),
                                     (srun, "srun", "SLURM_STEP_NUM_TASKS and SLURM_NTASKS"), (old, "srun", "SLURM_NTASKS"),
                                     ({"SLURM_STEP_NUM_TASKS": "2"}, "srun", "SLURM_STEP_NUM_TASKS")):
            result = self.run_octet(["train", "job.toml"], env=dict(ENV, **env))
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertEqual(len(self.errors(result)), 1, result.stderr)
            self.assertIn(launcher + " started 2 processes, and each finds itself alone", self.errors(result)[0])
            self.assertRegex(self.errors(result)[0], "to run this one alone, unset %s$" % unset)
            left = {name: value for name, value in env.items() if name not in unset.split(" and ")}
            self.accepted(["train", "job.toml", "--training.steps=1"], env=dict(ENV, **left))  # the advice works
        if open_mpi:
            result = self.run_octet(["train", "job.toml"], env=dict(ENV, **pmi2))
            self.assertIn("srun started 2 processes", self.errors(result)[0])
            self.assertIn("expected srun --mpi=pmix", self.errors(result)[0])

    def test_given_an_allocation_of_many_tasks_one_process_in_it_trains(self):
        batch = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8", "SLURM_PROCID": "0"}  # a batch script: no step of srun
        step = {**batch, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1"}  # srun -n 1
        special = {**batch, "SLURM_STEP_ID": "4294967291"}
        mine = {"WORLD_SIZE": "2"}  # somebody's own variable
        one = {"RANK": "0", "WORLD_SIZE": "1"}
        for env in (batch, step, special, mine, one):
            self.accepted(["train", "job.toml", "--training.steps=1"], env=dict(ENV, **env))
        inside = dict(ENV, SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS="2")  # mpirun -n 1 started by srun on two hosts
        result = subprocess.run(self.command(1, ["train", "job.toml", "--training.steps=1"]), cwd=self.folder,
                                env=inside, text=True, capture_output=True, timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr)

    def run_two(self, first, second, limit="unlimited"):
        """Two ranks with arguments of their own; the second one's memory is limited. By a shell, since the launcher's own way
        (a colon) crashes that of Open MPI 5.0.7."""
        shell = """if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ]; then exec "$0" %s; fi
                   ulimit -v %s; exec "$0" %s""" % (shlex.join(first), limit, shlex.join(second))
        return subprocess.run(MPIRUN + ["-n", "2", "sh", "-c", shell, OCTET], cwd=self.folder, env=ENV, text=True,
                              errors="replace", capture_output=True, timeout=60)

    def train_two(self, first, second):
        return self.run_two(["train"] + first, ["train"] + second)

    def test_given_ranks_with_one_key_changed_they_are_refused_and_it_is_named(self):
        with open(self.path("job.toml")) as file:
            text = file.read()
        changes = (("steps = 4", "steps = 6", "training.steps"), ("interval = 2", "interval = 3", "checkpoint.interval"),
                   ("seq_len = 32\nsteps", "seq_len = 16\nsteps", "training.seq_len"),
                   ("seed = 5", "seed = 6", "debug.seed"), ("freq = 4", "freq = 2", "validation.freq"),
                   ("n_layers = 2", "n_layers = 1", "model.args"),
                   ("[model]", "[model]\nconverters = [\"quantize.linear.mx\"]", "model.converters"),
                   ("lr = 3e-3", "lr = 1e-3", "optimizer.lr"), ("\"out\"", "\"elsewhere\"", "job.dump_folder"))
        for old, new, key in changes:
            self.assertIn(old, text)
            self.write("other.toml", text.replace(old, new))
            result = self.train_two(["job.toml", "--checkpoint.enable"], ["other.toml", "--checkpoint.enable"])
            self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
            self.assertEqual(len(self.errors(result)), 1, result.stderr)
            self.assertRegex(self.errors(result)[0], "octet: rank 1: [^ ]+: %s: all ranks need the same; expected .*, "
                             "as rank 0 has it; got " % re.escape(key))
        result = self.train_two(["job.toml"], ["job.toml", "--training.max_norm=2"])
        self.assertIn("rank 1: command line: --training.max_norm: all ranks need the same; expected 1.0, as rank 0 "
                      "has it; got 2.0", self.errors(result)[0])
        self.assertFalse(os.path.exists(self.path("out")))

    def test_given_ranks_that_differ_in_words_or_in_the_place_of_the_same_data_they_train(self):
        shutil.copy(self.path("text.txt"), self.path("copy.txt"))
        result = self.train_two(["job.toml", *BATCH], ["job.toml", *BATCH, "--job.description=other",
                                                       "--metrics.log_freq=3", "--training.dataset_path=copy.txt"])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_given_ranks_with_other_contents_of_their_data_they_are_refused(self):
        with open(self.path("text.txt")) as file:
            self.write("copy.txt", file.read()[:-1] + "s")
        result = self.train_two(["job.toml", *BATCH], ["job.toml", *BATCH, "--training.dataset_path=copy.txt"])
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertIn("rank 1: command line: --training.dataset_path: all ranks need the same; expected ",
                      self.errors(result)[0])

    def test_given_compare_on_several_processes_it_is_refused(self):
        result = self.run_ranks(2, ["compare", "job.toml"])
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("one process", self.errors(result)[0])

    def test_given_one_process_with_bad_data_all_end_with_its_message(self):
        with open(self.path("job.toml")) as file:
            self.write("bad.toml", file.read().replace("text.txt", "missing.txt"))
        result = self.train_two(["job.toml"] + BATCH, ["bad.toml"] + BATCH)
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(len(self.errors(result)), 1, result.stderr)
        self.assertIn("rank 1: ", self.errors(result)[0])
        self.assertIn("missing.txt", self.errors(result)[0])

    def test_given_one_process_without_memory_in_the_middle_of_a_step_the_job_ends(self):
        args = ["train", "job.toml", "--training.seq_len=512", "--training.local_batch_size=64",
                "--training.global_batch_size=128", "--training.steps=1", "--model.args.n_layers=4"]
        result = self.run_two(args, args, limit=300000)
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
