"""Going on with a run: with another job, after a last save of weights alone, from an earlier step, in another place."""
import json
import os
import shutil
import subprocess

from program import OCTET, main
from training import Training

EXPERTS = ["--model.name=qwen3", "--model.flavor=demo_moe", "--model.args.moe_inter_dim=32", "--model.args.head_dim=16",
           "--model.converters=npu_gmm"]
RUN = ["train", "job.toml", "--checkpoint.enable"]


class Resume(Training):
    def save(self, *args):
        """Steps 2 and 4 of the job, kept as `saved`."""
        self.accepted(RUN + list(args))
        shutil.rmtree(self.path("saved"), ignore_errors=True)
        shutil.copytree(self.path("out"), self.path("saved"))

    def again(self, *args):
        """Goes on from `saved`; what is said."""
        shutil.rmtree(self.path("out"))
        shutil.copytree(self.path("saved"), self.path("out"))
        result = self.accepted(RUN + ["--training.steps=5"] + list(args))
        return result.stdout + result.stderr

    def steps(self, *folder):
        return sorted(name for name in os.listdir(self.path(*folder)) if name.startswith("step-"))

    def losses(self):
        with open(self.path("out", "metrics.jsonl")) as file:
            return [(line["step"], line["loss"]) for line in map(json.loads, file)]

    # ---- another job ----

    def test_given_another_model_argument_the_run_is_refused_by_its_name(self):
        self.save()
        before = self.losses()
        for args, name, expected, got in (
                (["rope_theta=20000"], "rope_theta", "10000.0", "20000.0"), (["norm_eps=0.1"], "norm_eps", "1e-05", "0.1"),
                (["n_heads=2", "n_kv_heads=2"], "n_heads", "4", "2"), (["n_kv_heads=4"], "n_kv_heads", "2", "4"),
                (["rope_scaling=true"], "rope_scaling", "none", "llama3"), (["qk_norm=true"], "qk_norm", "false", "true"),
                (["enable_weight_tying=true"], "enable_weight_tying", "false", "true"), (["dim=32"], "dim", "64", "32"),
                (["n_layers=1"], "n_layers", "2", "1"), (["hidden_dim=64"], "hidden_dim", "96", "64"),
                (["vocab_size=384"], "vocab_size", "320", "384")):
            self.refused(RUN + ["--training.steps=5"] + ["--model.args." + arg for arg in args],
                         "command line: --model.args.%s: another %s than the model of " % (name, name),
                         "step-4 has; expected ", expected, "; got ", got)
        self.refused_for(RUN + ["--training.steps=5", "--model.args.rope_theta=20000", "--model.args.norm_eps=0.1",
                                "--model.args.qk_norm=true", "--model.args.n_heads=2"],
                         *("command line: --model.args.%s: another %s than the model of " % (name, name)
                           for name in ("n_heads", "norm_eps", "qk_norm", "rope_theta")))
        self.assertEqual(self.losses(), before)
        self.refused(RUN + ["--training.steps=5", "--model.name=qwen3", "--model.flavor=debugmodel"],
                     "--model.name: another family than the model of ", "expected \"llama3\"; got \"qwen3\"")
        self.assertEqual(self.steps("out", "checkpoint"), ["step-2", "step-4"])

    def test_given_another_argument_of_experts_the_run_is_refused_or_told_by_what_it_changes(self):
        self.save(*EXPERTS)
        for arg, expected, got in (("top_k=1", "2", "1"), ("route_scale=2.0", "1.0", "2.0"),
                                   ("score_func=sigmoid", "softmax", "sigmoid"), ("route_norm=false", "true", "false"),
                                   ("score_before_experts=true", "false", "true")):
            name = arg.split("=")[0]
            self.refused(RUN + EXPERTS + ["--training.steps=5", "--model.args." + arg], "--model.args.%s: " % name,
                         expected, got)
        self.refused(RUN + EXPERTS + ["--training.steps=5", "--model.args.inter_dim=48"],
                     "command line: --model.args.inter_dim: another hidden_dim than")  # the name that was typed
        out = self.again(*EXPERTS, "--model.args.load_balance_coeff=0.5")
        self.assertIn("resumed with another model.args.load_balance_coeff: was 0.001, is 0.5", out)
        for force in ("--debug.moe_force_load_balance", "--model.args.moe_force_load_balance=true"):
            out = self.again(*EXPERTS, force)
            self.assertEqual(out.count("resumed with another model.args.moe_force_load_balance: was false, is true"), 1)
        self.assertNotIn("resumed with", self.again(*EXPERTS))

    def test_given_a_flavor_of_the_same_sizes_its_other_arguments_are_compared_too(self):
        """What a flavor or a new version of it changes has no key on the command line to blame."""
        self.save("--model.args.rope_theta=500000", "--model.args.multiple_of=64", "--model.args.depth_init=false")
        self.refused(RUN + ["--training.steps=5"], "job.toml:6: model.flavor: another rope_theta", "expected 500000.0",
                     "got 10000.0")
        # What only drew the first weights, or derives another argument, is free.
        self.assertNotIn("resumed with", self.again("--model.args.rope_theta=500000"))

    def test_given_another_key_that_decides_numbers_each_is_told(self):
        convert = "--model.converters=quantize.linear.mx"
        experts = "quantize.grouped_mm.mx.enable_fsdp_low_precision_all_gather"  # in the file: nothing here has it act
        self.save(convert)
        with open(self.path("job.toml"), "a") as file:
            file.write("[quantize.grouped_mm.mx]\n%s = true\n" % experts.split(".")[-1])
        changes = {"optimizer.beta1": ("0.9", "0.5"), "optimizer.beta2": ("0.95", "0.99"), "optimizer.eps": ("1e-08", "1e-06"),
                   "optimizer.weight_decay": ("0.1", "0.2"), "optimizer.lr": ("0.003", "0.001"),
                   "training.max_norm": ("1.0", "2.0"), "lr_scheduler.warmup_steps": ("2", "3"),
                   "lr_scheduler.decay_type": ('"linear"', '"cosine"'),
                   "quantize.linear.mx.enable_fsdp_low_precision_all_gather": ("false", "true"),
                   experts: ("false", "true"), "quantize.linear.mx.scale_mode": ('none', '"floor"'), "training.global_batch_size": ("-1", "4"),
                   "training.mixed_precision_param": ('"bfloat16"', '"float32"')}
        out = self.again(convert, *["--%s=%s" % (key, now.strip('"')) for key, (_, now) in changes.items() if key != experts])
        for key, (was, now) in changes.items():
            self.assertIn("resumed with another %s: was %s, is %s\n" % (key, was, now), out)
        self.assertEqual(out.count("resumed with"), len(changes))

    def test_given_other_rules_of_quantization_they_are_told(self):
        self.save("--model.converters=quantize.linear.mx")
        out = self.again("--model.converters=quantize.linear.mx", "--quantize.rules=octet")
        self.assertIn('resumed with another quantize.rules: was "framework", is "octet"', out)

    def test_given_other_lengths_times_and_words_nothing_is_told(self):
        self.save()
        out = self.again("--checkpoint.interval=3", "--validation.freq=3", "--metrics.log_freq=2", "--job.description=x",
                         "--checkpoint.last_save_model_only", "--activation_checkpoint.mode=full")
        self.assertNotIn("resumed with", out)

    def test_given_validation_that_takes_its_text_from_training_it_is_told(self):
        self.save()
        out = self.again("--validation.enable")
        self.assertIn("resumed with another validation.enable: was false, is true", out)
        self.assertIn("resumed with other training data: it had ", out)

    def test_given_the_data_under_another_name_its_contents_decide(self):
        self.save()
        for name in ("text.txt", "tokenizer.json"):
            shutil.copy(self.path(name), self.path("moved-" + name))
        moved = ["--training.dataset_path=moved-text.txt", "--model.tokenizer_path=moved-tokenizer.json"]
        self.assertNotIn("resumed with", self.again(*moved))
        with open(self.path("text.txt")) as file:
            text = file.read()
        for changed, words in ((text.replace("moses", "aaron"), ("other contents of training.dataset_path, \"text.txt\"",)),
                               (text + " amen", ("other contents of training.dataset_path", "other training data: it had "))):
            self.write("text.txt", changed)
            out = self.again()
            for word in words:
                self.assertIn("resumed with " + word, out)

    def test_given_an_initial_checkpoint_as_a_whole_it_is_compared_as_well(self):
        self.save()
        whole = ["--job.dump_folder=new", "--checkpoint.initial_load_path=saved/checkpoint/step-2",
                 "--checkpoint.no-initial_load_model_only"]
        self.refused(RUN + whole + ["--model.args.rope_theta=1000"], "--model.args.rope_theta: another rope_theta than")
        result = self.accepted(RUN + whole + ["--optimizer.beta1=0.5"])
        self.assertIn("resumed with another optimizer.beta1: was 0.9, is 0.5", result.stdout + result.stderr)

    def test_given_initial_weights_of_another_model_each_argument_is_told(self):
        self.save()
        start = ["train", "job.toml", "--job.dump_folder=new", "--checkpoint.initial_load_path=saved/checkpoint/step-2"]
        result = self.accepted(start + ["--model.args.rope_theta=1000"])
        self.assertIn("the initial weights are of a model with another model.args.rope_theta: was 10000.0, is 1000.0",
                      result.stdout + result.stderr)
        result = self.accepted(start)
        self.assertNotIn("the initial weights are of", result.stdout + result.stderr)

    # ---- where it goes on ----

    def test_given_a_last_save_of_weights_alone_a_longer_run_goes_on_from_the_newest_whole_one(self):
        last = "--checkpoint.last_save_model_only"
        self.accepted(RUN + [last])
        self.accepted(RUN + [last, "--job.dump_folder=whole", "--training.steps=6"])
        out = self.accepted(RUN + [last]).stdout
        self.assertIn("All 4 steps are done already", out)
        result = self.accepted(RUN + [last, "--training.steps=6"])
        said = result.stdout + result.stderr
        self.assertIn("step-4 holds the model only (checkpoint.last_save_model_only = true); going on from the newest "
                      "whole checkpoint, step-2", said)
        self.assertIn("Training starts at step 3", said)
        self.assertIn("going back to step 2: 1 later checkpoint was moved to out/checkpoint/aside-1", said)
        self.assertEqual(self.steps("out", "checkpoint"), ["step-2", "step-4", "step-6"])
        self.assertEqual(self.steps("out", "checkpoint", "aside-1"), ["step-4"])

    def test_given_weights_alone_and_nothing_whole_a_longer_run_is_refused(self):
        only = RUN + ["--checkpoint.last_save_model_only", "--checkpoint.interval=9"]
        self.accepted(only)
        self.refused(only + ["--training.steps=6"], "step-4: it holds the model only", "no whole checkpoint before it",
                     "to begin anew, delete out/checkpoint or move it away")
        self.refused(only + ["--training.steps=6", "--checkpoint.load_step=4"], "holds the model only")
        self.assertEqual(self.steps("out", "checkpoint"), ["step-4"])

    def test_given_a_run_that_goes_back_a_plain_one_goes_on_from_there(self):
        self.save("--training.steps=8")
        whole = self.losses()
        back = ["--training.steps=8", "--checkpoint.load_step=2", "--optimizer.lr=1e-3"]
        stopped = subprocess.Popen([OCTET] + RUN + back + ["--checkpoint.interval=1000", "--training.steps=1000000"],
                                   cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = ""
        for line in stopped.stdout:  # before it saves anything
            said += line
            if "step:  10" in line or "step: 10" in line:
                break
        stopped.kill()
        stopped.stdout.close()
        stopped.wait()
        self.assertIn("going back to step 2: 3 later checkpoints were moved to out/checkpoint/aside-1", said)
        self.assertEqual(self.steps("out", "checkpoint"), ["step-2"])
        self.assertEqual(self.steps("out", "checkpoint", "aside-1"), ["step-4", "step-6", "step-8"])
        with open(self.path("out", "checkpoint", "aside-1", "metrics.jsonl")) as file:
            self.assertEqual([(line["step"], line["loss"]) for line in map(json.loads, file)], whole)
        plain = ["--training.steps=8", "--optimizer.lr=1e-3"]
        self.assertIn("Training starts at step 3", self.accepted(RUN + plain + ["--training.steps=5"]).stdout)
        out = self.accepted(RUN + plain)
        self.assertIn("Training starts at step 6", out.stdout)
        self.assertNotIn("going back", out.stdout + out.stderr)
        self.assertEqual(self.losses()[:2], whole[:2])
        self.assertNotEqual(self.losses()[4:], whole[4:])
        # The branch that was left can be gone back to.
        shutil.rmtree(self.path("out", "checkpoint", "step-8"))
        shutil.move(self.path("out", "checkpoint", "aside-1", "step-8"), self.path("out", "checkpoint"))
        self.assertIn("All 8 steps", self.accepted(RUN + ["--training.steps=8"]).stdout)

    def test_given_a_step_that_is_only_looked_at_nothing_is_moved(self):
        self.save()
        self.accepted(RUN + ["--checkpoint.load_step=2", "--checkpoint.load_only"])
        self.accepted(RUN + ["--checkpoint.load_step=2", "--training.steps=2"])
        self.assertEqual(self.steps("out", "checkpoint"), ["step-2", "step-4"])
        self.accepted(["eval", "out/checkpoint/step-2", "text.txt"])
        self.assertEqual(os.listdir(self.path("out", "checkpoint")).count("aside-1"), 0)

    def test_given_a_step_that_is_not_there_the_steps_that_are_there_are_named(self):
        self.save()
        self.refused(RUN + ["--checkpoint.load_step=99"], "--checkpoint.load_step: ", "out/checkpoint: there is no checkpoint "
                     "step-99; there are step-4, step-2")
        self.refused(RUN + ["--checkpoint.load_step=1", "--job.dump_folder=new"], "no checkpoint step-1; there are none at all")
        for more in ([], ["--checkpoint.no-initial_load_model_only"]):
            self.refused(RUN + ["--job.dump_folder=new", "--checkpoint.initial_load_path=saved/checkpoint/step-9"] + more,
                         "--checkpoint.initial_load_path: ", "saved/checkpoint/step-9: no such folder")
            self.refused(RUN + ["--job.dump_folder=new", "--checkpoint.initial_load_path=saved/checkpoint"] + more,
                         "--checkpoint.initial_load_path: ", "saved/checkpoint: not a checkpoint: it has no manifest.json")

    # ---- metrics of the run that was there ----

    def test_given_another_run_in_the_folder_the_metrics_of_the_first_stay(self):
        self.save()
        whole = self.text_of("saved", "metrics.jsonl")
        weights, elsewhere = "--checkpoint.initial_load_path=saved/checkpoint/step-2", "--checkpoint.folder=elsewhere"
        for i, args in enumerate((
                ["--checkpoint.no-enable", "--training.steps=1"], [elsewhere], ["--checkpoint.no-enable", weights],
                ["--checkpoint.no-enable", weights, "--checkpoint.no-initial_load_model_only"])):
            with self.subTest(args=args):
                shutil.rmtree(self.path("out"))
                shutil.copytree(self.path("saved"), self.path("out"))
                self.write("out/metrics-1.jsonl", "taken")
                result = self.accepted(RUN + args)
                self.assertIn("out/metrics.jsonl was moved to out/metrics-2.jsonl", result.stdout)
                self.assertEqual(self.text_of("out", "metrics-2.jsonl"), whole)
                self.assertEqual(self.text_of("out", "metrics-1.jsonl"), "taken")
                first = 3 if len(args) == 3 else 1  # nothing of the other run is before it
                self.assertEqual(self.losses()[0][0], first)
                self.assertEqual(len(self.losses()), 1 if i == 0 else 5 - first)

    def test_given_a_step_that_is_looked_at_the_metrics_of_the_run_stay(self):
        self.save()
        whole = self.text_of("saved", "metrics.jsonl")
        back = ["--checkpoint.load_step=2", "--checkpoint.load_only", "--optimizer.lr=1e-4"]
        result = self.accepted(RUN + back)
        self.assertIn("out/metrics.jsonl was copied to out/metrics-1.jsonl", result.stdout)
        self.assertEqual(self.text_of("out", "metrics-1.jsonl"), whole)
        self.assertEqual([step for step, _ in self.losses()], [1, 2, 3, 4])
        self.assertNotEqual(self.text_of("out", "metrics.jsonl"), whole)

    def test_given_no_step_left_to_take_the_metrics_stay_as_they_are(self):
        self.save()
        for args in ([], ["--checkpoint.load_step=2", "--training.steps=2"], ["--checkpoint.load_only"]):
            self.assertIn("steps are done already", self.accepted(RUN + args).stdout)
            self.assertEqual(self.text_of("out", "metrics.jsonl"), self.text_of("saved", "metrics.jsonl"))
        self.assertFalse(os.path.exists(self.path("out", "metrics-1.jsonl")))

    def test_given_a_run_that_goes_on_its_metrics_are_appended_to(self):
        self.save()
        before = self.losses()
        self.assertNotIn("metrics-", self.again())
        self.assertEqual([self.losses()[:4], len(self.losses())], [before, 5])
        self.assertFalse(os.path.exists(self.path("out", "metrics-1.jsonl")))
        # nor does an empty file leave one behind
        self.write("out/metrics.jsonl", "")
        self.accepted(RUN + ["--checkpoint.no-enable"])
        self.assertFalse(os.path.exists(self.path("out", "metrics-1.jsonl")))

    def test_given_two_runs_that_take_turns_in_a_folder_their_metrics_never_mix(self):
        self.save()
        other = ["--checkpoint.folder=elsewhere", "--optimizer.lr=1e-3"]
        self.accepted(RUN + other)
        whole = {name: self.text_of("out", name) for name in ("metrics-1.jsonl", "metrics.jsonl")}
        self.assertEqual(whole["metrics-1.jsonl"], self.text_of("saved", "metrics.jsonl"))
        # each goes on, and finds the metrics of the other
        for args, k, kept in (([], 2, whole["metrics.jsonl"]), (other, 3, None), ([], 4, None)):
            before = self.text_of("out", "metrics.jsonl")
            steps = {2: 5, 3: 5, 4: 6}[k]
            result = self.accepted(RUN + args + ["--training.steps=%d" % steps])
            self.assertIn("out/metrics.jsonl was moved to out/metrics-%d.jsonl" % k, result.stdout)
            self.assertEqual(self.text_of("out", "metrics-%d.jsonl" % k), kept or before)
            self.assertEqual([step for step, _ in self.losses()], [steps])
        # and the same run again appends
        self.assertNotIn("metrics-", self.accepted(RUN + ["--training.steps=7"]).stdout)
        self.assertEqual([step for step, _ in self.losses()], [6, 7])

    def test_given_a_file_that_another_run_left_shorter_it_is_kept_apart(self):
        self.save()
        lines = self.text_of("out", "metrics.jsonl").splitlines(True)
        self.write("out/metrics.jsonl", "".join(lines[:2]))  # nothing of step 4
        result = self.accepted(RUN + ["--training.steps=5"])
        self.assertIn("out/metrics.jsonl was moved to out/metrics-1.jsonl", result.stdout)
        self.assertEqual(self.text_of("out", "metrics-1.jsonl"), "".join(lines[:2]))

    # ---- elsewhere ----

    def check_moved(self, *args):
        self.save(*args)
        evaluate, generate = ["eval", "here", "moved.txt"], ["generate", "here", "--prompt", "the lord", "--max-new-tokens", 8]
        shutil.copy(self.path("text.txt"), self.path("moved.txt"))
        shutil.copytree(self.path("saved"), self.path("here"))
        before = [self.accepted(command).stdout for command in (evaluate, generate)]
        away = os.path.join(self.folder, "another", "machine")
        os.makedirs(away)
        shutil.move(self.path("saved", "checkpoint", "step-4"), os.path.join(away, "here"))
        shutil.move(self.path("moved.txt"), away)
        for name in ("text.txt", "tokenizer.json", "job.toml", "out", "saved", "here"):
            path = self.path(name)
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
        for command, said in zip((evaluate, generate), before):
            result = subprocess.run([OCTET] + [str(a) for a in command], cwd=away, text=True, errors="replace", capture_output=True, timeout=60)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stdout.splitlines()[-1], said.splitlines()[-1])
        with open(os.path.join(away, "here", "state.json")) as file:
            text = file.read()
        self.assertNotIn(self.folder, text)
        self.assertEqual(json.loads(text)["tokenizer"], "tokenizer.json")
        with open(os.path.join(away, "here", "config.json")) as file:
            return json.load(file)

    def test_given_a_checkpoint_in_another_place_eval_and_generate_work_there(self):
        config = self.check_moved()
        for key, value in (("model_type", "llama"), ("hidden_size", 64), ("num_hidden_layers", 2), ("rope_theta", 10000.0),
                           ("num_attention_heads", 4), ("num_key_value_heads", 2), ("head_dim", 16), ("vocab_size", 320),
                           ("intermediate_size", 96), ("rms_norm_eps", 1e-5), ("tie_word_embeddings", False)):
            self.assertEqual(config[key], value)

    def test_given_experts_in_another_place_they_work_there_too(self):
        config = self.check_moved(*EXPERTS)
        for key, value in (("model_type", "qwen3_moe"), ("num_experts", 8), ("num_experts_per_tok", 2),
                           ("moe_intermediate_size", 32), ("norm_topk_prob", True)):
            self.assertEqual(config[key], value)

    def test_given_a_tokenizer_folder_all_that_says_something_of_it_is_carried(self):
        os.makedirs(self.path("tok"))
        shutil.copy(self.path("tokenizer.json"), self.path("tok"))
        self.write("tok/tokenizer_config.json", '{"eos_token": "<|endoftext|>", "bos_token": null}')
        self.write("tok/vocab.json", "{}")
        self.save("--model.tokenizer_path=tok")
        names = os.listdir(self.path("saved", "checkpoint", "step-4"))
        self.assertIn("tokenizer_config.json", names)
        self.assertNotIn("vocab.json", names)
        self.write("tok/tokenizer_config.json", '{"eos_token": null}')  # an edit later changes no checkpoint
        with open(self.path("saved", "checkpoint", "step-4", "tokenizer_config.json")) as file:
            self.assertEqual(json.load(file)["eos_token"], "<|endoftext|>")

    def test_given_a_whole_run_in_another_place_it_goes_on_there(self):
        self.save()
        away = self.path("another")
        os.makedirs(away)
        for name in ("text.txt", "tokenizer.json", "job.toml"):
            shutil.move(self.path(name), away)
        shutil.move(self.path("saved"), os.path.join(away, "out"))
        result = subprocess.run([OCTET] + RUN + ["--training.steps=6"], cwd=away, text=True, errors="replace", capture_output=True, timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("Training starts at step 5", result.stdout)
        self.assertNotIn("resumed with", result.stdout + result.stderr)


if __name__ == "__main__":
    main()
