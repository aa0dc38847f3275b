"""What a user sees who types the command line wrong: one line that names the neighbour, status 2."""
import os
import re

from program import Program, main

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class Usage(Program):
    def test_given_no_command_help_is_named(self):
        self.refused([], "octet --help")

    def test_given_a_misspelt_command_its_neighbour_is_named(self):
        self.refused(["inf"], "'info'")

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
        words = {name.split()[0] for name in helps} | {"COMMAND"}
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
        for word in sorted(words - {"COMMAND"}):
            self.assertRegex(readme, r"octet %s\b|`%s`" % (word, word))

    def test_given_version_it_is_printed(self):
        self.assertRegex(self.accepted(["--version"]).stdout, r"^octet \d+\.\d+\.\d+\n$")

    def test_given_info_threads_and_libraries_are_shown(self):
        out = self.accepted(["info"]).stdout
        for word in ("threads: ", "jansson", "pcre2"):
            self.assertIn(word, out)


if __name__ == "__main__":
    main()
