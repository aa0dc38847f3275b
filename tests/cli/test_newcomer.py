"""The first hour: what people type who know PyTorch, torchtitan or Hugging Face, and what they are told."""
import os
import pty
import re
import shlex
import shutil
import subprocess

import program
from program import main
from training import Training

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class Newcomer(Training):
    def shell(self, command, **env):
        """Runs a line as a user pastes it, with `octet` on the path."""
        os.makedirs(self.path("bin"), exist_ok=True)
        if not os.path.exists(self.path("bin", "octet")):
            os.symlink(program.OCTET, self.path("bin", "octet"))
        env = dict(os.environ, PATH=self.path("bin") + ":" + os.environ["PATH"], **env)
        return subprocess.run(["bash", "-c", command], cwd=self.folder, text=True, errors="replace", env=env,
                              capture_output=True, timeout=120)

    def test_given_a_text_without_a_tokenizer_the_command_that_makes_one_can_be_pasted(self):
        with open(self.path("text.txt")) as file:
            text = file.read()
        with open(self.path("job.toml")) as file:
            self.write("job.toml", file.read().replace('tokenizer_path = "tokenizer.json"\n', ""))
        os.remove(self.path("tokenizer.json"))
        for name in ("text.txt", "a b/it's $HOME.txt", "-x.txt"):
            self.write(name, text)
            job = ["train", "job.toml", "--training.dataset_path=" + name]
            error = self.refused(job, "job.toml: model.tokenizer_path: missing").stderr
            command, option = re.search(r"`(octet tokenizer train .*)` makes one for (\S+)\n", error).groups()
            made = self.shell(command)
            self.assertEqual(made.returncode, 0, made.stderr)
            self.accepted(job + [option])
            os.remove(self.path("tokenizer", "tokenizer.json"))

    def test_given_the_demo_the_commands_that_it_ends_with_work_as_they_stand(self):
        self.with_data()
        os.makedirs(self.path("examples"))
        os.symlink(os.path.join(ROOT, "examples", "demo.toml"), self.path("examples", "demo.toml"))
        # The program as it is, but for the length of a comparison.
        short = self.write("short octet", '#!/bin/sh\n[ "$1" = compare ] && set -- "$@" --training.steps=2 '
                           "--validation.steps=1 --training.seq_len=32 --validation.seq_len=32\nexec %s \"$@\"\n"
                           % shlex.quote(program.OCTET))
        os.chmod(short, 0o755)
        demo = subprocess.run([os.path.join(ROOT, "tools", "demo"), "./short octet"], cwd=self.folder, text=True,
                              errors="replace", capture_output=True, timeout=280)
        self.assertEqual(demo.returncode, 0, demo.stderr)
        *commands, report = [line[2:] for line in demo.stdout.partition("\nnext, ")[2].splitlines()[1:]]
        self.assertEqual(len(commands), 2)
        for command in commands:
            done = self.shell(command)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(done.stdout)
        self.assertTrue(os.path.exists(self.path(report)))

    def readme(self):
        with open(os.path.join(ROOT, "README.md")) as file:
            return file.read()

    def with_data(self):
        """What `make data` makes, by name."""
        os.makedirs(self.path("data"))
        for name, made in (("text.txt", "kjv.txt"), ("tokenizer.json", "tokenizer.json")):
            shutil.copy(self.path(name), self.path("data", made))

    def test_given_the_readmes_job_as_it_stands_nothing_warns(self):
        text, tail = re.search(r"cat >job.toml <<'END'\n(.*?)\nEND\n(.*?)```", self.readme(), re.S).groups()
        self.write("job.toml", text)
        self.with_data()
        # Only shorter: the lengths are the job's own business.
        short = " --training.steps=2 --lr_scheduler.warmup_steps=1 --training.seq_len=32 --validation.seq_len=32"
        commands = re.findall(r"^build/cli/(octet [a-z]+ .*?) *(?:#.*)?$", tail, re.M)
        self.assertEqual([command.split()[1] for command in commands], ["plan", "train", "eval", "generate", "export"])
        for command in commands:
            done = self.shell(command + (short if " train " in command else ""))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("WARNING", done.stdout + done.stderr, command)

    def test_given_the_readmes_commands_they_are_those_of_one_checkout(self):
        """CI runs the blocks marked sh, in order, as they stand; here at least what they name is there."""
        kinds = re.findall(r"^```(.*)$", self.readme(), re.M)
        self.assertEqual(kinds[1::2], [""] * (len(kinds) // 2))
        self.assertLessEqual(set(kinds[::2]), {"sh", "console", "text", "toml", "c"})
        blocks = "".join(re.findall(r"^```sh\n(.*?)^```$", self.readme(), re.S | re.M))
        with open(os.path.join(ROOT, "Makefile")) as file:
            targets = re.findall(r"^([a-z-]+):", file.read(), re.M)
        for target in re.findall(r"^make ([a-z-]+)", blocks, re.M):
            self.assertIn(target, targets)
        for name in re.findall(r"examples/\S+", blocks):
            self.assertTrue(os.path.exists(os.path.join(ROOT, name)), name)
        self.assertEqual(subprocess.run(["bash", "-n"], input=blocks, text=True).returncode, 0)

    def test_given_other_trainers_words_the_key_is_named(self):
        known = set(re.findall(r"^  --([a-z0-9_.]+) ", self.accepted(["train", "--help-all"]).stdout, re.M))
        for word, key in (("steps", "training.steps"), ("max_steps", "training.steps"), ("lr", "optimizer.lr"),
                          ("learning-rate", "optimizer.lr"), ("batch_size", "training.local_batch_size"),
                          ("seq-len", "training.seq_len"), ("block_size", "training.seq_len"), ("seed", "debug.seed"),
                          ("output_dir", "job.dump_folder"), ("data", "training.dataset_path"), ("warmup", "lr_scheduler.warmup_steps"),
                          ("resume_from_checkpoint", "checkpoint.enable"), ("tokenizer", "model.tokenizer_path"),
                          ("recipe", "quantize.linear.mx.recipe_name"), ("dtype", "training.mixed_precision_param"),
                          ("stesp", "training.steps")):
            self.assertIn(key, known)
            for option in (["--%s=3" % word], ["--" + word, "3"]):
                self.refused(["train", "job.toml"] + option, "--%s: unknown option; did you mean --%s?" % (word, key))
        self.refused(["train", "job.toml", "--config=x"], "did you mean --job.config_file?")
        self.refused(["compare", "job.toml", "--steps=3"], "did you mean --training.steps?")
        self.refused(["compare", "job.toml", "--recipe=bf16"], "did you mean --recipes?")
        self.refused(["train", "job.toml", "--training.batch_size=3"], "the nearest known one is --training.local_batch_size")
        self.write("job.toml", "[training]\nmax_steps = 3\n")
        self.refused(["train", "job.toml"], "job.toml:2: training.max_steps", "training.steps")
        self.refused(["train", "job.toml", "--quux=3"], "--quux: unknown option; expected one of those that --help lists")

    def test_given_an_override_without_its_dashes_it_is_shown_with_them(self):
        for typed, meant in (("training.steps=5", "--training.steps=5"), ("steps=5", "--training.steps=5"),
                             ("lr=1e-3", "--optimizer.lr=1e-3")):
            for command in ("train", "plan", "compare"):
                self.refused([command, "job.toml", typed], "unexpected argument '%s'; did you mean %s?" % (typed, meant))
        self.refused(["train", "job.toml", "quux=5"], "usage: octet train")
        self.refused(["eval", "x", "y", "steps=5"], "usage: octet eval")

    def test_given_another_programs_options_those_that_there_are_are_listed(self):
        self.refused(["generate", "x", "--max_length=5"], "expected one of --prompt, --prompts, --batch, --max-new-tokens, --temperature")
        self.refused(["eval", "x", "--gpus=5"], "expected one of --limit, ", "--recipe", "--seq-len")
        self.refused(["tokenizer", "train", "x", "--model-type=bpe"], "expected one of --vocab-size, --output, --split")

    def test_given_arguments_in_the_wrong_order_the_right_one_is_shown(self):
        self.accepted(["train", "job.toml", "--checkpoint.enable"])
        self.refused(["eval", "text.txt", "out"], "did you mean octet eval out text.txt?")
        self.refused(["generate", "the lord", "out"], "unexpected argument 'out'; usage: octet generate MODEL [--prompt TEXT | --prompts FILE] [options]")
        self.refused(["tokenizer", "encode", "tokenizer.json", "the lord"], "the lord: no such file", "--text TEXT")

    def test_given_a_job_started_from_another_folder_it_is_told_where_paths_begin(self):
        os.makedirs(self.path("elsewhere"))
        def run(*args):
            return self.shell("cd elsewhere && octet " + " ".join(args)).stderr
        beside = "'%s' doesn't exist in %s; it's there in .., the job's folder, but paths are relative to where octet is started"
        here = os.path.realpath(self.path("elsewhere"))
        self.assertIn(beside % ("tokenizer.json", here), run("train", "../job.toml"))
        self.assertIn(beside % ("text.txt", here), run("train", "../job.toml", "--model.tokenizer_path=../tokenizer.json"))
        self.accepted(["train", "job.toml", "--checkpoint.enable", "--validation.enable"])
        self.assertIn("'text.txt' doesn't exist in " + here, run("eval", "../out"))
        self.assertEqual(run("eval", "../out", "../text.txt"), "")

    def test_given_a_table_it_is_refused_and_not_read_as_a_text(self):
        for name, kind in (("t.tsv", "a table"), ("t.CSV", "a table"), ("t.parquet", "a Parquet file"), ("t.arrow", "an Arrow file")):
            self.write(name, "id\ttext\n" + "1\tgo down to egypt\n" * 900)
            for command in (["train", "job.toml", "--training.dataset_path=" + name], ["tokenizer", "train", name, "--output", "t"],
                            ["data", "pack", name, "--tokenizer", "tokenizer.json", "--output", "t"]):
                self.refused(command, f"{name}: {kind}; expected plain text", "JSONL", f" {name} t.jsonl` makes it")
        self.refused(["data", "pack", "t.tsv", "--tokenizer", "tokenizer.json", "--output", "t", "--as", "csv"],
                     "--as: unknown kind; expected text or jsonl; got 'csv'")
        self.accepted(["data", "pack", "t.tsv", "--tokenizer", "tokenizer.json", "--output", "t", "--as", "text"])
        self.accepted(["tokenizer", "train", "t.tsv", "--vocab-size", "260", "--output", "t.json", "--as", "text"])
        self.write("folder/a.txt", "go down to egypt")
        self.write("folder/b.csv", "id,text")
        self.accepted(["data", "pack", "folder", "--tokenizer", "tokenizer.json", "--output", "t"])

    def test_given_a_dumb_terminal_it_gets_no_control_sequences(self):
        self.accepted(["train", "job.toml", "--checkpoint.enable"])
        for kind, expected in (("xterm", True), ("dumb", False)):
            for command in ("eval out text.txt", "train job.toml"):
                leader, follower = pty.openpty()
                run = subprocess.Popen([program.OCTET] + command.split(), cwd=self.folder, stdin=follower, stdout=follower,
                                       stderr=follower, env=dict(os.environ, TERM=kind))
                os.close(follower)
                seen = b""
                try:
                    while block := os.read(leader, 65536):
                        seen += block
                except OSError:  # how a terminal's end is told
                    pass
                os.close(leader)
                self.assertEqual(run.wait(), 0, seen)
                self.assertEqual(b"\x1b[" in seen, expected, seen)


if __name__ == "__main__":
    main()
