/* Numbers: overflow, and the tables of what the parsers take and the formatters say. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/num.h"

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

static void test_overflow(void **state)
{
    (void)state;
    int64_t v = 5;
    assert_true(num_mul_i64(INT64_MAX / 2, 2, &v));
    assert_true(v == INT64_MAX - 1);
    assert_false(num_mul_i64(INT64_MAX / 2 + 1, 2, &v));
    assert_false(num_mul_i64(INT64_MIN, -1, &v));
    assert_false(num_add_i64(INT64_MAX, 1, &v));
    assert_false(num_add_i64(INT64_MIN, -1, &v));
    assert_true(v == INT64_MAX - 1); /* untouched by the failures */
    size_t z = 3;
    assert_false(num_mul_size(SIZE_MAX / 2, 3, &z));
    assert_int_equal(z, 3);
}

static const struct {
    const char *text;
    int rc;
    int64_t v;
} ints[] = {
    {"0", 0, 0},
    {"-12", 0, -12},
    {"+7", 0, 7},
    {"007", 0, 7},
    {"9223372036854775807", 0, INT64_MAX},
    {"-9223372036854775808", 0, INT64_MIN},
    {"9223372036854775808", ERR_INPUT, 0},
    {"", ERR_INPUT, 0},
    {" 1", ERR_INPUT, 0},
    {"1 ", ERR_INPUT, 0},
    {"1.0", ERR_INPUT, 0},
    {"1e3", ERR_INPUT, 0},
    {"0x10", ERR_INPUT, 0},
    {"--1", ERR_INPUT, 0},
    {"-", ERR_INPUT, 0},
    {"abc", ERR_INPUT, 0},
};

static const struct {
    const char *text;
    int rc;
    uint64_t v;
} uints[] = {
    {"0", 0, 0},
    {"18446744073709551615", 0, UINT64_MAX},
    {"0xffffffffffffffff", 0, UINT64_MAX},
    {"0XaB", 0, 0xab},
    {"010", 0, 10},
    {"18446744073709551616", ERR_INPUT, 0},
    {"0x10000000000000000", ERR_INPUT, 0},
    {"-1", ERR_INPUT, 0},
    {"+1", ERR_INPUT, 0},
    {"0x", ERR_INPUT, 0},
    {"ff", ERR_INPUT, 0},
    {"", ERR_INPUT, 0},
    {" 1", ERR_INPUT, 0},
};

static const struct {
    const char *text;
    int rc;
    double v;
} nums[] = {
    {"0", 0, 0},
    {"-1.5", 0, -1.5},
    {".5", 0, 0.5},
    {"1e-3", 0, 1e-3},
    {"+2E2", 0, 200},
    {"1.", 0, 1},
    {"1e999", ERR_INPUT, 0},
    {"nan", ERR_INPUT, 0},
    {"inf", ERR_INPUT, 0},
    {"0x1p3", ERR_INPUT, 0},
    {"1,5", ERR_INPUT, 0},
    {"1e", ERR_INPUT, 0},
    {"1.5x", ERR_INPUT, 0},
    {"", ERR_INPUT, 0},
    {".", ERR_INPUT, 0},
    {" 1", ERR_INPUT, 0},
};

static const struct {
    const char *text;
    int rc;
    int64_t v;
} sizes[] = {
    {"4096", 0, 4096},
    {"0", 0, 0},
    {"64K", 0, 65536},
    {"64k", 0, 65536},
    {"64KiB", 0, 65536},
    {"64Ki", 0, 65536},
    {"2GB", 0, 2000000000},
    {"2kb", 0, 2000},
    {"1.5GiB", 0, 1610612736},
    {"1.5 GiB", 0, 1610612736},
    {"7B", 0, 7},
    /* 2^53 + 1: exact */
    {"1T", 0, (int64_t)1 << 40},
    {"0.5K", 0, 512},
    {"9007199254740993", 0, 9007199254740993},
    {"8191P", 0, (int64_t)8191 << 50},
    {"8192P", ERR_INPUT, 0},
    {"9223372036854775808", ERR_INPUT, 0},
    {"1e30", ERR_INPUT, 0},
    {"-1", ERR_INPUT, 0},
    {"1X", ERR_INPUT, 0},
    {"1KBB", ERR_INPUT, 0},
    {"K", ERR_INPUT, 0},
    {"", ERR_INPUT, 0},
    {"1 K x", ERR_INPUT, 0},
    {"inf", ERR_INPUT, 0},
};

static const struct {
    const char *text;
    int rc;
    double v;
} durations[] = {
    {"90", 0, 90},          {"1.5s", 0, 1.5},          {"250ms", 0, 0.25},
    {"10m", 0, 600},        {"2h", 0, 7200},           {"1d", 0, 86400},
    {"40us", 0, 40e-6},     {"1:30:00", 0, 5400},      {"2:05", 0, 125},
    {"0:00:01.5", 0, 1.5},  {"100:00:00", 0, 360000},  {"0", 0, 0},
    {"1:60", ERR_INPUT, 0}, {"1:60:00", ERR_INPUT, 0}, {"1:2:3:4", ERR_INPUT, 0},
    {"1:", ERR_INPUT, 0},   {":30", ERR_INPUT, 0},     {"1.5:00", ERR_INPUT, 0},
    {"1:-5", ERR_INPUT, 0}, {"-1", ERR_INPUT, 0},      {"1w", ERR_INPUT, 0},
    {"s", ERR_INPUT, 0},    {"", ERR_INPUT, 0},        {"1e400", ERR_INPUT, 0},
    {"nan", ERR_INPUT, 0},  {"1 h", ERR_INPUT, 0},
};

/* A good text gives the value; a bad one ERR_INPUT, a sentence that names what and value, and the
 * target untouched. */
#define CHECK_TABLE(table, type, parse, before)                                                  \
    for (size_t i = 0; i < LEN(table); i++) {                                                    \
        struct err err = {0};                                                                    \
        type v = (before);                                                                       \
        if (parse((table)[i].text, "--limit", &v, &err) != (table)[i].rc)                        \
            fail_msg(#parse " '%s': %s", (table)[i].text, err.text);                             \
        if (!(v == ((table)[i].rc == 0 ? (table)[i].v : (before))))                              \
            fail_msg(#parse " '%s': wrong value", (table)[i].text);                              \
        if ((table)[i].rc < 0) {                                                                 \
            assert_non_null(strstr(err.text, "--limit is '"));                                   \
            assert_non_null(strstr(err.text, ": give "));                                        \
        }                                                                                        \
    }

static void test_parse(void **state)
{
    (void)state;
    CHECK_TABLE(ints, int64_t, num_parse_i64, 77)
    CHECK_TABLE(uints, uint64_t, num_parse_u64, 77)
    CHECK_TABLE(nums, double, num_parse_f64, 77.0)
    CHECK_TABLE(sizes, int64_t, num_parse_bytes, 77)
    CHECK_TABLE(durations, double, num_parse_seconds, 77.0)
}

static void test_format(void **state)
{
    (void)state;
    static const struct {
        int64_t v;
        const char *text;
    } bytes[] = {
        {0, "0 B"},
        {1, "1 B"},
        {1023, "1023 B"},
        {1024, "1.00 KiB"},
        {1536, "1.50 KiB"},
        {10240, "10.0 KiB"},
        {1023 * 1024, "1023 KiB"},
        {1048575, "1.00 MiB"},
        {(int64_t)3 << 29, "1.50 GiB"},
        {INT64_MAX, "8.00 EiB"},
        {-2048, "-2.00 KiB"},
        {INT64_MIN, "-8.00 EiB"},
    };
    static const struct {
        double v;
        const char *text;
    } seconds[] = {
        {0, "0 s"},           {41e-6, "41.0 us"},
        {0.0041, "4.1 ms"},   {0.25, "250 ms"},
        {0.9999, "1.0 s"},    {12.34, "12.3 s"},
        {59.96, "1 m 00 s"},  {125, "2 m 05 s"},
        {3599.6, "1 h 00 m"}, {7380, "2 h 03 m"},
        {86399, "1 d 00 h"},  {90000, "1 d 01 h"},
        {-0.5, "-500 ms"},    {INFINITY, "for ever"},
        {NAN, "nan"},         {1e15, "11574074074 d 02 h"},
    };
    static const struct {
        double v;
        const char *text;
    } fine[] = {
        {1.144, "1.14 s"}, {1.1558, "1.16 s"}, {12.345, "12.3 s"}, {0.0205, "20.5 ms"},
        {0.00205, "2.05 ms"}, {0.2505, "250 ms"}, {9.996e-3, "10.0 ms"}, {5.5e-6, "5.50 us"},
        {0, "0 s"}, {62, "1 m 02 s"}, {-2, "-2.00 s"}, {INFINITY, "for ever"},
    };
    static const struct {
        double v;
        const char *text;
    } counts[] = {
        {0, "0"},           {7, "7"},           {0.25, "0.25"},     {999, "999"},
        {999.7, "1.00 k"},  {7.16e9, "7.16 G"}, {99.96e6, "100 M"}, {1e30, "1000000000000 E"},
        {-1500, "-1.50 k"}, {NAN, "nan"},
    };
    char buf[64];
    for (size_t i = 0; i < LEN(bytes); i++)
        assert_string_equal(num_format_bytes(bytes[i].v, buf, sizeof buf), bytes[i].text);
    for (size_t i = 0; i < LEN(seconds); i++)
        assert_string_equal(num_format_seconds(seconds[i].v, buf, sizeof buf), seconds[i].text);
    for (size_t i = 0; i < LEN(fine); i++)
        assert_string_equal(num_format_seconds_fine(fine[i].v, buf, sizeof buf), fine[i].text);
    for (size_t i = 0; i < LEN(counts); i++)
        assert_string_equal(num_format_count(counts[i].v, buf, sizeof buf), counts[i].text);
    assert_string_equal(num_format_bytes(1536, buf, 4), "1.5"); /* a short buffer cuts, and ends */
}

static void test_median(void **state)
{
    (void)state;
    double odd[] = {3, -1, 2}, even[] = {4, 1, 8, 2}, one[] = {7};
    assert_true(num_median(odd, 3) == 2 && num_median(even, 4) == 3 && num_median(one, 1) == 7);
    assert_true(odd[0] == -1 && odd[2] == 3);
}

/* Parts that are rounded add up to the rounded sum, though each alone would be rounded down. */
static void test_rounded_parts(void **state)
{
    const double parts[] = {1.4, 2.4, 0, 3.4, 1e15 + 0.25, -2.4};
    double sum = 0;
    int64_t rounded = 0;
    (void)state;
    for (size_t i = 0; i < LEN(parts); i++) {
        int64_t part = num_round_part(&sum, parts[i]);
        assert_true(fabs((double)part - parts[i]) <= 1);
        rounded += part;
    }
    assert_int_equal(rounded, llround(sum));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overflow), cmocka_unit_test(test_rounded_parts), cmocka_unit_test(test_parse),
        cmocka_unit_test(test_format), cmocka_unit_test(test_median),
    };
    return cmocka_run_group_tests_name("base_num", tests, NULL, NULL);
}
