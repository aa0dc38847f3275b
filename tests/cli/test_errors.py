"""What a user sees who gets a job wrong: one line that names key and place, status 2; for a full disk, 1."""
import os
import resource
import signal
import subprocess

import program
from program import main
from training import JOB, Training

MX = "--model.converters=quantize.linear.mx"


def place(text):
    """FILE:LINE of a text of the job that wrong.toml has something else for."""
    return "wrong.toml:%d: " % (JOB[:JOB.index(text)].count("\n") + 1)


class Errors(Training):
    def job(self, old, new):
        self.assertIn(old, JOB)
        self.write("wrong.toml", JOB.replace(old, new))
        return ["train", "wrong.toml"]

    def test_given_a_misspelt_key_its_neighbour_and_line_are_named(self):
        self.refused(self.job("seq_len = 32\nsteps = 4", "seq_lem = 32\nsteps = 4"), place("seq_len = 32\nsteps"), "seq_len")
        self.refused(["train", "job.toml", "--training.stepps=3"], "steps")

    def test_given_a_misspelt_section_its_neighbour_is_named(self):
        self.refused(self.job("[training]", "[trainin]"), "training")

    def test_given_several_mistakes_all_are_told_at_once(self):
        self.write("wrong.toml", JOB.replace("seq_len = 32\nsteps = 4", "seq_lem = 32\nsteps = 0"))
        lines = [place("seq_len = 32\nsteps") + "training.seq_lem: unknown key; the nearest known one is training.seq_len",
                 place("steps = 4") + "training.steps: the value is impossible",
                 "command line: --optimizer.lrr: unknown key; the nearest known one is --optimizer.lr"]
        for command in (["train"], ["plan"], ["compare", "--recipes", "bf16,mxfp8"]):
            self.refused_for(command[:1] + ["wrong.toml", "--optimizer.lrr=1"] + command[1:], *lines)

    def test_given_dimensions_degrees_and_batches_that_do_not_fit_all_are_told_at_once(self):
        wrong = ["--model.args.n_heads=3", "--model.args.hidden_dim=16777216", "--model.args.multiple_of=1",
                 "--model.args.rope_scaling=true", "--model.args.rope_high_freq_factor=0.5",
                 "--parallelism.data_parallel_shard_degree=5", "--training.local_batch_size=4",
                 "--training.global_batch_size=6"]
        for command in (["train", "job.toml"], ["plan", "job.toml", "--ranks=1"]):
            self.refused_for(command + wrong,
                             "command line: --model.args.n_heads: doesn't divide dim",
                             "command line: --model.args.rope_high_freq_factor: impossible value",
                             "command line: --parallelism.data_parallel_shard_degree: the job is for 5 processes",
                             "command line: --training.global_batch_size: expected a global batch that is a multiple")

    def test_given_several_wrong_items_of_lists_each_is_told(self):
        lists = ["--model.converters=npu_foo,quantize.linear.mx,npu_dsa,float8,quantize.linear.mx",
                 "--checkpoint.enable", "--checkpoint.last_save_model_only",
                 "--checkpoint.export_dtype=float16", "--checkpoint.keep_latest_k=1"]
        at = "command line: --model.converters: "
        result = self.run_octet(["train", "job.toml"] + lists)
        self.assertEqual(result.returncode, 2)
        for line in (at + "an unknown converter", at + "sparse attention isn't supported",
                     at + "float8 converters aren't supported", at + "a converter is there twice",
                     "command line: --checkpoint.export_dtype: a checkpoint isn't saved in float16",
                     "command line: --checkpoint.keep_latest_k: "):
            self.assertIn("octet: " + line, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 6, result.stderr)

    def test_given_a_misspelt_dimension_it_is_named(self):
        self.refused(["plan", "job.toml", "--model.args.n_layer=2"], "model.args.n_layer", "n_layers")

    def test_given_a_section_turned_off_it_is(self):
        for flag in ("--no-validation.enable", "--validation.no-enable"):
            self.accepted(["plan", "job.toml", "--validation.enable", flag])
        self.refused(["plan", "job.toml", "--no-validation.enabel"], "--no-validation.enabel: unknown key")

    def test_given_an_unknown_recipe_the_recipes_are_listed(self):
        self.refused(["train", "job.toml", MX, "--quantize.linear.mx.recipe_name=mxfp9"],
                     "quantize.linear.mx.recipe_name", "mxfp8", "hif8")
        self.refused(["compare", "job.toml", "--recipes", "bf16,mxfp9"], "mxfp8", "hif8")
        self.refused(["plan", "job.toml", MX, "--quantize.linear.mx.recipe_name=mxfp9"], "mxfp8")

    def test_given_a_text_shorter_than_a_sequence_both_lengths_are_named(self):
        self.write("text.txt", "the lord")
        self.refused(["train", "job.toml"], "training.dataset_path", "33")

    def test_given_token_ids_above_the_vocabulary_it_is_refused(self):
        self.refused(self.job("vocab_size = 320", "vocab_size = 290"), "vocabulary", "290")

    def test_given_a_sequence_length_of_0_it_is_refused(self):
        self.refused(self.job("seq_len = 32\nsteps = 4", "seq_len = 0\nsteps = 4"), place("seq_len = 32\nsteps"), "training.seq_len")

    def test_given_a_negative_learning_rate_it_is_refused(self):
        self.refused(self.job("lr = 3e-3", "lr = -3e-3"), place("lr = 3e-3"), "optimizer.lr")
        self.refused(["train", "job.toml", "--optimizer.lr", "-1"], "optimizer.lr")

    def test_given_heads_that_do_not_divide_it_is_refused(self):
        self.refused(self.job("n_heads = 4\nn_kv_heads = 2", "n_heads = 4\nn_kv_heads = 3"), "heads")

    def test_given_a_wrong_type_it_is_refused(self):
        self.refused(self.job("steps = 4\n[checkpoint]", "steps = \"four\"\n[checkpoint]"),
                     place("steps = 4\n["), "training.steps", "four")

    def test_given_broken_toml_the_line_is_named(self):
        self.refused(self.job("[debug]", "[debug"), "wrong.toml:")

    def test_given_missing_files_they_are_named(self):
        self.refused(["train", "nowhere.toml"], "nowhere.toml")
        self.refused(["train", "job.toml", "--training.dataset_path=nowhere.txt"], "nowhere.txt")
        self.refused(["train", "job.toml", "--training.dataset_path=data/kjv.txt"], "data/kjv.txt", "make data")
        self.refused(["train", "job.toml", "--model.tokenizer_path=data/tokenizer.json"], "make data")
        self.refused(["eval", "nowhere", "text.txt"], "nowhere")
        self.refused(["generate", "nowhere", "--prompt", "x"], "nowhere")
        self.refused(["eval", ".", "text.txt"], "checkpoint")
        self.refused(["train"], "no job file")

    def test_given_a_dataset_without_a_path_training_asks_for_it(self):
        self.accepted(["plan", "job.toml", "--training.dataset=c4"])
        wrong = self.job('dataset_path = "text.txt"', 'dataset = "c4"')
        self.refused(wrong, "training.dataset_path")

    def test_given_an_unsupported_parallelism_it_is_refused(self):
        self.refused(["train", "job.toml", "--parallelism.tensor_parallel_degree=2"], "tensor_parallel_degree")
        self.refused(["train", "job.toml", "--job.device=npu"], "npu")

    def test_given_an_unreadable_text_it_is_named(self):
        os.chmod(self.path("text.txt"), 0)
        self.refused(["train", "job.toml"], "text.txt", **self.as_nobody())

    def test_given_a_dump_folder_that_cannot_be_written_to_nothing_is_tokenized(self):
        self.accepted(["data", "pack", "text.txt", "--tokenizer", "tokenizer.json", "--output", "packed"])
        os.mkdir(self.path("own"))
        os.chmod(self.path("own"), 0o555)
        for data in ("text.txt", "packed"):
            self.refused(["train", "job.toml", "--job.dump_folder=own", "--training.dataset_path=" + data],
                         "octet: command line: --job.dump_folder: own: can't be written to", status=1, **self.as_nobody())
        self.assertEqual(os.listdir(self.path("own")), [])

    def test_given_a_folder_where_a_file_should_be_it_is_named(self):
        os.mkdir(self.path("folder.toml"))
        self.refused(["train", "folder.toml"], "folder.toml")

    def test_given_a_full_disk_the_run_fails_and_leaves_no_half_checkpoint(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        self.accepted(["train", "job.toml"])  # the text is tokenized before the disk fills up
        self.refused(["train", "job.toml", "--checkpoint.enable"], "checkpoint", status=1, preexec_fn=limit)
        left = os.listdir(self.path("out", "checkpoint")) if os.path.exists(self.path("out", "checkpoint")) else []
        self.assertEqual(left, [])

    def test_given_a_full_disk_compare_names_the_cause(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
        self.refused(["compare", "job.toml", "--recipes", "bf16"], "bf16: ", "too large", status=1, preexec_fn=limit)

    def test_given_a_report_that_cannot_be_written_nothing_is_trained(self):
        self.write("file", "")
        os.mkdir(self.path("folder"))
        for report, what in (("nowhere/r.html", "doesn't exist"), ("file/r.html", "it's a file"), ("folder", "is a folder"),
                             ("/dev/null", "/dev/null: expected a regular file"), ("x" * 256, "at most 255 bytes")):
            self.refused(["compare", "job.toml", "--recipes", "bf16", "--report", report], "--report", what)
        self.assertFalse(os.path.exists(self.path("out", "compare", "bf16")))

    def test_given_spaces_around_recipes_they_are_no_part_of_the_names(self):
        self.refused(["compare", "job.toml", "--recipes", " bf16 , bf16 "], "twice")
        self.refused(["compare", "job.toml", "--recipes", "bf16, ,hif8"], "commas")

    def test_given_a_dump_folder_that_cannot_be_made_it_is_named(self):
        self.write("file", "")
        for folder in ("file", "file/x", "/proc/x"):
            for command in (["train"], ["compare", "--recipes", "bf16"]):
                self.refused(command + ["job.toml", "--job.dump_folder=" + folder],
                             "octet: command line: --job.dump_folder: " + folder, status=1)

    def test_given_paths_longer_than_the_system_takes_the_key_is_named_and_the_reason_told(self):
        run = ["train", "job.toml", "--checkpoint.enable", "--metrics.enable_tensorboard"]
        for key in ("job.dump_folder", "job.save_config_file", "checkpoint.folder", "metrics.save_tb_folder",
                    "training.dataset_path", "validation.dataset_path", "model.tokenizer_path", "model.hf_assets_path",
                    "checkpoint.initial_load_path"):
            for n in (256, 3000):
                for path in ("x" * n, "/" + "x" * n, "a/" + "x" * n + "/b", "x" * n + "/"):
                    self.refused(run + ["--%s=%s" % (key, path)], "octet: command line: --%s: a name in the path is too "
                                 "long; expected at most 255 bytes; got %d" % (key, n))
        self.assertFalse(os.path.exists(self.path("a")))
        self.refused(run + ["--training.dataset_path=" + "x/" * 3000], "at most 4095 bytes; got 6000")
        self.refused(["tokenizer", "train", "text.txt", "--output", "x" * 300], "File name too long")
        self.refused(["tokenizer", "train", "text.txt", "--output", "x" * 300 + ".json"], "File name too long")
        self.refused(["data", "pack", "text.txt", "--tokenizer", "tokenizer.json", "--output", "x" * 300],
                     "File name too long")
        def folder(n):
            return ("y" * 200 + "/") * (n // 201) + "y" * (n % 201)
        for n in (3835, 3841, 4090, 4096, 5000, 100000):
            self.refused(run + ["--job.dump_folder=" + folder(n)], "--job.dump_folder", "too long", "at most 3840")
        self.refused(run + ["--checkpoint.folder=" + folder(4000)], "--checkpoint.folder", "too long")
        self.assertFalse(os.path.exists(self.path("y" * 200)))
        self.accepted(run + ["--job.dump_folder=" + folder(3829)])
        self.refused(["eval", folder(3829) + "/nowhere", "text.txt"], "doesn't exist")

    def test_given_a_run_that_is_refused_no_folder_is_left(self):
        self.write("bad.txt", b"no text\0" * 100)
        self.write("file", "")
        packed = ["data", "pack", "text.txt", "--tokenizer", "tokenizer.json", "--output", "packed"]
        self.accepted(packed)
        before = sorted(os.listdir(self.folder))
        wrongs = [["--training.dataset_path=nowhere"], ["--training.dataset_path=bad.txt"],
                  ["--model.tokenizer_path=nowhere"], ["--validation.enable", "--validation.dataset_path=nowhere"],
                  ["--training.dataset_path=packed", "--checkpoint.initial_load_path=nowhere"],
                  ["--training.dataset_path=packed", "--checkpoint.enable", "--checkpoint.load_step=3"],
                  ["--model.args.n_heads=3"]]
        for wrong in wrongs:
            for folder in ("new", "new/", "a//b/c", "a/../b", self.path("x", "y")):
                for command in (["train"], ["compare", "--recipes", "bf16"]):
                    if command[0] == "compare" and "checkpoint" in wrong[-1]:
                        continue  # its runs never resume
                    self.refused(command + ["job.toml", "--job.dump_folder=" + folder] + wrong)
                    self.assertEqual(sorted(os.listdir(self.folder)), before, (command, folder, wrong))
        self.refused(["train", "job.toml", "--training.dataset_path=packed", "--job.save_config_file=no/c.toml"],
                     "--job.save_config_file", status=1)
        self.refused(["train", "job.toml", "--training.dataset_path=packed", "--metrics.enable_tensorboard",
                      "--metrics.save_tb_folder=%s" % self.path("file", "tb")], "--metrics.save_tb_folder", status=1)
        self.refused(["tokenizer", "train", "nowhere", "--output", "a/b"], "nowhere")
        self.assertEqual(sorted(os.listdir(self.folder)), before)
        os.makedirs(self.path("own"))  # what was there stays, though it's empty
        for command in (["train"], ["compare", "--recipes", "bf16"]):
            self.refused(command + ["job.toml", "--job.dump_folder=own", "--training.dataset_path=nowhere"])
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(before + ["own"]))

    def test_given_a_place_that_a_run_cannot_write_to_an_older_runs_metrics_stay(self):
        self.accepted(["train", "job.toml"])
        with open(self.path("out", "metrics.jsonl")) as file:
            metrics = file.read()
        self.write("file", "")
        for wrong in (["--job.save_config_file=no/c.toml"],
                      ["--metrics.enable_tensorboard", "--metrics.save_tb_folder=../file"]):
            self.refused(["train", "job.toml"] + wrong, wrong[-1].partition("=")[0], status=1)
            with open(self.path("out", "metrics.jsonl")) as file:
                self.assertEqual(file.read(), metrics)

    def test_given_a_batch_that_no_memory_holds_it_is_refused(self):
        self.refused(["train", "job.toml", "--training.local_batch_size=10000000", "--training.seq_len=200"],
                     "training.local_batch_size", "GiB")
        self.refused(["train", "job.toml", "--training.global_batch_size=60000000",
                      "--model.args.dim=16384", "--model.args.n_layers=1000"], "--model.args", "GiB")

    def test_given_a_checkpoint_of_another_model_it_is_refused(self):
        save = ["train", "job.toml", "--checkpoint.enable"]
        self.accepted(save)
        for args in (["n_layers=1"], ["n_layers=3"], ["dim=128"], ["vocab_size=400"]):
            self.refused(save + ["--training.steps=6", "--model.args." + args[0]], "step-4", "expected")
        self.accepted(save + ["--training.steps=6"])

    def test_given_checkpoints_that_are_all_damaged_nothing_is_trained_and_nothing_touched(self):
        save = ["train", "job.toml", "--checkpoint.enable"]
        self.accepted(save)
        for step in ("step-2", "step-4"):
            os.truncate(self.path("out", "checkpoint", step, "manifest.json"), 100)
        def look():
            return [(folder, sorted(files), [os.stat(os.path.join(folder, f)).st_mtime_ns for f in files])
                    for folder, _, files in sorted(os.walk(self.path("out")))]
        before = look()
        for more in (["--training.steps=6"], ["--training.steps=6", "--checkpoint.initial_load_path=nowhere"]):
            self.refused(save + more, "out/checkpoint: none of its 2 checkpoints is valid",
                         "the newest: out/checkpoint/step-4/manifest.json", "not JSON", "delete out/checkpoint or move it away")
        self.assertEqual(look(), before)
        self.refused(["eval", "out", "text.txt"], "none of its 2 checkpoints is valid", "step-4")
        os.rename(self.path("out", "checkpoint"), self.path("out", "damaged"))
        self.assertIn("Training starts at step 1", self.accepted(save).stdout)

    def test_given_a_job_file_that_changes_during_the_run_checkpoints_keep_what_it_was(self):
        # the run's log is a pipe: its first line is there before the first step is done
        run = subprocess.Popen([program.OCTET, "train", "job.toml", "--checkpoint.enable", "--training.steps=300",
                                "--checkpoint.interval=300"], cwd=self.folder, stdout=subprocess.PIPE, text=True)
        for line in run.stdout:
            if "Training starts" in line:
                self.write("job.toml", "nonsense")
                break
        run.stdout.read()
        run.stdout.close()
        self.assertEqual(run.wait(), 0)
        self.accepted(["eval", "out", "text.txt"])

    def test_given_no_reader_of_its_log_a_run_goes_on_to_its_end(self):
        run = subprocess.Popen([program.OCTET, "train", "job.toml", "--checkpoint.enable"], cwd=self.folder,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        run.stdout.close()
        error = run.stderr.read()
        run.stderr.close()
        self.assertEqual((run.wait(), error), (1, "octet: standard output: the write failed\n"))
        self.accepted(["eval", "out", "text.txt"])

    def test_given_an_end_of_compare_its_runs_end_too(self):
        compare = subprocess.Popen([program.OCTET, "compare", "job.toml", "--recipes", "bf16",
                                    "--training.steps=1000000", "--validation.freq=1000000"],
                                   cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in compare.stdout:
            if "Training starts" in line:
                compare.terminate()
                break
        # the run holds the other end of the pipe: reading ends when it ends
        compare.communicate(timeout=60)
        self.assertEqual(compare.returncode, -signal.SIGTERM)

    def test_given_closed_streams_no_file_gets_their_lines(self):
        self.refused_in_shell("train job.toml --checkpoint.enable >&- <&-", "standard output")
        self.accepted(["train", "job.toml", "--checkpoint.enable"])  # all that was written is whole
        with open(self.path("out", "metrics.jsonl")) as file:
            self.assertNotIn("[titan]", file.read())

    def test_given_a_converter_twice_it_is_refused(self):
        for name in ("quantize.linear.mx", "npu_gmm", "npu_rope"):
            self.refused(["plan", "job.toml", "--model.converters=%s,%s" % (name, name)], "model.converters", name, "twice")

    def test_given_a_binary_file_for_a_text_it_is_refused(self):
        self.accepted(["data", "pack", "text.txt", "--tokenizer", "tokenizer.json", "--output", "packed"])
        with open(self.path("packed"), "rb") as file:
            packed = file.read()
        self.write("magic", b"x" + packed[1:])
        self.write("utf16.txt", "the lord said".encode("utf-16"))
        self.write("zeros.jsonl", bytes(100))
        self.write("longer", packed + b"x")
        for name in ("magic", "utf16.txt", "zeros.jsonl", "tokens/x.txt"):
            if "/" in name:
                self.write(name, bytes(100))
                name = "tokens"
            self.refused(["train", "job.toml", "--training.dataset_path=" + name], name, "binary file")
            self.refused(["tokenizer", "train", name, "--output", "t.json"], name, "binary file")
        self.refused(["train", "job.toml", "--training.dataset_path=longer"], "longer", "expected %d; got %d"
                     % (len(packed) - 64, len(packed) - 63))

    def test_given_initial_weights_they_are_read_whether_or_not_checkpoints_are_saved(self):
        self.refused(["train", "job.toml", "--checkpoint.initial_load_path=nowhere"],
                     "command line: --checkpoint.initial_load_path: ", "nowhere")
        self.accepted(["train", "job.toml", "--checkpoint.enable", "--job.dump_folder=first"])
        step = "--checkpoint.initial_load_path=first/checkpoint/step-2"
        out = self.accepted(["train", "job.toml", step]).stdout
        self.assertIn("Loaded initial weights from first/checkpoint/step-2", out)
        out = self.accepted(["train", "job.toml", step, "--checkpoint.no-initial_load_model_only"]).stdout
        self.assertIn("Resumed from first/checkpoint/step-2", out)
        self.assertIn("Training starts at step 3", out)

    def test_given_an_unknown_recipe_to_compare_or_eval_those_without_8_bits_are_listed_too(self):
        self.refused(["compare", "job.toml", "--recipes", "bf16,bf61"], "did you mean \"bf16\"?",
                     "expected bf16, fp32, mxfp8,")
        self.accepted(["train", "job.toml", "--checkpoint.enable"])
        self.refused(["eval", "out", "text.txt", "--recipe", "fp23"], "did you mean \"fp32\"?",
                     "expected bf16, fp32, mxfp8,")
        self.refused(["eval", "out", "text.txt", "--recipe", "mxfp9"], "did you mean \"mxfp8\"?", "bf16")

    def test_given_another_job_on_resuming_each_key_is_told_with_what_it_was(self):
        run = ["train", "job.toml", "--checkpoint.enable"]
        self.accepted(run + ["--training.steps=2"])
        with open(self.path("text.txt")) as file:
            self.write("other.txt", file.read() + " amen" * 500)
        convert = ["--model.converters=quantize.linear.mx", "--quantize.linear.mx.recipe_name=hif8"]
        result = self.accepted(run + convert + ["--training.dataset_path=other.txt", "--debug.seed=6"])
        for line in ("another model.converters: was [], is [\"quantize.linear.mx\"]",
                     "another quantize.linear.mx.recipe_name: was \"mxfp8\", is \"hif8\"",
                     "another training.dataset_path: was \"text.txt\", is \"other.txt\"",
                     "resumed with other training data: it had ", "debug.seed = 6 has no effect"):
            self.assertIn(line, result.stdout + result.stderr)
        result = self.accepted(run + convert + ["--training.dataset_path=other.txt", "--training.steps=5"])
        self.assertNotIn("resumed with", result.stdout + result.stderr)

    def test_given_products_that_the_cpu_lacks_plan_warns_of_what_train_refuses(self):
        for word in ("fast", "aligned"):  # its former name
            self.check_products_that_the_cpu_lacks(word)

    def check_products_that_the_cpu_lacks(self, word):
        job = ["job.toml", "--model.converters=quantize.linear.mx", "--quantize.linear.mx.gemm=" + word]
        old = {**os.environ, "OCTET_CPU": "avx2"}
        error = "command line: --quantize.linear.mx.gemm: \"fast\" needs AVX512-VNNI"
        self.refused(["train"] + job, error, env=old)
        result = self.accepted(["plan"] + job, env=old)
        self.assertIn("octet train refuses this job on this machine: " + error, result.stdout + result.stderr)

    def test_given_yaml_that_is_no_text_it_is_refused(self):
        for text in (b"training:\n  lr: \xff\n", b"training:\n  lr: 1\0\n", bytes(range(256)), b"\xc3"):
            self.write("wrong.yaml", text)
            self.refused(["plan", "wrong.yaml"], "wrong.yaml:", "UTF-8")


if __name__ == "__main__":
    main()
