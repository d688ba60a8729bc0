// ONNX tensors, and models as bytes: the smallest file by hand.
#include "bantam/models/onnx/onnx_model.h"

#include <string>

#include <gtest/gtest.h>

#include "bantam/base/error.h"

namespace bantam::onnx::onnx_model_test {
namespace {

using namespace std::string_literals;

template <class Function>
std::string error_of(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(OnnxTensor, KeepsValues) {
  const float floats[] = {1.5f, -2.0f};
  const std::int64_t integers[] = {7, -8};
  const Tensor a = Tensor::of("a", {2, 1}, floats), b = Tensor::of("b", {2}, integers);
  EXPECT_EQ(a.elements(), 2);
  EXPECT_EQ(a.data, "\x00\x00\xc0\x3f\x00\x00\x00\xc0"s);
  EXPECT_EQ(a.as_floats(), (std::vector<float>{1.5f, -2.0f}));
  EXPECT_EQ(b.as_integers(), (std::vector<std::int64_t>{7, -8}));
  EXPECT_EQ(Tensor{}.elements(), 1);
}

TEST(OnnxTensor, ConvertsTypes) {
  EXPECT_EQ((Tensor{"h", Type::float16, {2}, "\x00\x3e\x00\xc0"s}).as_floats(), (std::vector<float>{1.5f, -2.0f}));
  EXPECT_EQ((Tensor{"b", Type::bfloat16, {1}, "\xc0\x3f"s}).as_floats(), (std::vector<float>{1.5f}));
  EXPECT_EQ((Tensor{"d", Type::float64, {1}, "\x00\x00\x00\x00\x00\x00\xf8\x3f"s}).as_floats(),
            (std::vector<float>{1.5f}));
  EXPECT_EQ((Tensor{"i", Type::int32, {1}, "\xfe\xff\xff\xff"}).as_integers(), (std::vector<std::int64_t>{-2}));
  EXPECT_EQ((Tensor{"i", Type::int8, {1}, "\xfe"}).as_integers(), (std::vector<std::int64_t>{-2}));
  EXPECT_EQ((Tensor{"u", Type::uint8, {1}, "\xfe"}).as_integers(), (std::vector<std::int64_t>{254}));
}

TEST(OnnxTensor, RefusesWhatDoesNotFit) {
  const float one[] = {1.0f};
  EXPECT_EQ(error_of([&] { Tensor::of("a", {2}, one); }), "tensor 'a': 1 values, extents for 2");
  EXPECT_EQ(error_of([] {
              Tensor{"a", Type::float32, {2}, "\x01"}.as_floats();
            }),
            "tensor 'a': 1 bytes, expected 8 of 2 values");
  EXPECT_EQ(error_of([] {
              Tensor{"a", Type::int64, {0}, ""}.as_floats();
            }),
            "tensor 'a': expected floating-point numbers, got int64");
  EXPECT_EQ(error_of([] {
              Tensor{"a", Type::float16, {0}, ""}.as_integers();
            }),
            "tensor 'a': expected integers, got float16");
}

TEST(SerializeOnnx, WritesFieldsOfOnnxProto) {
  const Model model{.ir_version = 8,
                    .opset = 17,
                    .producer = "p",
                    .producer_version = "1",
                    .graph_name = "g",
                    .metadata = {{"k", "v"}},
                    .inputs = {{.name = "x", .dims = {-1, 3}, .names = {"N", ""}}},
                    .outputs = {{.name = "y", .type = Type::uint8, .dims = {}}},
                    .initializers = {{"w", Type::int8, {2}, "\x05\x06"}},
                    .nodes = {{.name = "n", .op = "Relu", .inputs = {"x", ""}, .outputs = {"y"}}}};
  const std::string opset = "\x0a\x00\x10\x11"s;
  const std::string node = "\x0a\x01x\x0a\x00\x12\x01y\x1a\x01n\x22\x04Relu"s;
  const std::string tensor = "\x0a\x01\x02\x10\x03\x42\x01w\x4a\x02\x05\x06"s;
  const std::string shape = "\x0a\x03\x12\x01N\x0a\x02\x08\x03"s;
  const std::string input = "\x0a\x01x\x12\x0f\x0a\x0d\x08\x01\x12\x09"s + shape;
  const std::string output = "\x0a\x01y\x12\x06\x0a\x04\x08\x02\x12\x00"s;
  const auto field = [](char key, const std::string& text) {
    return std::string(1, key) + static_cast<char>(text.size()) + text;
  };
  const std::string graph =
      field('\x0a', node) + "\x12\x01g"s + field('\x2a', tensor) + field('\x5a', input) + field('\x62', output);
  EXPECT_EQ(serialize(model), "\x08\x08\x12\x01p\x1a\x01"s + "1" + field('\x42', opset) +
                                  field('\x72', "\x0a\x01k\x12\x01v"s) + field('\x3a', graph));
}

TEST(SerializeOnnx, WritesEachKindOfAttribute) {
  const auto attribute_of = [](const Attribute& value) {
    Model model;
    model.nodes = {{.name = "", .op = "", .attributes = {{"a", value}}}};
    const std::string text = serialize(model);
    return text.substr(text.find("\x0a\x01"
                                 "a"s) +
                           3,
                       text.rfind("\x12\x00"s) -
                           text.find("\x0a\x01"
                                     "a"s) -
                           3);
  };
  EXPECT_EQ(attribute_of(1.5f), "\x15\x00\x00\xc0\x3f\xa0\x01\x01"s);
  EXPECT_EQ(attribute_of(std::int64_t{3}), "\x18\x03\xa0\x01\x02"s);
  EXPECT_EQ(attribute_of("ab"s),
            "\x22\x02"
            "ab\xa0\x01\x03"s);
  EXPECT_EQ(attribute_of(Tensor{"t", Type::int8, {}, "\x07"}), "\x2a\x08\x10\x03\x42\x01t\x4a\x01\x07\xa0\x01\x04"s);
  EXPECT_EQ(attribute_of(std::vector<float>{1.5f}), "\x3a\x04\x00\x00\xc0\x3f\xa0\x01\x06"s);
  EXPECT_EQ(attribute_of(std::vector<std::int64_t>{1, 2}), "\x42\x02\x01\x02\xa0\x01\x07"s);
  EXPECT_EQ(attribute_of(std::vector<std::string>{"a", "b"}),
            "\x4a\x01"
            "a\x4a\x01"
            "b\xa0\x01\x08"s);
}

TEST(SerializeOnnx, NamesOtherDomains) {
  Model model;
  model.nodes = {{.op = "A", .domain = "com.microsoft"}, {.op = "B", .domain = "com.microsoft"}};
  const std::string text = serialize(model), opset =
                                                 "\x42\x11\x0a\x0d"
                                                 "com.microsoft\x10\x01"s;
  EXPECT_NE(text.find(opset), std::string::npos);
  EXPECT_EQ(text.find(opset), text.rfind(opset));
}

}  // namespace
}  // namespace bantam::onnx::onnx_model_test
