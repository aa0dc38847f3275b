"""Text on its way in: what a user of `octet tokenizer` and `octet data` types and sees."""
import json
import os

from program import Program, main

TEXT = "the cat sat on the mat; the cat sat.\n" * 20


class Text(Program):
    def trained(self):
        self.write("text.txt", TEXT)
        self.accepted(["tokenizer", "train", "text.txt", "--vocab-size", 265, "--output", "tok"])
        return self.path("tok")

    def test_given_a_folder_training_writes_tokenizer_json_in_it(self):
        self.trained()
        with open(self.path("tok", "tokenizer.json")) as file:
            tokenizer = json.load(file)
        self.assertEqual(len(tokenizer["model"]["vocab"]), 265)
        self.assertEqual(tokenizer["added_tokens"][0]["content"], "<|endoftext|>")

    def test_given_a_json_name_training_writes_that_file(self):
        self.write("text.txt", TEXT)
        out = self.accepted(["tokenizer", "train", "text.txt", "--vocab_size=265", "--output",
                             "own.json", "--split", "llama3"]).stdout
        self.assertEqual(out, "own.json: 265 tokens\n")
        self.assertEqual(sorted(os.listdir(self.folder)), ["own.json", "text.txt"])

    def test_given_a_small_text_fewer_tokens_are_announced(self):
        self.write("text.txt", "ab ab ab")
        out = self.accepted(["tokenizer", "train", "text.txt", "--output", "tok"]).stdout
        self.assertIn("259 tokens", out)
        self.assertIn("fewer than the 4096", out)

    def test_given_text_encode_and_decode_are_inverse(self):
        tok = self.trained()
        text = "the cat <|endoftext|>\u00fc\n"
        self.write("in.txt", text)
        ids = self.accepted(["tokenizer", "encode", tok, "in.txt"]).stdout
        self.assertIn(" 0 ", ids)
        self.assertEqual(ids, self.accepted(["tokenizer", "encode", tok], input=text).stdout)
        self.assertEqual(ids, self.accepted(["tokenizer", "encode", tok, "--text", text]).stdout)
        self.assertEqual(self.accepted(["tokenizer", "decode", tok], input=ids).stdout, text)
        self.assertEqual(self.accepted(["tokenizer", "decode", tok] + ids.split()).stdout, text)

    def test_given_texts_pack_writes_one_file_and_counts(self):
        tok = self.trained()
        self.write("docs.jsonl", '{"text": "the cat"}\n{"text": "sat"}\n')
        out = self.accepted(["data", "pack", "text.txt", "docs.jsonl", "--tokenizer", tok,
                             "--output", "out.tokens"]).stdout
        self.assertRegex(out, r"^out.tokens: \d+ tokens, 3 documents\n$")
        with open(self.path("out.tokens"), "rb") as file:
            self.assertEqual(file.read(8), b"OCTOKENS")

    def test_given_a_bad_line_pack_names_it_and_writes_nothing(self):
        tok = self.trained()
        self.write("docs.jsonl", '{"text": "the cat"}\n{"text": 5}\n')
        self.refused(["data", "pack", "docs.jsonl", "--tokenizer", tok, "--output", "out.tokens"],
                     "docs.jsonl:2: text")
        self.assertEqual([n for n in os.listdir(self.folder) if n.startswith("out")], [])

    def test_given_wrong_arguments_one_line_says_what_was_expected(self):
        tok = self.trained()
        self.refused(["tokenizer"], "octet tokenizer --help")
        self.refused(["tokenizer", "trian"], "'train'")
        self.refused(["data", "zip"], "'pack'")
        self.refused(["tokenizer", "train", "--output", "x"], "usage: octet tokenizer train")
        self.refused(["tokenizer", "train", "text.txt"], "--output is missing")
        self.refused(["tokenizer", "train", "text.txt", "--output", "x", "--vocab-size", 5], "257")
        self.refused(["tokenizer", "train", "text.txt", "--output", "x", "--split", "y"], "llama3")
        self.refused(["tokenizer", "train", "none.txt", "--output", "x.json"], "none.txt")
        self.refused(["tokenizer", "encode", "none.json"], "none.json")
        self.refused(["tokenizer", "decode", tok, "x1"], "token ids", "x1")
        self.refused(["tokenizer", "decode", tok, "99999"], "no such id")
        self.refused(["data", "pack", "text.txt", "--output", "x"], "--tokenizer is missing")
        self.refused(["data", "pack", "text.txt", "--tokenizer", tok], "--output is missing")
        self.refused(["data", "pack", "text.txt", "--tokenizer", tok, "--output", "no/x"], "no/x",
                     status=1)

    def test_given_help_it_is_on_standard_output(self):
        for args in (["tokenizer"], ["tokenizer", "train"], ["tokenizer", "encode"],
                     ["tokenizer", "decode"], ["data"], ["data", "pack"]):
            out = self.accepted(args + ["--help"]).stdout
            self.assertIn("usage: octet " + " ".join(args), out)


if __name__ == "__main__":
    main()
