/* Collectives on 1 to 4 ranks: run under mpirun, or alone. */
#include "story.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "comm/comm.h"

static oct_comm *world;

static void given_uneven_shards_all_gather_orders_them_by_rank(void **state) {
    (void)state;
    int rank = oct_comm_rank(world), size = oct_comm_size(world);
    size_t n_bytes[8], offsets[8], total = 0;
    unsigned char own[64], all[64 * 8];
    for (int r = 0; r < size; r++) {
        n_bytes[r] = (size_t)(r == 1 ? 0 : 7 * r + 3); /* rank 1 has nothing */
        offsets[r] = total;
        total += n_bytes[r];
    }
    memset(own, 100 + rank, sizeof own);
    oct_comm_request request = {0};
    int64_t before = oct_comm_bytes(world, OCT_TRAFFIC_GATHER_8BIT);
    assert_int_equal(oct_comm_all_gather_begin(world, own, all, n_bytes, offsets,
                                               OCT_TRAFFIC_GATHER_8BIT, &request),
                     OCT_OK);
    assert_int_equal(oct_comm_end(&request), OCT_OK);
    for (int r = 0; r < size; r++)
        for (size_t i = 0; i < n_bytes[r]; i++)
            assert_int_equal(all[offsets[r] + i], 100 + r);
    assert_int_equal(oct_comm_bytes(world, OCT_TRAFFIC_GATHER_8BIT) - before,
                     (int64_t)(total - n_bytes[rank]));
}

static void given_two_collectives_under_way_both_arrive(void **state) {
    (void)state;
    enum { N = 1000 };
    int rank = oct_comm_rank(world), size = oct_comm_size(world);
    static float values[8 * N], sum[N];
    int64_t counts[8], offsets[8];
    for (int r = 0; r < size; r++) {
        counts[r] = N - r;
        offsets[r] = (int64_t)r * N;
    }
    for (int i = 0; i < size * N; i++)
        values[i] = (float)(i % 17) + 0.25f * (float)rank;
    static unsigned char token[8], tokens[8];
    size_t ones[8], at[8];
    for (int r = 0; r < size; r++) {
        ones[r] = 1;
        at[r] = (size_t)r;
        token[r] = (unsigned char)(16 * rank + r);
    }
    oct_comm_request reduce = {0}, tokens_moving = {0};
    assert_int_equal(oct_comm_reduce_scatter_begin(world, values, sum, counts, offsets,
                                                   OCT_TRAFFIC_REDUCE_SCATTER, &reduce),
                     OCT_OK);
    assert_int_equal(oct_comm_all_to_all_begin(world, token, ones, at, tokens, ones, at,
                                               OCT_TRAFFIC_ALL_TO_ALL, &tokens_moving),
                     OCT_OK);
    assert_int_equal(oct_comm_end(&reduce), OCT_OK);
    assert_int_equal(oct_comm_end(&tokens_moving), OCT_OK);
    for (int i = 0; i < counts[rank]; i++) {
        float expected = 0;
        for (int r = 0; r < size; r++)
            expected += (float)((rank * N + i) % 17) + 0.25f * (float)r;
        assert_true(sum[i] == expected);
    }
    for (int r = 0; r < size; r++)
        assert_int_equal(tokens[r], 16 * r + rank);
}

static unsigned char content(int from, int to, size_t i) {
    return (unsigned char)(i * 7 + i / 251 + (size_t)(31 * from + 5 * to));
}

/* Messages travel in pieces; sizes around one, and more than are under way at a time. */
static void given_messages_of_any_size_every_byte_arrives_in_its_place(void **state) {
    (void)state;
    enum { PIECE = 60 << 10, N_SIZES = 5 };
    static const size_t sizes[N_SIZES] = {9000001, 0, PIECE, PIECE + 1, 1};
    int rank = oct_comm_rank(world), size = oct_comm_size(world);
    size_t n_send[8], n_receive[8], from[8], to[8], n_out = 0, n_in = 0;
    for (int r = 0; r < size; r++) { /* from a to b: the size numbered a + 2 b */
        n_send[r] = sizes[(rank + 2 * r) % N_SIZES];
        n_receive[r] = sizes[(r + 2 * rank) % N_SIZES];
        from[r] = n_out;
        to[r] = n_in;
        n_out += n_send[r];
        n_in += n_receive[r];
    }
    unsigned char *out = oct_malloc(n_out + 1), *in = oct_calloc_array(n_in + 1, 1);
    assert_true(out && in);
    for (int r = 0; r < size; r++)
        for (size_t i = 0; i < n_send[r]; i++)
            out[from[r] + i] = content(rank, r, i);
    oct_comm_request request = {0};
    int64_t before = oct_comm_bytes(world, OCT_TRAFFIC_ALL_TO_ALL);
    assert_int_equal(oct_comm_all_to_all_begin(world, out, n_send, from, in, n_receive, to,
                                               OCT_TRAFFIC_ALL_TO_ALL, &request),
                     OCT_OK);
    assert_int_equal(oct_comm_end(&request), OCT_OK);
    size_t n_wrong = 0;
    for (int r = 0; r < size; r++)
        for (size_t i = 0; i < n_receive[r]; i++)
            n_wrong += in[to[r] + i] != content(r, rank, i);
    assert_int_equal(n_wrong, 0);
    assert_int_equal(oct_comm_bytes(world, OCT_TRAFFIC_ALL_TO_ALL) - before,
                     (int64_t)(n_in - n_receive[rank]));
    oct_free(out);
    oct_free(in);
}

static void given_values_sums_and_maxima_are_those_of_all_ranks(void **state) {
    (void)state;
    int rank = oct_comm_rank(world), size = oct_comm_size(world);
    double sum[2] = {rank, 1};
    float max[3] = {(float)rank, -(float)rank, rank == size - 1 ? NAN : 5};
    assert_int_equal(oct_comm_sum_f64(world, sum, 2), OCT_OK);
    assert_int_equal(oct_comm_max_f32(world, max, 3), OCT_OK);
    assert_true(sum[0] == size * (size - 1) / 2 && sum[1] == size);
    assert_true(max[0] == (float)(size - 1) && max[1] == 0 && isnan(max[2]));
}

static void given_one_rank_in_error_all_ranks_hear_of_it(void **state) {
    (void)state;
    int rank = oct_comm_rank(world), size = oct_comm_size(world);
    oct_error err = {0};
    assert_int_equal(oct_comm_agree(world, OCT_OK, &err), OCT_OK);
    oct_status status = rank == size - 1 ? oct_fail(&err, OCT_INVALID, "bad data") : OCT_OK;
    assert_int_equal(oct_comm_agree(world, status, &err), OCT_INVALID);
    assert_non_null(strstr(err.message, "bad data"));
    assert_int_equal(strncmp(err.message, "rank ", 5) == 0, rank != size - 1);
}

static void given_a_split_each_part_talks_among_itself(void **state) {
    (void)state;
    int rank = oct_comm_rank(world), size = oct_comm_size(world);
    oct_comm *part;
    assert_int_equal(oct_comm_split(world, rank % 2, &part), OCT_OK);
    double sum = rank, expected = 0;
    for (int r = rank % 2; r < size; r += 2)
        expected += r;
    assert_int_equal(oct_comm_sum_f64(part, &sum, 1), OCT_OK);
    assert_true(sum == expected);
    assert_int_equal(oct_comm_rank(part), rank / 2);
    oct_comm_destroy(part);
}

/* No test of cmocka's: the job ends with status 3 although one rank waits in an exchange for
 * another, which is busy and will be for minutes. */
static int end_a_job_whose_ranks_wait_for_a_busy_one(void) {
    static float values[8], sum[8];
    int64_t counts[8] = {1, 1, 1, 1, 1, 1, 1, 1}, offsets[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    oct_comm_request request = {0};
    if (oct_comm_rank(world) == 0) {
        sleep(300);
        return 0;
    }
    if (oct_comm_reduce_scatter_begin(world, values, sum, counts, offsets,
                                      OCT_TRAFFIC_REDUCE_SCATTER, &request))
        return 0;
    usleep(100000); /* until it's under way */
    oct_comm_abort(world, 3);
    return 0;
}

int main(int argc, char **argv) {
    oct_error err = {0};
    if (oct_comm_create_world(&world, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    if (argc > 1 && strcmp(argv[1], "abort") == 0)
        return end_a_job_whose_ranks_wait_for_a_busy_one();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_uneven_shards_all_gather_orders_them_by_rank),
        cmocka_unit_test(given_two_collectives_under_way_both_arrive),
        cmocka_unit_test(given_messages_of_any_size_every_byte_arrives_in_its_place),
        cmocka_unit_test(given_values_sums_and_maxima_are_those_of_all_ranks),
        cmocka_unit_test(given_one_rank_in_error_all_ranks_hear_of_it),
        cmocka_unit_test(given_a_split_each_part_talks_among_itself),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    oct_comm_destroy(world);
    return failed;
}
