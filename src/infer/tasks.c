/* Multiple choice: see tasks.h. */
#include "infer/tasks.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/strbuf.h"
#include "base/utf8.h"
#include "file/json_lines.h"

/* ---- reading ---- */

static void free_question(oct_question *q) {
    for (size_t i = 0; i < q->n_choices && q->choices; i++)
        oct_free(q->choices[i]);
    oct_free(q->choices);
    oct_free(q->n_characters);
    oct_free(q->text);
}

void oct_task_free(oct_task *task) {
    for (size_t i = 0; i < task->n; i++)
        free_question(&task->questions[i]);
    oct_free(task->questions);
    *task = (oct_task){0};
}

static int64_t count_characters(const char *text) {
    int64_t n = 0;
    for (size_t left = strlen(text), length; left > 0; text += length, left -= length, n++)
        if (!(length = oct_utf8_length(text, left)))
            length = 1;
    return n;
}

/* With a space between question and choice, where neither side has one. */
static char *join_choice(const char *question, const char *choice) {
    size_t n = strlen(question);
    oct_strbuf text = {0};
    bool spaced =
        n == 0 || isspace((unsigned char)question[n - 1]) || isspace((unsigned char)choice[0]);
    oct_strbuf_puts(&text, spaced ? "" : " ");
    oct_strbuf_puts(&text, choice);
    if (text.failed)
        oct_strbuf_free(&text);
    return text.text;
}

static oct_status take_choices(const json_t *list, const char *where, oct_question *q,
                               oct_error *err) {
    size_t n = json_is_array(list) ? json_array_size(list) : 0;
    if (n < 2)
        return oct_fail(err, OCT_INVALID,
                        "%s: choices: expected a list of two texts or more; got %s", where,
                        json_is_array(list) ? "fewer" : oct_json_kind(list));
    q->choices = oct_calloc_array(n, sizeof *q->choices);
    q->n_characters = oct_calloc_array(n, sizeof *q->n_characters);
    if (!q->choices || !q->n_characters)
        return oct_fail_memory(err);
    q->n_choices = n;
    for (size_t i = 0; i < n; i++) {
        const char *choice = json_string_value(json_array_get(list, i));
        if (!choice || !*choice)
            return oct_fail(err, OCT_INVALID, "%s: choices: expected texts, none empty; got %s",
                            where,
                            choice ? "an empty one" : oct_json_kind(json_array_get(list, i)));
        q->choices[i] = join_choice(q->text, choice);
        q->n_characters[i] = count_characters(choice);
        if (!q->choices[i])
            return oct_fail_memory(err);
    }
    return OCT_OK;
}

static oct_status take_answer(const json_t *answer, const json_t *list, const char *where,
                              oct_question *q, oct_error *err) {
    size_t n_same = 0;
    if (json_is_integer(answer)) {
        json_int_t index = json_integer_value(answer);
        q->answer = (size_t)index;
        if (index >= 0 && (size_t)index < q->n_choices)
            return OCT_OK;
    }
    for (size_t i = 0; i < q->n_choices && json_is_string(answer); i++)
        if (json_equal(answer, json_array_get(list, i))) {
            q->answer = i;
            n_same++;
        }
    if (n_same == 1)
        return OCT_OK;
    return oct_fail(err, OCT_INVALID,
                    "%s: answer: expected the index of a choice, 0 to %zu, or the text of one; got "
                    "%s",
                    where, q->n_choices - 1,
                    n_same    ? "that of several"
                    : !answer ? "nothing"
                              : "another");
}

static oct_status read_question(const json_t *object, const char *where, oct_question *q,
                                oct_error *err) {
    const char *text;
    const json_t *choices = json_object_get(object, "choices");
    oct_status status = oct_json_line_text(object, "question", where, &text, err);
    if (status)
        return status;
    q->text = oct_strdup(text);
    status = q->text ? take_choices(choices, where, q, err) : oct_fail_memory(err);
    return status ? status : take_answer(json_object_get(object, "answer"), choices, where, q, err);
}

static oct_status take_object(void *user, const json_t *object, const char *where, oct_error *err) {
    oct_task *task = user;
    oct_question *grown = oct_grow_array(task->questions, task->n, &task->capacity, sizeof *grown);
    if (!grown)
        return oct_fail_memory(err);
    task->questions = grown;
    task->questions[task->n] = (oct_question){0};
    return read_question(object, where, &task->questions[task->n++], err);
}

oct_status oct_task_read(const char *path, oct_task *task, oct_error *err) {
    oct_status status = oct_json_lines_read(path, take_object, task, err);
    if (!status && task->n == 0)
        status = oct_fail(err, OCT_INVALID, "%s: expected questions; it has none", path);
    return status;
}

size_t oct_task_longest(const oct_task *task) {
    size_t longest = 0;
    for (size_t i = 0; i < task->n; i++)
        for (size_t k = 0; k < task->questions[i].n_choices; k++) {
            size_t n = strlen(task->questions[i].text) + strlen(task->questions[i].choices[k]);
            longest = n > longest ? n : longest;
        }
    return longest;
}

/* ---- scoring ---- */

/* The ids of question and choice, and how many of them are the question's. */
static oct_status encode(const oct_inference *inference, const oct_question *q, size_t choice,
                         oct_token_list *ids, size_t *n_question, oct_error *err) {
    oct_strbuf text = {0};
    oct_token_list question = {0};
    oct_strbuf_puts(&text, q->text);
    oct_strbuf_puts(&text, q->choices[choice]);
    oct_status status = text.failed ? oct_fail_memory(err)
                                    : oct_inference_encode(inference, q->text, &question, err);
    /* An empty question is what a text begins with: the choice alone must begin so too. */
    if (!status && !*q->text)
        status = oct_token_list_append(ids, question.ids, question.n) == OCT_OK
                     ? oct_tokenizer_encode(inference->tokenizer, text.text, text.length,
                                            OCT_ADDED_TOKENS_FOUND, ids, err)
                     : oct_fail_memory(err);
    else if (!status)
        status = oct_inference_encode(inference, text.text, ids, err);
    *n_question = question.n;
    oct_token_list_free(&question);
    oct_strbuf_free(&text);
    return status;
}

static oct_status score_choice(oct_inference *inference, const oct_question *q, size_t choice,
                               double *log_likelihood, oct_error *err) {
    oct_token_list ids = {0};
    size_t n_question = 0;
    int64_t count = 0;
    double loss = 0;
    int32_t *labels = NULL;
    oct_status status = encode(inference, q, choice, &ids, &n_question, err);
    if (!status && (ids.n <= n_question || n_question == 0))
        status = oct_fail(err, OCT_INVALID,
                          "choice %zu of the question '%.60s' has no token of its own behind it",
                          choice, q->text);
    if (!status && !(labels = oct_malloc_array(ids.n, sizeof *labels)))
        status = oct_fail_memory(err);
    for (size_t i = 0; i + 1 < ids.n && labels; i++)
        labels[i] = i + 1 < n_question ? OCT_IGNORE_LABEL : ids.ids[i + 1];
    if (!status) {
        status = oct_model_evaluate(inference->model, inference->step, 1, (int64_t)ids.n - 1,
                                    ids.ids, labels, &loss, &count);
        if (status)
            status = status == OCT_NO_MEMORY
                         ? oct_fail_memory(err)
                         : oct_fail(err, status, "the model refused %zu tokens", ids.n - 1);
    }
    if (!status && !isfinite(loss))
        status = oct_fail(err, OCT_FAILED, "a likelihood is not finite");
    *log_likelihood = -loss;
    oct_free(labels);
    oct_token_list_free(&ids);
    return status;
}

static oct_status score_question(oct_inference *inference, const oct_question *q,
                                 oct_task_score *score, oct_error *err) {
    double best = -INFINITY, best_normalized = -INFINITY;
    size_t chosen = 0, chosen_normalized = 0;
    for (size_t i = 0; i < q->n_choices; i++) {
        double sum;
        oct_status status = score_choice(inference, q, i, &sum, err);
        if (status)
            return status;
        double normalized = sum / (double)q->n_characters[i];
        chosen = sum > best ? i : chosen;
        chosen_normalized = normalized > best_normalized ? i : chosen_normalized;
        best = fmax(best, sum);
        best_normalized = fmax(best_normalized, normalized);
    }
    score->n_questions++;
    score->n_right += chosen == q->answer;
    score->n_right_normalized += chosen_normalized == q->answer;
    return OCT_OK;
}

oct_status oct_task_score_model(oct_inference *inference, const oct_task *task,
                                oct_progress progress, void *progress_user, oct_task_score *score,
                                oct_error *err) {
    oct_status status = OCT_OK;
    *score = (oct_task_score){0};
    for (size_t i = 0; i < task->n && !status; i++) {
        status = score_question(inference, &task->questions[i], score, err);
        if (progress)
            progress(progress_user, "questions", (int64_t)i + 1, (int64_t)task->n);
    }
    return status;
}
