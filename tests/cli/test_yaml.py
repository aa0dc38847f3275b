"""MindSpeed MM jobs: the guide's plan on dense and expert models, its patterns, its recipes."""
import json
import os
import re

from program import main
from training import Training

JOB = """
model:
  model_id: %(model)s
  model_name_or_path: hf
parallel:
  fsdp_plan:
    param_dtype: bf16
    reduce_dtype: fp32
data:
  dataset_param:
    basic_parameters:
      dataset: text.txt
      cutoff_len: 32
training:
  train_iters: 3
  micro_batch_size: 2
  seed: 5
  lr: 3.0e-3
  save: out
  save_interval: 3
  quantization_plan:
    recipe_name: %(recipe)s
    apply_modules: %(apply)s
    ignored_modules: %(ignored)s
    quant_converters: ['quantize.linear.mx', 'quantize.moe.mx']
    enable_fsdp_low_precision_all_gather: True
    fsdp_low_precision_all_gather_mode: 'on-demand'
"""
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 320, "max_position_embeddings": 64, "head_dim": 16}
DENSE = dict(SIZES, model_type="llama", architectures=["LlamaForCausalLM"])
EXPERTS = dict(SIZES, model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], num_experts=4,
               num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True)


class Yaml(Training):
    def job(self, config=DENSE, recipe="mxfp8", apply="['model.layers.{*}']", ignored="['*lm_head', '*gate']"):
        model = "qwen3_moe" if config is EXPERTS else "llama"
        self.write("hf/config.json", json.dumps(config))
        with open(self.path("tokenizer.json")) as file:
            self.write("hf/tokenizer.json", file.read())
        self.write("job.yaml", JOB % {"model": model, "recipe": recipe, "apply": apply, "ignored": ignored})

    def plan(self, *args):
        rows = json.loads(self.accepted(["plan", "job.yaml", "--json", *args]).stdout)["modules"]
        return {row["name"]: row for row in rows}

    def converted(self):
        return {name for name, row in self.plan().items() if row["converted"]}

    def test_given_the_guides_plan_dense_and_expert_models_train(self):
        for config, experts in ((DENSE, False), (EXPERTS, True)):
            self.job(config)
            out = self.accepted(["train", "job.yaml", "--job.dump_folder=%s" % experts]).stdout
            self.assertIn("MX training active with recipe mxfp8", out)
            self.assertEqual("mxfp8 MoE training enabled" in out, experts)
            self.assertRegex(out, r"step:  1  loss:  6\.")
            self.assertEqual(out.count("itself would skip"), 1)  # of weights that the 8-bit gather there refuses
            self.assertEqual(out.count("casts the parameters themselves to bf16"), 1)
            self.assertLessEqual(out.count("WARNING"), 4)

    def test_given_no_param_dtype_activations_are_float32_as_in_its_framework_and_a_line_says_so(self):
        self.job()
        with open(self.path("job.yaml")) as file:
            text = file.read()
        said = "Activations are float32, as in MindSpeed MM without parallel.fsdp_plan.param_dtype"
        losses = set()
        for i, (dtype, told) in enumerate((("none", True), ("null", True), ("fp32", False), ("bf16", False))):
            self.write("job.yaml", text.replace("param_dtype: bf16", "" if dtype == "none" else "param_dtype: " + dtype))
            out = self.accepted(["train", "job.yaml", "--job.dump_folder=dtype%d" % i]).stdout
            self.assertEqual(said in out, told and dtype == "none", dtype)
            self.assertEqual("casts the parameters themselves" in out, dtype == "bf16")
            losses.add((re.search(r"step:  3  loss:  (\S+)  grad_norm:  (\S+)", out).groups(), dtype == "bf16"))
        self.assertEqual(len(losses), 2)  # float32's three times, and bf16's
        self.write("job.yaml", text.replace("param_dtype: bf16", "param_dtype: fp16"))
        self.refused(["plan", "job.yaml"], "activations in float16 aren't supported")

    def test_given_sums_of_gradients_in_bf16_several_ranks_refuse_them(self):
        self.job()
        with open(self.path("job.yaml")) as file:
            text = file.read()
        for param, reduce, one, two in (("bf16", "null", True, False), ("bf16", "bf16", True, False),
                                        ("fp32", "bf16", False, False), ("fp32", "null", True, True),
                                        ("bf16", "fp32", True, True)):
            self.write("job.yaml", text.replace("param_dtype: bf16", "param_dtype: " + param)
                       .replace("reduce_dtype: fp32", "reduce_dtype: " + reduce))
            for ranks, fits in ((1, one), (2, two)):
                args = ["plan", "job.yaml", "--ranks=%d" % ranks]
                if fits:
                    self.accepted(args)
                    continue
                self.refused(args, "reduce_dtype: gradients would be summed in bf16",
                             "expected fp32; got " + ("none" if reduce == "null" else "bf16"))

    def test_given_one_thing_under_both_forms_names_it_is_refused(self):
        self.job()
        for own, other in (("training.lr=1e-3", "optimizer.lr"), ("training.seed=3", "debug.seed"), ("training.train_iters=2", "training.steps"),
                           ("training.save=a", "job.dump_folder"), ("parallel.fsdp_plan.param_dtype=bf16", "training.mixed_precision_param")):
            name, _, value = own.partition("=")
            there = {"bf16": "bfloat16"}.get(value, value)
            self.refused(["plan", "job.yaml", "--" + own, "--%s=%s" % (other, there)],
                         "command line: --%s: it is given as --%s too; expected one of them" % (name, other))
            self.accepted(["plan", "job.yaml", "--" + own])
            self.accepted(["plan", "job.yaml", "--%s=%s" % (other, there)])
        # Of a file and the command line the latter counts, whatever the name.
        out = self.accepted(["train", "job.yaml", "--job.print_config", "--training.mixed_precision_param=float32"]).stdout
        self.assertIn('training.mixed_precision_param = "float32"  # command line', out)
        self.refused(["train", "job.yaml", "--job.save_config_file=saved"], "job.save_config_file", "names of both forms", "--job.print_config")

    def test_given_the_two_tables_ways_to_gather_the_one_of_the_command_line_is_blamed(self):
        self.job(EXPERTS)
        for section, other in (("linear", "grouped_mm"), ("grouped_mm", "linear")):
            self.refused(["plan", "job.yaml", "--ranks=2", "--quantize.%s.mx.fsdp_low_precision_all_gather_mode=all" % section],
                         "command line: --quantize.%s.mx.fsdp_low_precision_all_gather_mode: a layer is gathered as one" % section,
                         "expected 'on-demand' as in", "got 'all'")

    def test_given_the_guides_plan_all_but_head_and_gate_are_converted(self):
        self.job()
        self.assertEqual(len(self.converted()), 14)
        self.assertFalse(self.plan()["lm_head"]["converted"])
        self.assertIn("model.layers.0.self_attn.q_proj", self.converted())
        self.job(EXPERTS)
        self.assertEqual({n for n, row in self.plan().items() if not row["converted"]},
                         {"lm_head", "model.layers.0.mlp.gate", "model.layers.1.mlp.gate"})
        self.assertIn("model.layers.1.mlp.experts", self.converted())

    def test_given_the_plan_in_other_words_it_is_the_same_plan(self):
        self.job(EXPERTS)
        with open(self.path("job.yaml")) as file:
            text = file.read()
        whole = self.accepted(["plan", "job.yaml", "--json"]).stdout
        start = text.index("  quantization_plan:")
        self.write("job.yaml", text[:start] + """  quantization_plan:
    quant_recipe: mxfp8
    quant_format: e4m3
    block_size: 32
    quant_apply_modules: ['model.layers.{*}']
    quant_ignored_modules: ['*lm_head', '*gate']
    converters: ['quantize.linear.mx']
    quant_gmm: true
""")
        self.assertEqual(self.accepted(["plan", "job.yaml", "--json"]).stdout, whole)
        self.write("job.yaml", text[:start].replace("  model_id", """  quant_recipe_name: mxfp8
  quant_format: E4M3
  quant_block_size: 32
  quant_converters: ['quantize.linear.mx', 'quantize.moe.mx']
  model_id"""))
        self.assertEqual(self.accepted(["plan", "job.yaml", "--json"]).stdout, whole)

    def test_given_validation_data_of_its_own_it_is_measured_as_often_as_said(self):
        self.job()
        with open(self.path("job.yaml")) as file:
            text = file.read()
        held = """  val_dataset_param:
    dataset_type: huggingface
    basic_parameters:
      dataset: held.txt
      cutoff_len: 16
training:
  val_interval: 2
  val_micro_batch_size: 1
"""
        self.write("held.txt", "and the lord said unto them " * 40)
        self.write("job.yaml", text.replace("training:\n", held, 1).replace("train_iters: 3", "train_iters: 4"))
        out = self.accepted(["train", "job.yaml"]).stdout
        self.assertEqual(re.findall(r"validate step: +(\d+) ", out), ["1", "2", "4"])  # the first, as torchtitan does
        self.write("job.yaml", text.replace("training:\n", held.replace("val_interval: 2", "val_interval: 0"), 1))
        self.assertNotIn("validate step:", self.accepted(["train", "job.yaml", "--job.dump_folder=other"]).stdout)
        self.write("job.yaml", text.replace("  train_iters: 3", "  train_iters: 3\n  val_interval: 2"))
        self.refused(["train", "job.yaml"], "training.val_interval: there is no data to validate on")

    def test_given_the_training_text_as_validation_data_training_still_sees_all_of_it(self):
        self.job()
        with open(self.path("job.yaml")) as file:
            text = file.read()
        own = "  val_dataset_param:\n    basic_parameters:\n      dataset: %s\n      cutoff_len: 32\n"
        os.mkdir(self.path("also"))
        os.symlink("../text.txt", self.path("also/text.txt"))
        for form, command in (("toml", ["train", "job.toml", "--checkpoint.enable", "--validation.enable"]),
                              ("yaml", ["train", "job.yaml"])):
            seen = []
            for spelling in (None, "text.txt", "./text.txt", "also/text.txt"):
                folder = "%s%d" % (form, len(seen))
                more = ["--validation.dataset_path=%s" % spelling] if form == "toml" and spelling else []
                if form == "yaml":
                    self.write("job.yaml", text if not spelling else
                               text.replace("training:\n", own % spelling + "training:\n  val_interval: 2\n", 1))
                elif not spelling:
                    more = ["--no-validation.enable"]
                out = self.accepted(command + more + ["--job.dump_folder=" + folder]).stdout
                self.assertEqual(out.count("validation is on text that training sees, %s\n" % spelling), 1 if spelling else 0)
                self.assertEqual("validate step:" in out, spelling is not None)
                newest = sorted(os.listdir(self.path(folder, "checkpoint")))[-1]
                with open(self.path(folder, "checkpoint", newest, "state.json")) as file:
                    tokens = json.load(file)["data_tokens"]
                with open(self.path(folder, "metrics.jsonl")) as file:
                    seen.append((tokens, [json.loads(line)["loss"] for line in file]))
                if spelling:
                    self.refused(["eval", folder], "its training saw all of text.txt", "name a TEXT")
            self.assertEqual(seen[1:], seen[:1] * 3)  # as if nothing were validated

    def test_given_ranges_of_layers_these_are_recomputed_and_converted(self):
        self.job(apply="['model.layers.{1,3-5}']")
        self.assertEqual({name.split(".")[2] for name in self.converted()}, {"1"})
        self.job(apply="['model.layers.{0-0,1}']")
        self.assertEqual({name.split(".")[2] for name in self.converted()}, {"0", "1"})
        self.assertEqual(len(self.plan("--training.quantization_plan.apply_modules=model.layers.{0,1}.mlp,lm_head")), 15)

    def test_given_a_model_that_is_not_here_that_comes_before_all_else(self):
        self.job()
        with open(self.path("job.yaml")) as file:
            text = file.read().replace("model_id: llama", "model_id: qwen3_vl_moe").replace("seed: 5", "sead: 5")
        self.write("job.yaml", text)
        line = text[:text.index("sead")].count("\n") + 1
        for command in ("train", "plan"):
            self.refused_for([command, "job.yaml"],
                             "job.yaml:3: model.model_id: the model isn't supported",
                             "job.yaml:%d: training.sead: unknown key; the nearest known one is training.seed" % line)

    def test_given_patterns_of_the_guide_they_select_what_it_says(self):
        self.job(apply="['model.layers.0.self_attn']")
        self.assertEqual(self.converted(), {"model.layers.0.self_attn.%s_proj" % p for p in "qkvo"})
        self.job(ignored="['*q_proj', 'lm_head']")
        self.assertEqual(len(self.converted()), 12)
        self.assertIn("q_proj", self.plan()["model.layers.1.self_attn.q_proj"]["why"])
        self.job(apply="['model.layers.{1-1}', '*v_proj']")
        self.assertEqual(len(self.converted()), 8)

    def test_given_no_lists_the_defaults_are_the_guides(self):
        self.job()
        with open(self.path("job.yaml")) as file:
            lines = [l for l in file if not l.strip().startswith(("apply_modules", "ignored_modules", "quant_conv"))]
        self.write("job.yaml", "".join(lines))
        self.assertEqual(len(self.converted()), 14)
        self.assertFalse(self.plan()["lm_head"]["converted"])

    def test_given_a_gate_in_the_feed_forward_the_name_gate_does_not_match_it(self):
        self.job(ignored="['lm_head', 'gate']")
        self.assertIn("model.layers.0.mlp.gate_proj", self.converted())

    def test_given_a_recipe_string_it_means_the_same_as_its_name(self):
        losses = []
        for folder, recipe in (("a", "mxfp8"), ("b", "dynamic_MX-1-1-32_E4M3_E4M3_E4M3")):
            self.job(recipe=recipe)
            self.accepted(["train", "job.yaml", "--job.dump_folder=" + folder])
            with open(self.path(folder, "metrics.jsonl")) as file:
                losses.append([json.loads(line)["loss"] for line in file])
        self.assertEqual(*losses)

    def test_given_each_accepted_recipe_it_trains_and_others_list_what_is_accepted(self):
        for recipe in ("mxfp8-32x32", "hif8", "hif8_full_range", "delayed_pertensor_HiF8_HiF8_HiF8",
                       "dynamic_per_channel_E4M3_E4M3_E5M2", "dynamic_mx-1-32-32_E5M2_E5M2_E5M2"):
            self.job(recipe=recipe)
            self.accepted(["train", "job.yaml", "--job.dump_folder=" + recipe])
        for recipe in ("delayed_mx_E4M3_E4M3_E4M3", "dynamic_mx_HiF8_HiF8_HiF8", "nvfp4"):
            self.job(recipe=recipe)
            self.refused(["plan", "job.yaml"], "job.yaml:", "recipe_name", "mxfp8")

    def test_given_a_malformed_brace_or_no_recipe_it_is_refused(self):
        self.job(apply="['model.layers.{']")
        self.refused(["plan", "job.yaml"], "apply_modules", "job.yaml:")
        self.job(recipe="")
        self.refused(["plan", "job.yaml"], "recipe_name")

    def test_given_patterns_that_are_none_in_several_lists_all_are_told_at_once(self):
        self.job(apply="['model.layers.{']", ignored="['*lm_head', '{q}', 'gate', '{2-1}']")
        with open(self.path("job.yaml")) as file:
            text = file.read().replace("model:\n", "model:\n  freeze: ['}', 'lm_head']\n", 1)
        self.write("job.yaml", text + "features:\n  recompute: true\n  recompute_plan: ['a{', 'b}', '{*}']\n")
        at = {key: text[:text.index(key)].count("\n") + 1 for key in ("freeze", "apply_modules", "ignored_modules")}
        plan = "training.quantization_plan."
        for command in ("plan", "train"):
            self.refused_for([command, "job.yaml"],
                             'job.yaml:%d: model.freeze: pattern "}"' % at["freeze"],
                             'job.yaml:%d: features.recompute_plan: pattern "a{"' % (text.count("\n") + 3),
                             'job.yaml:%d: %sapply_modules: pattern "model.layers.{"' % (at["apply_modules"], plan),
                             'job.yaml:%d: %signored_modules: pattern "{q}"' % (at["ignored_modules"], plan))
        told = self.run_octet(["plan", "job.yaml"]).stderr.splitlines()
        self.assertTrue(told[1].endswith('; wrong as well: "b}"'), told[1])
        self.assertTrue(told[3].endswith('; wrong as well: "{2-1}"'), told[3])
        self.accepted(["plan", "job.yaml", "--" + plan + "recipe_name=none", "--model.freeze=", "--features.recompute_plan=[]"])

    def test_given_converters_that_find_nothing_their_own_line_is_named(self):
        self.job()
        lines = (JOB[:JOB.index("quant_converters")].count("\n") + 1, JOB[:JOB.index("recipe_name")].count("\n") + 1)
        result = self.accepted(["plan", "job.yaml"])
        self.assertIn("job.yaml:%d: training.quantization_plan.quant_converters: \"quantize.moe.mx\" converts nothing"
                      % lines[0], result.stdout + result.stderr)
        with open(self.path("job.yaml")) as file:
            text = file.read()
        self.write("job.yaml", text.replace("'quantize.linear.mx', ", ""))
        self.refused(["plan", "job.yaml"], "job.yaml:%d: " % lines[0], "quant_converters", "the model has no expert module")
        self.write("job.yaml", "".join(l for l in text.splitlines(True) if "quant_converters" not in l))
        result = self.accepted(["plan", "job.yaml"])  # the default's line is the plan's
        self.assertIn("job.yaml:%d: training.quantization_plan.recipe_name: \"quantize.moe.mx\"" % lines[1],
                      result.stdout + result.stderr)

    def test_given_no_pattern_to_apply_the_list_is_named(self):
        for config in (DENSE, EXPERTS):
            self.job(config, apply="[]")
            line = JOB[:JOB.index("apply_modules")].count("\n") + 1
            self.refused(["train", "job.yaml"], "job.yaml:%d: training.quantization_plan.apply_modules: " % line, "empty")

    def test_given_patterns_of_other_lists_their_own_line_is_named(self):
        self.job()
        with open(self.path("job.yaml")) as file:
            text = file.read()
        text = text.replace("parallel:\n  fsdp_plan:\n    param_dtype: bf16\n    reduce_dtype: fp32\n", "")
        end = text.count("\n")
        for section in ("features", "parallel"):
            for plan in ("['%s']", "{apply_modules: ['%s']}"):
                job = text + "%s:\n  recompute: true\n  recompute_plan: %s\n" % (section, plan)
                key = "recompute_plan.apply_modules" if "apply_modules" in plan else "recompute_plan"
                place = "job.yaml:%d: %s.%s: " % (end + 3, section, key)
                self.write("job.yaml", job % "model.layers.{2-1}")
                self.refused(["plan", "job.yaml"], place, "malformed brace")
                self.write("job.yaml", job % "model.layers.{*}")
                self.assertNotIn("matches no layer", self.accepted(["plan", "job.yaml"]).stderr)
                self.write("job.yaml", job % "model.layer.0")
                self.assertIn(place + '"model.layer.0" matches no layer', self.accepted(["plan", "job.yaml"]).stderr)
        freeze = text.replace("model_id", "freeze: ['%s']\n  model_id")
        place = "job.yaml:3: model.freeze: "
        self.write("job.yaml", freeze % "model.layers.{")
        self.refused(["plan", "job.yaml"], place, "malformed brace")
        for name, told in (("model.embed_tokens", False), ("lm_head", False), ("model.layers.1", False),
                           ("*.layers.{2-3}", True), ("visual", True)):
            self.write("job.yaml", freeze % name)
            error = self.accepted(["plan", "job.yaml"]).stderr
            self.assertEqual(place + '"%s" matches no module' % name in error, told, error)

    def test_given_a_pattern_of_nothing_the_nearest_names_are_told(self):
        self.job(apply="['model.layers.{*}.self_atn']")
        self.refused(["plan", "job.yaml"], "self_atn", "self_attn")

    def test_given_anchors_a_job_reads_as_if_written_out(self):
        self.job()
        with open(self.path("job.yaml")) as file:
            text = file.read()
        text = text.replace("apply_modules: ['model.layers.{*}']", "apply_modules: &all ['model.layers.{*}']")
        self.write("job.yaml", text + "features:\n  recompute: true\n  recompute_plan: *all\n")
        wire = json.loads(self.accepted(["plan", "job.yaml", "--json", "--ranks", 2]).stdout)["wire"]
        self.assertAlmostEqual(wire["converted_to_bf16"], 1.03125)  # recompute: on-demand became all

    def test_given_options_of_experts_a_dense_model_refuses_each(self):
        options = ["recipe_name=hif8", "scale_mode=floor", "gemm=exact",
                   "enable_fsdp_low_precision_all_gather=true", "fsdp_low_precision_all_gather_mode=on-demand"]
        for config in (DENSE, EXPERTS):
            self.job(config)
            for option in options:
                option = "--quantize.grouped_mm.mx." + option
                if config is EXPERTS:
                    self.accepted(["plan", "job.yaml", option])
                    continue
                for command in ("plan", "train", "compare"):
                    self.refused([command, "job.yaml", option], "command line: " + option.split("=")[0],
                                 "the model has no experts")
        self.job(DENSE)  # all of them at once, and what asks for nothing
        error = self.run_octet(["plan", "job.yaml", *("--quantize.grouped_mm.mx." + o for o in options[1:])]).stderr
        self.assertEqual(error.count("the model has no experts"), len(options) - 1, error)
        self.accepted(["plan", "job.yaml", "--quantize.grouped_mm.mx.enable_fsdp_low_precision_all_gather=false",
                       "--quantize.grouped_mm.mx.scale_mode=none"])

    def test_given_another_recipe_a_resumed_run_tells_it_once(self):
        self.job()
        self.accepted(["train", "job.yaml"])
        plan = "--training.quantization_plan."
        result = self.accepted(["train", "job.yaml", "--training.train_iters=4", plan + "recipe_name=mxfp8-32x32",
                                plan + "enable_fsdp_low_precision_all_gather=false"])
        told = [line.split("resumed with another ")[1] for line in (result.stdout + result.stderr).splitlines()
                if "resumed with another " in line]
        self.assertEqual(told, [
            'training.quantization_plan.recipe_name: was "mxfp8", is "mxfp8-32x32"',
            'training.quantization_plan.enable_fsdp_low_precision_all_gather: was true, is false'])

    def test_given_a_compare_each_checkpoint_evaluates_to_the_loss_that_was_logged(self):
        for config in (DENSE, EXPERTS):
            self.job(config, recipe="hif8_15_224")
            recipes, logged = ("bf16", "fp32", "mxfp8", "hif8"), {}
            command = ["compare", "job.yaml", "--recipes", ",".join(recipes), "--validation.steps=2"]
            for key in ("quantize.linear.mx", "training.quantization_plan"):  # no arm would use it
                self.refused(command + ["--%s.recipe_name=hif8_full_range" % key], key + ".recipe_name: each run's recipe is one of --recipes")
            self.accepted(command)
            for recipe in recipes:
                with open(self.path("out", "compare", recipe, "metrics.jsonl")) as file:
                    logged[recipe] = json.loads(file.read().splitlines()[-1])["validation_loss"]
                result = json.loads(self.accepted(["eval", "out/compare/" + recipe, "--json"]).stdout)
                self.assertAlmostEqual(result["loss"], logged[recipe], delta=1e-8, msg=recipe)
                plan = json.loads(self.accepted(["plan", "out/compare/" + recipe, "--json"]).stdout)["modules"]
                self.assertEqual({row["recipe"].split()[0] for row in plan if row["converted"]}, {recipe} & {"mxfp8", "hif8"})
            self.assertEqual(len(set(logged.values())), len(recipes))


if __name__ == "__main__":
    main()
