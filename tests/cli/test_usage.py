"""What a user sees who types the command line wrong: one line that names the neighbour, status 2."""
import os
import re
import shlex

from program import Program, main

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class Usage(Program):
    def test_given_no_command_help_is_named(self):
        self.refused([], "octet --help")

    def test_given_a_misspelt_command_its_neighbour_is_named(self):
        self.refused(["inf"], "'info'")

    def test_given_help_or_version_as_a_command_they_are_what_the_options_are(self):
        self.assertEqual(self.accepted(["help"]).stdout, self.accepted(["--help"]).stdout)
        self.assertEqual(self.accepted(["help", "help"]).stdout, self.accepted(["-h"]).stdout)
        for name in self.commands():
            words = name.split()
            expected = self.accepted(words + ["--help"]).stdout
            wrong = dict(os.environ, OMP_NUM_THREADS="none")  # no matter to a text
            self.assertEqual(self.accepted(["help"] + words, env=wrong).stdout, expected)
            self.assertEqual(self.accepted(words[:1] + ["help"] + words[1:]).stdout, expected)
        for word in ("version", "-V"):
            self.assertEqual(self.accepted([word]).stdout, self.accepted(["--version"]).stdout)
        self.assertIn("usage: octet tokenizer COMMAND", self.accepted(["tokenizer", "help"]).stdout)
        self.write("help", "")
        self.refused(["train", "help"], "help: ")  # a job file of that name, though an odd one
        self.refused(["hlep"], "'help'")
        self.refused(["help", "trian"], "'train'")
        self.refused(["help", "tokenizer", "trian"], "'train'")
        self.refused(["help", "tokenizer", "train", "x"], "'x'")
        self.refused(["version", "x"], "'x'", "usage: octet version")

    def test_given_vectors_the_golden_tables_are_written_and_nothing_is_lost(self):
        golden = os.path.join(ROOT, "tests/golden/vectors-data")
        tables = sorted(name for name in os.listdir(golden) if name != "meson.build")
        self.assertIn("%d files of golden vectors in new/folder" % len(tables), self.accepted(["vectors", "new/folder"]).stdout)
        self.assertEqual(sorted(os.listdir(self.path("new/folder"))), tables)
        for name in tables:
            with open(os.path.join(golden, name), "rb") as expected, open(self.path("new/folder", name), "rb") as got:
                self.assertEqual(got.read(), expected.read(), name)
        os.makedirs(self.path("odd/README.md"))
        self.refused(["vectors", "odd"], "odd/README.md")

    def test_given_no_command_before_what_it_takes_the_right_order_is_shown(self):
        for name in ("job.toml", "a/b.yaml", "j.yml"):
            self.refused([name], "did you mean octet train %s?" % name)
        self.refused(["--training.steps=5", "train", "job.toml"], "--training.steps=5: expected a command before")

    def test_given_help_each_command_has_examples_that_it_understands(self):
        for name, text in self.commands().items():
            examples = re.findall(r"^  octet (.*)$", text.partition("\nexamples:\n")[2].partition("\n\n")[0], re.M)
            self.assertTrue(examples, name)
            self.assertTrue(examples[0].startswith(name), examples[0])
            for example in examples:
                if example.split()[0] in ("info", "bench", "vectors"):
                    continue  # these would run
                error = self.run_octet(shlex.split(example)).stderr
                self.assertRegex(error, r"octet: (examples|outputs|data|job.toml|my-tokenizer)[^ ]*: ", example)

    def test_given_train_help_the_keys_that_most_jobs_set_are_first_and_the_rest_is_a_flag_away(self):
        short, whole = self.accepted(["train", "--help"]).stdout, self.accepted(["train", "--help-all"]).stdout
        def keys(text):
            return re.findall(r"^  --([a-z0-9_]+[.][a-z0-9_.]+) ", text, re.M)
        for key in ("training.steps", "training.local_batch_size", "training.seq_len", "optimizer.lr", "model.converters",
                    "quantize.linear.mx.recipe_name", "quantize.linear.mx.filter_fqns", "training.dataset_path",
                    "model.tokenizer_path", "job.dump_folder", "checkpoint.enable"):
            self.assertIn(key, keys(short))
        self.assertLess(len(short.splitlines()), 66)
        self.assertIn("octet train --help-all", short)
        self.assertLess(set(keys(short)), set(keys(whole)))
        self.assertIn("debug.moe_force_load_balance", keys(whole))

    def test_given_a_number_of_threads_that_is_none_every_command_says_so(self):
        for wrong in ("abc", "0", "-1", "5000"):
            env = dict(os.environ, OMP_NUM_THREADS=wrong)
            for command in (["info"], ["train", "job.toml"], ["generate", "x"], ["tokenizer", "encode", "x"]):
                self.refused(command, "OMP_NUM_THREADS: expected a number of threads", '"%s"' % wrong, env=env)
        for right, n in (("3", 3), ("2,7", 2), (" 5 ", 5)):
            out = self.accepted(["info"], env=dict(os.environ, OMP_NUM_THREADS=right)).stdout
            self.assertIn("\nthreads: %d\n" % n, out)

    def test_given_a_misspelt_option_its_neighbour_is_named(self):
        self.refused(["info", "--hep"], "--help")

    def test_given_a_value_for_help_it_is_refused(self):
        for command in (["train"], ["plan", "x"], ["tokenizer", "train"], ["info"]):
            self.refused(command + ["--help=3"], "--help: takes no value; got '3'")

    def test_given_hexadecimal_numbers_they_are_refused(self):
        self.refused(["generate", "x", "--temperature=0x1p0"], "--temperature", "a number", "0x1p0")
        self.refused(["generate", "x", "--seed=0x10"], "--seed", "an integer", "0x10")

    def test_given_an_operand_too_many_the_usage_is_shown(self):
        self.refused(["info", "x"], "usage: octet info")

    def test_given_an_empty_argument_it_is_named(self):
        self.refused([""], "unknown command")
        for command in (["train"], ["plan"], ["compare"], ["eval", "x"], ["generate"], ["tokenizer", "train"],
                        ["tokenizer", "encode", "x"], ["data", "pack"]):
            self.refused(command + [""], "is empty", "usage: octet " + command[0])
        for command in (["tokenizer", "train", "x", "--output"], ["data", "pack", "x", "--output"],
                        ["eval", "x", "y", "--tokenizer"], ["eval", "x", "y", "--recipe"],
                        ["generate", "x", "--recipe"], ["compare", "x", "--report"], ["compare", "x", "--recipes"],
                        ["bench", "--only"]):
            self.refused(command + [""], command[-1], "empty")

    def test_given_an_unknown_command_of_a_command_its_neighbour_or_help_is_named(self):
        self.refused(["tokenizer", "tarin"], "'train'?")
        self.refused(["tokenizer", "zzzz"], "octet tokenizer --help")
        self.refused(["data", "zzzz"], "octet data --help")

    def test_given_control_characters_in_a_name_the_error_is_one_clean_line(self):
        for name in ("a\nb", "a\r\nb.toml", "\x1b[31mred\x7f"):
            for args in ([name], ["train", name], ["plan", "x.toml", "--" + name], ["eval", name, "x"],
                         ["tokenizer", name], ["tokenizer", "decode", name]):
                error = self.refused(args).stderr.rstrip("\n")
                self.assertTrue(error.isprintable(), repr(error))

    def test_given_a_text_and_a_file_to_encode_it_is_refused(self):
        self.refused(["tokenizer", "encode", "tokenizer.json", "text.txt", "--text", "x"], "--text", "text.txt")

    def test_given_no_place_to_print_to_it_is_an_error(self):
        for command in ("info", "--help", "--version", "train --help"):
            for target in (">/dev/full", ">&-"):
                self.refused_in_shell("%s %s" % (command, target), "standard output")

    def test_given_help_the_commands_are_listed_on_standard_output(self):
        self.assertIn("info", self.accepted(["--help"]).stdout)

    def commands(self):
        """{"train": its help, "tokenizer encode": ...}: what the program says it has."""
        def listed(help_text):
            return re.findall(r"^  (\w+) {2,}", help_text.partition("\ncommands:\n")[2], re.M)
        helps = {}
        for name in listed(self.accepted(["--help"]).stdout):
            text = self.accepted([name, "--help"]).stdout
            for more in listed(text):
                helps[name + " " + more] = self.accepted([name, more, "--help"]).stdout
            if not listed(text):
                helps[name] = text
        return helps

    def test_given_the_manual_page_it_has_every_command_and_option_and_no_other(self):
        with open(os.path.join(ROOT, "docs", "octet.1")) as file:
            page = file.read().replace("\\-", "-").partition(".SH COMMANDS")[2].partition(".PP\n")[0]
        entries = {}
        for entry in page.split(".TP\n")[1:]:
            entries[re.match(r'\.BI "([a-z ]+?) *"', entry).group(1)] = entry
        helps = self.commands()
        self.assertEqual(sorted(entries), sorted(helps))
        for name, text in helps.items():
            options = text.partition("\noptions:\n")[2].partition("\n\n")[0]
            known = set(re.findall(r"^  (--[a-z-]+)", options, re.M))
            told = set(re.findall(r"--[a-z-]+(?![a-z.-])", entries[name]))
            self.assertEqual(told, known, name)

    def test_given_the_documents_they_name_no_command_that_is_not_there(self):
        helps = self.commands()
        words = {name.split()[0] for name in helps} | {"COMMAND", "help", "version"}
        pages = [os.path.join(ROOT, "README.md")]
        pages += [os.path.join(ROOT, "docs", name) for name in os.listdir(os.path.join(ROOT, "docs"))
                  if name.endswith(".md")]
        for page in pages:
            with open(page) as file:
                text = file.read()
            for word in re.findall(r"(?:`|^build/cli/|^)octet ([a-z]+)", text, re.M):
                self.assertIn(word, words, page)
        with open(os.path.join(ROOT, "README.md")) as file:
            readme = file.read()
        for word in sorted(words - {"COMMAND", "help", "version"}):
            self.assertRegex(readme, r"octet %s\b|`%s`" % (word, word))

    def test_given_version_it_is_printed(self):
        self.assertRegex(self.accepted(["--version"]).stdout, r"^octet \d+\.\d+\.\d+\n$")

    def test_given_info_threads_and_libraries_are_shown(self):
        out = self.accepted(["info"]).stdout
        for word in ("threads: ", "jansson", "pcre2"):
            self.assertIn(word, out)
        self.assertRegex(out, r"\ncpus: %d(, of which the control group's quota lets [0-9.]+ be used)?\n"
                         % len(os.sched_getaffinity(0)))


if __name__ == "__main__":
    main()
