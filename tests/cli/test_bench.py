"""What `octet bench` says of errors, which no load of the machine changes: a row a kind of data, as a table and as JSON."""
import json

from program import Program, main


class Bench(Program):
    def test_given_errors_the_table_and_the_json_have_the_same_rows(self):
        table = self.accepted(["bench", "--only=errors", "--threads=1"]).stdout.splitlines()
        result = json.loads(self.accepted(["bench", "--only=errors", "--threads=1", "--json"]).stdout)
        rows = [line for line in table if line.startswith("error ")]
        self.assertEqual([line.split()[1] for line in rows], [row["data"] for row in result["rows"]])
        self.assertEqual([row["data"] for row in result["rows"]], ["gaussian", "outliers", "student-t", "block-spread"])
        self.assertEqual(result["threads"], 1)

    def test_given_errors_eight_bit_products_are_as_exact_as_fp32_ones(self):
        for row in json.loads(self.accepted(["bench", "--only=errors", "--json"]).stdout)["rows"]:
            self.assertLess(row["mx"], 5e-7, row)

    def test_given_the_peer_eight_bit_products_are_at_most_four_times_as_far_off(self):
        rows = json.loads(self.accepted(["bench", "--only=errors", "--json"]).stdout)["rows"]
        if "onednn" not in rows[0]:
            self.skipTest("skipped: oneDNN (libdnnl-dev) isn't installed")
        for row in rows:
            self.assertGreater(row["onednn"], 0, row)
            self.assertLess(row["mx"], 4 * row["onednn"], row)

    def test_given_bf16_operands_products_are_as_exact_as_fp32_ones(self):
        rows = json.loads(self.accepted(["bench", "--only=errors", "--json"]).stdout)["rows"]
        for row in rows:
            self.assertLess(row["bf16"], 5e-7, row)
        if "onednn_bf16" not in rows[0]:
            self.skipTest("skipped: oneDNN (libdnnl-dev) isn't installed")
        for row in rows:
            self.assertTrue(0 < row["onednn_bf16"] < 2e-6, row)

    def test_given_an_unknown_measurement_its_neighbour_is_named(self):
        self.refused(["bench", "--only=product"], "did you mean products")


if __name__ == "__main__":
    main()
