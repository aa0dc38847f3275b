"""Linears with recipes of their own: [[quantize.linear.mx.override]] and the first and last layers."""
import json

from program import main
from training import JOB, Training

ON = JOB.replace('flavor = "demo"', 'flavor = "demo"\nconverters = ["quantize.linear.mx"]') + "[quantize.linear.mx]\n"
OVERRIDE = "[[quantize.linear.mx.override]]\nfqns = %s\nrecipe_name = \"%s\"\n"


class Overrides(Training):
    def recipes(self, text, *args):
        self.write("own.toml", text)
        rows = json.loads(self.accepted(["plan", "own.toml", "--json", *args]).stdout)["modules"]
        return {row["name"]: row["recipe"].split()[0] if row["converted"] else "kept" for row in rows}

    def test_given_overrides_the_last_that_names_a_linear_decides(self):
        text = ON + OVERRIDE % ('["feed_forward.w2", "layers.1.attention"]', "hif8") + OVERRIDE % ('["layers.1.attention.wo"]', "bf16") \
            + OVERRIDE % ('["output"]', "mxfp8-32x32")
        recipes = self.recipes(text)
        expected = {name: "hif8" if "w2" in name or "layers.1.attention" in name else "mxfp8" for name in recipes}
        expected.update({"layers.1.attention.wo": "kept", "output": "mxfp8-32x32"})  # of filter_fqns too
        self.assertEqual(recipes, expected)
        self.assertEqual(len(recipes), 15)

    def test_given_first_and_last_layers_they_stay_high(self):
        text = ON.replace("n_layers = 2", "n_layers = 12") + "num_layers_at_start_in_bf16 = 1\nnum_layers_at_end_in_bf16 = 2\n"
        for name, recipe in self.recipes(text).items():
            high = name == "output" or name.split(".")[1] in ("0", "10", "11")
            self.assertEqual(recipe, "kept" if high else "mxfp8", name)
        self.refused(["plan", "own.toml", "--quantize.linear.mx.num_layers_at_start_in_bf16=13"],
                     "num_layers_at_start_in_bf16: expected at most the model's 12 layers; got 13")

    def test_given_a_linear_with_a_recipe_of_its_own_it_trains_by_it(self):
        def losses(text, *args):
            self.write("own.toml", text)
            self.accepted(["train", "own.toml", *args])
            return [json.loads(line)["loss"] for line in self.text_of("out", "metrics.jsonl").splitlines()]
        # All linears overridden is the other recipe everywhere; none is none.
        whole = OVERRIDE % ('["layers."]', "%s")
        for recipe in ("hif8", "mxfp8_cublas", "delayed_hif8_pertensor"):
            self.assertEqual(losses(ON + whole % recipe), losses(ON + 'recipe_name = "%s"\n' % recipe), recipe)
        self.assertEqual(losses(ON + whole % "bf16"), losses(JOB))
        one = losses(ON + OVERRIDE % ('["layers.0.attention.wq"]', "hif8"))
        self.assertNotIn(one, (losses(ON), losses(ON + 'recipe_name = "hif8"\n')))

    def test_given_overrides_a_checkpoint_goes_on_with_them_and_warns_of_others(self):
        self.write("own.toml", ON + OVERRIDE % ('["layers.0."]', "hif8"))
        self.accepted(["train", "own.toml", "--checkpoint.enable"])
        recipes = json.loads(self.accepted(["plan", "out", "--json"]).stdout)["modules"]
        self.assertEqual({row["recipe"].split()[0] for row in recipes if row["name"].startswith("layers.0.")}, {"hif8"})
        go_on = ["train", "own.toml", "--checkpoint.enable", "--training.steps=5"]
        self.assertNotIn("resumed with another", self.accepted(go_on).stdout)
        self.write("own.toml", ON + OVERRIDE % ('["layers.1."]', "hif8"))
        self.assertIn("resumed with another quantize.linear.mx.override", self.accepted(go_on[:-1] + ["--training.steps=6"]).stdout)

    def test_given_the_command_line_it_takes_them_as_yaml_in_both_forms(self):
        override = "--quantize.linear.mx.override=[{fqns: [layers.1.], recipe_name: hif8}]"
        recipes = self.recipes(ON, override)
        self.assertEqual({r for n, r in recipes.items() if n.startswith("layers.1.")}, {"hif8"})
        self.assertEqual({r for n, r in recipes.items() if n.startswith("layers.0.")}, {"mxfp8"})

    def test_given_an_option_that_an_override_alone_uses_it_is_taken(self):
        # The job's own recipe is mxfp8, which keeps no amaxes; and hif8, which has no block scales.
        for own, other, option in (("mxfp8", "delayed_hif8_pertensor", "amax_history_len=4"), ("hif8", "mxfp8", "scale_mode=floor")):
            option = "--quantize.linear.mx." + option
            self.write("own.toml", ON + 'recipe_name = "%s"\n' % own)
            self.refused(["plan", "own.toml", option], option.partition("=")[0], "the recipe %s " % own)
            self.write("own.toml", ON + 'recipe_name = "%s"\n' % own + OVERRIDE % ('["layers.1."]', other))
            self.accepted(["plan", "own.toml", option])

    def test_given_a_table_that_is_wrong_it_is_refused_with_its_line(self):
        line = ON.count("\n") + 1
        for table, said in (('fqn = ["a"]\nrecipe_name = "hif8"', "override.fqn: unknown key; expected fqns"),
                            ('fqns = []\nrecipe_name = "hif8"', "override.fqns: names no module"),
                            ('fqns = [""]\nrecipe_name = "hif8"', "override.fqns: an item names no module"),
                            ('fqns = "a"\nrecipe_name = "hif8"', "override.fqns: names no module"),
                            ('recipe_name = "hif8"', "override.fqns: the key is missing"),
                            ('fqns = ["a"]', "override.recipe_name: the key is missing"),
                            ('fqns = ["a"]\nrecipe_name = 7', "override.recipe_name: the wrong type"),
                            ('fqns = ["a"]\nrecipe_name = "mxfp9"', 'did you mean "mxfp8"?')):
            self.write("own.toml", ON + "[[quantize.linear.mx.override]]\n" + table + "\n")
            self.refused(["plan", "own.toml"], "own.toml:%d: quantize.linear.mx.override" % line, said)
        self.write("own.toml", ON + "override = [5]\n")
        self.refused(["plan", "own.toml"], "quantize.linear.mx.override: an item is no table")
        self.write("own.toml", ON + "override = 5\n")
        self.refused(["plan", "own.toml"], "own.toml:%d: quantize.linear.mx.override" % line)
        self.write("own.toml", ON + OVERRIDE % ('["lyers.0"]', "hif8"))
        result = self.run_octet(["plan", "own.toml"])
        self.assertEqual(result.returncode, 2)
        self.assertIn('quantize.linear.mx.override: "lyers.0" matches no module', result.stderr)


main()
