"""What a user sees who gets a job wrong: one line that names key and place, status 2; for a full disk, 1."""
import os
import resource
import shutil

import program
from program import main
from training import JOB, Training

MX = "--model.converters=quantize.linear.mx"


def place(text):
    """FILE:LINE of a text of the job that wrong.toml has something else for."""
    return "wrong.toml:%d: " % (JOB[:JOB.index(text)].count("\n") + 1)


class Errors(Training):
    def job(self, old, new):
        self.assertIn(old, JOB)
        self.write("wrong.toml", JOB.replace(old, new))
        return ["train", "wrong.toml"]

    def test_given_a_misspelt_key_its_neighbour_and_line_are_named(self):
        self.refused(self.job("seq_len = 32\nsteps = 4", "seq_lem = 32\nsteps = 4"), place("seq_len = 32\nsteps"), "seq_len")
        self.refused(["train", "job.toml", "--training.stepps=3"], "steps")

    def test_given_a_misspelt_section_its_neighbour_is_named(self):
        self.refused(self.job("[training]", "[trainin]"), "training")

    def test_given_an_unknown_recipe_the_recipes_are_listed(self):
        self.refused(["train", "job.toml", MX, "--quantize.linear.mx.recipe_name=mxfp9"],
                     "quantize.linear.mx.recipe_name", "mxfp8", "hif8")
        self.refused(["compare", "job.toml", "--recipes", "bf16,mxfp9"], "mxfp8", "hif8")
        self.refused(["plan", "job.toml", MX, "--quantize.linear.mx.recipe_name=mxfp9"], "mxfp8")

    def test_given_a_text_shorter_than_a_sequence_both_lengths_are_named(self):
        self.write("text.txt", "the lord")
        self.refused(["train", "job.toml"], "training.dataset_path", "33")

    def test_given_token_ids_above_the_vocabulary_it_is_refused(self):
        self.refused(self.job("vocab_size = 320", "vocab_size = 290"), "vocabulary", "290")

    def test_given_a_sequence_length_of_0_it_is_refused(self):
        self.refused(self.job("seq_len = 32\nsteps = 4", "seq_len = 0\nsteps = 4"), place("seq_len = 32\nsteps"), "training.seq_len")

    def test_given_a_negative_learning_rate_it_is_refused(self):
        self.refused(self.job("lr = 3e-3", "lr = -3e-3"), place("lr = 3e-3"), "optimizer.lr")
        self.refused(["train", "job.toml", "--optimizer.lr", "-1"], "optimizer.lr")

    def test_given_heads_that_do_not_divide_it_is_refused(self):
        self.refused(self.job("n_heads = 4\nn_kv_heads = 2", "n_heads = 4\nn_kv_heads = 3"), "heads")

    def test_given_a_wrong_type_it_is_refused(self):
        self.refused(self.job("steps = 4\n[checkpoint]", "steps = \"four\"\n[checkpoint]"),
                     place("steps = 4\n["), "training.steps", "four")

    def test_given_broken_toml_the_line_is_named(self):
        self.refused(self.job("[debug]", "[debug"), "wrong.toml:")

    def test_given_missing_files_they_are_named(self):
        self.refused(["train", "nowhere.toml"], "nowhere.toml")
        self.refused(["train", "job.toml", "--training.dataset_path=nowhere.txt"], "nowhere.txt")
        self.refused(["train", "job.toml", "--training.dataset_path=data/kjv.txt"], "data/kjv.txt", "make data")
        self.refused(["train", "job.toml", "--model.tokenizer_path=data/tokenizer.json"], "make data")
        self.refused(["eval", "nowhere", "text.txt"], "nowhere")
        self.refused(["generate", "nowhere", "--prompt", "x"], "nowhere")
        self.refused(["eval", ".", "text.txt"], "checkpoint")
        self.refused(["train"], "no job file")

    def test_given_a_dataset_without_a_path_training_asks_for_it(self):
        self.accepted(["plan", "job.toml", "--training.dataset=c4"])
        wrong = self.job('dataset_path = "text.txt"', 'dataset = "c4"')
        self.refused(wrong, "training.dataset_path")

    def test_given_an_unsupported_parallelism_it_is_refused(self):
        self.refused(["train", "job.toml", "--parallelism.tensor_parallel_degree=2"], "tensor_parallel_degree")
        self.refused(["train", "job.toml", "--job.device=npu"], "npu")

    def test_given_an_unreadable_text_it_is_named(self):
        os.chmod(self.path("text.txt"), 0)
        if os.geteuid() != 0:
            self.refused(["train", "job.toml"], "text.txt")
            return
        # root reads every file: run a copy of the program as nobody
        octet = shutil.copy(program.OCTET, self.path("octet"))
        os.chmod(octet, 0o755)
        os.chmod(self.folder, 0o777)
        self.refused(["train", "job.toml"], "text.txt", octet=octet, preexec_fn=lambda: os.setuid(65534))

    def test_given_a_folder_where_a_file_should_be_it_is_named(self):
        os.mkdir(self.path("folder.toml"))
        self.refused(["train", "folder.toml"], "folder.toml")

    def test_given_a_full_disk_the_run_fails_and_leaves_no_half_checkpoint(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        self.accepted(["train", "job.toml"])  # the text is tokenized before the disk fills up
        self.refused(["train", "job.toml", "--checkpoint.enable"], "checkpoint", status=1, preexec_fn=limit)
        left = os.listdir(self.path("out", "checkpoint")) if os.path.exists(self.path("out", "checkpoint")) else []
        self.assertEqual(left, [])


if __name__ == "__main__":
    main()
