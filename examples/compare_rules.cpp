// How often two frameworks' rules give another scale or code for the same numbers.
//
//   c++ -std=c++17 examples/compare_rules.cpp $(pkg-config --cflags --libs octet) -o compare_rules
//   && ./compare_rules
#include <cstdio>
#include <octet/octet.h>
#include <random>
#include <stdexcept>
#include <vector>

constexpr int rows = 256, cols = 512;

struct Blocks {
    std::vector<std::uint8_t> codes = std::vector<std::uint8_t>(rows * cols);
    std::vector<std::uint8_t> scales = std::vector<std::uint8_t>(rows * cols / OCT_MX_BLOCK);
};

static Blocks quantize(std::vector<float> &x, const char *rules) {
    Blocks blocks;
    oct_error err{};
    oct_quantizer q{};
    q.struct_size = sizeof q;
    if (oct_quantizer_preset("mxfp8", rules, OCT_USE_INPUT, 1, &q, &err))
        throw std::runtime_error(err.message);
    const oct_matrix source{sizeof source, OCT_F32, x.data(), rows, cols, cols, 1};
    oct_coded out{};
    out.struct_size = sizeof out;
    out.codes = blocks.codes.data();
    out.row_stride = cols;
    out.scales = blocks.scales.data();
    out.scale_row_stride = cols / OCT_MX_BLOCK;
    out.col_stride = out.scale_col_stride = 1;
    if (oct_matrix_quantize(&q, &source, &out, 0))
        throw std::runtime_error("refused");
    return blocks;
}

static int differences(const std::vector<std::uint8_t> &a, const std::vector<std::uint8_t> &b) {
    int n = 0;
    for (std::size_t i = 0; i < a.size(); i++)
        n += a[i] != b[i];
    return n;
}

int main() {
    std::mt19937 random(18);
    std::normal_distribution<float> normal;
    std::vector<float> x(rows * cols);
    for (float &value : x)
        value = normal(random);
    const Blocks npu = quantize(x, "torchtitan-npu"), mindspeed = quantize(x, "mindspeed");
    std::printf("torchtitan-npu and mindspeed: %d of %zu scales differ, %d of %zu codes\n",
                differences(npu.scales, mindspeed.scales), npu.scales.size(),
                differences(npu.codes, mindspeed.codes), npu.codes.size());
}
