"""What a user sees who types the command line wrong: one line that names the neighbour, status 2."""
from program import Program, main


class Usage(Program):
    def test_given_no_command_help_is_named(self):
        self.refused([], "octet --help")

    def test_given_a_misspelt_command_its_neighbour_is_named(self):
        self.refused(["inf"], "'info'")

    def test_given_a_misspelt_option_its_neighbour_is_named(self):
        self.refused(["info", "--hep"], "--help")

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

    def test_given_version_it_is_printed(self):
        self.assertRegex(self.accepted(["--version"]).stdout, r"^octet \d+\.\d+\.\d+\n$")

    def test_given_info_threads_and_libraries_are_shown(self):
        out = self.accepted(["info"]).stdout
        for word in ("threads: ", "jansson", "pcre2"):
            self.assertIn(word, out)


if __name__ == "__main__":
    main()
