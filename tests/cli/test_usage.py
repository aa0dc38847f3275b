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
