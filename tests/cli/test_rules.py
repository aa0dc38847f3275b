"""quantize.rules as a user meets it: what plan says of each framework, what a YAML job's options do, and resuming."""
import ctypes
import ctypes.util
import json
import os
import re
import shutil

from program import main
from test_yaml import EXPERTS, Yaml
from training import Training

YAML_JOB = Yaml.job
del Yaml  # its own tests run in its own file

MX = "--model.converters=quantize.linear.mx"
PLAN = "--training.quantization_plan."
EXPERTS_TOML = ["--model.name=deepseek_v3", "--model.flavor=demo", "--model.converters=npu_gmm,quantize.linear.mx,"
                "quantize.grouped_mm.mx", "--model.args.moe_inter_dim=40", "--model.args.num_experts=4",
                "--model.args.top_k=2", "--model.args.num_expert_groups=1", "--model.args.num_limited_groups=1"]


def finds(pattern, name):
    """MindSpeed's module_name_match (mindspeed/fsdp/utils/str_match.py): ValueError as there, anchored at both ends."""
    ranges = []

    def brace(match):
        inner = match.group(1)
        if inner == "*":
            ranges.append(None)
        elif "-" in inner:
            if len(inner.split("-")) != 2:
                raise ValueError("Invalid brace pattern")
            try:
                ranges.append([int(part) for part in inner.split("-")])
            except ValueError:
                raise ValueError("Non-integer in range") from None
        else:
            raise ValueError("Unrecognized brace pattern")
        return "\0"
    text = re.sub(r"\{([^}]*)\}", brace, pattern)
    signs = {"\0": r"(\d+)", "*": ".*", "?": "."}
    found = re.match("^" + "".join(signs.get(c, re.escape(c)) for c in text) + "$", name)
    return bool(found) and all(r is None or r[0] <= int(n) <= r[1] for n, r in zip(found.groups(), ranges))


class Rules(Training):
    job = YAML_JOB

    def whole_plan(self, *args):
        return json.loads(self.accepted(["plan", *args, "--json"]).stdout)

    def notes(self, *args):
        return {row["name"]: row["framework"] or "" for row in self.whole_plan(*args)["modules"]}

    def losses(self, *args, folder="losses"):
        self.accepted(["train", *args, "--job.dump_folder=" + folder])
        with open(self.path(folder, "metrics.jsonl")) as file:
            return [json.loads(line)["loss"] for line in file]

    # ---- plan ----

    def test_given_each_set_plan_tells_what_holds_for_each_role(self):
        modes = {"octet": ("rceil", "rceil"), "torchtitan-npu@0.2.2": ("rceil", "rceil"),
                 "mindspeed@2026-07": ("floor", "floor"), "torchtitan@0.2.2": ("floor", "floor")}
        targets = {"octet": [15, 15, 224], "torchtitan-npu@0.2.2": [32768] * 3, "mindspeed@2026-07": [15, 15, 224],
                   "torchtitan@0.2.2": [15, 15, 224]}
        for name in modes:
            plan = self.whole_plan("job.toml", MX, "--quantize.rules=" + name)
            self.assertEqual(plan["rules"], name)
            self.assertEqual([(r["role"], (r["scale_mode"], r["wgrad_scale_mode"])) for r in plan["roles"]],
                             [(role, modes[name]) for role in ("input", "weight", "gradient")])
            self.assertEqual("rounded to bf16" in plan["weight_gradients"], name != "octet")
            self.assertEqual("bf16" in plan["roles"][1]["from"], name != "octet")
            plan = self.whole_plan("job.toml", MX, "--quantize.rules=" + name, "--quantize.linear.mx.recipe_name=hif8")
            self.assertEqual([r["target"] for r in plan["roles"]], targets[name])
            text = self.accepted(["plan", "job.toml", MX, "--quantize.rules=" + name]).stdout
            self.assertIn("rules: " + name, text)
            self.assertRegex(text, r"linears +weight +E4M3 .*scale: %s" % modes[name][0])
        self.assertEqual(self.whole_plan("job.toml", MX)["rules"], "torchtitan-npu@0.2.2")
        experts = [r for r in self.whole_plan("job.toml", *EXPERTS_TOML)["roles"] if r["modules"] == "experts"]
        self.assertEqual([(r["scale_mode"], r["wgrad_scale_mode"]) for r in experts],
                         [("rceil", "floor"), ("rceil", "rceil"), ("rceil", "floor")])
        self.assertIn("rceil, in wgrad floor", self.accepted(["plan", "job.toml", *EXPERTS_TOML]).stdout)

    def test_given_a_scale_mode_it_wins_over_rules_and_not_over_names(self):
        for recipe in ("mxfp8", "mxfp8-32x32"):
            plan = self.whole_plan("job.toml", *EXPERTS_TOML, "--quantize.grouped_mm.mx.recipe_name=" + recipe,
                                   "--quantize.grouped_mm.mx.scale_mode=even")
            self.assertEqual({r[k] for r in plan["roles"] if r["modules"] == "experts"
                              for k in ("scale_mode", "wgrad_scale_mode")}, {"even"})
        self.refused(["plan", "job.toml", MX, "--quantize.linear.mx.recipe_name=mxfp8_cublas",
                      "--quantize.linear.mx.scale_mode=even"],
                     "--quantize.linear.mx.scale_mode", '"floor" or none', '--quantize.linear.mx.recipe_name = "mxfp8_cublas"')

    def test_given_a_recipe_without_its_converter_train_refuses_and_compare_takes_it_for_its_arms(self):
        option = "--quantize.linear.mx.scale_mode=floor"
        for command in ("train", "plan"):
            self.refused([command, "job.toml", option], option[:-6], "quantize.linear.mx in model.converters")
        self.accepted(["compare", "job.toml", "--recipes", "bf16,mxfp8,hif8", option, "--training.steps=1"])

    def test_given_experts_of_hif8_plan_says_how_rows_share_scales(self):
        hif8 = ["--quantize.linear.mx.recipe_name=hif8", "--quantize.grouped_mm.mx.recipe_name=hif8"]
        for more, scales, note in (([], "one an expert's rows", 'groups = "upstream" reproduces it'),
                                   (["--quantize.grouped_mm.mx.groups=upstream"], "equal parts", "are reproduced"),
                                   (["--quantize.rules=mindspeed@2026-07"], "for all experts' rows", "refused: FSDP2")):
            plan = self.whole_plan("job.toml", *EXPERTS_TOML, *hif8, *more)
            inputs = [r for r in plan["roles"] if r["modules"] == "experts" and r["role"] == "input"]
            self.assertIn(scales, inputs[0]["scales"])
            notes = [row["framework"] for row in plan["modules"] if row["name"].endswith("moe.experts")]
            self.assertIn(note, notes[0])

    def test_given_rules_without_groups_of_their_own_upstream_is_refused(self):
        for name in ("octet", "torchtitan@0.2.2"):
            self.refused(["plan", "job.toml", *EXPERTS_TOML, "--quantize.grouped_mm.mx.groups=upstream",
                          "--quantize.grouped_mm.mx.recipe_name=hif8", "--quantize.rules=" + name], "quantize.grouped_mm.mx.groups", name, "torchtitan-npu@0.2.2")

    def test_given_torchtitan_npu_what_it_skips_and_refuses_is_told(self):
        notes = self.notes("job.toml", *EXPERTS_TOML)
        self.assertIn("skipped: 0.2.2 looks for the product", notes["layers.1.moe.experts"])
        self.assertEqual(notes["layers.1.attention.wo"], "")
        notes = self.notes("job.toml", MX, "--quantize.linear.mx.recipe_name=mxfp8_cublas")
        self.assertIn("refused: recipe_name is mxfp8 or hif8", notes["layers.0.attention.wq"])
        self.assertEqual(notes["output"], "")
        self.assertEqual(set(self.notes("job.toml", MX, "--quantize.rules=octet").values()), {""})

    def test_given_torchtitan_dimensions_that_16_does_not_divide_are_told(self):
        args = ["job.toml", MX, "--quantize.rules=torchtitan@0.2.2", "--model.args.hidden_dim=100"]
        for recipe in ([], ["--quantize.linear.mx.recipe_name=mxfp8_cublas"]):
            notes = self.notes(*args, *recipe)
            self.assertIn("divisible by 16; these are 100 and 64", notes["layers.0.feed_forward.w1"])
            self.assertEqual(notes["layers.0.attention.wq"], "")
        notes = self.notes(*args, "--quantize.linear.mx.recipe_name=mxfp8")
        self.assertIn("refused: linears take mxfp8_cublas", notes["layers.0.attention.wq"])
        notes = self.notes("job.toml", *EXPERTS_TOML, "--quantize.rules=torchtitan@0.2.2")
        self.assertIn("skipped: quantize.grouped_mm.mx.fqns names nothing", notes["layers.1.moe.experts"])

    def test_given_no_recipe_the_default_is_that_of_the_rules(self):
        args = ["job.toml", MX]
        for rules, recipe, mode in (("torchtitan@0.2.2", "mxfp8_cublas", "floor"), ("octet", "mxfp8", "rceil"),
                                    ("torchtitan-npu@0.2.2", "mxfp8", "rceil"), ("mindspeed@2026-07", "mxfp8", "floor")):
            plan = self.whole_plan(*args, "--quantize.rules=" + rules)
            self.assertEqual({row["recipe"] for row in plan["modules"] if row["converted"]}, {recipe})
            self.assertEqual({role["scale_mode"] for role in plan["roles"]}, {mode})
            self.assertNotIn("refused", "".join(row["framework"] or "" for row in plan["modules"]))
        # torchtitan-npu inherits torchtitan's default, and doesn't know that name
        told = "refused: quantize.linear.mx.recipe_name isn't written"
        text = self.accepted(["plan", *args]).stdout
        self.assertEqual(text.count(told), 1)
        self.assertIn("mxfp8_cublas", text[text.index(told):])
        self.assertIn(told, self.whole_plan(*args)["framework"])
        for more in (["--quantize.linear.mx.recipe_name=mxfp8"], ["--model.converters="],
                     ["--quantize.rules=octet"], ["--quantize.rules=torchtitan@0.2.2"]):
            self.assertIsNone(self.whole_plan(*args, *more)["framework"])

    def test_given_mindspeed_its_gather_matcher_and_recipes_are_told(self):
        self.job(EXPERTS)
        notes = self.notes("job.yaml")
        self.assertIn("divisible by 64; these are 32 and 64", notes["model.layers.0.self_attn.k_proj"])
        self.assertEqual(notes["model.layers.0.self_attn.q_proj"], "")
        self.assertEqual(notes["model.layers.0.mlp.gate"], "")  # '*gate' finds it
        self.assertIn("divisible by 64", notes["model.layers.0.mlp.experts"])
        off = "--training.quantization_plan.no-enable_fsdp_low_precision_all_gather"
        self.assertNotIn("divisible", "".join(self.notes("job.yaml", off).values()))
        self.job(EXPERTS, ignored="['lm_head', 'gate']")
        notes = self.notes("job.yaml")
        self.assertRegex(notes["model.layers.0.mlp.gate"], r'converted: .* "gate" doesn.t find it; write "\*\.gate" \(mind')
        self.assertEqual(notes["lm_head"], "")
        self.job(apply="['model.layers.0.self_attn']")
        self.assertIn("skipped: the first of apply_modules", self.notes("job.yaml")["model.layers.0.self_attn.q_proj"])
        self.job(recipe="hif8")
        self.assertIn("refused: FSDP2 takes mxfp8 and mxfp8-32x32", self.notes("job.yaml")["model.layers.0.self_attn.q_proj"])

    def test_given_ignored_patterns_that_mindspeed_does_not_find_the_advice_helps(self):
        for pattern, advice in (("*self_attn", "*self_attn.*"), ("model.layers.0", "model.layers.0.*"),
                                ("self_attn", "*.self_attn.*"), ("gate", "*.gate"), ("mlp", "*.mlp.*"),
                                ("model.layers.{0-0}", "model.layers.{0-0}.*"), ("0", "*.0.*"), ("*.?.mlp", "*.?.mlp.*")):
            self.job(EXPERTS, ignored="['*lm_head', '%s']" % pattern)
            rows = self.whole_plan("job.yaml", PLAN + "no-enable_fsdp_low_precision_all_gather")["modules"]
            told = {row["name"]: re.search(r'so that "(.*)" doesn.t find it; write "(.*)"', row["framework"])
                    for row in rows if "find it" in (row["framework"] or "")}
            kept = {row["name"] for row in rows if not row["converted"] and row["shape"][0] and "experts" not in row["name"]}
            self.assertEqual(set(told), kept - {"lm_head"}, pattern)
            self.assertTrue(told)
            for name, match in told.items():
                self.assertEqual(match.groups(), (pattern, advice))
                self.assertEqual((finds(pattern, name), finds(advice, name)), (False, True), name)
            self.job(EXPERTS, ignored="['*lm_head', '%s']" % advice)
            after = self.whole_plan("job.yaml", PLAN + "no-enable_fsdp_low_precision_all_gather")["modules"]
            self.assertNotIn("find it", "".join(row["framework"] or "" for row in after))
            self.assertEqual([row["converted"] for row in after], [row["converted"] for row in rows])

    def test_given_braces_that_mindspeed_raises_at_they_are_told_as_refused(self):
        for pattern in ("model.layers.{0-20,22-40}", "model.layers.{0,1-3}", "model.layers.{0}", "model.layers.{0,1}"):
            with self.assertRaises(ValueError) as raised:
                finds(pattern, "model.layers.0")
            for lists in ({"apply": "['%s']" % pattern}, {"ignored": "['lm_head', '%s.mlp']" % pattern}):
                self.job(**lists)
                told = self.whole_plan("job.yaml")["framework"]
                self.assertIn('raises ValueError "%s"' % raised.exception, told)
                self.assertRegex(told, r'^refused: "%s.*" of training.quantization_plan.(apply|ignored)' % re.escape(pattern))
                self.assertIn(told, self.accepted(["plan", "job.yaml"]).stdout)
        for pattern in ("model.layers.{*}", "model.layers.{0-1}"):
            self.assertTrue(finds(pattern, "model.layers.0"))
            self.job(apply="['%s']" % pattern)
            self.assertIsNone(self.whole_plan("job.yaml")["framework"])

    def test_given_a_plan_without_its_lists_what_mindspeeds_own_defaults_do_is_told(self):
        lists = ("apply_modules", "ignored_modules", "quant_converters")
        for left_out in ([], lists[:1], lists[1:2], lists[2:], lists):
            self.job(EXPERTS)
            with open(self.path("job.yaml")) as file:
                lines = [line for line in file if not line.strip().startswith(tuple(left_out) or "never")]
            self.write("job.yaml", "".join(lines))
            plan = self.whole_plan("job.yaml", PLAN + "no-enable_fsdp_low_precision_all_gather")
            notes = {row["name"]: row["framework"] for row in plan["modules"] if row["framework"]}
            if not left_out:
                self.assertIsNone(plan["framework"])
                continue
            self.assertIn("not written in training.quantization_plan: %s; octet" % ", ".join(left_out), plan["framework"])
            self.assertIn("the code of mindspeed@2026-07 has []", plan["framework"])
            ignores_nothing = tuple(left_out) == ("ignored_modules",)
            self.assertIn("ignore nothing" if ignores_nothing else "convert nothing", plan["framework"])
            gates = ["model.layers.%d.mlp.gate" % i for i in range(2)] if ignores_nothing else []
            self.assertEqual(sorted(notes), gates)  # that they are converted there; no word of a pattern
            self.assertNotIn("write", "".join(notes.values()))
            self.assertEqual(self.accepted(["plan", "job.yaml"]).stdout.count("not written in"), 1)
        # MindSpeed LLM's words have defaults of their own.
        self.write("job.yaml", "".join(lines[:[i for i, l in enumerate(lines) if "quantization_plan" in l][0]])
                   .replace("  model_id", "  quant_recipe_name: mxfp8\n  model_id"))
        self.assertIsNone(self.whole_plan("job.yaml")["framework"])

    def test_given_modules_that_the_framework_treats_otherwise_a_run_warns_once(self):
        args = ["job.toml", MX, "--quantize.linear.mx.recipe_name=mxfp8_cublas"]
        n = len([note for note in self.notes(*args).values() if note])
        self.assertEqual(n, 14)
        for options, count in (([], 14), (["--quantize.rules=torchtitan@0.2.2"], None), (["--quantize.rules=octet"], None),
                               (["--quantize.linear.mx.recipe_name=mxfp8"], None)):
            result = self.accepted(["train", *args, *options])
            out = result.stdout + result.stderr
            self.assertEqual(out.count("itself would"), 1 if count else 0, out)
            if count:
                self.assertIn("itself would skip, refuse or convert otherwise 14 of these 15 modules; `octet plan`", out)
        out = self.accepted(["train", *args[:2]]).stdout  # a default that is refused there
        self.assertIn("otherwise 14 of these 15 modules; `octet plan`", out)
        out = self.accepted(["train", "job.toml"]).stdout
        self.assertNotIn("itself would", out)

    # ---- options count ----

    def test_given_recipes_on_the_command_line_of_a_yaml_job_they_are_trained(self):
        self.job()
        planned = self.losses("job.yaml")
        given = self.losses("job.yaml", "--quantize.linear.mx.recipe_name=hif8", folder="given")
        self.job(recipe="hif8")
        self.assertEqual(given, self.losses("job.yaml", folder="hif8"))
        self.assertNotEqual(given, planned)
        self.job()
        for i, option in enumerate(("--quantize.linear.mx.scale_mode=rceil", "--quantize.rules=octet")):
            self.assertNotEqual(self.losses("job.yaml", option, folder=str(i)), planned)
        self.refused(["train", "job.yaml", "--model.converters=quantize.linear.mx"], "quant_converters")
        self.refused(["train", "job.yaml", "--training.quantization_plan.recipe_name="], "the value is empty")
        self.assertEqual(self.whole_plan("job.yaml", "--training.quantization_plan.recipe_name=none")["linears_converted"], 0)

    def test_given_rules_in_a_file_of_either_form_they_hold(self):
        self.job()
        with open(self.path("job.yaml"), "a") as file:
            file.write("quantize:\n  rules: octet\n")
        self.assertEqual(self.whole_plan("job.yaml")["rules"], "octet")
        with open(self.path("job.toml"), "a") as file:
            file.write('[quantize]\nrules = "mindspeed@2026-07"\n')
        self.assertEqual(self.whole_plan("job.toml", MX)["rules"], "mindspeed@2026-07")
        self.refused(["plan", "job.toml", "--quantize.rules=mindspeed"], "quantize.rules", "mindspeed@2026-07")

    def test_given_a_run_one_line_says_which_rules_are_in_force(self):
        for args, name in (([], "torchtitan-npu@0.2.2"), (["--quantize.rules=octet"], "octet")):
            out = self.accepted(["train", "job.toml", *args]).stdout
            self.assertEqual(re.findall(r"Rules in force: (\S+)", out), [name])

    # ---- checkpoints ----

    def forget_the_rules(self, folder):
        """Makes a checkpoint one of a version that knew no rules."""
        lib = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
        lib.XXH3_64bits.restype = ctypes.c_uint64
        lib.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        with open(self.path(folder, "state.json")) as file:
            state = json.load(file)
        self.assertIn(state.pop("rules"), ("octet", "torchtitan-npu@0.2.2"))
        text = json.dumps(state)
        with open(self.path(folder, "state.json"), "rb") as file:
            old = file.read()
        with open(self.path(folder, "manifest.json")) as file:
            manifest = file.read()
        before = "%016x" % lib.XXH3_64bits(old, len(old))
        self.assertIn(before, manifest)
        manifest = manifest.replace(before, "%016x" % lib.XXH3_64bits(text.encode(), len(text)))
        manifest = re.sub(r'("state\.json": \{[^}]*"bytes": )\d+', r"\g<1>%d" % len(text), manifest)
        self.write(folder + "/state.json", text)
        self.write(folder + "/manifest.json", manifest)

    def test_given_a_checkpoint_that_records_no_rules_the_run_goes_on_by_octets(self):
        run = ["job.toml", MX, "--checkpoint.enable"]
        whole = self.losses(*run, "--quantize.rules=octet", folder="whole")
        self.losses(*run, "--quantize.rules=octet", "--training.steps=2", "--lr_scheduler.total_steps=4", folder="old")
        self.forget_the_rules("old/checkpoint/step-2")
        result = self.accepted(["train", *run, "--lr_scheduler.total_steps=4", "--job.dump_folder=old"])
        out = result.stdout + result.stderr
        self.assertRegex(out, r"WARNING.*goes on with quantize.rules = octet.*a version that knew no others")
        self.assertIn("Rules in force: octet", out)
        self.assertNotIn("resumed with another quantize", out)
        with open(self.path("old", "metrics.jsonl")) as file:
            self.assertEqual([json.loads(line)["loss"] for line in file], whole)
        with open(self.path("old", "checkpoint", "step-4", "state.json")) as file:
            self.assertEqual(json.load(file)["rules"], "octet")

    def test_given_a_checkpoint_of_other_rules_it_goes_on_by_them_unless_told(self):
        run = ["train", "job.toml", MX, "--checkpoint.enable"]
        self.accepted(run + ["--quantize.rules=mindspeed@2026-07", "--training.steps=2"])
        result = self.accepted(run + ["--training.steps=4"])
        self.assertIn("Rules in force: mindspeed@2026-07", result.stdout)
        result = self.accepted(run + ["--training.steps=6", "--quantize.rules=framework"])
        self.assertIn("Rules in force: torchtitan-npu@0.2.2", result.stdout)
        self.assertIn("resumed with another quantize.rules", result.stdout + result.stderr)

    def test_given_newer_folders_that_are_not_gone_on_from_their_rules_count_for_nothing(self):
        run = ["train", "job.toml", MX, "--checkpoint.enable", "--checkpoint.keep_latest_k=0"]
        mindspeed, octet = "--quantize.rules=mindspeed@2026-07", "--quantize.rules=octet"
        self.accepted(run + [mindspeed, "--checkpoint.interval=2", "--training.steps=2"])
        self.accepted(run + [octet, "--job.dump_folder=other"])
        shutil.copytree(self.path("out"), self.path("kept"))
        states = [b'{"rules": "future@9"}', b'{"rules": "octet"}', b"no json", b"[]", b"", b"\0\xff{"]
        with open(self.path("other", "checkpoint", "step-4", "state.json"), "rb") as file:
            whole = file.read()
        states += [whole, whole[:len(whole) // 2], whole.replace(b"octet", b"octes")]
        for i, state in enumerate(states):
            for base in ([], ["other/checkpoint/step-4"]):  # alone, or in a checkpoint of another step
                shutil.rmtree(self.path("out"))
                shutil.copytree(self.path("kept"), self.path("out"))
                junk = self.path("out", "checkpoint", "step-50")
                shutil.copytree(self.path(base[0]), junk) if base else os.makedirs(junk)
                with open(os.path.join(junk, "state.json"), "wb") as file:
                    file.write(state)
                with self.subTest(state=i, base=base):
                    result = self.accepted(run + ["--training.steps=3"])
                    self.assertIn("Rules in force: mindspeed@2026-07", result.stdout)
                    said = result.stdout + result.stderr
                    self.assertIn("Resumed from out/checkpoint/step-2", said)
                    self.assertEqual(said.count("checkpoint step-50 is skipped"), 1)
                    self.assertEqual(said.count("this run goes on with quantize.rules"), 1)

    def test_given_a_damaged_newest_checkpoint_the_rules_are_those_of_the_one_before(self):
        run = ["train", "job.toml", MX, "--checkpoint.enable", "--checkpoint.keep_latest_k=0"]
        self.accepted(run + ["--quantize.rules=mindspeed@2026-07", "--training.steps=2"])
        self.accepted(run + ["--quantize.rules=octet", "--training.steps=4", "--checkpoint.last_save_model_only"])
        shutil.copytree(self.path("out"), self.path("kept"))
        for damage in ("", "state.json", "model-00001-of-00001.safetensors", "manifest.json"):
            shutil.rmtree(self.path("out"))
            shutil.copytree(self.path("kept"), self.path("out"))
            if damage:
                path = self.path("out", "checkpoint", "step-4", damage)
                os.truncate(path, os.path.getsize(path) // 2)
            with self.subTest(damage=damage):
                result = self.accepted(run + ["--training.steps=5"])
                self.assertIn("Rules in force: mindspeed@2026-07", result.stdout)
                self.assertIn("Resumed from out/checkpoint/step-2", result.stdout + result.stderr)
        # the checkpoint that is named is the one whose rules hold
        shutil.rmtree(self.path("out"))
        shutil.copytree(self.path("kept"), self.path("out"))
        result = self.accepted(run + ["--training.steps=4", "--checkpoint.load_step=4"])
        self.assertIn("Rules in force: octet", result.stdout)

    def test_given_a_whole_initial_checkpoint_its_rules_hold(self):
        run = ["train", "job.toml", MX, "--checkpoint.enable"]
        self.accepted(run + ["--quantize.rules=mindspeed@2026-07", "--training.steps=2"])
        start = ["--job.dump_folder=new", "--checkpoint.initial_load_path=out/checkpoint/step-2"]
        whole = self.accepted(run + start + ["--checkpoint.no-initial_load_model_only"])
        self.assertIn("Rules in force: mindspeed@2026-07", whole.stdout)
        weights = self.accepted(run + start + ["--job.dump_folder=weights"])
        self.assertIn("Rules in force: torchtitan-npu@0.2.2", weights.stdout)


if __name__ == "__main__":
    main()
