/* Signals that ask a run to end: see stop.h. */
#include "base/count.h"
#include "stop.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SAME_MS = 500 };

static const struct {
    int number;
    const char *name;
} stop_signals[] = {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGUSR1, "SIGUSR1"}};
enum { N_SIGNALS = OCT_COUNT(stop_signals) };

/* Handlers run in any thread, two at a time where two signals come together. */
static atomic_int asked;           /* the first signal; 0: none */
static atomic_llong asked_ms;      /* when it came; 0: just now */
static atomic_bool waits_for_step; /* else the first one ends the process */
static atomic_bool is_quiet, on_terminal;
static atomic_int child; /* 0: none */
static int conclusion;
static bool several;

const char *cli_stop_name(int number) {
    for (int i = 0; i < N_SIGNALS; i++)
        if (stop_signals[i].number == number)
            return stop_signals[i].name;
    return "a signal";
}

static long long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* What follows is called in handlers: only what is safe there. */

static void put(const char *text) {
    ssize_t n = write(STDERR_FILENO, text, strlen(text));
    (void)n; /* nobody is there to be told */
}

static void say(int number, const char *what) {
    if (atomic_load(&is_quiet))
        return;
    put(atomic_load(&on_terminal) ? "\r\033[Koctet: " : "octet: ");
    put(cli_stop_name(number));
    put(what);
}

static void end_by(int number) {
    sigset_t set;
    signal(number, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
    _exit(128 + number); /* process 1 of a container isn't ended by a signal */
}

static void end_at_once(int number, const char *what) {
    say(number, what);
    if (atomic_load(&child) > 0)
        kill(atomic_load(&child), SIGKILL);
    end_by(number);
}

static void on_signal(int number) {
    int saved = errno, none = 0;
    if (!atomic_load(&waits_for_step))
        end_at_once(number, ": ends at once, before the first step\n");
    if (atomic_compare_exchange_strong(&asked, &none, number)) {
        atomic_store(&asked_ms, now_ms());
        say(number, ": stops at the end of this step; a second signal stops at once\n");
        if (atomic_load(&child) > 0)
            kill(atomic_load(&child), number);
    } else if (atomic_load(&asked_ms) > 0 && now_ms() - atomic_load(&asked_ms) >= SAME_MS) {
        end_at_once(number, ": ends at once; what came after the last checkpoint is lost\n");
    }
    errno = saved;
}

/* ---- */

static sigset_t all_of_them(void) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < N_SIGNALS; i++)
        sigaddset(&set, stop_signals[i].number);
    return set;
}

void cli_stop_install(void) {
    struct sigaction before, action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    action.sa_mask = all_of_them();
    atomic_store(&on_terminal, isatty(STDERR_FILENO) == 1);
    for (int i = 0; i < N_SIGNALS; i++)
        if (sigaction(stop_signals[i].number, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(stop_signals[i].number, &action, NULL);
}

void cli_stop_at_a_step(void) {
    atomic_store(&waits_for_step, true);
}

void cli_stop_quietly(void) {
    atomic_store(&is_quiet, true);
}

int cli_stop_asked(void *user) {
    (void)user;
    return atomic_load(&asked);
}

pid_t cli_stop_fork(void) {
    sigset_t set = all_of_them(), before;
    pthread_sigmask(SIG_BLOCK, &set, &before); /* until who is to be told of one is known */
    pid_t pid = fork();
    if (pid > 0) {
        atomic_store(&child, pid);
    } else if (pid == 0) {
        atomic_store(&waits_for_step, false);
        atomic_store(&asked, 0);
        atomic_store(&asked_ms, 0);
        cli_stop_quietly();
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid;
}

void cli_stop_disown(void) {
    atomic_store(&child, 0);
}

void cli_stop_conclude(int number, bool is_one_of_several) {
    conclusion = number;
    several = is_one_of_several;
}

void cli_stop_exit(void) {
    if (!conclusion)
        return;
    if (several)
        exit(128 + conclusion);
    end_by(conclusion);
}
